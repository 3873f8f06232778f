"""Intervals of a proportion or a bounded mean; `intervals.estimate` picks among them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.stats import _core

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.stats._core import Values

DRAWS = 20_000
"""Weight vectors drawn for the weighted mid-P interval."""


def wilson(
    successes: float, n: float, level: float = 0.95, *, df: float | None = None
) -> tuple[float, float]:
    """Wilson's score interval of a proportion.

    Args:
        successes: Number right, 0 to n; a fraction where n is an effective one.
        n: Number of docs, or effective number, above 0.
        level: Confidence level.
        df: Take the quantile from t(df) instead of the normal (variance estimated from
            df + 1 clusters).

    Raises:
        ValueError: successes outside [0, n].

    Source: Wilson (1927); Brown, Cai and DasGupta (2001) on its coverage.
    """
    _check_count(successes, n)
    tail = (1 + level) / 2
    z = _core.normal_quantile(tail) if df is None else _core.t_quantile(tail, df)
    p, zz = successes / n, z * z
    centre = (p + zz / (2 * n)) / (1 + zz / n)
    half = z / (1 + zz / n) * math.sqrt(p * (1 - p) / n + zz / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high


def clopper_pearson(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's exact interval: conservative, say so where it is shown.

    It never covers less than `level`, and so mostly covers more (97 to 99% at n = 30).

    Raises:
        ValueError: successes outside [0, n].
    """
    _check_count(successes, n)
    special, tail = _core.special(), (1 - level) / 2
    low = 0.0 if successes == 0 else special.betaincinv(successes, n - successes + 1, tail)
    high = 1.0 if successes == n else special.betaincinv(successes + 1, n - successes, 1 - tail)
    return float(low), float(high)


def mid_p(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The mid-P interval: as Clopper-Pearson, but the observed count weighs one half.

    Raises:
        ValueError: successes outside [0, n].

    Source: Berry and Armitage (1995).
    """
    _check_count(successes, n)
    tail, k = (1 - level) / 2, successes

    def below(p: float) -> float:
        """P(X < k) + P(X = k) / 2 at probability p; falls with p."""
        special = _core.special()
        under = 0.0 if k == 0 else 1 - special.betainc(k, n - k + 1, p)
        up_to = 1.0 if k == n else 1 - special.betainc(k + 1, n - k, p)
        return float(under + up_to) / 2

    low = 0.0 if k == 0 else _falling_root(below, 1 - tail)
    high = 1.0 if k == n else _falling_root(below, tail)
    return low, high


def weighted_mid_p(values: Values, level: float = 0.95) -> tuple[float, float]:
    """Mid-P interval of the mean of values in [0, 1], such as F1 or means of repeats.

    The Bayesian bootstrap with one extra observation, at 1 or at 0 with equal chance. For
    0/1 values it is exactly the mid-P interval (up to the drawing, seeded), so it is never
    of zero width; it covers 95 to 98% where plain t covers 60 to 90%. Its one-ended
    conservative relative is Gaffke's bound.

    Args:
        values: Shape (n,), each in [0, 1].
        level: Confidence level.

    Raises:
        ValueError: A value outside [0, 1], or the faults `estimate` names.

    Source: Gaffke (2005); Learned-Miller and Thomas (2020), arXiv:1905.06208.
    """
    import numpy as np

    x = _core.as_values(values)
    if x.min() < 0 or x.max() > 1:
        raise ValueError(f"values: expected [0, 1], got [{x.min():g}, {x.max():g}]")
    if x.mean() > 0.5:  # one orientation, so that 1 - x gives the mirror image exactly
        low, high = weighted_mid_p(1 - x, level)
        return 1 - high, 1 - low
    distinct, counts = np.unique(np.round(x, 12), return_counts=True)
    draws = int(np.clip(8_000_000 // distinct.size, 2_000, DRAWS))
    rng = np.random.default_rng(_core.SEED)
    weights = rng.standard_gamma(counts.astype(np.float64), size=(draws, distinct.size))
    extra = rng.standard_exponential(draws)
    total, inside = weights.sum(axis=1) + extra, weights @ distinct
    means = np.concatenate([inside / total, (inside + extra) / total])
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(min(low, x.mean())), float(max(high, x.mean()))


def _check_count(successes: float, n: float) -> None:
    if not n > 0 or not 0 <= successes <= n:
        raise ValueError(f"successes={successes} of n={n}: expected 0 <= successes <= n, n > 0")


def _falling_root(function: Callable[[float], float], target: float) -> float:
    """Bisect on [0, 1] for the point where a falling function reaches `target`."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > target else (low, middle)
    return (low + high) / 2
