"""pass@k against its definition."""

from itertools import combinations

import pytest

from harness.stats.counts import pass_at_k


@pytest.mark.parametrize("n", range(1, 13))
def test_it_is_the_share_of_subsets_that_hold_a_right_sample(n):
    for right in range(n + 1):
        samples = [i < right for i in range(n)]
        for k in range(1, n + 1):
            drawn = [any(subset) for subset in combinations(samples, k)]
            assert pass_at_k(right, n, k) == pytest.approx(sum(drawn) / len(drawn), abs=1e-12)


@pytest.mark.parametrize(("right", "n", "k"), [(0, 3, 4), (4, 3, 1), (-1, 3, 1), (1, 3, 0),
                                               (0, 0, 1)])  # fmt: skip
def test_more_draws_than_samples_and_impossible_counts_are_errors(right, n, k):
    with pytest.raises(ValueError, match="expected"):
        pass_at_k(right, n, k)


def test_large_samples_stay_exact():
    assert pass_at_k(1, 10_000, 100) == pytest.approx(0.01)
