"""Two judges on the same outputs: how far they agree, and whether one favours a model.

Cohen's kappa alone hides the question that matters on a board: a judge that errs alike on all
models shifts every row, one that errs in favour of one model turns the order round. So the rates
of error are given per model, and compared between models.

    agreement       of one model's outputs: confusion, kappa, sensitivity, specificity, bias
    differential    between models: does the judge err more, or otherwise, on one of them?

Sources: Cohen, "A coefficient of agreement for nominal scales" (1960); the interval is a
percentile bootstrap over clusters (Field and Welsh 2007). Those of the test stand with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.stats import _core
from harness.stats.intervals import Estimate, estimate, too_few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.stats._core import Floats, Labels

REPLICATES = 10_000
ALPHA = 0.05
"""Chance that any model of a board is flagged though the judge treats all alike."""

RATES = {"sensitivity": True, "specificity": False}
"""Each rate, and which outputs by the reference it is about: the right or the wrong ones."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """A judge against another one, the reference, on the same outputs.

    Attributes:
        both: Outputs that both call right.
        judge_only: Only the judge: where the reference is the truth, its false positives.
        reference_only: Only the reference: its false negatives.
        neither: Outputs that both call wrong.
        kappa: In [-1, 1]; None where both use one label only, which leaves it undefined.
        low: Lower end of its 95% interval; None with fewer than 8 clusters.
        high: Upper end.
        sensitivity: Share of what the reference calls right that the judge calls right.
        specificity: Share of what the reference calls wrong that the judge calls wrong.
        bias: Judge's share of right outputs minus the reference's: by how much a board that the
            judge makes is too high.
        note: Why there is no interval; else empty.
    """

    both: int
    judge_only: int
    reference_only: int
    neither: int
    kappa: float | None
    low: float | None
    high: float | None
    sensitivity: Estimate | None
    specificity: Estimate | None
    bias: float
    note: str = ""

    @property
    def n(self) -> int:
        """Outputs that both judged."""
        return self.both + self.judge_only + self.reference_only + self.neither


@dataclass(frozen=True, slots=True)
class Judged:
    """What two judges said of one model's outputs; all of the same length n.

    Attributes:
        judge: Right or wrong, by the judge.
        reference: Right or wrong, by the other one.
        clusters: Source of each output; the same labels in all models, so that models are
            compared on the same docs.
        weights: One over the probability with which each output came to be here; None where all
            are. `differential` takes account of them, `agreement` counts outputs.
    """

    judge: Sequence[bool]
    reference: Sequence[bool]
    clusters: Labels
    weights: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One rate of a judge on a model against its rate on the others.

    Attributes:
        rate: "sensitivity" or "specificity".
        model: Whose outputs.
        value: On this model, in [0, 1].
        others: On the other models together.
        p_value: Two-sided, of this comparison alone.
        p_adjusted: Over both rates and the models compared at that step (weighted Bonferroni).
    """

    rate: str
    model: str
    value: float
    others: float
    p_value: float
    p_adjusted: float

    @property
    def flagged(self) -> bool:
        """Whether the judge treats this model otherwise than the others."""
        return self.p_adjusted <= ALPHA

    @property
    def lenient(self) -> bool:
        """Whether the difference favours the model."""
        return (self.value < self.others) == (self.rate == "specificity")


def agreement(found: Judged, replicates: int = REPLICATES) -> Agreement:
    """Compare two judges on one model's outputs.

    Args:
        found: At least one output.
        replicates: Of the bootstrap.

    Raises:
        ValueError: No outputs, or lists of different lengths.
    """
    import numpy as np

    judge = _core.as_values([float(x) for x in found.judge], "judge")
    reference = _core.as_values([float(x) for x in found.reference], "reference")
    if judge.size != reference.size:
        raise ValueError(f"judge has {judge.size} outputs, reference {reference.size}")
    units = _core.as_codes(found.clusters, judge.size, "clusters")
    assert units is not None
    cell = (2 * (1 - judge) + (1 - reference)).astype(np.int64)  # both, judge, reference, neither
    clusters = int(units.max()) + 1
    table = np.bincount(units * 4 + cell, minlength=clusters * 4).reshape(clusters, 4)
    counts = table.sum(axis=0)
    (kappa,) = _kappas(counts[None, :].astype(np.float64))
    low = high = None
    note = ""
    if clusters < _core.MIN_CLUSTERS:
        note = too_few(clusters)
    elif not np.isnan(kappa):
        rng = np.random.default_rng(_core.SEED)
        drawn = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=replicates)
        kappas = _kappas((drawn @ table).astype(np.float64))
        low, high = (float(q) for q in np.nanquantile(kappas, [0.025, 0.975]))
    else:
        note = "kappa is undefined: both judges give one label only"
    return Agreement(
        *(int(c) for c in counts),
        kappa=None if np.isnan(kappa) else float(kappa),
        low=low,
        high=high,
        sensitivity=_rate(judge, reference == 1, found.clusters),
        specificity=_rate(1 - judge, reference == 0, found.clusters),
        bias=float(judge.mean() - reference.mean()),
        note=note,
    )


def _kappas(counts: Floats) -> Floats:
    """Kappa of each row of (both, judge only, reference only, neither); NaN where undefined."""
    import numpy as np

    both, judge, reference, neither = counts.T
    n = counts.sum(axis=1)
    seen = (both + neither) / n
    said, true = (both + judge) / n, (both + reference) / n
    chance = said * true + (1 - said) * (1 - true)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(chance < 1 - 1e-12, (seen - chance) / (1 - chance), np.nan)


def _rate(values: Floats, where: object, clusters: Labels) -> Estimate | None:
    import numpy as np

    chosen = np.flatnonzero(np.asarray(where))
    if not chosen.size:
        return None
    return estimate(values[chosen], [clusters[int(i)] for i in chosen])


def differential(models: Mapping[str, Judged]) -> tuple[Difference, ...]:
    """Test, for each model and each rate, whether the judge errs as on the other models.

    Given how often a judge that knows no model errs, each error falls on a model with a chance
    that is the model's share of the outputs: a binomial test, which holds where errors are few
    and where models have unequal numbers of outputs. Errors come in clumps (a page that confuses
    the judge) or in pairs (a doc that is hard for all models), so they are counted in units that
    have a binomial's variance, see `p_values`. The 5% are divided between the rates by `shares`.

    The model that stands out most is taken out before the others are compared with each other,
    or it would make them stand out. Of two models nobody can say which one it is: both are named.
    Level and power: benchmarks/sim_judges.py.

    Args:
        models: By name.

    Returns:
        By p-value. A rate is left out for models without such outputs, and where fewer than 8
        clusters have any.
    """
    import numpy as np

    tables = {rate: _table(models, right) for rate, right in RATES.items()}
    weights = shares(np.array([table.errors.sum() for table in tables.values()]))
    found: list[Difference] = []
    for (rate, table), weight in zip(tables.items(), weights.tolist(), strict=True):
        while len(table.names) > 1 and table.errors.shape[1] >= _core.MIN_CLUSTERS:
            tests = len(table.names) if len(table.names) > 2 else 1
            tried = [
                replace(d, p_adjusted=min(1.0, tests * d.p_value / weight) if weight else 1.0)
                for d in _differences(rate, table)
            ]
            tried.sort(key=lambda d: (d.p_value, -abs(d.value - d.others), d.model))
            if len(tried) == 2 or not tried[0].flagged:
                found += tried
                break
            found.append(tried[0])
            table = table.without(tried[0].model)
    return tuple(sorted(found, key=lambda d: (d.p_adjusted, d.p_value, d.rate, d.model)))


@dataclass(frozen=True, slots=True)
class _Table:
    """Outputs of one kind, right or wrong by the reference.

    Attributes:
        names: Models that have any.
        errors: Outputs on which the judge is wrong, weighted, shape (models, clusters).
        outputs: All of them, weighted, same shape.
    """

    names: tuple[str, ...]
    errors: Floats
    outputs: Floats

    def without(self, name: str) -> _Table:
        """The other models, on the clusters that they have outputs of."""
        rows = [i for i, other in enumerate(self.names) if other != name]
        some = self.outputs[rows].any(axis=0)
        names = tuple(self.names[i] for i in rows)
        return _Table(names, self.errors[rows][:, some], self.outputs[rows][:, some])


def _table(models: Mapping[str, Judged], right: bool) -> _Table:
    import numpy as np

    rows = [
        (name, float(bool(said) != right), cluster, weight)
        for name, m in models.items()
        for said, truth, cluster, weight in zip(
            m.judge, m.reference, m.clusters, m.weights or (1.0,) * len(m.judge), strict=True
        )
        if bool(truth) == right
    ]
    names = tuple(dict.fromkeys(row[0] for row in rows))
    if not rows:
        return _Table((), np.zeros((0, 0)), np.zeros((0, 0)))
    units = _core.as_codes([row[2] for row in rows], len(rows), "clusters")
    assert units is not None
    clusters = int(units.max()) + 1
    place = {name: i for i, name in enumerate(names)}
    cell = np.array([place[row[0]] for row in rows]) * clusters + units
    weights = _core.as_values([row[3] for row in rows], "weights")
    weights /= weights.mean()
    wrong = weights * np.array([row[1] for row in rows])
    shape = (len(names), clusters)
    errors, outputs = (
        np.bincount(cell, w, len(names) * clusters).astype(np.float64).reshape(shape)
        for w in (wrong, weights)
    )
    return _Table(names, errors, outputs)


def _differences(rate: str, table: _Table) -> list[Difference]:
    """Each model against the others; not yet adjusted."""
    errors, outputs = table.errors.sum(axis=1), table.outputs.sum(axis=1)
    return [
        Difference(
            rate,
            name,
            value=1 - float(errors[i] / outputs[i]),
            others=1 - float((errors.sum() - errors[i]) / (outputs.sum() - outputs[i])),
            p_value=float(p),
            p_adjusted=1.0,
        )
        for i, (name, p) in enumerate(
            zip(table.names, p_values(table.errors, table.outputs), strict=True)
        )
    ]


def shares(errors: Floats) -> Floats:
    """How a chance of error is divided between rates: by the squares of the judge's errors.

    A judge that errs otherwise on one model has many errors of that kind. The test is one given
    the number of errors, so what depends on that number alone does not change its level.

    Args:
        errors: Of all models together, shape (..., rates).

    Returns:
        Shares that add up to 1, or all 0 where there is no error; same shape.

    Source: Genovese, Roeder and Wasserman, "False discovery control with p-value weighting",
    Biometrika 93 (2006).
    """
    import numpy as np

    squares = errors.astype(np.float64) ** 2
    return squares / np.maximum(squares.sum(axis=-1, keepdims=True), 1e-300)


def p_values(errors: Floats, outputs: Floats) -> Floats:
    """Two-sided mid-P of each model's errors given all errors.

    Counts are divided by the number of errors that count as one, so that their variance is a
    binomial's. It comes from the mean square of the interaction of model and cluster (what is
    left of the residuals without the means of models and of clusters), which does not depend on
    whose the errors are. Where all models have the same outputs of a cluster it may be small,
    since they are paired; outputs that only some models have vary as a binomial at least. The
    mean square has (clusters - 1)(models - 1) degrees of freedom, which the tail is corrected for.

    Args:
        errors: Outputs on which the judge is wrong, maybe weighted, shape
            (..., models, clusters); leading axes are audits apart.
        outputs: All outputs, weighted alike, mean weight 1; same shape, some of each model.

    Returns:
        Shape (..., models); 1 without errors.

    Sources: Przyborowski and Wilenski, "Homogeneity of results in testing samples from Poisson
    series" (1940), for the test; Lancaster, "Significance tests in discrete distributions"
    (1961), for mid-P; Rao and Scott, "A simple method for the analysis of clustered binary data"
    (1992), for the division of counts; Korn and Graubard, "Confidence intervals for proportions
    with small expected number of positive counts estimated from survey data" (1998), for the
    degrees of freedom.
    """
    import numpy as np

    special, models = _core.special(), errors.shape[-2]
    free = 1 - 1 / models
    total = errors.sum(axis=(-2, -1))[..., None]
    size = outputs.sum(axis=(-2, -1))[..., None]
    rate = total / size
    # Clusters without such outputs are none.
    there = outputs.any(axis=-2, keepdims=True)
    clusters = there.sum(axis=-1)
    residual = errors - rate[..., None] * outputs
    residual = residual - residual.mean(axis=-2, keepdims=True)
    residual = (residual - residual.sum(axis=-1, keepdims=True) / clusters[..., None]) * there
    square = (residual**2).sum(axis=(-2, -1))[..., None] / (free * (1 - 1 / clusters))
    alone = abs(outputs - outputs.mean(axis=-2, keepdims=True)).sum(axis=(-2, -1))[..., None]
    unpaired = np.minimum(1.0, alone / (free * size))
    one = np.maximum(square / np.maximum(total, 1e-300), (1 - rate) * unpaired)
    # A judge that errs on all of one model's outputs and on none of another's leaves no spread.
    one = np.maximum(one, 1e-6)
    n, found = total / one, errors.sum(axis=-1) / one
    share = outputs.sum(axis=-1) / size
    tail = np.minimum(_tail(found, n, share), _tail(n - found, n, 1 - share))
    if models == 2:
        tail[..., 1] = tail[..., 0]  # one comparison, which rounding must not make two
    z = special.ndtri(np.clip(tail, 1e-300, 0.5))
    return np.where(total > 0, 2 * special.stdtr((models - 1) * (clusters - 1), z), 1.0)


def _tail(found: Floats, n: Floats, share: Floats) -> Floats:
    """P(X > found) + P(X = found) / 2 of a binomial, whose counts need not be whole."""
    import numpy as np

    betainc, least = _core.special().betainc, 1e-9
    rest = n - found
    from_here = np.where(
        found > least, betainc(np.maximum(found, least), np.maximum(rest, 0.0) + 1, share), 1.0
    )
    beyond = np.where(
        rest > least, betainc(np.maximum(found, 0.0) + 1, np.maximum(rest, least), share), 0.0
    )
    return (from_here + beyond) / 2
