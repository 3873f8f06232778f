"""Retrieval and reading apart, from records alone."""

from dataclasses import replace

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from harness.records import DocSamples, RecordSet, Sample
from harness.report.markdown import board
from harness.report.reading import GOLD, given


def records(docs, retriever="bm25", weights="w", name="m"):
    """`docs`: (gold page retrieved, right) of each; a cluster every third doc."""
    made = tuple(
        DocSamples(
            f"d{i}", f"p{i // 3}", None, "sha",
            (Sample(0, "x", "stop", {"joint_accuracy": float(right), GOLD: float(gold)}, (), 5),),
        )
        for i, (gold, right) in enumerate(docs)
    )  # fmt: skip
    info = {
        "fingerprints": {"weights": weights, "retriever": retriever}, "policy": "single_turn",
        "board": "b", "metric": "joint_accuracy", "columns": ["joint_accuracy"],
        "context_columns": [GOLD], "retriever": retriever,
    }  # fmt: skip
    return RecordSet(name, "t", f"run-{retriever}", info, made, len(made), len(made), 1)


DOCS = [(True, True)] * 12 + [(True, False)] * 12 + [(False, True)] * 3 + [(False, False)] * 9


def test_accuracy_given_the_gold_page_counts_only_docs_that_have_it():
    found, missed = (given(records(DOCS), "joint_accuracy", gold=g) for g in (True, False))
    assert (found.n, found.mean, found.clusters) == (24, 0.5, 8)
    assert (missed.n, missed.mean) == (12, 0.25)
    assert found.low < 0.5 < found.high
    assert missed.low is None  # four clusters are too few


@forall(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_the_two_parts_add_up_to_the_whole(docs):
    parts = [given(records(docs), "joint_accuracy", gold=g) for g in (True, False)]
    right = sum(e.mean * e.n for e in parts if e)
    assert right == pytest.approx(sum(r for _, r in docs))
    assert sum(e.n for e in parts if e) == len(docs)


def shown(*sets):
    text = board("b", sets, lambda *_: {})
    if "Retrieval and reading apart" not in text:
        return None
    lines = text.partition("Retrieval and reading apart")[2].splitlines()
    return next(line for line in lines if line.startswith("| m "))


def test_the_board_sets_it_beside_oracle_pages_and_none_of_the_same_model():
    best = records([(True, i < 27) for i in range(36)], "oracle")
    worst = records([(False, i < 6) for i in range(36)], "none")
    line = shown(records(DOCS), best, worst)
    assert ".500 [" in line
    assert ".750 [" in line
    assert ".167 [" in line
    assert shown(best, worst) is None  # they say nothing of a retriever


def test_runs_of_other_weights_or_samples_of_the_docs_are_no_ends():
    other = records([(True, True)] * 36, "oracle", weights="other")
    part = replace(records([(True, True)] * 36, "oracle"), selected=10)
    for odd in (other, part):
        assert "1.000" not in shown(records(DOCS), odd)
