"""Cells and tables of a board, in markdown."""

from __future__ import annotations

from collections.abc import Sequence

from harness.stats.intervals import Estimate

_RATES = 1.0 + 1e-9


def number(value: float | None, *, rate: bool = True) -> str:
    """A metric for a table: three decimals for rates, one for lengths."""
    if value is None:
        return ""
    return f"{value:.3f}".replace("0.", ".", 1) if rate and 0 <= value < 1 else (
        f"{value:.3f}" if rate else f"{value:.1f}"
    )  # fmt: skip


def cell(estimate: Estimate | None, *, interval: bool = True, mark: str = "") -> str:
    """Mean with its 95% interval.

    Args:
        estimate: None is shown as "-".
        interval: Whether to show it.
        mark: Put behind the mean.
    """
    if estimate is None:
        return "-"
    rate = estimate.mean <= _RATES and (estimate.high is None or estimate.high <= _RATES)
    mean = number(estimate.mean, rate=rate) + mark
    if not interval:
        return mean
    if estimate.low is None or estimate.high is None:
        return f"{mean} [{estimate.note or 'no interval'}]"
    return f"{mean} [{number(estimate.low, rate=rate)}, {number(estimate.high, rate=rate)}]"


def escape(text: str) -> str:
    """Text for a markdown table cell: no pipes, tags or line ends (names may be hostile)."""
    clean = "".join(c if c.isprintable() else " " for c in text)
    for old, new in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), (">", "&gt;"), ("`", "'")):
        clean = clean.replace(old, new)
    return clean


def table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """A markdown table."""
    from tabulate import tabulate

    left = ["left"] * len(header)
    return tabulate(rows, headers=header, tablefmt="pipe", colalign=left, disable_numparse=True)
