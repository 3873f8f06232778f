import dataclasses
import json
import subprocess
import sys

import pytest

from harness import cli
from harness.errors import UsageError
from tests.conftest import ROOT


def run(capsys, *arguments):
    code = cli.main(list(arguments))
    out = capsys.readouterr()
    return code, out.out, out.err


def test_help_names_every_verb_and_exit_code(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for verb in cli.VERBS:
        assert f"  {verb}" in out
    for number in ("0", "1", "2", "3", "10", "11", "12", "13"):
        assert f" {number} " in out


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_explains_its_keys(capsys, verb):
    code, out, _ = run(capsys, verb, "--help")
    assert code == 0
    for key in dataclasses.fields(cli.VERBS[verb].args):
        assert f"  {key.name.rstrip('_')}=" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["evl"], "did you mean eval"),
        (["eval", "modle=x"], "did you mean model"),
        (["eval", "limit"], "not key=value"),
        (["eval", "limit=many"], "'limit'"),
        (["eval", "limit=0"], "must be 1 or more"),
        (["eval", "model=extractiv"], "did you mean extractive"),
        (["eval", "model=extractive", "tasks=railway"], "did you mean railway_demo"),
        (["eval", "model=extractive", "vary=wieghts"], "did you mean weights"),
        (["eval", "model=extractive", "vary=dataset"], "never comparable"),
        (["eval", "model=extractive", "profile=strict"], "profile"),
        (["eval", "model=extractive", "policy=exract"], "unknown policy"),
        (["compare", "model=extractive"], "needs model= and baseline="),
        (["freeze", "run=x"], "needs run= and as="),
        (["check", "run=nothing"], "no run 'nothing'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(capsys, tmp_path, arguments, says):
    code, _, err = run(capsys, *arguments, *([f"out={tmp_path}"] if len(arguments) > 1 else []))
    assert code == 2
    assert says in err
    assert err.count("\n") == 1


def test_a_failed_eval_leaves_no_stale_pass_behind(capsys, tmp_path):
    (tmp_path / "gate.json").write_text('{"exit_code": 0}', encoding="utf-8")
    run(capsys, "eval", "model=nothing", f"out={tmp_path}")
    body = json.loads((tmp_path / "gate.json").read_text("utf-8"))
    assert body["exit_code"] == 2
    assert "nothing" in body["error"]


def test_text_values_stay_what_they_are():
    args = cli.parse("check", ["run=12e4567890"])
    assert args.run == "12e4567890"


def test_options_of_a_policy_are_numbers_where_they_read_as_such():
    args = cli.parse("eval", ["policy_options.drop_every=3", "policy_options.mode=page"])
    assert args.policy_options == {"drop_every": 3, "mode": "page"}


def test_hostile_names_cannot_write_to_the_terminal():
    assert "\x1b" not in cli.one_line("a\x1b[2Jb\r\n c")


def test_help_and_listings_import_nothing_heavy():
    code = (
        "import sys; from harness.cli import main\n"
        "main(['--help']); main(['tasks']); main(['models']); main(['retrievers'])\n"
        "heavy = {'torch', 'lm_eval', 'numpy', 'scipy', 'datasets', 'transformers', 'faiss'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_unknown_verb_is_refused_by_parse():
    with pytest.raises(UsageError):
        cli.parse("nope", [])
