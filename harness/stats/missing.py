"""Unscored samples are not missing at random: best and worst case instead of a guess.

Long outputs break judges, and long outputs are more often wrong. A verdict is given only if
it is the same whether every missing sample is right or wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from harness.stats.gate import verdict
from harness.stats.paired import PairedResult, paired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.stats._core import Labels

Partial: TypeAlias = "float | tuple[float, float] | None"
"""A doc's value, the range it can take (some of its samples are unscored), or None: all are."""


@dataclass(frozen=True, slots=True)
class MissingBounds:
    """The comparison at either end of what the unscored samples can be.

    Attributes:
        best: Every missing value at the end that favours a larger candidate.
        worst: Every missing value at the other end.
        docs: Number of docs with something missing, on either side.
    """

    best: PairedResult
    worst: PairedResult
    docs: int


def doc_range(
    samples: Sequence[float | None], low: float = 0.0, high: float = 1.0
) -> float | tuple[float, float]:
    """Mean of a doc's samples, or its range where some are unscored (None).

    Args:
        samples: Shape (K,), K >= 1, each in [low, high] or None.
        low: Smallest value a sample can have.
        high: Largest.

    Raises:
        ValueError: No samples at all.
    """
    if not samples:
        raise ValueError("samples: empty, not even an unscored one")
    seen = [s for s in samples if s is not None]
    missing, total = len(samples) - len(seen), sum(seen)
    if not missing:
        return total / len(samples)
    return (total + missing * low) / len(samples), (total + missing * high) / len(samples)


def missing_bounds(
    baseline: Sequence[Partial],
    candidate: Sequence[Partial],
    clusters: Labels | None = None,
    strata: Labels | None = None,
    level: float = 0.95,
    low: float = 0.0,
    high: float = 1.0,
    *,
    macro: bool = False,
) -> MissingBounds | None:
    """Compare at the best and the worst case of the unscored samples.

    Args:
        baseline: One value, range or None per doc, shape (n,).
        candidate: The same docs, same order.
        clusters: Source of each doc.
        strata: Fixed stratum of each doc.
        level: Confidence level.
        low: Smallest value a doc can have.
        high: Largest.
        macro: The mean over strata in place of the mean over docs.

    Returns:
        None if nothing is missing.

    Raises:
        ValueError: What `paired` raises.
    """
    base, cand = ([_ends(v, low, high) for v in side] for side in (baseline, candidate))
    if len(base) != len(cand):
        raise ValueError(f"baseline has {len(base)} docs, candidate {len(cand)}: pair them by id")
    docs = sum(b[0] != b[1] or c[0] != c[1] for b, c in zip(base, cand, strict=True))
    if not docs:
        return None
    best, worst = (
        paired([b[i] for b in base], [c[1 - i] for c in cand], clusters, strata, level, macro=macro)
        for i in (0, 1)
    )
    return MissingBounds(best, worst, docs)


def verdict_if_missing(
    bounds: MissingBounds,
    margin: float,
    alpha: float = 0.05,
    *,
    p_adjusted: tuple[float | None, float | None] = (None, None),
    higher_is_better: bool = True,
) -> str:
    """Give the verdict that holds at both ends, or `incomplete` where they differ.

    Args:
        bounds: From `missing_bounds`.
        margin: Largest tolerated drop.
        alpha: Bound on either error.
        p_adjusted: Holm's p-value of the best and of the worst case; None: their own.
        higher_is_better: False for lengths and error rates.
    """
    best, worst = (
        verdict(r, margin, alpha=alpha, p_adjusted=p, higher_is_better=higher_is_better)
        for r, p in zip((bounds.best, bounds.worst), p_adjusted, strict=True)
    )
    return best if best == worst else "incomplete"


def regression_stands(
    bounds: MissingBounds,
    margin: float,
    alpha: float = 0.05,
    *,
    p_adjusted: float | None = None,
    higher_is_better: bool = True,
) -> bool:
    """Whether it is a regression even if every missing sample were right.

    Such a regression outranks exit code 3.

    Args:
        bounds: From `missing_bounds`.
        margin: Largest tolerated drop.
        alpha: Bound on either error.
        p_adjusted: Holm's p-value of the lenient case; None: its own.
        higher_is_better: False for lengths and error rates.
    """
    lenient = bounds.best if higher_is_better else bounds.worst
    name = verdict(
        lenient, margin, alpha=alpha, p_adjusted=p_adjusted, higher_is_better=higher_is_better
    )
    return name == "regressed"


def _ends(value: Partial, low: float, high: float) -> tuple[float, float]:
    if value is None:
        return low, high
    return value if isinstance(value, tuple) else (value, value)
