import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.diagnostics import Played, collapse, groups, step_row, zero_deviation


def rollouts(step, *rewards_of_docs, **more):
    return [
        Played(step, f"d{d}", r, value, **more)
        for d, rewards in enumerate(rewards_of_docs)
        for r, value in enumerate(rewards)
    ]


def curve(rewards, zero=0.1, tokens=100.0):
    at = tokens if callable(tokens) else lambda i: tokens
    return [
        {"step": i, "reward": r, "zero_deviation": zero, "tokens": at(i)}
        for i, r in enumerate(rewards)
    ]


def test_groups_without_deviation_are_counted():
    played = rollouts(3, [1, 1, 1, 1], [0, 1, 0, 1], [0.5, 0.5, 0.5, 0.5])
    assert len(groups(played)) == 3
    assert zero_deviation(played) == pytest.approx(2 / 3)


def test_a_step_is_summed_up_by_hand():
    played = [
        Played(1, "a", 0, 1.0, {"f1": 1.0}, ("bad_format",), 10, 2, "stop"),
        Played(1, "a", 1, 0.0, {"f1": 0.5, "em": 1.0}, (), 30, 0, "length"),
    ]
    row = step_row(played, loss=0.25, kl=0.01)
    assert row["reward"] == 0.5 and row["reward_deviation"] == 0.5
    assert row["tokens"] == 20 and row["searches"] == 1 and row["truncated"] == 0.5
    assert row["terms"] == {"em": 1.0, "f1": 0.75} and row["reasons"] == {"bad_format": 1}
    assert row["loss"] == 0.25 and row["kl"] == 0.01 and row["zero_deviation"] == 0


def test_steps_are_not_mixed():
    with pytest.raises(ValueError, match="one step"):
        step_row([*rollouts(1, [0, 1]), *rollouts(2, [0, 1])])


def test_a_run_that_falls_is_alarmed_and_one_that_climbs_is_not():
    rng = random.Random(1)
    noise = [rng.uniform(-0.05, 0.05) for _ in range(60)]
    climbing = [0.3 + 0.005 * i + noise[i] for i in range(60)]
    fallen = [*climbing[:40], *(0.1 + n for n in noise[40:])]
    assert collapse(curve(climbing)) == []
    assert [a.partition(":")[0] for a in collapse(curve(fallen))] == ["reward"]


def test_silence_and_length_are_alarmed():
    alarms = collapse(curve([0.5] * 30, zero=0.95, tokens=lambda i: 100 if i < 15 else 1000))
    assert [a.partition(":")[0] for a in alarms] == ["no_signal", "length"]


@given(st.lists(st.floats(-2, 2), max_size=19))
def test_a_short_run_is_never_alarmed(rewards):
    assert collapse(curve(rewards, zero=1.0)) == []
