"""The shipped model cards agree with the tasks and with each other."""

import pytest

from harness import paths
from harness.catalog import catalog, expand
from harness.cli import main
from harness.models import load_model, model_names

CARDS = {name: load_model(name, paths.BASELINES) for name in model_names(paths.BASELINES)}


def ancestors(name):
    seen = []
    while name:
        assert name not in seen, f"{name} descends from itself"
        seen.append(name)
        name = CARDS[name].parent
    return seen[1:]


def test_every_parent_has_a_card_and_no_checkpoint_descends_from_itself():
    assert ancestors("Qwen3-8B-SFT-RL") == ["Qwen3-8B-SFT", "Qwen3-8B"]
    assert ancestors("Smoothie-Qwen3-14B-SFT-RL")[-1] == "Qwen3-14B"
    for name in CARDS:
        ancestors(name)


def test_every_task_on_a_card_exists():
    entries = catalog(paths.TASKS)
    for model in CARDS.values():
        expand(model.tasks, entries)


@pytest.mark.parametrize("field", ["sampling", "chat_template", "think_tags", "context_length"])
def test_a_checkpoint_holds_what_its_parent_holds_so_that_they_compare(field):
    for model in CARDS.values():
        if model.parent:
            assert getattr(model, field) == getattr(CARDS[model.parent], field), model.name


def test_a_checkpoint_without_published_weights_says_how_to_give_them(capsys, tmp_path):
    for name in ("Qwen3-8B-Zero", "Qwen3-8B-SFT", "Qwen3-8B-SFT-RL"):
        assert main(["eval", f"model={name}", f"out={tmp_path}"]) == 2
        said = capsys.readouterr().err.strip()
        assert "\n" not in said
        assert name in said
        assert "path=" in said
