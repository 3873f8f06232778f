"""Intervals of one score. Oracle figures: statsmodels 0.15."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.stats.intervals import (
    clopper_pearson,
    estimate,
    macro_estimate,
    mid_p,
    variance_parts,
    weighted_mid_p,
    wilson,
)

scores = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=60)
fractions = st.lists(st.integers(0, 16).map(lambda k: k / 16), min_size=2, max_size=40)
FORMS: list[Callable[[int, int], tuple[float, float]]] = [wilson, mid_p, clopper_pearson]


def test_importing_the_statistics_loads_neither_numpy_nor_scipy() -> None:
    code = (
        "import sys, harness.stats.gate, harness.stats.power, harness.stats.missing\n"
        "print([m for m in ('numpy', 'scipy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("k", "n", "expected_wilson", "expected_exact"),
    [
        (0, 30, (0.0, 0.1135133931739688), (0.0, 0.1157033082220278)),
        (3, 30, (0.03459988874733416, 0.25621082579184085), (0.02111713702972257, 0.2652884504742)),
        (17, 40, (0.28509392559950375, 0.5780493145800893), (0.2704290312688, 0.5910994195730367)),
        (40, 40, (0.9123783988027134, 1.0), (0.9119026971211976, 1.0)),
    ],
)
def test_wilson_and_clopper_pearson_agree_with_statsmodels(
    k: int, n: int, expected_wilson: tuple[float, float], expected_exact: tuple[float, float]
) -> None:
    assert wilson(k, n) == pytest.approx(expected_wilson, abs=1e-10)
    assert clopper_pearson(k, n) == pytest.approx(expected_exact, abs=1e-10)


def test_mid_p_ends_carry_half_the_probability_of_the_observed_count() -> None:
    def pmf(k: int, p: float) -> float:
        return math.comb(20, k) * p**k * (1 - p) ** (20 - k)

    low, high = mid_p(7, 20)
    above = sum(pmf(k, low) for k in range(8, 21)) + pmf(7, low) / 2
    below = sum(pmf(k, high) for k in range(7)) + pmf(7, high) / 2
    assert above == pytest.approx(0.025) and below == pytest.approx(0.025)


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data(), n=st.integers(1, 80))
def test_a_form_holds_its_estimate_within_0_and_1_and_mirrors(
    form: Callable[[int, int], tuple[float, float]], data: st.DataObject, n: int
) -> None:
    k = data.draw(st.integers(0, n))
    low, high = form(k, n)
    assert 0 <= low <= k / n <= high <= 1 and high > low
    assert form(n - k, n) == pytest.approx((1 - high, 1 - low), abs=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_a_form_moves_up_with_every_success(
    form: Callable[[int, int], tuple[float, float]],
) -> None:
    table = [form(k, 30) for k in range(31)]
    assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in itertools.pairwise(table))


def test_clopper_pearson_contains_mid_p() -> None:
    for k in range(31):
        wide, narrow = clopper_pearson(k, 30), mid_p(k, 30)
        assert wide[0] <= narrow[0] + 1e-9 and narrow[1] <= wide[1] + 1e-9


@pytest.mark.parametrize("k", [0, 1, 3, 15, 29, 30])
def test_the_weighted_mid_p_interval_is_mid_p_for_binary_values(k: int) -> None:
    assert weighted_mid_p([1.0] * k + [0.0] * (30 - k)) == pytest.approx(mid_p(k, 30), abs=0.006)


@settings(max_examples=25, deadline=None)
@given(values=fractions)
def test_the_weighted_mid_p_interval_mirrors_and_ignores_order(values: list[float]) -> None:
    low, high = weighted_mid_p(values)
    assert 0 <= low < high <= 1
    assert weighted_mid_p(values[::-1]) == (low, high)
    if sum(values) / len(values) != 0.5:
        assert weighted_mid_p([1 - v for v in values]) == pytest.approx((1 - high, 1 - low))


@given(values=scores)
def test_binary_docs_get_wilson_whatever_their_order(values: list[float]) -> None:
    found = estimate(values)
    again = estimate(sorted(values))
    assert found.method == "Wilson" and (found.low, found.high) == (again.low, again.high)
    assert found.se == pytest.approx(again.se)
    assert (found.low, found.high) == wilson(sum(values), len(values))


def test_means_in_the_middle_get_t() -> None:
    values = [0.2, 0.4, 0.4, 0.5, 0.5, 0.6, 0.6, 0.7, 0.75, 0.9]
    found = estimate(values)
    se = np.std(values, ddof=1) / math.sqrt(10)
    assert found.method == "t(9)" and found.se == pytest.approx(se)
    assert found.high == pytest.approx(found.mean + 2.2621571627409915 * se)


def test_means_near_an_end_get_the_bounded_interval() -> None:
    found = estimate([0.0] * 27 + [0.25, 0.5, 0.0625])
    assert found.method == "weighted mid-P"
    assert found.low is not None and found.high is not None
    assert 0 < found.low < found.mean < found.high < 0.15


def test_an_open_scale_gets_t_and_nothing_where_all_values_agree() -> None:
    assert estimate([120.0, 140.0, 90.0]).method == "t(2)"
    flat = estimate([7.0, 7.0, 7.0])
    assert flat.low is None and "open scale" in flat.note
    assert estimate([3.5]).note == "a single doc"


def test_the_cluster_standard_error_agrees_with_statsmodels() -> None:
    x = [float((i * i * 7 + i // 3) % 11 < 5) for i in range(60)]
    found = estimate(x, clusters=[str(min(i // 5, 9)) for i in range(60)])
    assert (found.n, found.clusters, found.method) == (60, 10, "CR1 t(7)")
    assert found.se == pytest.approx(0.05543969, abs=1e-7)


def test_clusters_of_unequal_size_count_for_fewer() -> None:
    """Nine of 5 docs and one of 15: 60^2 / (9 * 25 + 225) = 8 effective clusters."""
    x = [float((i * i * 7 + i // 3) % 11 < 5) for i in range(60)]
    found = estimate(x, clusters=[min(i // 5, 9) for i in range(60)])
    assert found.se is not None and found.high is not None
    assert (found.high - found.mean) / found.se == pytest.approx(2.3646242510)  # t(7)


def test_fewer_than_eight_clusters_give_no_interval() -> None:
    found = estimate([0.0, 1.0] * 35, clusters=[i // 10 for i in range(70)])
    assert found.low is None and found.high is None and found.se is not None
    assert found.note == "too few clusters (7, at least 8 are needed)"


def test_all_distinct_clusters_are_no_clusters() -> None:
    values = [0.0, 1.0, 1.0, 0.0, 1.0]
    assert estimate(values, clusters="abcde") == estimate(values)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.5])
@pytest.mark.parametrize("grouping", ["none", "clusters", "strata"])
def test_equal_values_never_give_an_interval_of_zero_width(value: float, grouping: str) -> None:
    labels = [i // 15 for i in range(225)]
    clusters = labels if grouping == "clusters" else None
    strata = labels if grouping == "strata" else None
    found = estimate([value] * 225, clusters=clusters, strata=strata)
    assert found.low is not None and found.high is not None
    assert 0 <= found.low <= value <= found.high <= 1 and found.high - found.low > 0.005
    if clusters:
        assert found.method == "Wilson on 15 clusters"


def test_one_wrong_doc_does_not_make_clusters_certain() -> None:
    """CR1 alone would give [.986, 1.005] here, from a variance that one page shows."""
    found = estimate([0.0] + [1.0] * 224, clusters=[i // 15 for i in range(225)])
    assert found.low is not None and found.low < 0.85


def test_clusters_near_an_end_use_the_effective_n() -> None:
    values = [float(i % 15 == 0 and i // 15 < 6) for i in range(225)]
    found = estimate(values, clusters=[i // 15 for i in range(225)])
    assert found.method.startswith("Wilson on effective n") and found.low is not None
    assert found.low > 0


@settings(max_examples=50, deadline=None)
@given(data=st.data(), values=st.lists(st.sampled_from([0.0, 1.0]), min_size=40, max_size=40))
def test_docs_may_come_in_any_order(data: st.DataObject, values: list[float]) -> None:
    order = data.draw(st.permutations(range(40)))
    labels = [i // 4 for i in range(40)]
    one = estimate(values, clusters=labels)
    two = estimate([values[i] for i in order], clusters=[f"page {labels[i]}" for i in order])
    for a, b in ((one.mean, two.mean), (one.se, two.se), (one.low, two.low), (one.high, two.high)):
        assert a == pytest.approx(b, abs=1e-9)


def test_strata_take_their_own_variance_out() -> None:
    strata = [i // 10 for i in range(200)]
    values = [float(i % 10 < i // 20) for i in range(200)]
    plain, found = estimate(values), estimate(values, strata=strata)
    assert plain.se is not None and found.se is not None and found.se < plain.se
    by_hand = sum(
        10**2 * np.var(values[h * 10 : h * 10 + 10], ddof=1) / 10 for h in range(20)
    )  # sum over strata of n_h^2 s_h^2 / n_h
    assert found.se == pytest.approx(math.sqrt(by_hand) / 200)


def test_strata_of_a_single_doc_are_joined_not_dropped() -> None:
    values = [0.1, 0.9, 0.3, 0.4, 0.5, 0.65]
    found = estimate(values, strata=["a", "b", "c", "d", "d", "d"])
    assert found.se is not None and found.se > 0.08 and found.method == "stratified t(4)"


def test_the_macro_mean_counts_every_stratum_alike() -> None:
    found = estimate([1.0] * 30 + [0.0] * 10, strata=["big"] * 30 + ["small"] * 10, macro=True)
    assert found.mean == pytest.approx(0.5)
    with pytest.raises(ValueError, match="needs strata"):
        estimate([1.0, 0.0], macro=True)


def test_clusters_that_cross_strata_leave_the_strata_out_and_say_so() -> None:
    values = [float(i % 3 == 0) for i in range(40)]
    found = estimate(
        values, clusters=[i // 4 for i in range(40)], strata=[i % 2 for i in range(40)]
    )
    assert "cross strata" in found.note
    assert found.se == estimate(values, clusters=[i // 4 for i in range(40)]).se


def test_a_joint_mean_over_the_same_docs_is_no_surer_than_one_task() -> None:
    values = [float((i * 7) % 10 < 6) for i in range(60)]
    pages = [i // 4 for i in range(60)]
    one = estimate(values, clusters=pages)
    joint = macro_estimate([values] * 3, [pages] * 3)
    assert joint.mean == pytest.approx(one.mean) and joint.se == pytest.approx(one.se)
    apart = macro_estimate([values] * 3, [[(t, p) for p in pages] for t in range(3)])
    assert apart.se == pytest.approx((one.se or 0) / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize(
    ("values", "message"),
    [([], "empty"), ([0.0, math.nan], "1 of 2 not finite.*position 1"), ([[0.0]], "shape")],
)
def test_bad_values_are_named(values: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate(values)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="2 labels for 3 docs"):
        estimate([0.0, 1.0, 1.0], clusters=["a", "b"])
    with pytest.raises(ValueError, match="position 1 has none"):
        estimate([0.0, 1.0, 1.0], clusters=["a", None, "b"])
    with pytest.raises(ValueError, match="level=95"):
        estimate([0.0, 1.0], level=95)
    with pytest.raises(ValueError, match="not every value is 0 or 1"):
        estimate([0.0, 0.5], binary=True)
    with pytest.raises(ValueError, match="0 <= successes <= n"):
        wilson(31, 30)
    with pytest.raises(ValueError, match=r"expected \[0, 1\]"):
        weighted_mid_p([0.2, 1.5])


def test_the_total_error_contains_the_decoding_error() -> None:
    rng = np.random.default_rng(1)
    samples = rng.binomial(1, rng.uniform(size=(30, 1)), size=(30, 16)).astype(float)
    parts = variance_parts(samples.tolist())
    total = samples.mean(axis=1).std(ddof=1) / math.sqrt(30)
    decoding = math.sqrt((samples.var(axis=1, ddof=1) / 16).mean() / 30)
    assert parts.total.se == pytest.approx(total)
    assert parts.decoding_se == pytest.approx(decoding)
    assert parts.question_se == pytest.approx(math.sqrt(total**2 - decoding**2))
    assert parts.decoding_low is not None and parts.total.low is not None
    assert parts.total.low < parts.decoding_low < parts.total.mean


def test_one_sample_a_doc_does_not_identify_the_decoding_error() -> None:
    parts = variance_parts([[0.0], [1.0], [1.0]])
    assert parts.decoding_se is None and parts.question_se is None
    assert parts.note.startswith("not identifiable") and parts.total.low is not None


def test_decoding_alone_leaves_no_question_error_and_agreement_no_decoding_error() -> None:
    alternating = variance_parts([[0.0, 1.0]] * 10)
    assert alternating.question_se == 0.0 and alternating.decoding_se == pytest.approx(
        0.158, abs=1e-3
    )
    settled = variance_parts([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    assert settled.decoding_se == 0.0 and settled.decoding_low is None and settled.note


def test_docs_may_have_different_numbers_of_samples() -> None:
    parts = variance_parts([[0.0, 1.0, 1.0], [1.0], [0.0, 1.0]])
    assert parts.repeats == 1 and parts.decoding_se is not None and parts.decoding_se > 0
    with pytest.raises(ValueError, match="doc at position 1: empty"):
        variance_parts([[0.0], []])


@pytest.mark.parametrize("macro", [False, True])
@pytest.mark.parametrize("value", [0.0, 1.0, 0.7])
def test_equal_values_in_unequal_strata_keep_their_mean_to_the_last_digit(
    macro: bool, value: float
) -> None:
    strata = [k for k in range(45) for _ in range(3 + k % 9)]
    got = estimate([value] * len(strata), strata=strata, macro=macro)
    assert got.mean == value
    assert got.low is not None and got.low <= value
