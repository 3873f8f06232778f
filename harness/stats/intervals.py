"""Confidence intervals of one score: docs are the unit, repeats are already reduced.

`estimate` picks the form by the data, as measured in benchmarks/README.md:

    0/1, docs independent          Wilson
    means in [.1, .9]              t on doc means
    means nearer 0 or 1            weighted mid-P (a bounded interval, never of zero width)
    clusters, mean in [.2, .8]     CR1 standard error with t(G - 1)
    clusters, nearer 0 or 1        Wilson on the effective n that CR1 implies
    fewer than 8 clusters          none
    fixed strata                   Wilson on the effective n, or t, with stratified variance

The plain t-interval on clusters covers 64 to 85% for a mean of .02 to .05 at 15 clusters;
Wilson on the effective n covers 92% and more, which is why the form changes there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.stats import _core
from harness.stats.forms import clopper_pearson, mid_p, weighted_mid_p, wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.stats._core import Floats, Ints, Labels, Spread, Values

__all__ = [
    "Estimate",
    "VarianceParts",
    "clopper_pearson",
    "estimate",
    "macro_estimate",
    "mid_p",
    "stack_tasks",
    "variance_parts",
    "weighted_mid_p",
    "wilson",
]

MIN_INFORMATIVE = 3
"""With fewer clusters off the end of the scale than this, the effective n is the clusters'."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over docs with its uncertainty.

    Attributes:
        mean: Point estimate, in the unit of the values.
        se: Standard error; None with a single unit. It is 0 when all docs agree, which is
            why the interval is not built from it there.
        low: Lower end of the two-sided interval, None if there is none.
        high: Upper end, None if there is none.
        n: Number of docs.
        clusters: Number of independent units; n where docs are not clustered.
        level: Confidence level, as .95.
        method: Form of the interval, for a table's footnote.
        note: Why there is no interval, or what limits it; else empty.
    """

    mean: float
    se: float | None
    low: float | None
    high: float | None
    n: int
    clusters: int
    level: float
    method: str
    note: str = ""


def estimate(
    values: Values,
    clusters: Labels | None = None,
    strata: Labels | None = None,
    level: float = 0.95,
    binary: bool | None = None,
    *,
    macro: bool = False,
) -> Estimate:
    """Estimate a mean over docs, with the interval that suits the data.

    Args:
        values: One number per doc, shape (n,); repeats are reduced before.
        clusters: Source of each doc (its page or passage); docs of a source are not
            independent. All distinct means unclustered.
        strata: Fixed stratum of each doc (MMLU's subject): part of the design, not a sample.
        level: Confidence level.
        binary: Whether the values are 0/1; None: look.
        macro: The mean of the strata's means, in place of the mean of the docs.

    Raises:
        ValueError: Empty or NaN values, labels that do not match them, `binary` but other
            values than 0/1, `macro` without strata.
    """
    _core.check_level(level)
    x = _core.as_values(values)
    units = _core.cluster_codes(clusters, x.size)
    layers = _core.as_codes(strata, x.size, "strata")
    is_binary = bool(((x == 0) | (x == 1)).all())
    if binary and not is_binary:
        raise ValueError("values: binary=True, but not every value is 0 or 1")
    if macro and layers is None:
        raise ValueError("macro: the mean of strata needs strata")
    note = ""
    weights = _core.strata_weights(layers) if macro and layers is not None else None
    if layers is not None and not _core.nested(units, layers):
        layers, note = None, "clusters cross strata: strata left out of the variance"
    s = _core.spread(x, units=units, strata=layers, weights=weights)
    low, high, method, why = _interval(
        x, s, units, layers, level, is_binary if binary is None else binary, macro
    )
    return Estimate(
        s.mean,
        s.se,
        low,
        high,
        x.size,
        s.units,
        level,
        method,
        "; ".join(filter(None, (why, note))),
    )


def macro_estimate(
    tasks: Sequence[Values], clusters: Sequence[Labels], level: float = 0.95
) -> Estimate:
    """Estimate the mean of several tasks' means, whose docs share clusters.

    Top-1, top-3 and top-5 ask the same questions: a page that is hard is hard in all
    three. Residuals are added up by cluster over all tasks, which is what resampling the
    pages jointly converges to.

    Args:
        tasks: One sequence of doc values per task.
        clusters: The clusters of those docs; doc ids where docs are not clustered, so
            that a doc in several tasks is one unit.
        level: Confidence level.

    Raises:
        ValueError: No tasks, or sequences that do not match.
    """
    import numpy as np

    _core.check_level(level)
    x, weights, task, units = stack_tasks(tasks, clusters)
    s = _core.spread(x, units=units, centres=task, weights=weights)
    n, tail = len(np.unique(units)), (1 + level) / 2
    if s.units < _core.MIN_CLUSTERS or s.se is None:
        return Estimate(s.mean, s.se, None, None, x.size, n, level, "none", too_few(s.units))
    if _unit_range(x) and (not 0.2 <= s.mean <= 0.8 or s.se == 0):
        low, high, method = _effective_wilson(s, level, _off_end(x, units), s.kish)
        return Estimate(s.mean, s.se, low, high, x.size, n, level, f"joint {method}")
    half = _core.t_quantile(tail, s.df) * s.se
    return Estimate(
        s.mean, s.se, s.mean - half, s.mean + half, x.size, n, level, f"joint CR1 t({s.df:.3g})"
    )


def stack_tasks(
    tasks: Sequence[Values], clusters: Sequence[Labels]
) -> tuple[Floats, Floats, Ints, Ints]:
    """Lay tasks end to end: values, weights (each task alike), task and unit of each row.

    Raises:
        ValueError: No tasks, or sequences that do not match.
    """
    import numpy as np

    if not tasks or len(tasks) != len(clusters):
        raise ValueError(f"tasks: {len(tasks)} of values, {len(clusters)} of clusters")
    rows = [_core.as_values(task, f"task {i}") for i, task in enumerate(tasks)]
    for i, (row, labels) in enumerate(zip(rows, clusters, strict=True)):
        if row.size != len(labels):
            raise ValueError(f"task {i}: {len(labels)} labels for {row.size} docs")
    labels = [label for of_task in clusters for label in of_task]
    x = np.concatenate(rows)
    units = _core.as_codes(labels, x.size, "clusters")
    task = np.repeat(np.arange(len(rows)), [row.size for row in rows])
    assert units is not None
    return x, _core.strata_weights(task), task, units


def _interval(
    x: Floats,
    s: Spread,
    units: Ints | None,
    layers: Ints | None,
    level: float,
    binary: bool,
    macro: bool,
) -> tuple[float | None, float | None, str, str]:
    """Choose the form: low, high, method, note."""
    bounded, tail = _unit_range(x), (1 + level) / 2
    if units is not None:
        if s.units < _core.MIN_CLUSTERS:
            return None, None, "none", too_few(s.units)
        if bounded and (not 0.2 <= s.mean <= 0.8 or s.se == 0):
            return *_effective_wilson(s, level, _off_end(x, units), s.kish), ""
    elif binary and layers is None:
        return *wilson(float(x.sum()), x.size, level), "Wilson", ""
    elif layers is not None and bounded and (binary or not 0.1 <= s.mean <= 0.9 or not s.se):
        # Strata explain part of the variance; no more than half of it is credited to them.
        implied = s.mean * (1 - s.mean) / s.se**2 if s.se else s.kish
        n = min(max(implied, s.kish), 2 * s.kish) if binary else max(implied, s.kish)
        return *wilson(s.mean * n, n, level), f"stratified Wilson, effective n {n:.0f}", ""
    elif bounded and layers is None and _near_end(s, x.size):
        return *weighted_mid_p(x, level), "weighted mid-P", ""
    if s.se is None:
        return None, None, "none", "a single doc"
    if s.se == 0:
        return None, None, "none", "all values equal on an open scale"
    half = _core.t_quantile(tail, s.df) * s.se
    name = ("CR1 " if units is not None else "") + ("stratified " if layers is not None else "")
    low, high = s.mean - half, s.mean + half
    if bounded:
        low, high = max(0.0, low), min(1.0, high)
    return low, high, f"{name}t({s.df:.3g})", ""


def _near_end(s: Spread, n: int) -> bool:
    """Whether plain t is not to be trusted on [0, 1]: few events, or no spread seen."""
    events = n * min(s.mean, 1 - s.mean)
    return not s.se or n < 10 or (not 0.1 <= s.mean <= 0.9 and events < 100)


def _effective_wilson(
    s: Spread, level: float, informative: int, most: float
) -> tuple[float, float, str]:
    """Wilson's interval on the n that the standard error implies, between G and `most`.

    Args:
        s: Mean and standard error over clusters.
        level: Confidence level.
        informative: Clusters that are off the nearer end of the scale. With fewer than
            MIN_INFORMATIVE the variance between clusters cannot be seen, and the n is that
            of the clusters themselves.
        most: Effective number of docs were they independent.
    """
    if not s.se or informative < MIN_INFORMATIVE:
        mean = min(1.0, max(0.0, s.mean))
        low, high = wilson(mean * s.units, s.units, level)
        return low, high, f"Wilson on {s.units} clusters"
    n = min(max(s.mean * (1 - s.mean) / s.se**2, s.units), most)
    low, high = wilson(s.mean * n, n, level, df=s.df)
    return low, high, f"Wilson on effective n {n:.0f} (CR1)"


def _off_end(x: Floats, units: Ints) -> int:
    """Clusters whose mean is not 0, or not 1, whichever are fewer."""
    import numpy as np

    mean = np.bincount(units, x) / np.bincount(units)
    return int(min((mean > 0).sum(), (mean < 1).sum()))


def _unit_range(x: Floats) -> bool:
    return bool(x.min() >= 0 and x.max() <= 1)


def too_few(clusters: int) -> str:
    """Say why there is no interval."""
    return f"too few clusters ({clusters}, at least {_core.MIN_CLUSTERS} are needed)"


@dataclass(frozen=True, slots=True)
class VarianceParts:
    """How much of the uncertainty comes from the questions, how much from decoding.

    Attributes:
        n: Number of docs.
        repeats: Smallest number of samples of a doc.
        total: Mean with its whole uncertainty: over new questions and new samples alike.
            Its standard error already contains decoding.
        decoding_se: Standard error over new samples of these same questions; None where a
            single sample a doc does not identify it.
        question_se: What is left: sqrt(total^2 - decoding^2), 0 where that is negative.
        decoding_low: Lower end of the decoding-only interval, None if there is none.
        decoding_high: Upper end, None if there is none.
        note: "not identifiable" where one sample a doc is all there is; else empty.
    """

    n: int
    repeats: int
    total: Estimate
    decoding_se: float | None
    question_se: float | None
    decoding_low: float | None
    decoding_high: float | None
    note: str = ""


def variance_parts(
    samples: Sequence[Sequence[float]], clusters: Labels | None = None, level: float = 0.95
) -> VarianceParts:
    """Split the error of a mean over docs into decoding and question parts.

    With s_i^2 the variance over the K_i samples of doc i, the decoding variance of the mean
    is the sum of s_i^2 / K_i over n^2; the total is that of the docs' means.

    Args:
        samples: The scores of each doc's samples; at least one each, numbers may differ.
        clusters: Source of each doc, for the total; the decoding part does not depend on it.
        level: Confidence level of both intervals.

    Raises:
        ValueError: A doc without samples, or the faults `estimate` names.

    Source: Miller, "Adding Error Bars to Evals" (2024), arXiv:2411.00640.
    """
    means, noise, df = by_doc(samples, "samples")
    total = estimate(means, clusters, level=level)
    return split_variance(total, noise, df, min(map(len, samples)), bounded=_unit_range(means))


def by_doc(samples: Sequence[Sequence[float]], name: str) -> tuple[Floats, Floats | None, int]:
    """Mean and squared decoding error of each doc (None if no doc was repeated), and df.

    A doc sampled once, beside others sampled more often, borrows their mean variance.
    """
    import numpy as np

    if not samples:
        raise ValueError(f"{name}: empty, there is nothing to estimate")
    rows = [_core.as_values(row, f"{name}, doc at position {i}") for i, row in enumerate(samples)]
    means = np.array([row.mean() for row in rows])
    sizes = np.array([row.size for row in rows])
    if sizes.max() == 1:
        return means, None, 0
    variances = np.array([row.var(ddof=1) if row.size > 1 else np.nan for row in rows])
    variances = np.where(sizes > 1, variances, np.mean(variances[sizes > 1]))
    return means, variances / sizes, int((sizes - 1).sum())


def split_variance(
    total: Estimate, noise: Floats | None, df: int, repeats: int, *, bounded: bool = False
) -> VarianceParts:
    """Take the decoding part out of a total.

    Args:
        total: The mean with its whole uncertainty.
        noise: Squared decoding error of each doc's mean, None if no doc was repeated.
        df: Degrees of freedom of `noise`.
        repeats: Smallest number of samples of a doc.
        bounded: Clip the decoding-only interval to [0, 1].
    """
    n = total.n
    if noise is None:
        note = "not identifiable: one sample a doc does not tell decoding from questions"
        return VarianceParts(n, repeats, total, None, None, None, None, note)
    variance = float(noise.sum()) / n**2
    decoding = variance**0.5
    question = None if total.se is None else max(0.0, total.se**2 - variance) ** 0.5
    if decoding == 0:
        note = "no decoding variation seen: all samples of each doc agree"
        return VarianceParts(n, repeats, total, 0.0, question, None, None, note)
    half = _core.t_quantile((1 + total.level) / 2, df) * decoding
    low, high = total.mean - half, total.mean + half
    if bounded:
        low, high = max(0.0, low), min(1.0, high)
    return VarianceParts(n, repeats, total, decoding, question, low, high)
