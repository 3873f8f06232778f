"""Macro and micro: the mean over subjects beside the mean over docs, on boards and in gates."""

import random

import pytest

from harness.compare import compare
from harness.gates import Gates
from harness.records import DocSamples, RecordSet, Sample, doc_metric
from harness.report.markdown import board
from harness.report.summary import summarise
from harness.stats.gate import GateRule
from harness.stats.paired import paired
from harness.stats.power import macro_size

SIZES = {f"subject {k:02d}": 5 + 3 * k for k in range(45)}


def records(name, right, strata=True):
    """A record set in which `right(subject, i)` says whether doc i of a subject is right."""
    docs = tuple(
        DocSamples(
            f"{subject}-{i}",
            None,
            subject if strata else None,
            "p",
            (Sample(0, "A", "stop", {"accuracy": float(right(subject, i))}, (), 1),),
        )
        for subject, size in SIZES.items()
        for i in range(size)
    )
    info = {
        "fingerprints": dict.fromkeys(("version", "dataset", "prompt", "scorer"), "same"),
        "metric": "accuracy",
        "columns": ["accuracy", "macro_accuracy", "accuracy_norm"],
        "board": "t",
    }
    return RecordSet(name, "t", f"run-{name}", info, docs, len(docs), len(docs), 1)


def small_subjects_only(subject, i):
    """All right in the 15 smallest subjects, nothing in the others."""
    return SIZES[subject] < 5 + 3 * 15


def test_macro_counts_subjects_and_micro_counts_docs():
    estimates = summarise(records("a", small_subjects_only)).estimates
    right = sum(size for size in SIZES.values() if size < 50)
    assert estimates["accuracy"].mean == pytest.approx(right / sum(SIZES.values()))
    assert estimates["macro_accuracy"].mean == pytest.approx(15 / 45)
    assert estimates["macro_accuracy"].low is not None


def test_macro_s_error_is_that_of_a_mean_of_independent_subjects():
    draw = random.Random(0)
    sets = records("a", lambda subject, i: draw.random() < 0.6)
    got = summarise(sets).estimates["macro_accuracy"]
    variance = 0.0
    for subject, size in SIZES.items():
        values = [d.mean("accuracy") for d in sets.docs if d.stratum == subject]
        mean = sum(values) / size
        variance += mean * (1 - mean) / (size - 1) / 45**2
    assert got.se == pytest.approx(variance**0.5)


def test_without_subjects_there_is_no_macro():
    assert "macro_accuracy" not in summarise(records("a", lambda s, i: 1, strata=False)).estimates


def test_the_board_shows_both_with_intervals_and_leaves_empty_columns_out():
    text = board("t", [records("a", small_subjects_only)], lambda *_: {})
    assert "| accuracy " in text
    assert "macro_accuracy" in text
    assert "accuracy_norm" not in text
    row = next(line for line in text.splitlines() if line.startswith("| a"))
    assert row.count("[") == 2


def gate(metric, candidate, baseline, margin=0.02):
    rule = GateRule(metric=metric, margin=margin)
    gates = Gates("pr", (("t", rule),), rule, "parent")
    (line,) = compare({"t": candidate}, {"t": baseline}, gates).lines
    return line.comparison


def test_a_gate_on_macro_sees_a_loss_that_micro_hides():
    draw = random.Random(1)
    known = {}

    def before(subject, i):
        return known.setdefault((subject, i), draw.random() < 0.7)

    def after(subject, i):  # the ten smallest subjects are forgotten: 185 of 3,195 docs
        return before(subject, i) and SIZES[subject] >= 35

    old, new = records("old", before), records("new", after)
    micro, macro = gate("accuracy", new, old, 0.05), gate("macro_accuracy", new, old, 0.05)
    assert macro.delta < 3 * micro.delta < 0
    assert micro.verdict != "regressed"
    assert macro.verdict == "regressed"
    by_hand = [
        sum(after(s, i) - before(s, i) for i in range(size)) / size for s, size in SIZES.items()
    ]
    assert macro.delta == pytest.approx(sum(by_hand) / 45)


def test_macro_needs_a_larger_drop_as_its_small_subjects_weigh_more():
    same = records("a", small_subjects_only)
    micro, macro = gate("accuracy", same, same, 0.0), gate("macro_accuracy", same, same, 0.0)
    assert micro.mde < macro.mde < 2 * micro.mde


def test_a_gate_on_macro_without_subjects_says_so():
    old = records("old", lambda s, i: 1, strata=False)
    made = gate("macro_accuracy", old, old)
    assert made.verdict == "incomplete"
    assert "mean over strata" in made.note


def test_equal_subjects_make_macro_the_stratified_micro():
    draw = random.Random(2)
    base, cand = ([float(draw.random() < 0.5) for _ in range(400)] for _ in range(2))
    strata = [i % 8 for i in range(400)]
    macro, micro = (paired(base, cand, None, strata, macro=m) for m in (True, False))
    assert macro.delta == pytest.approx(micro.delta)
    assert (macro.low, macro.high) == pytest.approx((micro.low, micro.high))
    with pytest.raises(ValueError, match="strata"):
        paired(base, cand, macro=True)


def test_unequal_subjects_weigh_like_fewer_docs():
    assert macro_size([i % 8 for i in range(400)]) == 400
    assert macro_size(["a"] * 98 + ["b"] * 2) == 7


def test_a_macro_name_points_to_the_doc_metric():
    assert doc_metric("macro_accuracy") == ("accuracy", True)
    assert doc_metric("accuracy") == ("accuracy", False)
