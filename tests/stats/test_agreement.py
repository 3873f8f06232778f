"""Kappa and differential error of judges, against oracles and small simulations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.sim_judges import flag_rate
from harness.stats.agreement import Judged, agreement, differential


def judged(both: int, judge_only: int, reference_only: int, neither: int) -> Judged:
    cells = [(1, 1)] * both + [(1, 0)] * judge_only + [(0, 1)] * reference_only + [(0, 0)] * neither
    return Judged([bool(j) for j, _ in cells], [bool(r) for _, r in cells], list(range(len(cells))))


def test_kappa_is_the_textbooks() -> None:
    found = agreement(judged(20, 5, 10, 15))  # Cohen's coefficient: (.7 - .5) / (1 - .5)
    assert found.kappa == pytest.approx(0.4)
    assert (found.both, found.judge_only, found.reference_only, found.neither) == (20, 5, 10, 15)
    assert found.sensitivity is not None and found.specificity is not None
    assert found.sensitivity.mean == pytest.approx(20 / 30)
    assert found.specificity.mean == pytest.approx(15 / 20)
    assert found.bias == pytest.approx(-0.1)
    assert found.low is not None and found.high is not None
    assert 0.1 < found.low < 0.4 < found.high < 0.7


def test_the_interval_of_kappa_is_close_to_the_asymptotic_one_where_that_holds() -> None:
    found = agreement(judged(200, 50, 100, 150))
    se = (0.7 * 0.3 / (500 * 0.5**2)) ** 0.5
    assert found.low == pytest.approx(0.4 - 1.96 * se, abs=0.015)
    assert found.high == pytest.approx(0.4 + 1.96 * se, abs=0.015)


def test_docs_that_share_a_page_give_a_wider_interval() -> None:
    alone = judged(100, 25, 25, 100)
    pages = Judged(alone.judge, alone.reference, [i // 10 for i in range(250)])
    narrow, wide = agreement(alone), agreement(pages)
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)  # type: ignore[operator]


def test_one_label_only_leaves_kappa_undefined_and_few_clusters_no_interval() -> None:
    assert agreement(judged(30, 0, 0, 0)).kappa is None
    assert agreement(judged(30, 0, 0, 0)).specificity is None
    few = agreement(judged(2, 1, 1, 2))
    assert few.kappa is not None
    assert few.low is None
    assert "too few clusters" in few.note


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 20)), min_size=1))
def test_agreement_is_total_and_symmetric_in_kappa(rows: list[tuple[bool, bool, int]]) -> None:
    judge, reference, clusters = (list(part) for part in zip(*rows, strict=True))
    found = agreement(Judged(judge, reference, clusters), replicates=50)
    other = agreement(Judged(reference, judge, clusters), replicates=50)
    assert found.n == len(rows)
    assert found.kappa is None or found.kappa == pytest.approx(other.kappa)
    assert found.kappa is None or -1 <= found.kappa <= 1
    assert found.bias == pytest.approx(-other.bias)


def test_a_lenient_judge_is_named_with_the_model_that_it_favours() -> None:
    fair = judged(48, 1, 2, 49)
    favoured = judged(48, 20, 2, 30)
    found = differential({"A": fair, "B": favoured, "C": fair})
    worst = found[0]
    assert (worst.rate, worst.model, worst.flagged, worst.lenient) == (
        "specificity",
        "B",
        True,
        True,
    )
    assert worst.value == pytest.approx(0.6)
    assert not any(d.flagged for d in found if d.rate == "sensitivity")
    two = [d for d in differential({"A": fair, "B": judged(30, 1, 20, 49)}) if d.flagged]
    assert [(d.rate, d.model, d.lenient) for d in two] == [
        ("sensitivity", "A", True), ("sensitivity", "B", False),
    ], "of two models nobody can say which one it is"  # fmt: skip


def test_judges_that_err_alike_are_not_flagged_and_one_model_is_never() -> None:
    same = judged(40, 10, 10, 40)
    assert not any(d.flagged for d in differential({"A": same, "B": same}))
    assert differential({"A": same}) == ()
    assert differential({"A": judged(9, 0, 0, 0), "B": judged(9, 0, 0, 0)}) == differential(
        {"A": judged(9, 0, 0, 0), "B": judged(9, 0, 0, 0)}
    )


def test_10_points_of_leniency_are_flagged_at_150_labels_and_a_fair_judge_is_not() -> None:
    world = (150, 1, (0.5, 0.5), 0.03)
    assert flag_rate(60, *world, 0.1) >= 0.9
    assert flag_rate(60, *world, 0.0) <= 0.1


def test_bootstrap_and_test_are_the_same_every_time() -> None:
    found = judged(30, 4, 3, 40)
    assert agreement(found) == agreement(found)
    assert differential({"A": found, "B": judged(20, 5, 5, 20)}) == differential(
        {"A": found, "B": judged(20, 5, 5, 20)}
    )
    with pytest.raises(ValueError, match="reference"):
        agreement(Judged([True], [True, False], [0]))
    assert np.isfinite(agreement(found).bias)
