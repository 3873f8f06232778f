"""lm-eval's extension points, as they are relied on; the version is pinned for that reason."""

import json

import pytest

from harness import cli, paths
from harness.catalog import catalog
from harness.lm import mark_leaks
from harness.schema import Doc, Message
from harness.store import Store, StoredDoc
from tests.test_evaluate import run


@pytest.fixture(scope="module")
def manager():
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=[str(paths.TASKS)], include_defaults=False)


def test_stock_lm_eval_lists_every_task_and_group(manager):
    assert set(catalog(paths.TASKS)) <= set(manager.all_tasks)


def test_stock_lm_eval_reads_the_passages_that_our_own_run_reads(manager, tmp_path):
    for k in (1, 3, 5):
        name = f"railway_demo_top{k}"
        task = manager.load([name])["tasks"][name]
        stock = {row["id"]: [p["doc_id"] for p in row["passages"]] for row in task.test_docs()}
        result, _ = run(tmp_path, tasks=(name,))
        with Store.open(result.run) as store:
            ours = {d.doc.id: [p.doc_id for p in d.doc.passages] for d in store.docs(name)}
        assert ours == stock


def test_stock_lm_eval_runs_and_scores_the_demo_with_its_dummy_model(manager):
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.dummy import DummyLM

    done = simple_evaluate(
        model=DummyLM(),
        model_args={"pretrained": "dummy"},
        tasks=["railway_demo_top1"],
        task_manager=manager,
        limit=3,
        bootstrap_iters=0,
    )
    scores = done["results"]["railway_demo_top1"]
    assert scores["format_accuracy,none"] == 0.0
    assert "output_tokens,none" not in scores


def test_a_crash_is_exit_code_1_and_leaves_no_stale_pass(tmp_path, monkeypatch):
    from harness import commands

    def broken(args):
        raise ZeroDivisionError

    monkeypatch.setattr(commands, "compare_command", broken)
    with pytest.raises(ZeroDivisionError):
        cli.main(["compare", f"out={tmp_path}"])
    assert json.loads((tmp_path / "gate.json").read_text("utf-8"))["exit_code"] == 1


def test_a_few_shot_that_is_a_test_item_is_marked_whatever_the_task():
    asked = ["Who opens the door?", "When does the train leave?"]
    shots = (Message("user", asked[0]), Message("assistant", "the guard"))
    docs = {
        f"d{i}": StoredDoc(Doc(f"d{i}", q, ("x",)), i, (*shots, Message("user", q)), "s", "r")
        for i, q in enumerate(asked)
    }
    marked = mark_leaks(docs)
    assert {k: d.doc.meta for k, d in marked.items()} == {"d0": {"in_prompt": True}}
