"""Prediction-powered correction: oracles, refusals, simulated coverage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.sim_judges import coverage
from harness.stats.ppi import Labelled, TooFewLabels, corrected, corrected_delta


def world(n: int = 400, labels: int = 120, seed: int = 0, bias: float = 0.2) -> Labelled:
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.5
    said = truth | (rng.random(n) < bias)
    drawn = set(rng.choice(n, labels, replace=False).tolist())
    return Labelled(
        said.astype(float).tolist(),
        [float(truth[i]) if i in drawn else None for i in range(n)],
        [labels / n] * n,
        list(range(n)),
    )


def test_at_power_1_and_equal_probabilities_it_is_the_plain_formula() -> None:
    docs = world()
    known = [(w, y) for w, y in zip(docs.judged, docs.labels, strict=True) if y is not None]
    plain = np.mean(docs.judged) + np.mean([y - w for w, y in known])
    found = corrected(docs, power=1.0)
    assert found.mean == pytest.approx(plain)
    f, r = np.array(docs.judged), np.array([y - w for w, y in known])
    theirs = (f.var() / f.size * (1 - 2 * r.size / f.size) + r.var() / r.size) ** 0.5
    assert found.high - found.low == pytest.approx(2 * 1.97 * theirs, rel=0.25)  # type: ignore[operator]


def test_at_power_0_it_is_the_mean_of_the_labels() -> None:
    docs = world()
    assert corrected(docs, power=0.0).mean == pytest.approx(
        np.mean([y for y in docs.labels if y is not None])
    )


def test_a_perfect_judge_is_left_alone_and_a_useless_one_not_used() -> None:
    docs = world(bias=0.0)
    found = corrected(docs)
    assert found.mean == pytest.approx(found.judged, abs=0.002)
    assert found.power == pytest.approx(1.0, abs=0.02)
    coin = Labelled(
        np.random.default_rng(3).integers(0, 2, 400).astype(float).tolist(),
        docs.labels, docs.probability, docs.clusters,
    )  # fmt: skip
    assert corrected(coin).power < 0.3


def test_a_lenient_judge_is_put_right_and_the_interval_is_shorter_than_by_labels_alone() -> None:
    docs = world(n=2000, labels=300)
    found, alone = corrected(docs), corrected(docs, power=0.0)
    assert found.judged > 0.57
    assert found.low <= 0.5 <= found.high  # type: ignore[operator]
    assert found.high - found.low < alone.high - alone.low  # type: ignore[operator]


def test_unequal_probabilities_undo_a_sample_taken_from_the_disagreements() -> None:
    rng = np.random.default_rng(5)
    truth = rng.random(4000) < 0.5
    said = np.where(rng.random(4000) < 0.2, ~truth, truth)
    other = np.where(rng.random(4000) < 0.2, ~truth, truth)
    p = np.where(said != other, 0.5, 0.05)
    drawn = rng.random(4000) < p
    labels = [float(t) if d else None for t, d in zip(truth, drawn, strict=True)]
    found = corrected(Labelled(said.astype(float).tolist(), labels, p.tolist(), list(range(4000))))
    assert abs(found.mean - truth.mean()) < 0.03
    assert found.low <= truth.mean() <= found.high  # type: ignore[operator]


def test_too_few_labels_are_refused_unless_enough_errors_were_seen() -> None:
    with pytest.raises(TooFewLabels, match="99 labels with"):
        corrected(world(labels=99, bias=0.02))
    assert corrected(world(labels=100, bias=0.0)).labels == 100
    docs = world(labels=60, bias=0.5)
    assert docs.errors >= 10
    assert corrected(docs).labels == 60


def test_a_delta_needs_labels_on_the_same_docs() -> None:
    a = world()
    b = Labelled(a.judged, list(reversed(a.labels)), a.probability, a.clusters)
    assert corrected_delta(a, a).mean == pytest.approx(0.0)
    with pytest.raises(ValueError, match="same docs"):
        corrected_delta(a, b)


@pytest.mark.parametrize("p", [0.0, -0.1, 1.5, float("nan")])
def test_without_probabilities_there_is_no_correction(p: float) -> None:
    docs = world()
    with pytest.raises(ValueError, match="probability"):
        corrected(Labelled(docs.judged, docs.labels, [p] * 400, docs.clusters))


def test_few_clusters_give_no_interval() -> None:
    docs = world()
    found = corrected(
        Labelled(docs.judged, docs.labels, docs.probability, [i % 5 for i in range(400)])
    )
    assert found.low is None
    assert "too few clusters" in found.note


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_the_corrected_mean_lies_within_its_interval(seed: int, bias: float) -> None:
    found = corrected(world(seed=seed, bias=bias))
    assert found.low <= found.mean <= found.high  # type: ignore[operator]
    assert 0 <= found.power <= 1


def test_coverage_is_nominal_for_accuracies_and_deltas() -> None:
    for world_ in ((450, 100, 15, 0.03, 0.1), (450, 150, 1, 0.1, 0.0)):
        accuracy, delta, width, alone = coverage(200, *world_)
        assert accuracy >= 90
        assert delta >= 90
        assert width < alone
