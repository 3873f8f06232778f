from harness.paths import TASKS
from trainers.data import examples
from trainers.recipe import load_recipe
from trainers.testsets import check, load_test_sets


def test_tasks_that_ask_the_same_stand_once_and_the_demo_is_clean(tmp_path):
    sets = load_test_sets(str(tmp_path), TASKS / "railway_demo")
    assert set(sets.same) == {f"railway_demo_top{k}" for k in (1, 3, 5)}
    assert len(sets.items) == 100 and len(set(sets.same.values())) == 1
    found = check(examples(load_recipe("railway_demo_zero")), sets)
    assert sets.flagged(found) == {} and sets.share("railway_demo_top3", found) == 0.0


def test_tasks_without_data_are_named_absent(tmp_path):
    sets = load_test_sets(str(tmp_path), TASKS / "railway_rag")
    assert sets.items == () and "railway_rag_top5" in sets.absent


def test_a_task_whose_data_are_the_users_is_absent_and_stops_nothing(tmp_path):
    sets = load_test_sets(str(tmp_path), TASKS / "multihop_qa")
    assert "qa_jsonl" in sets.absent and "hotpotqa" in sets.absent
