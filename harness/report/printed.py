"""Published tables on a board: in full, and row by row beside measured rows.

print(markdown(load(Path("baselines/published/railway_table2.toml"))))
beside(tables, "railway_rag_top1")     # the same cells, for the measured task's own table
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.report.cells import escape, number
from harness.report.counts import compare_counts, decimals, figure, fit, wilson_range
from harness.report.published import (
    PROTOCOL_KEYS,
    SOURCE_KEYS,
    Column,
    PublishedTable,
    Row,
)

FISHER = "Fisher's exact test on the counts, 5%, unpaired, unadjusted; no mark proves nothing"

_LEGEND = {
    "†": "no k/n gives this figure, for the n stated: no interval.",
    "‡": "another figure of this row and task fits no k/n, so n is in doubt: no interval.",
    "≈": "not distinguishable from the reference row, {reference} (" + FISHER + ").",
    "°": "not distinguishable from the best row of its column, in bold (the same test).",
    "§": "single sample a question: not to be set beside a mean over many samples.",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a cell allows: its counts (none where n is in doubt) and its mark."""

    counts: tuple[int, ...] = ()
    mark: str = ""
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A published cell as it stands beside measured ones.

    Attributes:
        value: A share from 0 to 1, or a length.
        counts: Counts that fit it, out of n; empty where none or n is in doubt.
        shown: The figure with the printed digits, a share as a fraction.
        higher_is_better: Of the metric.
        single_sample: One sample a question on a set usually reported as a mean over many.
    """

    value: float
    counts: tuple[int, ...]
    n: int
    shown: str
    higher_is_better: bool
    single_sample: bool = False

    def text(self, mark: str = "") -> str:
        """The figure, the count where it is certain, and the interval where there is one."""
        count = f" = {self.counts[0]}/{self.n}" if len(self.counts) == 1 else ""
        ends = ""
        if self.counts:
            low, high = wilson_range(self.counts, self.n)
            ends = f" [{number(low)}, {number(high)}]"
        single = "§" if self.single_sample else ""
        return self.shown + single + mark + count + ends


@dataclass(frozen=True, slots=True)
class Beside:
    """A published row for the table of one measured task: cells by metric."""

    name: str
    table: PublishedTable
    cells: Mapping[str, Cell]

    @property
    def n(self) -> str:
        """Number of questions, where all cells agree on it."""
        sizes = {c.n for c in self.cells.values()}
        return str(sizes.pop() or "") if len(sizes) == 1 else ""


def beside(tables: Iterable[PublishedTable], task: str, metrics: Sequence[str]) -> list[Beside]:
    """Published rows that stand beside the measured rows of a task.

    Args:
        tables: All published tables, whatever their board.
        task: Name of the measured task.
        metrics: Metrics of the measured table: cells of others are left to the table in full.
    """
    found: list[Beside] = []
    for table in tables:
        if table.not_comparable:
            continue
        for row in table.rows:
            cells: dict[str, Cell] = {}
            readings = readings_of(table.columns, row)
            for column, shown, reading in zip(table.columns, row.cells, readings, strict=True):
                value = figure(shown, column.unit)
                here = (row.task or column.task) == task and column.metric in metrics
                if here and column.beside and value is not None:
                    cells[column.metric] = Cell(
                        value,
                        reading.counts,
                        column.n or 0,
                        _as_fraction(shown, value, column) + reading.mark,
                        column.higher_is_better,
                        column.single_sample,
                    )
            if cells:
                found.append(Beside(row.name, table, cells))
    return found


def markdown(table: PublishedTable, level: int = 3) -> str:
    """Render a table with counts, intervals, marks, source, protocol and inconsistencies.

    Args:
        table: What `harness.report.published.load` returned.
        level: Heading level.
    """
    from tabulate import tabulate

    readings = {row.name: readings_of(table.columns, row) for row in table.rows}
    base = readings.get(table.reference)
    best = [_best(table, i) for i in range(len(table.columns))]
    notes: list[str] = []
    cut: list[str] = []
    used: set[str] = {"§"} if any(c.single_sample for c in table.columns) else set()
    body: list[list[str]] = []
    for row in table.rows:
        line = [row.model, row.backbone, row.method]
        for i, (column, reading) in enumerate(zip(table.columns, readings[row.name], strict=True)):
            shown, mark = row.cells[i] or "-", reading.mark
            if column.n and base and row.name != table.reference:
                mark += "≈" if _alike(reading, base[i], column.n) else ""
            if column.n and best[i] and row.name not in best[i]:
                top = readings[best[i][0]][i]
                mark += "°" if _alike(reading, top, column.n) else ""
            used.update(mark)
            if note := row.notes.get(column.id):
                notes.append(note)
                mark += f" ({len(notes)})"
            if reading.cut_off and column.n:
                cut.append(f"{shown} = {reading.counts[0]}/{column.n}")
            bold = f"**{shown}**" if row.name in best[i] else shown
            line.append(bold + mark + _bounds(shown, reading.counts, column))
        body.append(line)
    heads = ["Model", "Backbone", "Method", *(_heading(c) for c in table.columns)]
    keep = [i for i in range(len(heads)) if i > 2 or any(line[i] for line in body)]
    out = [f"{'#' * level} {table.title}", ""]
    if table.not_comparable:
        out += [f"**Not comparable.** {table.not_comparable}", ""]
    out += [
        tabulate(
            [[escape(line[i]) for i in keep] for line in body],
            headers=[escape(heads[i]) for i in keep],
            tablefmt="github",
            disable_numparse=True,
        ),
        "",
    ]
    legend = [
        f"{mark} {text.format(reference=table.reference)}"
        for mark, text in _LEGEND.items()
        if mark in used
    ]
    if any(reading.counts for line in readings.values() for reading in line):
        text = "k/n: the count that the figure allows; brackets: 95% Wilson interval, questions"
        legend.insert(0, f"{text} independent.")
    if cut:
        legend.append(f"Cut off instead of rounded: {', '.join(dict.fromkeys(cut))}.")
    legend += [f"({i}) {note}" for i, note in enumerate(notes, start=1)]
    out += [f"- {text}" for text in legend] + [""] * bool(legend)
    out += [f"Source: {citation(table)}", "", "Protocol:", ""]
    out += [f"- {key}: {table.protocol[key]}" for key in PROTOCOL_KEYS if key in table.protocol]
    if table.inconsistencies:
        out += ["", "Known inconsistencies of the source:", ""]
        out += [f"{i}. {text}" for i, text in enumerate(table.inconsistencies, start=1)]
    return "\n".join(out) + "\n"


def citation(table: PublishedTable) -> str:
    """Paper, repository and commit in one line."""
    said = {"arxiv": "arXiv {}", "commit": "commit {}", "licence": "licence {}"}
    source = table.source
    parts = [said.get(key, "{}").format(source[key]) for key in SOURCE_KEYS if key in source]
    return "; ".join(part.rstrip(".") for part in parts) + "."


def readings_of(columns: Sequence[Column], row: Row) -> list[Reading]:
    """Return what each cell allows; one misfit puts the n of that task in doubt."""
    fits = [
        fit(cell, c.n, c.unit) if c.kind == "share" and c.n else None
        for c, cell in zip(columns, row.cells, strict=True)
    ]
    doubtful = {c.task for c, f in zip(columns, fits, strict=True) if f and not f.counts}
    readings: list[Reading] = []
    for column, found in zip(columns, fits, strict=True):
        if found is None:
            readings.append(Reading())
        elif column.task in doubtful:
            readings.append(Reading(mark="‡" if found.counts else "†"))
        else:
            readings.append(Reading(found.counts, cut_off=not found.rounded))
    return readings


def _best(table: PublishedTable, i: int) -> tuple[str, ...]:
    """Names of the rows with the best figure of a column; none in a column of plain counts."""
    column = table.columns[i]
    values = {row.name: figure(row.cells[i], column.unit) for row in table.rows}
    known = {name: value for name, value in values.items() if value is not None}
    if column.kind == "count" or len(known) < 2:
        return ()
    top = (max if column.higher_is_better else min)(known.values())
    return tuple(name for name, value in known.items() if value == top)


def _alike(a: Reading, b: Reading, n: int) -> bool:
    return compare_counts(a.counts, b.counts, n) == "not distinguishable"


def _bounds(cell: str, counts: Sequence[int], column: Column) -> str:
    if not counts or not column.n:
        return ""
    scale, digits = (100, 1) if column.unit == "percent" else (1, 3)
    low, high = (f"{scale * x:.{digits}f}" for x in wilson_range(counts, column.n))
    if cell.startswith("."):
        low, high = low.removeprefix("0"), high.removeprefix("0")
    count = f" = {counts[0]}/{column.n}" if len(counts) == 1 and "/" not in cell else ""
    return f"{count} [{low}, {high}]"


def _as_fraction(shown: str, value: float, column: Column) -> str:
    """A share as a fraction with the digits that were printed; anything else as printed."""
    if column.unit not in ("percent", "fraction") or "/" in shown:
        return shown
    digits = decimals(shown) + (2 if column.unit == "percent" or "%" in shown else 0)
    text = f"{value:.{digits}f}"
    return text.removeprefix("0") if value < 1 else text


def _heading(column: Column) -> str:
    arrow = "" if column.higher_is_better else " ↓"
    return column.label + arrow + (" §" if column.single_sample else "")
