"""The papers' tables (baselines/published/*.toml), read and checked.

A table carries its cells as printed, its protocol and its inconsistencies; the board adds what
the cells allow (`harness.report.counts`) and marks what they do not (`harness.report.printed`).
The names of tasks and metrics are those of this harness wherever it has the same ones, so that
published figures find their place beside measured ones.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from harness.errors import ConfigError, nearest

UNITS = ("percent", "fraction", "tokens", "count")
KINDS = ("share", "mean", "count")

_BOARD = re.compile(r"[a-z0-9_]+")  # becomes a file name

_Fields = Mapping[str, tuple[type, bool]]  # key -> (type, required)
_TABLE: _Fields = {
    "id": (str, True),
    "title": (str, True),
    "board": (str, True),
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
    "beside": (bool, False),
}
_ROW: _Fields = {
    "model": (str, False),
    "backbone": (str, False),
    "method": (str, False),
    "task": (str, False),
    "cells": (list, True),
    "notes": (dict, False),
}

SOURCE_KEYS = tuple(_SOURCE)
PROTOCOL_KEYS = tuple(_PROTOCOL)
"""In the order in which a board shows them."""


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
        beside: Whether its cells also stand beside measured rows of the task and metric.
    """

    task: str
    metric: str
    unit: str
    label: str = ""
    n: int | None = None
    kind: str = "share"
    higher_is_better: bool = True
    single_sample: bool = False
    beside: bool = True

    @property
    def id(self) -> str:
        """Key of cell notes: task.metric."""
        return f"{self.task}.{self.metric}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table; `cells` are as printed, "-" or "" where nothing is given.

    A `task` replaces the columns' where the rows of a table are tasks.
    """

    cells: tuple[str, ...]
    model: str = ""
    backbone: str = ""
    method: str = ""
    task: str = ""
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
        board: Board that shows it.
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
    board: str
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
    if not _BOARD.fullmatch(top["board"]):
        raise ConfigError(f"{path}: board: {top['board']!r}: small letters, digits and _ only")
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
        board=top["board"],
        source=_checked(top["source"], _SOURCE, f"{path}: source."),
        protocol=_checked(top["protocol"], _PROTOCOL, f"{path}: protocol."),
        columns=columns,
        rows=rows,
        reference=reference,
        not_comparable=top.get("not_comparable", ""),
        inconsistencies=_strings(top.get("inconsistencies", []), f"{path}: inconsistencies"),
    )


def load_all(folder: Path) -> dict[str, PublishedTable]:
    """Read every table of a folder, by id, in the order of their ids; {} without the folder.

    Raises:
        ConfigError: A table with a mistake, or a folder without tables.
    """
    paths = sorted(folder.glob("*.toml"))
    if not folder.exists():
        return {}
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
