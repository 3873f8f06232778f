"""Two judges on the same outputs: how far they agree, and whether one favours a model.

Cohen's kappa alone hides the question that matters on a board: a judge that errs alike on all
models shifts every row, one that errs in favour of one model turns the order round. So the rates
of error are given per model, and compared between models.

    agreement       of one model's outputs: confusion, kappa, sensitivity, specificity, bias
    differential    between models: does the judge err more, or otherwise, on one of them?

Sources: Cohen, "A coefficient of agreement for nominal scales" (1960); the interval is a
percentile bootstrap over clusters (Field and Welsh 2007).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.stats import _core
from harness.stats.counts import sign_flip
from harness.stats.intervals import Estimate, estimate, too_few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.stats._core import Floats, Labels

REPLICATES = 10_000
ALPHA = 0.05
"""Chance that any model of a board is flagged though the judge treats all alike."""


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
    """What two judges said of one model's outputs; all three of the same length n.

    Attributes:
        judge: Right or wrong, by the judge.
        reference: Right or wrong, by the other one.
        clusters: Source of each output; the same labels in all models, so that models are
            compared on the same docs.
    """

    judge: Sequence[bool]
    reference: Sequence[bool]
    clusters: Labels


@dataclass(frozen=True, slots=True)
class Difference:
    """One rate of a judge on a model against its rate on the others.

    Attributes:
        rate: "sensitivity" or "specificity".
        model: Whose outputs.
        value: On this model, in [0, 1].
        others: On the other models together.
        p_value: Two-sided cluster sign-flip.
        p_adjusted: Bonferroni's, over both rates and the models compared at that step.
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

    Residuals from the pooled rate are added up by cluster, the model's minus the others', and
    their signs flipped: a score test, which holds its level where errors are few. Docs that are
    hard to judge are hard for all models, and pairing by cluster takes that out. The model that
    stands out most is taken out before the others are compared with each other, or it would make
    them stand out. Of two models nobody can say which one it is: both are named.

    Args:
        models: By name.

    Returns:
        By p-value. A rate of which one side has no output, or fewer than 8 clusters, is left out.
    """
    found: list[Difference] = []
    for rate, right in (("sensitivity", True), ("specificity", False)):
        left = dict(models)
        while len(left) > 1:
            tests = 2 * (len(left) if len(left) > 2 else 1)
            names = list(left)[: 1 if len(left) == 2 else None]
            drafts = [d for n in names if (d := _difference(rate, right, n, left)) is not None]
            if len(left) == 2:
                other = list(left)[1]
                drafts += [replace(d, model=other, value=d.others, others=d.value) for d in drafts]
            tried = [replace(d, p_adjusted=min(1.0, tests * d.p_value)) for d in drafts]
            tried.sort(key=lambda d: (d.p_value, -abs(d.value - d.others), d.model))
            if len(left) == 2 or not tried or not tried[0].flagged:
                found += tried
                break
            found.append(tried[0])
            del left[tried[0].model]
    return tuple(sorted(found, key=lambda d: (d.p_value, d.rate, d.model)))


def _difference(
    rate: str, right: bool, name: str, models: Mapping[str, Judged]
) -> Difference | None:
    """One model against the others, on the outputs that the reference calls `right`."""
    import numpy as np

    rows = [
        (model == name, float(said == right), cluster)
        for model, m in models.items()
        for said, truth, cluster in zip(m.judge, m.reference, m.clusters, strict=True)
        if bool(truth) == right
    ]
    ours = np.array([row[0] for row in rows], dtype=bool)
    if not ours.any() or ours.all():
        return None
    units = _core.as_codes([row[2] for row in rows], len(rows), "clusters")
    assert units is not None
    if int(units.max()) + 1 < _core.MIN_CLUSTERS:
        return None
    agrees = np.array([row[1] for row in rows])
    weight = np.where(ours, 1 / ours.sum(), -1 / (~ours).sum())
    sums = np.bincount(units, weight * (agrees - agrees.mean())).astype(np.float64)
    sums[abs(sums) < 1e-12] = 0.0  # rounding, not difference
    value, others = float(agrees[ours].mean()), float(agrees[~ours].mean())
    return Difference(rate, name, value, others, sign_flip(sums)[0], 1.0)
