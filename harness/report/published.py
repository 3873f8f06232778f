"""The papers' tables (baselines/published/*.toml), read and printed.

A table carries its cells as printed, its protocol and its inconsistencies; the board adds what
the cells allow (`harness.report.counts`) and marks what they do not.

    print(markdown(load(Path("baselines/published/railway_table2.toml"))))
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from harness.errors import ConfigError, nearest
from harness.report.counts import (
    Verdict,
    compare_counts,
    distinguishable,
    fit,
    infer_count,
    interval,
    wilson_range,
)

__all__ = [
    "Column",
    "PublishedTable",
    "Row",
    "Verdict",
    "distinguishable",
    "infer_count",
    "interval",
    "load",
    "load_all",
    "markdown",
]

UNITS = ("percent", "fraction", "tokens", "count")
KINDS = ("share", "mean", "count")

_Fields = Mapping[str, tuple[type, bool]]  # key -> (type, required)
_TABLE: _Fields = {
    "id": (str, True),
    "title": (str, True),
    "reference": (str, False),
    "not_comparable": (str, False),
    "inconsistencies": (list, False),
    "columns": (list, True),
    "source": (dict, True),
    "protocol": (dict, True),
    "row": (list, True),
}
_SOURCE: _Fields = {
    "paper": (str, True),
    **dict.fromkeys(("arxiv", "repository", "commit", "licence", "note"), (str, False)),
}
_PROTOCOL: _Fields = {
    "metrics": (str, True),
    **dict.fromkeys(
        ("questions", "sampling", "judge", "retriever", "samples", "notes"), (str, False)
    ),
}
_COLUMN: _Fields = {
    "task": (str, True),
    "metric": (str, True),
    "unit": (str, True),
    "label": (str, False),
    "n": (int, False),
    "kind": (str, False),
    "higher_is_better": (bool, False),
    "single_sample": (bool, False),
}
_ROW: _Fields = {
    "model": (str, False),
    "backbone": (str, False),
    "method": (str, False),
    "cells": (list, True),
    "notes": (dict, False),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One metric of one task.

    Attributes:
        task: Task name, without the harness's own variants.
        metric: Metric name as in harness.scoring where the definitions agree.
        unit: One of `UNITS`: how the cells are printed.
        label: Heading on the board.
        n: Number of questions; None where the source does not let us know.
        kind: "share" (k of n questions), "mean" (F1, length, average over samples or
            tasks) or "count". Only shares have an inferred count.
        higher_is_better: False for lengths and failures.
        single_sample: One sample a question on a set usually reported as a mean over many.
    """

    task: str
    metric: str
    unit: str
    label: str = ""
    n: int | None = None
    kind: str = "share"
    higher_is_better: bool = True
    single_sample: bool = False

    @property
    def id(self) -> str:
        """Key of cell notes: task.metric."""
        return f"{self.task}.{self.metric}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table; `cells` are as printed, "-" or "" where nothing is given."""

    cells: tuple[str, ...]
    model: str = ""
    backbone: str = ""
    method: str = ""
    notes: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def name(self) -> str:
        """Model, or else backbone, with the method: unique in a table."""
        return " / ".join(part for part in (self.model or self.backbone, self.method) if part)


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A published table with where it comes from and how it was measured.

    Attributes:
        id: Name of its file.
        title: Heading on the board.
        source: paper, arxiv, repository, commit, licence, note.
        protocol: metrics, questions, sampling, judge, retriever, samples, notes.
        columns: In print order.
        rows: In print order.
        reference: Name of the row that the others are set against, or "".
        not_comparable: Why the table stands apart from measured rows, or "".
        inconsistencies: Of the source with itself, its code or its data.
    """

    id: str
    title: str
    source: Mapping[str, str]
    protocol: Mapping[str, str]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    reference: str = ""
    not_comparable: str = ""
    inconsistencies: tuple[str, ...] = ()

    def row(self, name: str) -> Row:
        """Return the row of that name; KeyError if there is none."""
        return {row.name: row for row in self.rows}[name]

    def cell(self, row: str, column: str) -> str:
        """Return a cell as printed, by row name and column id; KeyError if there is none."""
        at = {c.id: i for i, c in enumerate(self.columns)}[column]
        return self.row(row).cells[at]


# --- reading ----------------------------------------------------------------------------------


def load(path: Path) -> PublishedTable:
    """Read one table.

    Raises:
        ConfigError: Naming file and key: not TOML, an unknown, missing or mistyped key, a
            row with the wrong number of cells, a name used twice.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    top = _checked(raw, _TABLE, f"{path}: ")
    if top["id"] != path.stem:
        raise ConfigError(f"{path}: id: is {top['id']!r}, but the file is called {path.stem!r}")
    columns = tuple(_column(c, f"{path}: columns {i}: ") for i, c in enumerate(top["columns"], 1))
    ids = [c.id for c in columns]
    _unique(ids, f"{path}: columns: task and metric")
    rows = tuple(_row(r, ids, f"{path}: row {i}: ") for i, r in enumerate(top["row"], 1))
    names = [r.name for r in rows]
    _unique(names, f"{path}: row: model, backbone and method")
    reference = top.get("reference", "")
    if reference and reference not in names:
        raise ConfigError(f"{path}: reference: no row {reference!r}, {nearest(reference, names)}")
    return PublishedTable(
        id=top["id"],
        title=top["title"],
        source=_checked(top["source"], _SOURCE, f"{path}: source."),
        protocol=_checked(top["protocol"], _PROTOCOL, f"{path}: protocol."),
        columns=columns,
        rows=rows,
        reference=reference,
        not_comparable=top.get("not_comparable", ""),
        inconsistencies=_strings(top.get("inconsistencies", []), f"{path}: inconsistencies"),
    )


def load_all(folder: Path) -> dict[str, PublishedTable]:
    """Read every table of a folder, by id, in the order of their ids.

    Raises:
        ConfigError: A table with a mistake, or no tables at all.
    """
    paths = sorted(folder.glob("*.toml"))
    if not paths:
        raise ConfigError(f"{folder}: no published tables (*.toml) there")
    return {path.stem: load(path) for path in paths}


def _checked(table: Any, fields: _Fields, where: str) -> dict[str, Any]:
    """Return the table if its keys and types are those of `fields`."""
    if not isinstance(table, dict):
        raise ConfigError(f"{where.rstrip(' :.')}: must be a table")
    given = cast("dict[str, Any]", table)
    for key, value in given.items():
        if key not in fields:
            raise ConfigError(f"{where}{key}: unknown key, {nearest(key, fields)}")
        if type(value) is not fields[key][0]:
            raise ConfigError(f"{where}{key}: must be a {fields[key][0].__name__}, is {value!r}")
    for key, (_, required) in fields.items():
        if required and not given.get(key):
            raise ConfigError(f"{where}{key}: is missing or empty")
    return given


def _column(table: Any, where: str) -> Column:
    raw = _checked(table, _COLUMN, where)
    for key, known in (("unit", UNITS), ("kind", KINDS)):
        if raw.get(key, known[0]) not in known:
            raise ConfigError(f"{where}{key}: {raw[key]!r}, {nearest(raw[key], known)}")
    if raw.get("n", 1) < 1:
        raise ConfigError(f"{where}n: must be above 0, is {raw['n']}")
    values: dict[str, Any] = {"label": f"{raw['task']} {raw['metric']}", **raw}
    return Column(**values)


def _row(table: Any, ids: Sequence[str], where: str) -> Row:
    raw = _checked(table, _ROW, where)
    cells = _strings(raw["cells"], f"{where}cells")
    if len(cells) != len(ids):
        raise ConfigError(f"{where}cells: {len(cells)} for {len(ids)} columns")
    if not (raw.get("model") or raw.get("backbone")):
        raise ConfigError(f"{where}model: give a model or a backbone")
    for key, note in raw.get("notes", {}).items():
        if key not in ids:
            raise ConfigError(f"{where}notes.{key}: no such column, {nearest(key, ids)}")
        _strings([note], f"{where}notes.{key}")
    values: dict[str, Any] = {**raw, "cells": cells}
    return Row(**values)


def _strings(items: list[Any], where: str) -> tuple[str, ...]:
    for item in items:
        if not isinstance(item, str):
            raise ConfigError(f"{where}: {item!r} must be quoted, to keep it as printed")
    return tuple(items)


def _unique(names: Sequence[str], where: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{where}: {name!r} occurs twice")


# --- printing ---------------------------------------------------------------------------------

_LEGEND = {
    "†": "no k/n gives this figure, for the n stated: no interval.",
    "‡": "another figure of this row and task fits no k/n, so n is in doubt: no interval.",
    "≈": "not distinguishable from the reference row, {reference} (Fisher's exact test on the "
    "inferred counts, 5%, unpaired, unadjusted; the absence of the mark proves nothing).",
    "§": "single sample a question: not to be set beside a mean over many samples.",
}


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a cell allows: its counts (none where n is in doubt) and its mark."""

    counts: tuple[int, ...] = ()
    mark: str = ""
    cut_off: bool = False


def markdown(table: PublishedTable, level: int = 3) -> str:
    """Render a table with intervals, marks, source, protocol and inconsistencies.

    Args:
        table: What `load` returned.
        level: Heading level.
    """
    from tabulate import tabulate

    readings = {row.name: _readings(table.columns, row) for row in table.rows}
    base = readings.get(table.reference)
    notes: list[str] = []
    cut: list[str] = []
    used: set[str] = {"§"} if any(c.single_sample for c in table.columns) else set()
    body: list[list[str]] = []
    for row in table.rows:
        line = [row.model, row.backbone, row.method]
        for i, (column, reading) in enumerate(zip(table.columns, readings[row.name], strict=True)):
            shown, mark = row.cells[i] or "-", reading.mark
            if column.n and base and row.name != table.reference:
                verdict = compare_counts(reading.counts, base[i].counts, column.n)
                mark += "≈" if verdict == "not distinguishable" else ""
            used.update(mark)
            if note := row.notes.get(column.id):
                notes.append(note)
                mark += f" ({len(notes)})"
            if reading.cut_off and column.n:
                cut.append(f"{shown} = {reading.counts[0]}/{column.n}")
            line.append(shown + mark + _bounds(shown, reading.counts, column))
        body.append(line)
    heads = ["Model", "Backbone", "Method", *(_heading(c) for c in table.columns)]
    keep = [i for i in range(len(heads)) if i > 2 or any(line[i] for line in body)]
    out = [f"{'#' * level} {table.title}", ""]
    if table.not_comparable:
        out += [f"**Not comparable.** {table.not_comparable}", ""]
    out += [
        tabulate(
            [[line[i] for i in keep] for line in body],
            headers=[heads[i] for i in keep],
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
        legend.insert(0, "Brackets: 95% Wilson interval, questions independent.")
    if cut:
        legend.append(f"Cut off instead of rounded: {', '.join(dict.fromkeys(cut))}.")
    legend += [f"({i}) {note}" for i, note in enumerate(notes, start=1)]
    out += [f"- {text}" for text in legend] + [""] * bool(legend)
    out += [f"Source: {_citation(table.source)}", "", "Protocol:", ""]
    out += [f"- {key}: {table.protocol[key]}" for key in _PROTOCOL if key in table.protocol]
    if table.inconsistencies:
        out += ["", "Known inconsistencies of the source:", ""]
        out += [f"{i}. {text}" for i, text in enumerate(table.inconsistencies, start=1)]
    return "\n".join(out) + "\n"


def _readings(columns: Sequence[Column], row: Row) -> list[_Reading]:
    """Return what each cell allows; one misfit puts the n of that task in doubt."""
    fits = [
        fit(cell, c.n, c.unit) if c.kind == "share" and c.n else None
        for c, cell in zip(columns, row.cells, strict=True)
    ]
    doubtful = {c.task for c, f in zip(columns, fits, strict=True) if f and not f.counts}
    readings: list[_Reading] = []
    for column, found in zip(columns, fits, strict=True):
        if found is None:
            readings.append(_Reading())
        elif column.task in doubtful:
            readings.append(_Reading(mark="‡" if found.counts else "†"))
        else:
            readings.append(_Reading(found.counts, cut_off=not found.rounded))
    return readings


def _bounds(cell: str, counts: Sequence[int], column: Column) -> str:
    if not counts or not column.n:
        return ""
    scale, digits = (100, 1) if column.unit == "percent" else (1, 3)
    low, high = (f"{scale * x:.{digits}f}" for x in wilson_range(counts, column.n))
    if cell.startswith("."):
        low, high = low.removeprefix("0"), high.removeprefix("0")
    return f" [{low}, {high}]"


def _heading(column: Column) -> str:
    arrow = "" if column.higher_is_better else " ↓"
    return column.label + arrow + (" §" if column.single_sample else "")


def _citation(source: Mapping[str, str]) -> str:
    said = {"arxiv": "arXiv {}", "commit": "commit {}", "licence": "licence {}"}
    parts = [said.get(key, "{}").format(source[key]) for key in _SOURCE if key in source]
    return "; ".join(part.rstrip(".") for part in parts) + "."
