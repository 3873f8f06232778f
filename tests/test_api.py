"""The Python API: light to import, and the README's example runs as it stands."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT

NAMES = ("compare", "evaluate", "load_model", "load_run", "rescore")


def python(code):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importing_the_package_loads_nothing_else():
    heavy = python("import harness, sys; print(*[m for m in sys.modules if 'harness.' in m])")
    assert heavy == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "first", ["", "import harness.commands, harness.evaluate, harness.rescore"]
)
def test_a_name_is_the_function_whatever_was_imported_before(name, first):
    kind = python(f"{first}\nfrom harness import {name} as f\nprint(type(f).__name__)")
    assert kind == ["function"]


def test_an_unknown_name_is_an_import_error():
    with pytest.raises(ImportError):
        from harness import nothing  # noqa: F401  # pyright: ignore


def test_the_example_of_the_readme_runs(tmp_path):
    text = (ROOT / "README.md").read_text("utf-8")
    (code,) = [b.partition("```")[0] for b in text.split("```python\n")[1:]]
    here = f"from harness import paths\npaths.RUNS = paths.Path({str(tmp_path)!r})\n"
    lines = python(here + code)
    assert lines[1] == "True"
    assert lines[2] == "32"
    assert lines[4] == "0", "rescored by the same scorer: nothing changes"
    assert "'identical'" in " ".join(lines[5:])
