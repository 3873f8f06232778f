"""Seeded simulation of the shipped comparison on cluster sums, for `power`.

Docs of a cluster are tied by a Gaussian copula: a cluster's normal draw shifts the chances
of loss and gain of all its docs, by as much as gives the asked correlation of differences.
Only cluster sums are drawn, so the cost does not grow with the docs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from harness.stats import _core
from harness.stats.paired import BARELY, FEW_CLUSTERS, FEW_DOCS

if TYPE_CHECKING:
    from harness.stats._core import Floats

REPLICATES = 4_000
"""Replicates of a simulation, fewer where there are very many units."""

CELLS = 400_000
"""Units times replicates at most (at least 400 replicates)."""

MANY_UNITS = 1_000
"""With more units t is normal, and nothing needs to be drawn."""


@dataclass(frozen=True, slots=True)
class Design:
    """A comparison that has not been run: `power.mde` describes the fields."""

    n: int
    discordance: float
    alpha: float
    sizes: tuple[int, ...] | None = None
    icc: float = 0.0
    repeats: int = 1
    decoding_share: float = 0.5
    margin: float = 0.0
    test_alpha: float = 0.05

    @property
    def exact(self) -> bool:
        """Independent docs with one sample each: no simulation is needed."""
        return self.sizes is None and self.repeats == 1


@dataclass(frozen=True, slots=True)
class Draws:
    """Replicates of a comparison, each of shape (replicates,)."""

    mean: Floats
    se: Floats
    differing: Floats
    lost: Floats
    gained: Floats
    units: int


def mean_size(sizes: tuple[int, ...]) -> float:
    """Cluster size that a random doc sees: sum of m^2 over sum of m."""
    return sum(m * m for m in sizes) / sum(sizes)


def rates(discordance: float, drop: float) -> tuple[float, float]:
    """Chances of losing and of gaining a doc: the drop comes on top of the nuisance."""
    return discordance / 2 + drop, discordance / 2


def scores(lost: Floats, gained: Floats, n: Floats | float, delta: float) -> Floats:
    """`counts.tango_score` over arrays."""
    import numpy as np

    b = (2 * n + lost - gained) * delta - lost - gained
    c = -lost * delta * (1 - delta)
    q = (np.sqrt(np.maximum(0.0, b * b - 8 * n * c)) - b) / (4 * n)
    variance = n * (2 * q + delta * (1 - delta))
    distance = gained - lost - n * delta
    with np.errstate(divide="ignore", invalid="ignore"):
        score = distance / np.sqrt(np.maximum(variance, 0.0))
    return np.where((variance <= 0) & (abs(distance) < 1e-9), 0.0, score)


def regressed(design: Design, drop: float) -> float:
    """Share of replicates called regressed at a true drop."""
    if design.sizes is not None and len(design.sizes) < _core.MIN_CLUSTERS:
        return 0.0
    if _units(design) > MANY_UNITS:
        se, quantile = _normal_se(design, drop), _core.normal_quantile
        reach = max(
            quantile(1 - design.test_alpha / 2) * se,
            design.margin - quantile(1 - design.alpha / 2) * se,
        )
        return float(_core.special().ndtr((drop - reach) / se))
    x = _draw(design, drop)
    if x.units < 2:
        return 0.0
    df = _df(design)
    # Where few units differ, the sign-flip cannot reach .05: such runs are not called.
    enough = x.differing >= _few(design)
    wide = _core.t_quantile(1 - design.alpha / 2, df) * x.se
    test = _core.t_quantile(1 - design.test_alpha / 2, df) * x.se
    called = (x.mean < -test) & (x.mean + wide < 0) & (x.mean - wide <= -design.margin)
    return float((enough & called).mean())


def passed(design: Design, drop: float) -> float:
    """Share of replicates whose interval lies above -margin at a true drop."""
    import numpy as np

    if design.sizes is not None and len(design.sizes) < _core.MIN_CLUSTERS:
        return 0.0
    if _units(design) > MANY_UNITS:
        se = _normal_se(design, drop)
        reach = design.margin - _core.normal_quantile(1 - design.alpha / 2) * se
        return float(_core.special().ndtr((reach - drop) / se))
    x = _draw(design, drop)
    if x.units < 2:
        return 0.0
    df = _df(design)
    t = _core.t_quantile(1 - design.alpha / 2, df)
    z = _core.normal_quantile(1 - design.alpha / 2)
    enough = (x.differing >= _few(design)) & (x.se > 0)
    if design.sizes is None:
        n, quantile = np.full(x.mean.size, float(design.n)), np.full(x.mean.size, z)
    else:
        barely = (x.differing < BARELY) | (x.se == 0)
        moved = (x.lost + x.gained) / design.n
        implied = (moved - x.mean**2) / np.where(x.se > 0, x.se, 1.0) ** 2
        n = np.where(barely, x.units, np.clip(implied, x.units, design.n))
        quantile = np.where(n > x.units, t, z)
    scale = n / design.n
    score = scores(x.lost * scale, x.gained * scale, n, -design.margin)
    return float(np.where(enough, x.mean - t * x.se > -design.margin, score > quantile).mean())


def _units(design: Design) -> int:
    return design.n if design.sizes is None else len(design.sizes)


def _df(design: Design) -> float:
    """Effective number of units less 1, as `_core.spread` counts them."""
    if design.sizes is None:
        return design.n - 1.0
    return max(1.0, design.n / mean_size(design.sizes) - 1)


def _noise(design: Design) -> float:
    """The part of the discordance that is decoding noise, and so shrinks with repeats."""
    return design.discordance * design.decoding_share if design.repeats > 1 else 0.0


def _normal_se(design: Design, drop: float) -> float:
    """Standard error of the mean difference, in closed form."""
    noise = _noise(design)
    lose, gain = rates(design.discordance - noise, drop)
    lasting = lose + gain - drop**2
    effect = 1.0 if design.sizes is None else 1 + (mean_size(design.sizes) - 1) * design.icc
    return math.sqrt((lasting * effect + noise / design.repeats) / design.n)


def _few(design: Design) -> int:
    return FEW_DOCS if design.sizes is None else FEW_CLUSTERS


def _draw(design: Design, drop: float) -> Draws:
    """Draw cluster sums: lasting changes by copula, decoding noise independent on top."""
    import numpy as np

    sizes = np.ones(design.n, dtype=np.int64) if design.sizes is None else np.array(design.sizes)
    g, k = sizes.size, design.repeats
    replicates = 2 * int(np.clip(CELLS // g, 400, REPLICATES) // 2)
    rng = np.random.default_rng(_core.SEED)
    noise = _noise(design)
    lose, gain = rates(design.discordance - noise, drop)
    if design.sizes is None or design.icc <= 0:
        cells = (replicates, g)
        chance = np.broadcast_to(np.array([lose, gain, max(0.0, 1 - lose - gain)]), (*cells, 3))
    else:
        rho = _copula(round(lose, 6), round(gain, 6), design.icc)
        z = rng.standard_normal((replicates // 2, g))
        lost_c, gained_c = _conditional(np.concatenate([z, -z]), rho, lose, gain)
        rest = np.maximum(0.0, 1 - lost_c - gained_c)
        chance = np.stack([lost_c, gained_c, rest], axis=-1)
        chance /= chance.sum(axis=-1, keepdims=True)
    drawn = rng.multinomial(sizes, chance)
    lost, gained = drawn[..., 0].astype(np.float64), drawn[..., 1].astype(np.float64)
    if noise > 0:
        lost += rng.binomial(sizes * k, noise / 2, size=lost.shape) / k
        gained += rng.binomial(sizes * k, noise / 2, size=lost.shape) / k
    sums = gained - lost
    mean = sums.sum(axis=1) / design.n
    residual = sums - sizes * mean[:, None]
    variance = (residual**2).sum(axis=1) * g / max(1, g - 1)
    return Draws(
        mean=mean,
        se=np.sqrt(variance) / design.n,
        differing=((lost + gained) > 0).sum(axis=1).astype(np.float64),
        lost=lost.sum(axis=1),
        gained=gained.sum(axis=1),
        units=g,
    )


def _conditional(z: Floats, rho: float, lose: float, gain: float) -> tuple[Floats, Floats]:
    """Chances of loss and gain in a cluster whose draw is z; a low z loses."""
    special, root, rest = _core.special(), math.sqrt(rho), math.sqrt(1 - rho)
    lost = special.ndtr((_core.normal_quantile(lose) - root * z) / rest)
    gained = special.ndtr((_core.normal_quantile(gain) + root * z) / rest)
    return lost, gained


@lru_cache(maxsize=4096)
def _copula(lose: float, gain: float, icc: float) -> float:
    """Correlation of the latent normals that gives the differences correlation `icc`."""
    import numpy as np

    z = np.linspace(-6, 6, 601)
    weight = np.exp(-(z**2) / 2)
    weight /= weight.sum()
    total = lose + gain - (gain - lose) ** 2
    low, high = 0.0, 0.99
    for _ in range(25):
        rho = (low + high) / 2
        lost, gained = _conditional(z, rho, lose, gain)
        shift = gained - lost
        share = (weight @ shift**2 - (weight @ shift) ** 2) / total
        low, high = (rho, high) if share < icc else (low, rho)
    return (low + high) / 2
