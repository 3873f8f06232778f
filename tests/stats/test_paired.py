"""Candidate against baseline."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import ttest_1samp

from harness.stats.counts import mcnemar, sign_flip, tango, tango_score
from harness.stats.paired import macro_paired, paired, paired_variance_parts

binary_pairs = st.lists(st.sampled_from([(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)]),
                        min_size=1, max_size=60)  # fmt: skip
PAGES = [i // 15 for i in range(225)]


def changed(lost: int, gained: int, n: int) -> tuple[list[float], list[float]]:
    """Score lists with so many docs lost and gained, the rest right on both sides."""
    same = [1.0] * (n - lost - gained)
    return [1.0] * lost + [0.0] * gained + same, [0.0] * lost + [1.0] * gained + same


@pytest.mark.parametrize(
    ("lost", "gained", "p"),
    [(5, 1, 0.21875), (10, 3, 0.09228515625), (12, 7, 0.359283447265625), (0, 6, 0.03125)],
)
def test_exact_mcnemar_agrees_with_statsmodels(lost: int, gained: int, p: float) -> None:
    assert mcnemar(lost, gained)[0] == pytest.approx(p)
    assert mcnemar(gained, lost)[0] == pytest.approx(p)


def test_the_one_sided_tails_overlap_in_the_observed_count() -> None:
    for lost, gained in itertools.product(range(8), range(8)):
        tie = math.comb(lost + gained, lost) / 2 ** (lost + gained)
        assert mcnemar(lost, gained)[1] + mcnemar(gained, lost)[1] == pytest.approx(1 + tie)


def numeric_score(lost: int, gained: int, n: int, delta: float) -> float:
    """Tango's statistic with the likelihood maximised numerically."""

    def loss(q: float) -> float:
        same = n - lost - gained
        terms = [(gained, q + delta), (lost, q), (same, 1 - 2 * q - delta)]
        return -sum(k * math.log(max(x, 1e-300)) for k, x in terms if k)

    bounds = max(0.0, -delta) + 1e-12, (1 - delta) / 2 - 1e-12
    q = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-13}).x
    return (gained - lost - n * delta) / math.sqrt(n * (2 * q + delta - delta**2))


@pytest.mark.parametrize(
    ("lost", "gained", "n"), [(3, 1, 30), (5, 0, 20), (12, 7, 125), (9, 9, 40)]
)
def test_tango_agrees_with_a_numeric_maximum_likelihood(lost: int, gained: int, n: int) -> None:
    z, delta = 1.959963984540054, (gained - lost) / n
    low = brentq(lambda d: numeric_score(lost, gained, n, d) - z, -1 + 1e-6, delta - 1e-6)
    high = brentq(lambda d: numeric_score(lost, gained, n, d) + z, delta + 1e-6, 1 - 1e-6)
    assert tango(lost, gained, n) == pytest.approx((low, high), abs=1e-5)


def test_tango_at_no_discordance_is_as_wide_as_wilson_at_0() -> None:
    half = 1.959963984540054**2 / (30 + 1.959963984540054**2)
    assert tango(0, 0, 30) == pytest.approx((-half, half))


@given(data=st.data(), n=st.integers(1, 300))
def test_tango_holds_the_difference_mirrors_and_moves_with_it(data: st.DataObject, n: int) -> None:
    lost = data.draw(st.integers(0, n))
    gained = data.draw(st.integers(0, n - lost))
    low, high = tango(lost, gained, n)
    assert -1 <= low <= (gained - lost) / n <= high <= 1 and low < high
    assert tango(gained, lost, n) == pytest.approx((-high, -low), abs=1e-9)
    if lost + gained < n:
        worse = tango(lost + 1, gained, n)
        assert worse[0] <= low + 1e-9 and worse[1] <= high + 1e-9


def test_tangos_score_falls_as_the_difference_rises() -> None:
    found = [tango_score(6, 2, 40, d) for d in np.linspace(-0.95, 0.95, 60)]
    assert all(a >= b for a, b in itertools.pairwise(found))


def test_the_sign_flip_counts_all_patterns_where_few_units_move() -> None:
    sums = [3.0, -1.0, 2.0, 2.0, 0.0, -0.5, 4.0]
    moving = [s for s in sums if s]
    totals = [
        sum(s * x for s, x in zip(signs, moving, strict=True))
        for signs in itertools.product((1, -1), repeat=len(moving))
    ]
    observed = sum(moving)
    two = sum(abs(t) >= abs(observed) for t in totals) / len(totals)
    one = sum(t <= observed for t in totals) / len(totals)
    assert sign_flip(np.array(sums)) == pytest.approx((two, one))


def test_the_drawn_sign_flip_is_near_the_counted_one_and_always_the_same() -> None:
    rng = np.random.default_rng(3)
    sums = rng.normal(0.4, 1, size=18)
    bits = (np.arange(2**18)[:, None] >> np.arange(18)) & 1
    totals = (1.0 - 2.0 * bits) @ abs(sums)
    exact = (abs(totals) >= abs(sums.sum()) - 1e-9).mean()
    assert sign_flip(sums)[0] == pytest.approx(exact, abs=0.01)
    assert sign_flip(sums) == sign_flip(sums[::-1])
    assert sign_flip(-sums)[0] == sign_flip(sums)[0]


def test_nothing_moving_gives_p_1() -> None:
    assert sign_flip(np.zeros(12)) == (1.0, 1.0)
    assert mcnemar(0, 0) == (1.0, 1.0)


@given(pairs=binary_pairs)
def test_binary_docs_get_mcnemar_and_tango(pairs: list[tuple[float, float]]) -> None:
    base, cand = [p[0] for p in pairs], [p[1] for p in pairs]
    found, swapped = paired(base, cand), paired(cand, base)
    lost, gained = pairs.count((1.0, 0.0)), pairs.count((0.0, 1.0))
    assert found.test == "exact McNemar, Tango interval"
    assert (found.p_value, found.p_regressed) == mcnemar(lost, gained)
    assert (found.low, found.high) == tango(lost, gained, len(pairs))
    assert found.discordance == pytest.approx((lost + gained) / len(pairs))
    assert swapped.delta == -found.delta and swapped.p_value == found.p_value
    assert paired(base[::-1], cand[::-1]) == found


def test_means_of_repeats_get_t_on_the_differences() -> None:
    rng = np.random.default_rng(0)
    base, cand = rng.binomial(16, 0.5, size=30) / 16, rng.binomial(16, 0.45, size=30) / 16
    found, oracle = paired(base, cand), ttest_1samp(cand - base, 0)
    ends = oracle.confidence_interval()
    assert found.test == "t(29)" and found.p_value == pytest.approx(oracle.pvalue)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))


def test_equal_clusters_give_t_on_cluster_means() -> None:
    rng = np.random.default_rng(5)
    base, cand = rng.integers(0, 2, size=(2, 225)).astype(float)
    found = paired(base, cand, clusters=PAGES)
    oracle = ttest_1samp((cand - base).reshape(15, 15).mean(axis=1), 0)
    ends = oracle.confidence_interval()
    assert found.test == "CR1 t(14)" and found.second_test == "cluster sign-flip"
    assert found.p_value == pytest.approx(oracle.pvalue)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    assert found.second_p == pytest.approx(found.p_value, abs=0.1)
    less = ttest_1samp((cand - base).reshape(15, 15).mean(axis=1), 0, alternative="less")
    assert found.p_regressed == pytest.approx(less.pvalue)


def test_fewer_than_eight_clusters_give_neither_interval_nor_test() -> None:
    base, cand = changed(20, 2, 70)
    found = paired(base, cand, clusters=[i // 10 for i in range(70)])
    assert (found.low, found.high, found.p_value, found.p_regressed) == (None,) * 4
    assert found.note.startswith("too few clusters (7")
    assert found.delta == pytest.approx(-18 / 70)


def test_clusters_that_all_agree_still_get_an_interval_as_wide_as_their_number_warrants() -> None:
    found = paired([1.0] * 225, [1.0] * 225, clusters=PAGES)
    assert (found.low, found.high) == tango(0, 0, 15)
    assert found.p_value == 1.0 and "only 0 of 15 clusters differ" in found.note


@pytest.mark.parametrize("pages", [1, 2, 3, 4, 5])
def test_a_loss_on_few_pages_is_neither_certain_nor_within_three_points(pages: int) -> None:
    """t(G - 1) alone would say no worse than -1.4 points after one loss on one page."""
    base = [1.0] * 225
    cand = [0.0 if i % 15 == 0 and i // 15 < pages else 1.0 for i in range(225)]
    found = paired(base, cand, clusters=PAGES)
    assert found.low is not None and found.p_value is not None
    assert found.low < -0.03 and found.p_value > 0.05


def test_equal_losses_on_every_page_are_a_loss_though_their_spread_is_zero() -> None:
    base = [1.0] * 225
    cand = [0.0 if i % 15 < 5 else 1.0 for i in range(225)]
    found = paired(base, cand, clusters=PAGES)
    assert found.high is not None and found.high < 0
    assert found.p_value is not None and found.p_value < 0.001
    assert found.note == "all 15 clusters differ alike"


def test_few_changed_means_fall_back_to_the_sign_flip() -> None:
    base = [0.5] * 30
    found = paired(base, [0.25] * 3 + [0.5] * 27)
    assert found.test == "doc sign-flip, Tango interval" and found.p_value == pytest.approx(0.25)
    assert found.low is not None and found.low < found.delta < 0
    lengths = paired([100.0] * 30, [90.0] * 3 + [100.0] * 27)
    assert lengths.low is None and "open scale" in lengths.test


def test_strata_narrow_the_interval_of_many_changed_docs() -> None:
    strata = [i // 20 for i in range(400)]
    base = [float(i // 20 < 10) for i in range(400)]
    cand = [1 - b if i % 5 == 0 else b for i, b in enumerate(base)]
    plain, found = paired(base, cand), paired(base, cand, strata=strata)
    assert found.test.startswith("stratified t(")
    assert None not in (found.low, found.high, plain.low, plain.high)
    assert found.high - found.low < plain.high - plain.low  # type: ignore[operator]
    few = paired(*changed(3, 1, 100), strata=[i // 10 for i in range(100)])
    assert few.test.startswith("exact McNemar")


@settings(max_examples=50, deadline=None)
@given(data=st.data(), seed=st.integers(0, 10_000))
def test_order_of_docs_and_names_of_clusters_do_not_matter(data: st.DataObject, seed: int) -> None:
    rng = np.random.default_rng(seed)
    base, cand = rng.integers(0, 2, size=(2, 48)).astype(float)
    labels = [i // 4 for i in range(48)]
    order = data.draw(st.permutations(range(48)))
    one = paired(base, cand, clusters=labels)
    two = paired(base[order], cand[order], clusters=[f"p{labels[i]}" for i in order])
    for name in ("delta", "low", "high", "p_value", "p_regressed", "second_p", "discordance"):
        assert getattr(one, name) == pytest.approx(getattr(two, name), abs=1e-6)


@given(seed=st.integers(0, 10_000), clustered=st.booleans())
def test_swapping_the_sides_turns_everything_round(seed: int, clustered: bool) -> None:
    rng = np.random.default_rng(seed)
    base, cand = rng.integers(0, 5, size=(2, 40)) / 4
    labels = [i // 4 for i in range(40)] if clustered else None
    one, two = paired(base, cand, labels), paired(cand, base, labels)
    assert two.delta == pytest.approx(-one.delta, abs=1e-12)
    assert None not in (one.low, one.high, two.low, two.high)
    assert (two.low, two.high) == pytest.approx((-one.high, -one.low))  # type: ignore[operator]
    assert one.p_value == pytest.approx(two.p_value) and one.second_p == pytest.approx(two.second_p)


def test_a_joint_comparison_of_one_task_three_times_is_that_task() -> None:
    rng = np.random.default_rng(2)
    base, cand = rng.integers(0, 2, size=(2, 225)).astype(float)
    one, joint = paired(base, cand, PAGES), macro_paired([base] * 3, [cand] * 3, [PAGES] * 3)
    assert (joint.low, joint.high) == pytest.approx((one.low, one.high))
    assert joint.p_value == pytest.approx(one.p_value) and joint.clusters == 15


def test_paired_parts_add_the_decoding_variances_of_both_sides() -> None:
    rng = np.random.default_rng(4)
    base, cand = rng.integers(0, 2, size=(2, 30, 8)).astype(float)
    parts = paired_variance_parts(base.tolist(), cand.tolist())
    noise = (base.var(axis=1, ddof=1) / 8 + cand.var(axis=1, ddof=1) / 8).mean() / 30
    assert parts.decoding_se == pytest.approx(math.sqrt(noise))
    assert parts.total.mean == pytest.approx(cand.mean() - base.mean())
    single = paired_variance_parts([[0.0], [1.0]], [[1.0], [1.0]])
    assert single.decoding_se is None and single.note.startswith("not identifiable")


def test_lists_that_do_not_match_are_named() -> None:
    with pytest.raises(ValueError, match="baseline has 2 docs, candidate 1"):
        paired([0.0, 1.0], [1.0])
    with pytest.raises(ValueError, match="candidate: 1 of 2 not finite"):
        paired([0.0, 1.0], [1.0, math.nan])
    with pytest.raises(ValueError, match="baseline has 1 docs, candidate 0"):
        paired_variance_parts([[1.0]], [])
