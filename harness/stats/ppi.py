"""Prediction-powered inference: a judge's figures, put right by a sample that people labelled.

With w the judge's word on a doc, y the label where there is one, and p the probability with which
the doc was drawn, the corrected mean is

    mean of y weighted by 1/p  +  power * (mean of w  -  mean of w weighted by 1/p)

where the weighted means are over the labelled docs. It is right on average whatever the judge
does; a good judge only makes it more precise. The power is chosen to make the variance small
(0: labels alone; 1: the plain form). A delta is corrected as the mean of the docs' differences.

Sources: Angelopoulos et al., "Prediction-powered inference" (Science 2023); power tuning from
Angelopoulos, Duchi and Zrnic, "PPI++" (2023), arXiv:2311.01453, section 6; unequal probabilities
from Zrnic and Candes, "Active statistical inference" (2024), arXiv:2403.03208, equation 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.stats import _core
from harness.stats.intervals import too_few

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.stats._core import Floats, Labels

MIN_LABELS = 100
MIN_ERRORS = 10
"""Labels, or errors of the judge among them, below which too few errors may have been seen
for the interval to hold (benchmarks/sim_judges.py)."""


class TooFewLabels(ValueError):
    """Neither enough labels nor enough errors of the judge to correct it by."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """One model's docs; all of the same length n.

    Attributes:
        judged: The judge's word on each doc, in [0, 1]; any number where it gave none.
        labels: What a person said, in [0, 1]; None where the doc was not drawn.
        probability: With which each doc was to be drawn, in (0, 1].
        clusters: Source of each doc.
    """

    judged: Sequence[float]
    labels: Sequence[float | None]
    probability: Sequence[float]
    clusters: Labels

    @property
    def count(self) -> int:
        """Docs with a label."""
        return sum(label is not None for label in self.labels)

    @property
    def errors(self) -> int:
        """Labelled docs on which the judge is wrong."""
        pairs = zip(self.judged, self.labels, strict=True)
        return sum(label is not None and label != word for word, label in pairs)


@dataclass(frozen=True, slots=True)
class Corrected:
    """A mean or a difference with its 95% interval.

    Attributes:
        mean: Corrected.
        judged: What the judge alone says.
        low: Lower end; None with fewer than 8 clusters.
        high: Upper end.
        power: How much the judge's word counts, in [0, 1].
        labels: Labelled docs.
        errors: Of them, on which the judge is wrong (of a difference: on either model).
        note: Why there is no interval; else empty.
    """

    mean: float
    judged: float
    low: float | None
    high: float | None
    power: float
    labels: int
    errors: int
    note: str = ""


def corrected(
    docs: Labelled, level: float = 0.95, *, power: float | None = None, unchecked: bool = False
) -> Corrected:
    """Correct one model's mean.

    Args:
        docs: Its docs, at least one labelled.
        level: Confidence level.
        power: None chooses it.
        unchecked: Answer below the label count too (simulations).

    Raises:
        TooFewLabels: Fewer than 100 labels and fewer than 10 errors among them.
        ValueError: A probability outside (0, 1], or lists that do not match.
    """
    word, label, weight, units = _arrays(docs)
    _check(docs.count, docs.errors, unchecked)
    return _mean(word, label, weight, units, level, power, docs.count, docs.errors)


def corrected_delta(
    candidate: Labelled,
    baseline: Labelled,
    level: float = 0.95,
    *,
    power: float | None = None,
    unchecked: bool = False,
) -> Corrected:
    """Correct candidate minus baseline, paired by doc.

    Args:
        candidate: Its docs.
        baseline: The same docs, same order, drawn together: labels on the same docs.
        level: Confidence level.
        power: None chooses it.
        unchecked: As for `corrected`.

    Raises:
        TooFewLabels: As for `corrected`.
        ValueError: The two were not drawn together, or as for `corrected`.
    """
    word, label, weight, units = _arrays(candidate)
    other, other_label, other_weight, _ = _arrays(baseline)
    if len(word) != len(other) or bool((weight != other_weight).any()):
        raise ValueError("a delta needs labels on the same docs of both models")
    errors = max(candidate.errors, baseline.errors)
    _check(candidate.count, errors, unchecked)
    return _mean(
        word - other, label - other_label, weight, units, level, power, candidate.count, errors
    )


def _check(labels: int, errors: int, unchecked: bool) -> None:
    if not unchecked and labels < MIN_LABELS and errors < MIN_ERRORS:
        raise TooFewLabels(
            f"{labels} labels with {errors} errors of the judge: at least {MIN_LABELS} labels or "
            f"{MIN_ERRORS} errors are needed, or the interval would be too short"
        )


def _arrays(docs: Labelled) -> tuple[Floats, Floats, Floats, object]:
    """Words, labels (0 where none), inverse probabilities (0 where not labelled), units."""
    import numpy as np

    word = _core.as_values(docs.judged, "judged")
    probability = _core.as_values(docs.probability, "probability")
    if not len(word) == len(probability) == len(docs.labels) == len(docs.clusters):
        raise ValueError("judged, labels, probability and clusters differ in length")
    if bool(((probability <= 0) | (probability > 1)).any()):
        raise ValueError("probability: every doc needs one in (0, 1]")
    drawn = np.array([label is not None for label in docs.labels])
    if not drawn.any():
        raise ValueError("labels: there are none")
    label = np.array([0.0 if x is None else float(x) for x in docs.labels])
    units = _core.as_codes(docs.clusters, word.size, "clusters")
    return word, label, np.where(drawn, 1.0 / probability, 0.0), units


def _mean(
    word: Floats,
    label: Floats,
    weight: Floats,
    units: object,
    level: float,
    power: float | None,
    labels: int,
    errors: int,
) -> Corrected:
    import numpy as np

    codes = np.asarray(units, dtype=np.int64)
    label_mean = float(weight @ label / weight.sum())
    word_mean = float(weight @ word / weight.sum())
    # The linearised estimate: what each doc adds to it, so that its spread is its variance.
    fixed = label_mean + weight * (label - label_mean)
    moving = (word - word_mean) * (1.0 - weight)
    if power is None:
        a = np.bincount(codes, fixed - fixed.mean())
        b = np.bincount(codes, moving - moving.mean())
        size = float(b @ b)
        power = float(np.clip(-(a @ b) / size, 0.0, 1.0)) if size > 0 else 0.0
    s = _core.spread(fixed + power * moving, units=_core.cluster_codes(codes.tolist(), word.size))
    mean = label_mean + power * (float(word.mean()) - word_mean)
    low = high = None
    note = ""
    if s.units < _core.MIN_CLUSTERS or s.se is None:
        note = too_few(s.units)
    else:
        half = _core.t_quantile((1 + level) / 2, s.df) * s.se
        low, high = mean - half, mean + half
    return Corrected(mean, float(word.mean()), low, high, power, labels, errors, note)
