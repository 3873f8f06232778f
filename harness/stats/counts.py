"""What follows from counts: pass@k, and tests and interval of paired differences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.stats import _core

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.stats._core import Floats

EXACT_FLIPS = 14
"""Up to this many non-zero sums all 2^k sign patterns are counted."""

FLIPS = 20_000
"""Sign patterns drawn beyond that."""


def pass_at_k(right: int, n: int, k: int) -> float:
    """Unbiased estimate of the chance that at least one of k samples is right.

    It is the share of the k-subsets of the n samples that hold a right one.

    Args:
        right: Right samples.
        n: Samples drawn, all of them scored.
        k: Samples of the imagined draw.

    Raises:
        ValueError: Counts out of range, k above n included.

    Source: Chen et al., "Evaluating large language models trained on code",
    arXiv:2107.03374, equation 1.
    """
    if not 0 <= right <= n or not 1 <= k <= n:
        raise ValueError(f"right={right}, n={n}, k={k}: expected 0 <= right <= n, 1 <= k <= n")
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


def mcnemar(lost: int, gained: int) -> tuple[float, float]:
    """Exact McNemar test: two-sided p, and one-sided p against a loss.

    Args:
        lost: Docs right before and wrong now.
        gained: Docs wrong before and right now.

    Source: McNemar (1947); the binomial test of `lost` in `lost + gained` at one half.
    """
    special, total = _core.special(), lost + gained
    if total == 0:
        return 1.0, 1.0
    smaller = float(special.bdtr(min(lost, gained), total, 0.5))
    # P(X >= lost) = P(X <= gained) at one half
    return min(1.0, 2 * smaller), min(1.0, float(special.bdtr(gained, total, 0.5)))


def tango(
    lost: float, gained: float, n: float, level: float = 0.95, *, df: float | None = None
) -> tuple[float, float]:
    """Tango's score interval of the difference of two paired proportions.

    Its width is positive even where nothing was lost or gained.

    Args:
        lost: Docs right before and wrong now; a fraction where n is an effective one.
        gained: Docs wrong before and right now.
        n: Number of docs, or effective number.
        level: Confidence level.
        df: Take the quantile from t(df) instead of the normal.

    Raises:
        ValueError: Counts below 0 or above n together.

    Source: Tango, "Equivalence test and confidence interval for the difference in
    proportions for the paired-sample design", Statistics in Medicine 17 (1998).
    """
    if lost < 0 or gained < 0 or not n > 0 or lost + gained > n * (1 + 1e-9):
        raise ValueError(f"lost={lost}, gained={gained}, n={n}: expected 0 <= lost + gained <= n")
    tail = (1 + level) / 2
    z = _core.normal_quantile(tail) if df is None else _core.t_quantile(tail, df)
    delta = (gained - lost) / n

    def outside(candidate: float) -> bool:
        return abs(tango_score(lost, gained, n, candidate)) > z

    low = -1.0 if not outside(-1.0 + 1e-12) else _edge(outside, -1.0, delta)
    high = 1.0 if not outside(1.0 - 1e-12) else _edge(outside, 1.0, delta)
    return low, high


def tango_score(lost: float, gained: float, n: float, delta: float) -> float:
    """Score statistic of `difference = delta`, standard normal if true.

    The probability of a loss is at its maximum-likelihood value given delta, the larger
    root of 2 n q^2 + b q + c.
    """
    b = (2 * n + lost - gained) * delta - lost - gained
    c = -lost * delta * (1 - delta)
    q = (math.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)
    variance = n * (2 * q + delta * (1 - delta))
    distance = gained - lost - n * delta
    if variance <= 0:
        return 0.0 if abs(distance) < 1e-9 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def sign_flip(sums: Floats) -> tuple[float, float]:
    """Sign-flip test over units: two-sided p, and one-sided p against a loss.

    Under no change each unit's sum is as likely to have either sign. All patterns are
    counted up to 14 non-zero units, else 20,000 seeded ones are drawn (the observed one
    counted in, so p is never 0).

    Args:
        sums: Summed difference of each unit, shape (units,); the order does not matter.
    """
    import numpy as np

    moving = np.sort(sums[abs(sums) > 1e-12 * max(1e-300, float(abs(sums).max(initial=0.0)))])
    k = moving.size
    if k == 0:
        return 1.0, 1.0
    # One orientation, so that swapping baseline and candidate swaps the tails exactly.
    size = np.sort(abs(moving))
    observed = float(moving.sum())
    if k <= EXACT_FLIPS:
        bits = (np.arange(2**k)[:, None] >> np.arange(k)) & 1
        totals, add = (1.0 - 2.0 * bits) @ size, 0
    else:
        rng = np.random.default_rng(_core.SEED)
        step = max(1, 4_000_000 // k)
        parts = [
            (1.0 - 2.0 * rng.integers(0, 2, size=(min(step, FLIPS // 2 - i), k))) @ size
            for i in range(0, FLIPS // 2, step)
        ]
        half = np.concatenate(parts)
        totals, add = np.concatenate([half, -half]), 1  # antithetic: both tails alike
    slack = 1e-9 * float(size.sum())
    count = totals.size + add
    two_sided = (float((abs(totals) >= abs(observed) - slack).sum()) + add) / count
    one_sided = (float((totals <= observed + slack).sum()) + add) / count
    return min(1.0, two_sided), min(1.0, one_sided)


def _edge(outside: Callable[[float], bool], start: float, inside: float) -> float:
    """Bisect between a rejected and an accepted difference."""
    for _ in range(60):
        middle = (start + inside) / 2
        start, inside = (middle, inside) if outside(middle) else (start, middle)
    return (start + inside) / 2
