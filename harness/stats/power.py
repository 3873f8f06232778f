"""What a gate can see, told before anything is generated.

The figures are those of the shipped procedure (`paired` and `gate.verdict`, Holm's first
step at alpha / tests), not of a formula: exact sums over the discordant docs where docs are
independent and 0/1, seeded simulation of cluster sums otherwise. The textbook shortcut
2.8 sqrt(d / n) promises 16, 8 and 4 points at n = 30, 125, 500; the procedure needs 34, 13
and 5.

The discordance is a named nuisance, never the observed one: of docs that did not really
change, `discordance` differ between two runs, half of them each way. A true drop adds
losses on top.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from harness.stats import _core, simulate
from harness.stats.gate import holm_alpha

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.stats._core import Bools, Floats, Labels


@dataclass(frozen=True, slots=True)
class Decidable:
    """Whether "no worse within the margin" can be shown on a set.

    Attributes:
        ok: The chance is at least the power asked for.
        chance: P(no worse | nothing changed), 0 to 1.
        needed: Docs that would do, at the same cluster sizes.
        note: One sentence for the user; never empty.
    """

    ok: bool
    chance: float
    needed: int
    note: str


def cluster_sizes(labels: Labels) -> tuple[int, ...]:
    """Docs per cluster, in falling order, as `mde` wants them."""
    return tuple(sorted(Counter(labels).values(), reverse=True))


def macro_size(strata: Labels) -> int:
    """Docs that would do as well if all counted alike: Kish's n of a mean over strata.

    With K strata of n_k docs it is K^2 / sum(1 / n_k), at most their number; 45 equal ones lose
    nothing.

    Args:
        strata: Stratum of each doc, at least one doc.
    """
    sizes = Counter(strata).values()
    return int(len(sizes) ** 2 / sum(1 / n for n in sizes) + 1e-9)


def mde(
    n: int,
    clusters: Sequence[int] | None = None,
    discordance: float = 0.1,
    *,
    icc: float = 0.2,
    design_effect: float | None = None,
    repeats: int = 1,
    decoding_share: float = 0.5,
    alpha: float = 0.05,
    tests: int = 1,
    power: float = 0.8,
    margin: float = 0.0,
) -> float | None:
    """The smallest drop that the shipped procedure calls regressed with the given power.

    Args:
        n: Number of docs.
        clusters: Docs per cluster, adding up to n; None (or all 1): independent docs.
        discordance: Share of docs that differ though nothing changed, in (0, 1).
        icc: Correlation of the differences within a cluster, 0 to 1 (railway: .10 to .29).
        design_effect: Instead of `icc`: how much the clusters inflate the variance.
        repeats: Samples per doc, on either side.
        decoding_share: Share of the discordance that is decoding noise, and so shrinks with
            repeats.
        alpha: Bound on either error.
        tests: Tests in the gate; Holm's first step asks alpha / tests.
        power: Probability with which the drop is to be called.
        margin: The gate's margin: a drop shown to be within it is "slightly worse".

    Returns:
        The drop, 0 to 1 - discordance, to .2% of itself (to 3% where simulated).
        None: no drop at all would be called, as with 5 docs or fewer than 8 clusters.

    Raises:
        ValueError: An argument out of range, named.
    """
    _range("power", power, 0.5, 1)
    planned = design(
        n,
        clusters,
        discordance,
        icc=icc,
        design_effect=design_effect,
        repeats=repeats,
        decoding_share=decoding_share,
        alpha=alpha,
        tests=tests,
        margin=margin,
    )
    return _mde(planned, power)


def design(
    n: int,
    clusters: Sequence[int] | None = None,
    discordance: float = 0.1,
    *,
    icc: float = 0.2,
    design_effect: float | None = None,
    repeats: int = 1,
    decoding_share: float = 0.5,
    alpha: float = 0.05,
    tests: int = 1,
    margin: float = 0.0,
) -> simulate.Design:
    """Describe a comparison that has not been run; the arguments are those of `mde`.

    Raises:
        ValueError: An argument out of range, named.
    """
    if n < 1 or repeats < 1:
        raise ValueError(f"n={n}, repeats={repeats}: expected at least 1")
    _range("discordance", discordance, 0, 1)
    _range("alpha", alpha, 0, 0.5)
    _range("decoding_share", decoding_share, -1e-9, 1 + 1e-9)
    _range("icc", icc, -1e-9, 1)
    _range("margin", margin, -1e-9, 1)
    if clusters is not None and (sum(clusters) != n or min(clusters) < 1):
        raise ValueError(f"clusters: sizes add up to {sum(clusters)}, not to n={n}")
    sizes = None if clusters is None or max(clusters) == 1 else tuple(sorted(clusters))
    if design_effect is not None and sizes is not None:
        icc = min(0.95, max(0.0, (design_effect - 1) / (simulate.mean_size(sizes) - 1)))
    return simulate.Design(
        n=n,
        discordance=discordance,
        alpha=alpha,
        sizes=sizes,
        icc=icc,
        repeats=repeats,
        decoding_share=decoding_share,
        margin=margin,
        test_alpha=holm_alpha(tests, alpha),
    )


def detection(planned: simulate.Design, drop: float) -> float:
    """P(regressed) at a true drop: the power there, the false alarms at drop 0."""
    return _exact_detection(planned, drop) if planned.exact else simulate.regressed(planned, drop)


def release(planned: simulate.Design, drop: float) -> float:
    """P(passed) at a true drop; at drop = margin it is the release error."""
    return _exact_release(planned, drop) if planned.exact else simulate.passed(planned, drop)


@lru_cache(maxsize=256)
def docs_needed(
    margin: float,
    discordance: float = 0.1,
    power: float = 0.8,
    alpha: float = 0.05,
    design_effect: float = 1.0,
) -> int:
    """Docs with which "no worse within the margin" is shown with the given power.

    Exact for independent 0/1 docs; multiplied by the design effect for clusters.

    Args:
        margin: Tolerated drop, in (0, 1).
        discordance: Share of docs that differ though nothing changed, in (0, 1).
        power: Probability of passing a checkpoint that did not change.
        alpha: Bound on the release error.
        design_effect: 1 + (docs per cluster - 1) * icc.

    Raises:
        ValueError: An argument out of range, named.
    """
    _range("margin", margin, 0, 1)
    _range("discordance", discordance, 0, 1)
    _range("power", power, 0.5, 1)

    def enough(n: int) -> bool:
        return _exact_release(simulate.Design(n, discordance, alpha, margin=margin), 0.0) >= power

    quantiles = _core.normal_quantile(1 - alpha / 2) + _core.normal_quantile(power)
    low, high = 1, max(8, math.ceil(quantiles**2 * discordance / margin**2))
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return math.ceil(high * design_effect)


def decidable(
    n: int,
    margin: float,
    clusters: Sequence[int] | None = None,
    discordance: float = 0.1,
    *,
    icc: float = 0.2,
    repeats: int = 1,
    decoding_share: float = 0.5,
    alpha: float = 0.05,
    power: float = 0.8,
) -> Decidable:
    """Tell whether a set is large enough for "no worse within the margin".

    Args:
        n: Number of docs.
        margin: Tolerated drop, in (0, 1).
        clusters: Docs per cluster, or None.
        discordance: Share of docs that differ though nothing changed.
        icc: Correlation of the differences within a cluster.
        repeats: Samples per doc, on either side.
        decoding_share: Share of the discordance that is decoding noise.
        alpha: Bound on the release error.
        power: Probability of passing an unchanged checkpoint.

    Raises:
        ValueError: An argument out of range, named.
    """
    planned = design(
        n,
        clusters,
        discordance,
        icc=icc,
        repeats=repeats,
        decoding_share=decoding_share,
        alpha=alpha,
        margin=margin,
    )
    chance = release(planned, 0.0)
    kept = 1 - decoding_share + decoding_share / repeats
    sizes = planned.sizes
    effect = 1.0 if sizes is None else 1 + (simulate.mean_size(sizes) - 1) * icc
    needed = docs_needed(margin, discordance * kept, power, alpha, effect)
    ok, points = chance >= power, f"{100 * margin:g} points"
    if sizes is not None and len(sizes) < _core.MIN_CLUSTERS:
        note = f"too few clusters ({len(sizes)}) for any interval"
    elif ok:
        note = f"{n} docs can show no worse within {points} ({chance:.0%} of unchanged checkpoints)"
    else:
        note = (
            f"{n} docs cannot show no worse within {points}: {chance:.0%} of unchanged "
            f"checkpoints would pass; about {needed} docs are needed"
        )
    return Decidable(ok, chance, needed, note)


@lru_cache(maxsize=512)
def _mde(planned: simulate.Design, power: float) -> float | None:
    low, high = 0.0, 1 - planned.discordance
    if detection(planned, high) < power:
        return None
    while high - low > max(1e-4, 2e-3 * high):
        middle = (low + high) / 2
        low, high = (low, middle) if detection(planned, middle) >= power else (middle, high)
    return high


def _exact_detection(planned: simulate.Design, drop: float) -> float:
    """Sum over the number of discordant docs: P(so many) * P(enough of them are losses)."""
    z = _core.normal_quantile(1 - planned.alpha / 2)
    n, special = planned.n, _core.special()

    def called(lost: Floats, total: Floats) -> Bools:
        gained = total - lost
        test = 2 * special.bdtr(gained, total, 0.5) <= planned.test_alpha
        below = lost - gained > z * total**0.5
        return test & below & (simulate.scores(lost, gained, n, -planned.margin) <= z)

    return _sum_over_discordant(planned, drop, called, upward=True)


def _exact_release(planned: simulate.Design, drop: float) -> float:
    z = _core.normal_quantile(1 - planned.alpha / 2)

    def not_passed(lost: Floats, total: Floats) -> Bools:
        return simulate.scores(lost, total - lost, planned.n, -planned.margin) <= z

    return _sum_over_discordant(planned, drop, not_passed, upward=False)


def _sum_over_discordant(
    planned: simulate.Design,
    drop: float,
    crossed: Callable[[Floats, Floats], Bools],
    *,
    upward: bool,
) -> float:
    """P(losses at or over the threshold) if `upward`, else P(below it).

    `crossed(lost, total)` is monotone in `lost`; its threshold is found by bisection for
    every number of discordant docs at once.
    """
    import numpy as np

    special, n = _core.special(), planned.n
    lose, gain = simulate.rates(planned.discordance, drop)
    rate = min(1.0, lose + gain)
    reach = 9 * math.sqrt(n * rate * (1 - rate)) + 9
    first, last = max(0, math.floor(n * rate - reach)), min(n, math.ceil(n * rate + reach))
    total = np.arange(first, last + 1, dtype=np.float64)
    low, high = np.full(total.size, -1.0), total + 1  # crossed at high, not at low
    while (high - low).max() > 1:
        middle = np.floor((low + high) / 2)
        hit = crossed(np.clip(middle, 0, total), total)
        # -1 and total + 1 are never asked: both stand for "at no count"
        high, low = np.where(hit, middle, high), np.where(hit, low, middle)
    threshold = high
    if rate >= 1:
        weight = (total == n).astype(np.float64)
    else:
        weight = np.exp(
            special.gammaln(n + 1)
            - special.gammaln(total + 1)
            - special.gammaln(n - total + 1)
            + special.xlogy(total, rate)
            + special.xlogy(n - total, 1 - rate)
        )
    # P(lost < threshold) among `total` discordant docs
    below = np.where(
        threshold > total,
        1.0,
        np.where(
            threshold <= 0,
            0.0,
            special.bdtr(np.clip(threshold - 1, 0, total), total, lose / rate),
        ),
    )
    return float(weight @ (1 - below if upward else below))


def _range(name: str, value: float, low: float, high: float) -> None:
    if not low < value < high:
        raise ValueError(f"{name}={value}: expected a value between {max(0, low):g} and {high:g}")
