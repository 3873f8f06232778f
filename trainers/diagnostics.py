"""What a step of reinforcement learning did: pure functions over logged rollouts.

    row = step_row(played)          # one line of curve.jsonl
    alarms = collapse(rows)         # [] or why to look

A group is the rollouts of one doc in one step. A group whose rewards are all equal has no
advantage and teaches nothing: its share is the first thing to watch ("Making Qwen3 Think in
Korean", arXiv 2508.10355, Figure 6c).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, pstdev
from typing import Any

WINDOW = 10
"""Steps that a moving mean covers."""


@dataclass(frozen=True, slots=True)
class Played:
    """One rollout of training, as rollouts.jsonl keeps it.

    Attributes:
        step: Optimisation steps before it.
        terms: What the reward is made of, and the scorer's metrics.
        tokens: The model's own.
        text: What was scored.
        judged: Whether the judge calls the answer right; None without a judge.
        contained: Whether an accepted answer stands in the text.
    """

    step: int
    doc_id: str
    repeat: int
    reward: float
    terms: Mapping[str, float] = field(default_factory=dict[str, float])
    reasons: tuple[str, ...] = ()
    tokens: int = 0
    searches: int = 0
    finish: str = "stop"
    text: str = ""
    judged: bool | None = None
    contained: bool = False


def groups(played: Sequence[Played]) -> list[list[Played]]:
    """Rollouts of one doc in one step, in order of appearance."""
    found: dict[tuple[int, str], list[Played]] = {}
    for rollout in played:
        found.setdefault((rollout.step, rollout.doc_id), []).append(rollout)
    return list(found.values())


def zero_deviation(played: Sequence[Played]) -> float:
    """Share of groups whose rewards are all equal, in [0, 1]."""
    every = groups(played)
    return fmean(len({r.reward for r in group}) == 1 for group in every) if every else 0.0


def step_row(played: Sequence[Played], **more: float) -> dict[str, Any]:
    """Summary of one step's rollouts.

    Args:
        played: All of one step.
        **more: What the back end adds: loss, kl, grad_norm, learning_rate.

    Raises:
        ValueError: There are none, or of several steps.
    """
    if len({r.step for r in played}) != 1:
        raise ValueError(f"rollouts of one step, got {sorted({r.step for r in played})}")
    rewards = [r.reward for r in played]
    terms = sorted({name for r in played for name in r.terms})
    return {
        "step": played[0].step,
        "rollouts": len(played),
        "groups": len(groups(played)),
        "reward": fmean(rewards),
        "reward_deviation": pstdev(rewards),
        "zero_deviation": zero_deviation(played),
        "tokens": fmean(r.tokens for r in played),
        "searches": fmean(r.searches for r in played),
        "truncated": fmean(r.finish in ("length", "context") for r in played),
        "terms": {n: fmean(r.terms[n] for r in played if n in r.terms) for n in terms},
        "reasons": dict(Counter(reason for r in played for reason in r.reasons)),
        **more,
    }


def collapse(curve: Sequence[Mapping[str, Any]], window: int = WINDOW) -> list[str]:
    """Why a run looks collapsed, from its last window; an empty list if it does not.

    reward      the mean reward lies under its best window by more than a quarter of that and by
                more than three standard errors of the difference
    no_signal   in nine groups of ten all rewards are equal
    length      outputs are four times as long, or a quarter as long, as in the first window

    Args:
        curve: Rows of `step_row`, in order; fewer than two windows give no alarm.
        window: Steps of a moving mean, 2 or more.
    """
    if len(curve) < 2 * window:
        return []
    alarms: list[str] = []
    rewards = [float(row["reward"]) for row in curve]
    means = [fmean(rewards[i : i + window]) for i in range(len(rewards) - window + 1)]
    top = max(range(len(means)), key=means.__getitem__)
    drop = means[top] - means[-1]
    spread = [pstdev(rewards[i : i + window]) for i in (top, len(means) - 1)]
    error = sqrt(sum(s * s for s in spread) / (window - 1))
    if drop > 0.25 * abs(means[top]) and drop > 3 * error:
        at = curve[top]["step"]
        alarms.append(f"reward: {means[-1]:.3f}, was {means[top]:.3f} from step {at} on")
    quiet = fmean(float(row["zero_deviation"]) for row in curve[-window:])
    if quiet >= 0.9:
        alarms.append(f"no_signal: {100 * quiet:.0f}% of the groups have equal rewards")
    first, last = (fmean(float(r["tokens"]) for r in part)
                   for part in (curve[:window], curve[-window:]))  # fmt: skip
    if first > 0 and not 0.25 < last / first < 4:
        alarms.append(f"length: {last:.0f} tokens, was {first:.0f}")
    return alarms
