from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import DataError, UsageError
from harness.schema import Doc, Passage, Rollout, Score, Verdict
from harness.scoring.process import RolloutText, doc_from_row, doc_to_row, process_results

DOC = Doc(
    "d1",
    "Who leads?",
    ("the conductor",),
    (Passage("p1", "The conductor leads.", 1.5, "plan.pdf", 1), Passage("x", "No page.")),
    cluster="p01",
    stratum=None,
    meta={"gold_page": 1, "supporting_pages": [1, 2], "名": "值"},
)
ROW = doc_to_row(DOC)
GOOD = "<answer>the conductor</answer><page>1</page>"


def carried(text: str, **fields: object) -> RolloutText:
    return RolloutText(text, Rollout("d1", 0, (), text, **fields))  # type: ignore[arg-type]


def test_a_doc_survives_the_way_through_a_row() -> None:
    assert doc_from_row(ROW) == DOC
    assert doc_from_row(doc_to_row(Doc("a", "q", ()))) == Doc("a", "q", ())


def test_a_doc_survives_the_way_through_a_dataset() -> None:
    datasets = pytest.importorskip("datasets")
    stored = datasets.Dataset.from_list([ROW, doc_to_row(Doc("a", "q", ("t",), meta={"x": 1}))])
    assert doc_from_row(stored[0]) == DOC


def test_passages_may_come_as_a_dict_of_lists() -> None:
    columns = {name: [p[name] for p in ROW["passages"]] for name in ROW["passages"][0]}
    assert doc_from_row(ROW | {"passages": columns}) == DOC


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"meta": "{"}, "meta"),
        ({"passages": [{"text": "no id"}]}, "passages"),
        ({"targets": None}, "targets"),
    ],
)
def test_a_malformed_row_is_named_with_its_column(change: dict[str, object], column: str) -> None:
    with pytest.raises(DataError, match=f"row 'd1': column '{column}'"):
        doc_from_row(ROW | change)


def test_a_carried_rollout_survives_pickle_and_copies() -> None:
    text = carried(GOOD, completion_tokens=12)
    for clone in (pickle.loads(pickle.dumps(text)), copy.copy(text), copy.deepcopy(text)):
        assert clone == GOOD
        assert isinstance(clone, RolloutText)
        assert clone.rollout == text.rollout


def test_a_plain_string_is_scored_without_token_metrics() -> None:
    process = process_results("rag")
    plain, rich = process(ROW, [GOOD]), process(ROW, [carried(GOOD, completion_tokens=12)])
    assert plain["joint_accuracy"] == 1
    assert rich == plain | {"output_tokens": 12}


@pytest.mark.parametrize("nest", [lambda r: r, lambda r: [r]])
def test_repeats_are_averaged_within_the_doc(nest: object) -> None:
    results = [carried(GOOD, completion_tokens=10), carried("no", completion_tokens=20), GOOD]
    metrics = process_results("rag")(ROW, nest(results))  # type: ignore[operator]
    assert metrics["answer_accuracy"] == pytest.approx(2 / 3)
    assert metrics["output_tokens"] == 15


def test_an_errored_rollout_counts_for_nothing() -> None:
    process = process_results("rag")
    failed = carried("", finish="error", error="connection reset")
    assert process(ROW, [failed]) == {}
    assert process(ROW, [[failed, carried(GOOD)]])["answer_accuracy"] == 1


def test_a_scorer_may_be_a_function_with_its_judge() -> None:
    def length(doc: Doc, rollout: Rollout, verdicts: object) -> Score:
        return Score({"length": float(len(rollout.answer)), "judged": float(bool(verdicts))})

    assert process_results(length)(ROW, ["abc"]) == {"length": 3, "judged": 0}
    judged = process_results(length, lambda doc, rollout: Verdict("j", {}))
    assert judged(ROW, ["abc"]) == {"length": 3, "judged": 1}


def test_an_unknown_scorer_is_an_error_at_the_first_call() -> None:
    process = process_results("rug")
    with pytest.raises(UsageError, match="did you mean rag"):
        process(ROW, [GOOD])


@given(st.recursive(st.text() | st.none() | st.integers(), st.lists, max_leaves=6))
def test_no_output_of_a_model_makes_it_raise(results: object) -> None:
    metrics = process_results("rag")(ROW, [results])
    assert all(0 <= value <= 1 for value in metrics.values())
