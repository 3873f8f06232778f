"""Candidate against baseline on the same docs: difference, interval, test.

`paired` picks the form by the data, as measured in benchmarks/README.md:

    0/1, docs independent       exact McNemar for the test, Tango's score interval
    means of repeats, F1        t on the differences
    clusters of docs            t(G - 1) on CR1 standard errors; the cluster sign-flip beside it
    few units that differ       sign-flip for the test, Tango on the effective n
    fewer than 8 clusters       neither interval nor test

"Few" is under 6 clusters (under 10 docs where docs are independent): below six, no sign-flip
reaches p <= .05 however one-sided the changes are, and t(G - 1) passes a true 3-point drop
in up to 15% of runs, as it takes the variance it happened to see for the truth.

No percentile bootstrap: its interval is [0, 0] where nothing differs, and it raises 7 to 8%
false alarms at 15 clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.stats import _core
from harness.stats.counts import mcnemar, sign_flip, tango
from harness.stats.intervals import (
    Estimate,
    VarianceParts,
    by_doc,
    split_variance,
    stack_tasks,
    too_few,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.stats._core import Floats, Ints, Labels, Spread, Values

FEW_CLUSTERS = 6
"""With fewer clusters that differ, t(G - 1) is not used."""

FEW_DOCS = 10
"""With fewer docs that differ, t on independent docs is not used."""

FEW_STRATIFIED = 30
"""With fewer 0/1 docs that differ, strata are left out and McNemar is used."""

BARELY = 3
"""With fewer clusters that differ, the effective n is the number of clusters."""


@dataclass(frozen=True, slots=True)
class PairedResult:
    """Candidate minus baseline, paired by doc.

    Attributes:
        n: Number of docs.
        clusters: Number of independent units; n where docs are not clustered.
        delta: Mean difference; negative is worse where higher is better.
        low: Lower end of the two-sided interval of delta, None if there is none.
        high: Upper end, None if there is none.
        p_value: Two-sided, of no difference; None if there is no test.
        p_regressed: One-sided, against delta < 0; None if there is no test.
        test: Test and interval used.
        discordance: Share of docs on which the two differ.
        level: Confidence level of the interval.
        second_test: A second test, for information: no verdict is taken from it.
        second_p: Its two-sided p-value.
        note: Why there is no interval or test, or what limits them; else empty.
    """

    n: int
    clusters: int
    delta: float
    low: float | None
    high: float | None
    p_value: float | None
    p_regressed: float | None
    test: str
    discordance: float
    level: float = 0.95
    second_test: str = ""
    second_p: float | None = None
    note: str = ""


def paired(
    baseline: Values,
    candidate: Values,
    clusters: Labels | None = None,
    strata: Labels | None = None,
    level: float = 0.95,
    *,
    macro: bool = False,
) -> PairedResult:
    """Compare two score lists of the same docs in the same order.

    Args:
        baseline: One number per doc, shape (n,); repeats are reduced before.
        candidate: The same docs, same order.
        clusters: Source of each doc; all distinct means unclustered.
        strata: Fixed stratum of each doc. With few discordant 0/1 docs it is left out:
            the unstratified test and interval are valid, only wider.
        level: Confidence level of the two-sided interval.
        macro: The difference of the means over strata, in place of the means over docs.

    Raises:
        ValueError: Lists of different length, `macro` without strata, or the faults
            `intervals.estimate` names.
    """
    _core.check_level(level)
    base, cand = _core.as_values(baseline, "baseline"), _core.as_values(candidate, "candidate")
    if base.size != cand.size:
        raise ValueError(f"baseline has {base.size} docs, candidate {cand.size}: pair them by id")
    diff = cand - base
    diff[abs(diff) < 1e-12] = 0.0
    units = _core.cluster_codes(clusters, diff.size)
    layers = _core.as_codes(strata, diff.size, "strata")
    differ = int((diff != 0).sum())
    is_binary = bool((((base == 0) | (base == 1)) & ((cand == 0) | (cand == 1))).all())
    if macro and layers is None:
        raise ValueError("macro: the mean of strata needs strata")
    if not macro and is_binary and units is None and (layers is None or differ < FEW_STRATIFIED):
        return _binary(diff, level)
    weights = _core.strata_weights(layers) if macro and layers is not None else None
    note = ""
    if layers is not None and not _core.nested(units, layers):
        layers, note = None, "clusters cross strata: strata left out of the variance"
    s = _core.spread(diff, units=units, strata=layers, weights=weights)
    return _mean_difference(diff, s, units, weights, level, layers is not None, note)


def macro_paired(
    baseline: Sequence[Values],
    candidate: Sequence[Values],
    clusters: Sequence[Labels],
    level: float = 0.95,
) -> PairedResult:
    """Compare the means over several tasks whose docs share clusters (top-1, top-3, top-5).

    Every task counts alike. Differences are added up by cluster over all tasks, so a page
    moves as a whole, as if pages were resampled jointly.

    Args:
        baseline: One sequence of doc values per task.
        candidate: The same tasks and docs.
        clusters: Clusters of those docs, or doc ids where docs are not clustered.
        level: Confidence level.

    Raises:
        ValueError: Sequences that do not match.
    """
    _core.check_level(level)
    base, weights, task, units = stack_tasks(baseline, clusters)
    cand = stack_tasks(candidate, clusters)[0]
    diff = cand - base
    diff[abs(diff) < 1e-12] = 0.0
    s = _core.spread(diff, units=units, centres=task, weights=weights)
    return _mean_difference(diff, s, units, weights, level, False, "")


def paired_variance_parts(
    baseline: Sequence[Sequence[float]],
    candidate: Sequence[Sequence[float]],
    clusters: Labels | None = None,
    level: float = 0.95,
) -> VarianceParts:
    """Split the error of candidate minus baseline into decoding and question parts.

    The samples of the two are independent given the doc, so their decoding variances add.

    Args:
        baseline: The scores of each doc's samples.
        candidate: The same docs, same order; the number of samples may differ.
        clusters: Source of each doc, for the total.
        level: Confidence level of both intervals.

    Raises:
        ValueError: Different numbers of docs, a doc without samples, NaN.
    """
    if len(baseline) != len(candidate):
        raise ValueError(
            f"baseline has {len(baseline)} docs, candidate {len(candidate)}: pair them"
        )
    base, base_noise, base_df = by_doc(baseline, "baseline")
    cand, cand_noise, cand_df = by_doc(candidate, "candidate")
    noise = None if base_noise is None or cand_noise is None else base_noise + cand_noise
    result = paired(base, cand, clusters, level=level)
    se = _core.spread(cand - base, units=_core.cluster_codes(clusters, base.size)).se
    total = Estimate(
        result.delta,
        se,
        result.low,
        result.high,
        result.n,
        result.clusters,
        level,
        result.test,
        result.note,
    )
    repeats = min(*map(len, baseline), *map(len, candidate))
    return split_variance(total, noise, base_df + cand_df, repeats)


def _binary(diff: Floats, level: float) -> PairedResult:
    lost, gained, n = int((diff < 0).sum()), int((diff > 0).sum()), diff.size
    p, p_regressed = mcnemar(lost, gained)
    low, high = tango(lost, gained, n, level)
    return PairedResult(
        n=n,
        clusters=n,
        delta=(gained - lost) / n,
        low=low,
        high=high,
        p_value=p,
        p_regressed=p_regressed,
        test="exact McNemar, Tango interval",
        discordance=(lost + gained) / n,
        level=level,
    )


def _mean_difference(
    diff: Floats,
    s: Spread,
    units: Ints | None,
    weights: Floats | None,
    level: float,
    stratified: bool,
    note: str,
) -> PairedResult:
    """Compare by t over units, or by sign-flip and Tango where too few of them differ."""
    import numpy as np

    share = float((diff != 0).mean())
    clustered = units is not None
    if clustered and s.units < _core.MIN_CLUSTERS:
        return PairedResult(
            n=diff.size,
            clusters=s.units,
            delta=s.mean,
            low=None,
            high=None,
            p_value=None,
            p_regressed=None,
            test="none",
            discordance=share,
            level=level,
            note=too_few(s.units),
        )
    unit = np.arange(diff.size) if units is None else units
    differing = int((np.bincount(unit, diff != 0) > 0).sum())
    few = differing < (FEW_CLUSTERS if clustered else FEW_DOCS) or not s.se
    flip, flip_regressed = sign_flip(s.sums) if few or clustered else (None, None)
    kind = "cluster" if clustered else "doc"
    if few or not s.se:
        low, high, form = _few(diff, s, weights, level, clustered, differing)
        p, p_regressed, test = flip, flip_regressed, f"{kind} sign-flip, {form}"
        second, second_p = "", None
        why = f"only {differing} of {s.units} {kind}s differ"
        if differing == s.units:  # without spread there is no standard error
            why = f"all {s.units} {kind}s differ" + (" alike" if not s.se else ", but they are few")
    else:
        half = _core.t_quantile((1 + level) / 2, s.df) * s.se
        low, high = s.mean - half, s.mean + half
        p_regressed = _core.t_cdf(s.mean / s.se, s.df)
        p = 2 * min(p_regressed, 1 - p_regressed)
        test = ("CR1 " if clustered else "") + ("stratified " if stratified else "")
        test = f"{test}t({s.df:.3g})"
        second, second_p, why = "cluster sign-flip" if clustered else "", flip, ""
    return PairedResult(
        n=diff.size,
        clusters=s.units,
        delta=s.mean,
        low=low,
        high=high,
        p_value=p,
        p_regressed=p_regressed,
        test=test,
        discordance=share,
        level=level,
        second_test=second,
        second_p=second_p,
        note="; ".join(filter(None, (why, note))),
    )


def _few(
    diff: Floats,
    s: Spread,
    weights: Floats | None,
    level: float,
    clustered: bool,
    differing: int,
) -> tuple[float | None, float | None, str]:
    """Tango's interval where few units differ: low, high, form.

    Losses and gains enter as the summed size of the differences, which for values in
    [0, 1] is never less variance than they have. The n is the one that the CR1 standard
    error implies, between the clusters and the docs; the clusters', where hardly any differ.
    """
    import numpy as np

    if abs(diff).max() > 1:
        return None, None, "no interval on an open scale"
    w = np.full(diff.size, 1.0 / diff.size) if weights is None else weights
    lost, gained = float(w @ np.maximum(-diff, 0)), float(w @ np.maximum(diff, 0))
    if not clustered:
        n, form = s.kish, "Tango interval"
    elif differing < BARELY or not s.se:
        n, form = float(s.units), f"Tango interval on {s.units} clusters"
    else:
        implied = (lost + gained - s.mean**2) / s.se**2
        n = min(max(implied, s.units), s.kish)
        form = f"Tango interval on effective n {n:.0f}"
    df = s.df if clustered and n > s.units else None
    return *tango(lost * n, gained * n, n, level, df=df), form
