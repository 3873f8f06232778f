"""What a gate can see before it runs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.stats import simulate
from harness.stats.counts import tango_score
from harness.stats.gate import PASSING, verdict
from harness.stats.paired import paired
from harness.stats.power import (
    cluster_sizes,
    decidable,
    design,
    detection,
    docs_needed,
    mde,
    release,
)

PAGES = (15,) * 15


@pytest.mark.parametrize(("n", "points"), [(30, 34), (125, 13), (500, 6)])
def test_the_mde_of_mcnemar_is_no_shortcut(n: int, points: int) -> None:
    """33.8, 12.2 and 5.0 points; 2.8 sqrt(d / n) would promise 16, 8 and 4."""
    found = mde(n)
    assert found is not None
    assert math.ceil(100 * found) == points or round(100 * found, 1) == 5.0
    assert found > 1.1 * 2.8 * math.sqrt(0.1 / n)


def brute(n: int, drop: float, discordance: float, margin: float) -> tuple[float, float]:
    """P(regressed), P(passed) over every table of n docs, through the shipped code."""
    lose, gain = discordance / 2 + drop, discordance / 2
    regressed = passed = 0.0
    for lost, gained in itertools.product(range(n + 1), range(n + 1)):
        same = n - lost - gained
        if same < 0:
            continue
        ways = math.comb(n, lost) * math.comb(n - lost, gained)
        p = ways * lose**lost * gain**gained * (1 - lose - gain) ** same
        base = [1.0] * lost + [0.0] * gained + [1.0] * same
        cand = [0.0] * lost + [1.0] * gained + [1.0] * same
        name = verdict(paired(base, cand), margin)
        regressed += p * (name == "regressed")
        passed += p * (name in PASSING)
    return regressed, passed


@pytest.mark.parametrize(("drop", "margin"), [(0.0, 0.1), (0.3, 0.1), (0.15, 0.15), (0.4, 0.5)])
def test_exact_power_and_release_are_those_of_every_table_through_the_shipped_code(
    drop: float, margin: float
) -> None:
    planned = design(14, discordance=0.2, margin=margin)
    expected = brute(14, drop, 0.2, margin)
    assert (detection(planned, drop), release(planned, drop)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("n", [30, 125, 500, 2000])
@pytest.mark.parametrize("discordance", [0.02, 0.1, 0.3])
def test_both_errors_are_bounded_where_docs_are_independent(n: int, discordance: float) -> None:
    for margin in (0.01, 0.03, 0.1):
        planned = design(n, discordance=discordance, margin=margin)
        assert detection(planned, 0.0) <= 0.05
        assert release(planned, margin) <= 0.05


@pytest.mark.parametrize("sizes", [PAGES, (5,) * 20, (40, 20, *[3] * 12)])
def test_both_errors_are_bounded_where_docs_are_clustered(sizes: tuple[int, ...]) -> None:
    for discordance in (0.02, 0.05, 0.1, 0.2):
        planned = design(sum(sizes), sizes, discordance, margin=0.03)
        assert detection(planned, 0.0) <= 0.05
        assert release(planned, 0.03) <= 0.05


def test_no_drop_can_be_seen_on_five_docs_or_on_seven_clusters() -> None:
    assert mde(5) is None
    assert mde(8) is None and mde(9) is not None
    assert mde(105, (15,) * 7) is None
    assert mde(7, tests=2) is None


def test_the_mde_grows_with_clusters_tests_and_discordance_and_shrinks_with_repeats() -> None:
    assert (mde(225) or 1) < (mde(225, PAGES, icc=0.05) or 1) < (mde(225, PAGES) or 1)
    assert (mde(125) or 1) < (mde(125, tests=5) or 1)
    assert (mde(125, discordance=0.05) or 1) < (mde(125, discordance=0.2) or 1)
    assert (mde(30, repeats=16) or 1) < (mde(30, repeats=4) or 1) < (mde(30) or 1)


def test_a_drop_within_the_margin_is_not_called_regressed_so_the_mde_exceeds_it() -> None:
    assert (mde(2000, margin=0.1) or 0) > 0.08 > (mde(2000) or 1)


def test_a_design_effect_stands_for_an_icc() -> None:
    assert mde(225, PAGES, design_effect=3.8) == mde(225, PAGES, icc=0.2)


def test_clusters_of_one_doc_are_no_clusters() -> None:
    assert mde(125, (1,) * 125) == mde(125)
    assert cluster_sizes(["a", "b", "a"]) == (2, 1)


def test_closed_form_and_simulation_meet_where_one_takes_over_from_the_other() -> None:
    drawn, closed = mde(3996, (4,) * 999), mde(4004, (4,) * 1001)
    assert drawn == pytest.approx(closed, rel=0.05)
    assert mde(1000, repeats=4) == pytest.approx(mde(1001, repeats=4), rel=0.05)


def test_simulated_errors_are_those_of_the_shipped_code() -> None:
    """The vectorised comparison and `paired` on the same docs give the same verdicts."""
    rng = np.random.default_rng(8)
    planned = design(60, (5,) * 12, 0.15, margin=0.05)
    labels = [i // 5 for i in range(60)]
    agree = 0
    for _ in range(200):
        change = rng.choice([-1.0, 1.0, 0.0], p=[0.14, 0.06, 0.8], size=60)
        base = np.where(change < 0, 1.0, 0.0)
        name = verdict(paired(base, base + change, labels), 0.05)
        sums = change.reshape(12, 5).sum(axis=1)
        mean = change.mean()
        draws = simulate.Draws(
            mean=np.array([mean]),
            se=np.array([math.sqrt(((sums - 5 * mean) ** 2).sum() * 12 / 11) / 60]),
            differing=np.array([(change.reshape(12, 5) != 0).any(axis=1).sum()]),
            lost=np.array([(change < 0).sum()], dtype=float),
            gained=np.array([(change > 0).sum()], dtype=float),
            units=12,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(simulate, "_draw", lambda *_, draws=draws: draws)
            called, passed = simulate.regressed(planned, 0.1), simulate.passed(planned, 0.1)
        agree += called == (name == "regressed") and passed == (name in PASSING)
    assert agree == 200


@pytest.mark.parametrize(("icc", "drop"), [(0.1, 0.0), (0.2, 0.0), (0.2, 0.1)])
def test_simulated_differences_have_the_asked_mean_and_correlation(icc: float, drop: float) -> None:
    x = simulate._draw(design(225, PAGES, 0.2, icc=icc), drop)
    variance = 0.2 + drop - drop**2
    assert x.mean.mean() == pytest.approx(-drop, abs=0.003)
    expected = math.sqrt(variance * (1 + 14 * icc) / 225)
    assert x.mean.std() == pytest.approx(expected, rel=0.05)


@given(data=st.data(), n=st.integers(1, 200), delta=st.floats(-0.99, 0.99))
def test_the_array_score_is_tangos(data: st.DataObject, n: int, delta: float) -> None:
    lost = data.draw(st.integers(0, n))
    gained = data.draw(st.integers(0, n - lost))
    found = simulate.scores(np.array([float(lost)]), np.array([float(gained)]), n, delta)[0]
    assert found == pytest.approx(tango_score(lost, gained, n, delta), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("margin", "discordance", "docs"), [(0.03, 0.1, 901), (0.05, 0.1, 339), (0.05, 0.2, 639)]
)
def test_docs_needed_for_no_worse(margin: float, discordance: float, docs: int) -> None:
    """The normal formula (1.96 + .84)^2 d / m^2 gives 872, 314 and 628."""
    assert docs_needed(margin, discordance) == docs
    planned = design(docs, discordance=discordance, margin=margin)
    assert release(planned, 0.0) >= 0.8
    assert docs_needed(margin, discordance, design_effect=3.8) == math.ceil(3.8 * docs)


@settings(max_examples=30, deadline=None)
@given(margin=st.integers(2, 20), discordance=st.integers(2, 40))
def test_a_wider_margin_never_needs_more_docs(margin: int, discordance: int) -> None:
    narrow = docs_needed(margin / 100, discordance / 100)
    assert docs_needed((margin + 2) / 100, discordance / 100) <= narrow + 2


def test_a_small_set_says_so_before_it_generates() -> None:
    small, large = decidable(30, 0.03), decidable(1000, 0.03)
    assert not small.ok and small.needed == 901 and "cannot" in small.note
    assert large.ok and large.chance > 0.8
    railway = decidable(225, 0.03, PAGES)
    assert not railway.ok and railway.chance < 0.3 and railway.needed > 3000
    assert "too few clusters (5)" in decidable(100, 0.1, (20,) * 5).note


def test_a_plan_is_the_same_every_time() -> None:
    planned = design(100, (5,) * 20)
    assert detection(planned, 0.2) == detection(planned, 0.2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "expected at least 1"),
        ({"n": 30, "discordance": 1.0}, "discordance=1.0"),
        ({"n": 30, "alpha": 0.0}, "alpha=0.0"),
        ({"n": 30, "power": 0.2}, "power=0.2"),
        ({"n": 30, "clusters": (15, 14)}, "add up to 29, not to n=30"),
        ({"n": 30, "tests": 0}, "tests=0"),
    ],
)
def test_bad_plans_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mde(**arguments)  # type: ignore[arg-type]
