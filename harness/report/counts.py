"""What a printed figure allows: the count behind it, an interval, a test.

A published cell has no records. Where it is the share of n questions that came out right, the
count k follows from the printed figure if k/n, rounded or cut off at the printed precision,
gives it; from k follow an interval and a test. Both know nothing of pairing or of clusters.

    infer_count(".3955", 225)  ->  89, cut off from .39556
    infer_count("39.4", 125)   ->  None: no k of 125 gives it
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, Literal, cast

Verdict = Literal["distinguishable", "not distinguishable", "unknown"]
"""Of two published figures; "unknown" where a count cannot be inferred."""

ALPHA = 0.05
_FIGURE = re.compile(r"(?P<value>\d+(\.\d*)?|\.\d+)(?P<percent>%?)")
_RATIO = re.compile(r"(\d+)/(\d+)")


@dataclass(frozen=True, slots=True)
class Fit:
    """The counts that a printed figure allows.

    Attributes:
        rounded: Every k with k/n rounding to the figure (a tie may go either way).
        truncated: Every k with k/n giving the figure when cut off.
    """

    rounded: tuple[int, ...]
    truncated: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """The rounded counts; the truncated ones only where rounding explains nothing."""
        return self.rounded or self.truncated


def fit(cell: str, n: int, unit: str = "") -> Fit | None:
    """Return the counts k out of n that would be printed as `cell`.

    Args:
        cell: As printed: ".3955", "39.4", "41.67%", "1/30".
        n: Number of questions.
        unit: "percent" or "fraction"; by default a figure up to 1 with a point is a fraction.

    Returns:
        None where the cell is not a figure.
    """
    if ratio := _RATIO.fullmatch(_bare(cell)):
        k, total = int(ratio[1]), int(ratio[2])
        hit = (k,) if total == n and k <= n else ()
        return Fit(hit, hit)
    parsed = _parse(cell, unit)
    if parsed is None:
        return None
    value, step = parsed
    low, high = math.ceil((value - step / 2) * n), math.floor((value + step / 2) * n)
    cut = range(math.ceil(value * n), min(n + 1, math.ceil((value + step) * n)))
    return Fit(tuple(range(max(0, low), min(n, high) + 1)), tuple(cut))


def figure(cell: str, unit: str = "") -> float | None:
    """Return the number that a cell shows, a share as 0 to 1; None where it shows none.

    Args:
        cell: As in `fit`.
        unit: As in `fit`; "tokens" and "count" leave the number as it stands.
    """
    if ratio := _RATIO.fullmatch(_bare(cell)):
        return int(ratio[1]) / int(ratio[2]) if int(ratio[2]) else None
    parsed = _parse(cell, unit)
    return None if parsed is None else float(parsed[0])


def decimals(cell: str) -> int:
    """Return how many decimals a cell is printed with."""
    found = _FIGURE.fullmatch(_bare(cell))
    return len(found["value"].partition(".")[2]) if found else 0


def _bare(cell: str) -> str:
    return cell.replace(",", "").strip()


def _parse(cell: str, unit: str) -> tuple[Fraction, Fraction] | None:
    """The value of a figure and the step between two printed figures."""
    found = _FIGURE.fullmatch(_bare(cell))
    if not found:
        return None
    shown = found["value"]
    value = Fraction(shown if shown[0] != "." else "0" + shown)
    step = Fraction(1, 10 ** len(shown.partition(".")[2]))
    if found["percent"] or unit == "percent" or (not unit and not ("." in shown and value <= 1)):
        value, step = value / 100, step / 100
    return value, step


def infer_count(cell: str, n: int, unit: str = "") -> int | None:
    """Return k where exactly one k/n is printed as `cell`, else None; arguments as in `fit`.

    Rounding is tried first, cutting off only where no k rounds to the figure: .3955 of 225
    is 89 cut off (.39556); 39.4% of 125 is no k at all.
    """
    found = fit(cell, n, unit)
    return found.counts[0] if found and len(found.counts) == 1 else None


def interval(cell: str, n: int, unit: str = "") -> tuple[float, float] | None:
    """Return Wilson's 95% interval of the share behind `cell`, or None where no k fits.

    Where several k fit (large n), it reaches from the lowest end to the highest. It takes the
    questions as independent: with clusters it is too narrow.
    """
    found = fit(cell, n, unit)
    return wilson_range(found.counts, n) if found and found.counts else None


def distinguishable(cell_a: str, cell_b: str, n: int, unit: str = "") -> Verdict:
    """Tell whether two published shares of the same n questions differ at the 5% level.

    Fisher's exact test on the two counts. It is unpaired, since the pairing is not published,
    and so conservative where both systems tend to miss the same questions; it takes questions
    as independent and is not adjusted for the number of cells compared. Where several counts
    fit a figure, the closest pair decides.
    """
    a, b = fit(cell_a, n, unit), fit(cell_b, n, unit)
    return compare_counts(a.counts, b.counts, n) if a and b else "unknown"


def wilson_range(counts: Sequence[int], n: int) -> tuple[float, float]:
    """Return Wilson's 95% interval over all the counts (ascending) that fit a figure."""
    from harness.stats.intervals import wilson

    return wilson(counts[0], n)[0], wilson(counts[-1], n)[1]


def compare_counts(a: Sequence[int], b: Sequence[int], n: int, other: int = 0) -> Verdict:
    """As `distinguishable`, on the counts that fit each figure.

    Args:
        a: Counts that fit the first figure.
        b: Counts that fit the second.
        n: Questions behind the first.
        other: Questions behind the second; 0: the same number.
    """
    other = other or n
    if not a or not b:
        return "unknown"
    from scipy.stats import fisher_exact

    k, m = min(product(a, b), key=lambda pair: abs(pair[0] / n - pair[1] / other))
    p_value: float = cast("Any", fisher_exact)([[k, n - k], [m, other - m]]).pvalue
    return "distinguishable" if p_value < ALPHA else "not distinguishable"
