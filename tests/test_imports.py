"""The dependency rule, read from the imports."""

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT

BASE = {"schema", "errors", "http", "codec", "paths", "data", "dialects", "jsonl", "batcher"}
"""What everything may import."""

ALLOWED = {
    "schema": set(),
    "errors": set(),
    "paths": set(),
    "http": {"errors"},
    "codec": {"schema"},
    "data": {"errors", "paths"},
    "leaks": BASE,
    "dialects": {"schema"},
    "jsonl": {"errors"},
    "batcher": set(),
    "engines": BASE,
    "retrieval": BASE | {"progress"},
    "scoring": BASE,
    "stats": BASE,
    "rollouts": BASE | {"scoring", "retrieval", "engines"},
    "stored": BASE,
    "store": BASE | {"stored"},
    "records": BASE | {"store", "leaks"},
    "audit": BASE | {"store"},
    "report": BASE | {"store", "records", "stats", "leaks"},
    "catalog": BASE,
    "models": BASE,
    "gates": BASE | {"models", "stats"},
    "compare": BASE | {"gates", "records", "stats"},
    "annotating": BASE | {"engines", "rollouts", "progress"},
    "budget": BASE | {"records", "scoring"},
    "forecast": BASE | {"records", "stats", "stored"},
    "differences": BASE | {"records"},
    "difficulty": BASE | {"store"},
    "runs": BASE | {"records", "store"},
    "progress": BASE,
    "environment": BASE,
    "rescore": BASE | {"store", "scoring", "catalog", "environment", "runs", "records"},
    "predictions": BASE,
    "task_loader": BASE | {"catalog"},
    "judges": BASE | {"engines", "models", "scoring"},
    "judging": BASE | {"scoring", "rollouts", "store", "rescore"},
    "task_plan": BASE | {"scoring", "rollouts", "rescore"},
    "lm": BASE
    | {"store", "scoring", "rollouts", "progress", "rescore", "leaks", "judging", "task_plan"},
    "building": BASE | {"engines", "retrieval", "scoring", "progress"},
    "live": BASE | {"retrieval", "task_loader", "runs"},
}
ONLY_IN = {
    "lm_eval": {"harness/task_loader.py", "harness/lm.py", "harness/evaluate.py"},
    "vllm": {"harness/engines/vllm.py"},
    "openai": {"harness/engines/openai.py"},
    "torch": {
        "harness/engines/hf.py",
        "harness/engines/hf_batch.py",
        "harness/engines/hf_score.py",
        "harness/engines/weights.py",
        "trainers/cpu.py",
        "trainers/trl_adapter.py",
        "trainers/trl_turns.py",
    },
    "pypdfium2": {"harness/building/documents.py"},
    "matplotlib": {"harness/report/figures.py"},
    "faiss": {"harness/retrieval/dense.py"},
    "math_verify": {"harness/scoring/equality.py"},
    "trl": {"trainers/trl_adapter.py", "trainers/trl_turns.py"},
    "verl": {"trainers/verl.py"},
    "ray": {"trainers/ray.py"},
}
FILES = sorted(p for top in ("harness", "tasks", "trainers") for p in (ROOT / top).rglob("*.py"))


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def part(name: str) -> str:
    return name.split(".")[1] if name.startswith("harness.") else ""


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_what_its_layer_may(path):
    relative = path.relative_to(ROOT)
    if relative.parts[0] == "harness":
        mine = relative.parts[1].removesuffix(".py")
        if mine not in ALLOWED:
            return
        allowed = ALLOWED[mine] | {mine, ""}
    elif relative.parts[0] == "tasks":
        allowed = BASE | {"scoring", "retrieval", ""}
    else:
        allowed = BASE | {"scoring", "rollouts", "retrieval", "engines", "models", "task_loader",
                          "catalog", "leaks", "progress", ""}  # fmt: skip
    known = set(ALLOWED) | {"evaluate", "commands", "cli", "listings"}
    wrong = {n for n in imports(path) if part(n) in known and part(n) not in allowed}
    assert not wrong, f"{relative} imports {sorted(wrong)}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_packages_are_imported_only_where_they_belong(path):
    relative = str(path.relative_to(ROOT))
    names = {n.split(".")[0] for n in imports(path)}
    wrong = {n for n, places in ONLY_IN.items() if n in names and relative not in places}
    assert not wrong, f"{relative} imports {sorted(wrong)}"


def test_the_schema_needs_the_standard_library_alone():
    import sys

    tops = {n.split(".")[0] for n in imports(ROOT / "harness" / "schema.py")}
    assert tops <= set(sys.stdlib_module_names) | {"__future__"}
