"""What every statistic here shares: checked input, quantiles, and one variance formula.

The formula is the linearised ("CR1") variance of a weighted mean. With one doc a cluster it
is the familiar s^2 / n, with docs grouped by page it is the cluster-robust variance, with
strata it is the stratified one: sum over strata of G/(G - 1) * sum over clusters of u_g^2,
where u_g adds up weight * (value - stratum mean) over the docs of cluster g.
Sources: Cameron and Miller, "A Practitioner's Guide to Cluster-Robust Inference" (2015); for
the effective number of clusters Carter, Schnepel and Steigerwald (2017).

numpy and scipy are imported when called: `import harness.stats` has to stay cheap.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Bools: TypeAlias = NDArray[np.bool_]
    Ints: TypeAlias = NDArray[np.int64]
    Values: TypeAlias = Sequence[float] | Floats
    Labels: TypeAlias = Sequence[Hashable]

MIN_CLUSTERS = 8
"""Below this many clusters no interval is given: CR1 with t(G - 1) is not to be trusted."""

SEED = 20_240_923
"""Seed of every resampling here, so that a stored record always gives the same figures."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A weighted mean and its variance over independent units.

    Attributes:
        mean: Weighted mean.
        se: Standard error, None with fewer than two units.
        df: Degrees of freedom: effective units less strata, at least 1. Units of unequal size
            count for fewer, (sum m)^2 / sum m^2: a page with half of all docs makes the
            variance as uncertain as if there were few pages.
        units: Number of independent units (docs, or clusters of docs).
        kish: Kish's effective number of docs, 1 / sum of squared weights; n at equal weights.
        sums: Weighted sum of the values of each unit, uncentred (shape `units`).
    """

    mean: float
    se: float | None
    df: float
    units: int
    kish: float
    sums: Floats


def as_values(values: Values, name: str = "values") -> Floats:
    """Check one number per doc.

    Args:
        values: Shape (n,), finite, n >= 1.
        name: What to call it in an error.

    Raises:
        ValueError: Empty, not one-dimensional, or with NaN or infinite entries.
    """
    import numpy as np

    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one number per doc, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name}: empty, there is nothing to estimate")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ValueError(
            f"{name}: {bad.size} of {array.size} not finite (first at position {bad[0]}); "
            "leave unscored docs out, or use missing_bounds"
        )
    return array


def as_codes(labels: Labels | None, n: int, name: str) -> Ints | None:
    """Number the labels 0, 1, ... in order of appearance.

    Args:
        labels: One label per doc, or None.
        n: Number of docs.
        name: What to call it in an error.

    Raises:
        ValueError: The number of labels is not n, or a label is None.
    """
    import numpy as np

    if labels is None:
        return None
    if len(labels) != n:
        raise ValueError(f"{name}: {len(labels)} labels for {n} docs")
    seen: dict[Hashable, int] = {}
    codes = np.empty(n, dtype=np.int64)
    for i, label in enumerate(labels):
        if label is None:
            raise ValueError(f"{name}: doc at position {i} has none; give all docs one, or no doc")
        codes[i] = seen.setdefault(label, len(seen))
    return codes


def cluster_codes(clusters: Labels | None, n: int) -> Ints | None:
    """Like `as_codes`; None where every doc is its own cluster, as that is no clustering."""
    codes = as_codes(clusters, n, "clusters")
    return None if codes is None or int(codes.max()) + 1 == n else codes


def check_level(level: float) -> None:
    """Refuse a confidence level outside (0.5, 1): 95 where 0.95 is meant, alpha for level."""
    if not 0.5 < level < 1:
        raise ValueError(f"level={level}: expected a confidence level between 0.5 and 1, as .95")


def merge_single_strata(strata: Ints, units: Ints) -> Ints:
    """Join strata of a single unit, whose variance cannot be seen, to others.

    All such strata form one; if only one exists, it joins the smallest of the others. A
    joined stratum is centred on its own mean, so the variance errs on the large side.

    Args:
        strata: Stratum of each doc, shape (n,).
        units: Unit of each doc, shape (n,); a unit lies in one stratum.
    """
    import numpy as np

    first = np.unique(units, return_index=True)[1]
    counts = np.bincount(strata[first], minlength=int(strata.max()) + 1)
    single = np.flatnonzero(counts == 1)
    if single.size == 0 or counts.size == 1:
        return strata
    merged = strata.copy()
    target = single[0]
    if single.size == 1:
        others = np.flatnonzero(counts > 1)
        target = others[np.argmin(counts[others])]
    merged[np.isin(strata, single)] = target
    return np.unique(merged, return_inverse=True)[1].astype(np.int64)


def spread(
    values: Floats,
    *,
    units: Ints | None = None,
    strata: Ints | None = None,
    centres: Ints | None = None,
    weights: Floats | None = None,
) -> Spread:
    """Compute a weighted mean with its linearised variance.

    Args:
        values: Shape (n,).
        units: Cluster of each doc; None: each doc is a unit.
        strata: Fixed stratum of each doc, units nested in strata; None: one stratum.
        centres: Group whose mean the residuals are taken from, where that is not the
            stratum: the task of each row in a macro mean over tasks that share clusters.
        weights: Weight of each doc, adding up to 1; None: 1/n.
    """
    import numpy as np

    n = values.size
    w = np.full(n, 1.0 / n) if weights is None else weights
    unit = np.arange(n) if units is None else units
    stratum = np.zeros(n, dtype=np.int64) if strata is None else merge_single_strata(strata, unit)
    group = stratum if centres is None else centres
    # Rounding may carry a mean past its values, and a proportion past 1.
    mean = float(np.clip(w @ values, values.min(), values.max()))
    group_mean = np.bincount(group, w * values) / np.bincount(group, w)
    residual = np.bincount(unit, w * (values - group_mean[group]))
    first = np.unique(unit, return_index=True)[1]
    of_unit = stratum[first]
    size = np.bincount(of_unit)
    share = np.bincount(unit, w)
    g = residual.size
    with np.errstate(divide="ignore"):
        factor = np.where(size > 1, size / (size - 1.0), 0.0)
    variance = float(factor[of_unit] @ residual**2)
    # Residuals of equal values are rounding noise, not spread.
    scale = float(np.max(np.abs(values))) if n else 0.0
    if variance < (1e-12 * scale) ** 2:
        variance = 0.0
    return Spread(
        mean=mean,
        se=math.sqrt(variance) if g > 1 else None,
        df=max(1.0, round(1.0 / float(share @ share) - size.size, 9)),
        units=g,
        kish=1.0 / float(w @ w),
        sums=np.bincount(unit, w * values).astype(np.float64),
    )


def strata_weights(strata: Ints) -> Floats:
    """Doc weights that count every stratum alike: 1 / (number of strata * docs in it)."""
    import numpy as np

    size = np.bincount(strata)
    return 1.0 / (size.size * size[strata])


def nested(units: Ints | None, strata: Ints) -> bool:
    """Tell whether every cluster lies within one stratum."""
    import numpy as np

    if units is None:
        return True
    pairs = np.unique(np.stack([units, strata]), axis=1).shape[1]
    return pairs == int(units.max()) + 1


def special() -> Any:
    """scipy.special, untyped upstream; ten times faster to import than scipy.stats."""
    import scipy.special

    return scipy.special


def normal_quantile(p: float) -> float:
    """Quantile of the standard normal distribution."""
    return float(special().ndtri(p))


def t_quantile(p: float, df: float) -> float:
    """Quantile of Student's t."""
    return float(special().stdtrit(df, p))


def t_cdf(x: float, df: float) -> float:
    """Distribution function of Student's t."""
    return float(special().stdtr(df, x))
