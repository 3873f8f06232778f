"""Several samples a question: pass@1 and its error, pass@k, majority votes."""

import random
from itertools import combinations, pairwise
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.repeated import majority_right, repeated

GRIDS = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n), min_size=8, max_size=14)
)


@given(GRIDS)
def test_pass_at_k_is_the_mean_share_of_draws_with_a_right_sample(grid):
    found = repeated(grid, ks=range(1, len(grid[0]) + 1))
    for k, got in found.pass_at.items():
        drawn = [mean(any(s) for s in combinations(row, k)) for row in grid]
        assert got.mean == pytest.approx(mean(drawn))


@given(GRIDS)
def test_pass_at_1_is_the_mean_over_all_samples_and_counts_add_up(grid):
    found = repeated(grid)
    assert found.parts.total.mean == pytest.approx(mean(x for row in grid for x in row))
    assert found.pass_at[1].mean == pytest.approx(found.parts.total.mean)
    assert found.fully_right == sum(all(row) for row in grid)
    assert found.fully_wrong == sum(not any(row) for row in grid)


@given(GRIDS)
def test_more_draws_never_lower_the_chance(grid):
    means = [e.mean for e in repeated(grid, ks=range(1, len(grid[0]) + 1)).pass_at.values()]
    assert all(b >= a - 1e-12 for a, b in pairwise(means))


@pytest.mark.parametrize("value", [0, 1])
def test_thirty_questions_all_wrong_or_all_right_leave_an_interval(value):
    total = repeated([[value] * 16] * 30).parts.total
    assert total.low is not None
    assert total.high - total.low > 0.05
    single = repeated([[value]] * 30).parts.total
    assert single.high - single.low > 0.05


def test_more_draws_than_samples_are_an_error():
    with pytest.raises(ValueError, match="k=5"):
        repeated([[1, 0]] * 3, ks=[5])


def test_missing_samples_are_an_error():
    with pytest.raises(ValueError, match="question 1 has 1 samples, expected 2: some are missing"):
        repeated([[1, 0], [1]])


def test_a_share_is_no_sample():
    with pytest.raises(ValueError, match="other than 0 and 1"):
        repeated([[0.5, 1]])


@pytest.mark.parametrize(
    ("right", "votes", "expected"),
    [
        ([1, 1, 0], ["7", "7", "8"], 1.0),
        ([1, 0, 0], ["7", "8", "8"], 0.0),
        ([1, 0], ["7", "8"], 0.5),  # a draw between the two
        ([1, 0, 0], ["7", None, None], 1.0),  # no answer, no vote
        ([0, 0], [None, None], 0.0),
    ],
)
def test_the_most_frequent_answer_decides(right, votes, expected):
    assert majority_right(right, votes) == expected


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=9), st.randoms())
def test_the_order_of_samples_never_matters(samples, shuffle):
    samples = [(int(vote == 0), vote) for _, vote in samples]
    mixed = samples[:]
    random.Random(shuffle.random()).shuffle(mixed)
    assert majority_right(*zip(*samples, strict=True)) == majority_right(*zip(*mixed, strict=True))
