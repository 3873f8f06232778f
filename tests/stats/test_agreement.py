"""Kappa and differential error of judges, against oracles and small simulations."""

from __future__ import annotations

from dataclasses import replace
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.sim_judges import World, audited, flag_rate, flagged
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


@pytest.mark.parametrize(
    ("world", "least"),
    [
        (World(error=0.05), 0.88),
        (World(error=0.03, cluster=10), 0.88),
        (World(error=0.05, accuracies=(0.5,) * 4), 0.92),
        (World(error=0.08, docs=1000), 0.88),
    ],
    ids=str,
)
def test_10_points_of_leniency_are_flagged_at_150_labels_and_a_fair_judge_is_not(
    world: World, least: float
) -> None:
    assert flag_rate(150, world, 0.1) >= least
    assert flag_rate(150, world, 0.0) <= 0.08


@pytest.mark.parametrize(
    "world",
    [
        World(accuracies=(0.9, 0.3)),
        World(accuracies=(0.3, 0.5, 0.6, 0.8)),
        World(accuracies=(0.6, 0.4), errors="doc"),
        World(accuracies=(0.5,) * 4, cluster=10, errors="page"),
    ],
    ids=str,
)
def test_a_fair_judge_is_not_flagged_for_other_accuracies_or_errors_in_clumps(world: World) -> None:
    assert flag_rate(200, world, 0.0) <= 0.08


@pytest.mark.parametrize("world", [World(), World(docs=225, cluster=15, accuracies=(0.5,) * 4)])
def test_the_simulated_audit_is_the_one_that_boards_have(world: World) -> None:
    said, truth, probability = audited(np.random.default_rng(1), 40, world, 0.05)
    any_flag: list[bool] = []
    first_flag: list[bool] = []
    for words, true, chance in zip(said, truth, probability, strict=True):
        known = np.flatnonzero(chance)
        models = {
            str(m): Judged(
                words[m, known].tolist(), true[m, known].tolist(),
                (known // world.cluster).tolist(), (1 / chance[known]).tolist(),
            )
            for m in range(len(true))
        }  # fmt: skip
        flags = [(d.rate, d.model) for d in differential(models) if d.flagged]
        any_flag.append(bool(flags))
        first_flag.append(("specificity", "0") in flags)
    assert any_flag == flagged(said, truth, probability, world.cluster).tolist()
    assert first_flag == flagged(said, truth, probability, world.cluster, first=True).tolist()
    assert 0 < sum(first_flag) < len(first_flag)


def apart(errors: tuple[int, int], outputs: tuple[int, int]) -> dict[str, Judged]:
    """Two models whose wrong outputs are of different docs; on some the judge errs."""
    docs = iter(range(1000))
    return {
        name: Judged([i < k for i in range(n)], [False] * n, [next(docs) for _ in range(n)])
        for name, k, n in zip("AB", errors, outputs, strict=True)
    }


@pytest.mark.parametrize(
    ("errors", "outputs"), [((3, 14), (80, 80)), ((2, 9), (40, 60)), ((12, 6), (50, 90))]
)
def test_on_unpaired_docs_it_is_the_mid_p_of_fisher(
    errors: tuple[int, int], outputs: tuple[int, int]
) -> None:
    total, (n, m) = sum(errors), outputs
    chance = [comb(n, x) * comb(m, total - x) / comb(n + m, total) for x in range(total + 1)]
    here = errors[0]
    tail = min(sum(chance[:here]), sum(chance[here + 1 :])) + chance[here] / 2
    found = differential(apart(errors, outputs))
    assert [d.rate for d in found] == ["specificity"] * 2
    assert found[0].p_value == pytest.approx(2 * tail, rel=0.35)
    assert found[0].p_adjusted == found[0].p_value, "the judge has no errors of the other kind"


def test_a_judge_that_accepts_all_of_one_model_and_nothing_of_the_other_is_flagged() -> None:
    found = {"A": judged(0, 20, 0, 0), "B": judged(0, 0, 0, 20)}
    assert [d.flagged for d in differential(found)] == [True, True]
    assert not any(d.flagged for d in differential({"A": found["A"], "B": found["A"]}))


def test_errors_on_the_same_docs_cancel_and_errors_on_one_page_count_as_few() -> None:
    def found(ours: range, theirs: range, page: int = 1) -> bool:
        """Of 100 wrong outputs of each model the judge calls these right."""
        models = {
            name: Judged([i in docs for i in range(100)], [False] * 100, pages)
            for name, docs in (("A", ours), ("B", theirs))
            for pages in ([i // page for i in range(100)],)
        }
        return any(d.flagged for d in differential(models))

    assert found(range(10), range(20))
    assert not found(range(10), range(50, 70))
    few, spread, three_pages = range(0, 100, 20), range(1, 100, 4), range(70, 95)
    assert found(few, spread, page=10)
    assert not found(few, three_pages, page=10)
    assert found(few, three_pages), "as many errors on docs of their own"


def test_weights_undo_what_was_drawn_more_often_and_their_scale_is_nothing() -> None:
    fair, favoured = judged(48, 5, 2, 45), judged(48, 15, 2, 35)
    plain = differential({"A": fair, "B": favoured})
    equal = [replace(m, weights=[7.0] * m_n) for m, m_n in ((fair, 100), (favoured, 100))]
    for one, two in zip(plain, differential(dict(zip("AB", equal, strict=True))), strict=True):
        assert (one.rate, one.model) == (two.rate, two.model)
        assert two.p_adjusted == pytest.approx(one.p_adjusted)
    # Of what the judge calls right, three times as many were drawn.
    thrice = judged(48 * 3, 15 * 3, 2, 35)
    weights = [1 / 3] * (48 * 3 + 15 * 3) + [1.0] * 37
    (found,) = (
        d
        for d in differential({"A": fair, "B": replace(thrice, weights=weights)})
        if (d.rate, d.model) == ("specificity", "B")
    )
    assert found.value == pytest.approx(0.7)


@given(
    st.lists(
        st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 12)), max_size=40),
        min_size=2,
        max_size=4,
    )
)
def test_every_p_value_is_one_and_the_order_of_models_is_nothing(
    rows: list[list[tuple[bool, bool, int]]],
) -> None:
    models = {
        name: Judged(*([row[i] for row in rows[place]] for i in range(3)))  # type: ignore[arg-type]
        for place, name in enumerate("ABCD"[: len(rows)])
    }
    found = differential(models)
    assert all(0 <= d.p_value <= d.p_adjusted <= 1 for d in found)
    assert all(0 <= d.value <= 1 and 0 <= d.others <= 1 + 1e-9 for d in found)
    again = differential(dict(reversed(models.items())))
    assert {(d.rate, d.model): d.p_adjusted for d in again} == pytest.approx(
        {(d.rate, d.model): d.p_adjusted for d in found}, abs=1e-6
    )


def test_bootstrap_and_test_are_the_same_every_time() -> None:
    found = judged(30, 4, 3, 40)
    assert agreement(found) == agreement(found)
    assert differential({"A": found, "B": judged(20, 5, 5, 20)}) == differential(
        {"A": found, "B": judged(20, 5, 5, 20)}
    )
    with pytest.raises(ValueError, match="reference"):
        agreement(Judged([True], [True, False], [0]))
    assert np.isfinite(agreement(found).bias)
