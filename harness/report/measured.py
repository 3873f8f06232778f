"""Published rows in the table of a measured task, and what tells the rows apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.report.cells import escape
from harness.report.counts import compare_counts
from harness.report.printed import Beside, citation
from harness.report.summary import Summary

Marks = Mapping[tuple[int, str], str]
"""(id of a row, metric) -> mark."""

LIKE_BEST = "°"
SINGLE = "§"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A cell of either kind: its value and the counts behind it."""

    row: int
    value: float
    counts: tuple[int, ...]
    n: int
    published: bool
    ranked: bool


def marks(rows: Sequence[Summary], others: Sequence[Beside]) -> Marks:
    """Mark cells that cannot be told from the best of their column.

    Fisher's exact test on the counts, and only where one of the two is published: measured
    rows are compared with each other by the gate, paired and clustered. A row that is
    incomplete, off protocol, given the gold pages or a sample of the docs is never the best one.
    """
    found: dict[tuple[int, str], str] = {}
    directions = {m: c.higher_is_better for o in others for m, c in o.cells.items()}
    for metric, higher in directions.items():
        entries = [
            _Entry(id(o), c.value, c.counts, c.n, True, True)
            for o in others
            if (c := o.cells.get(metric)) is not None
        ]
        entries += [e for r in rows if (e := _measured(r, metric)) is not None]
        ranked = [e for e in entries if e.ranked]
        best = (max if higher else min)(ranked, key=lambda e: e.value)
        for e in entries:
            alike = compare_counts(e.counts, best.counts, e.n, best.n) == "not distinguishable"
            if e is not best and (e.published or best.published) and alike:
                found[e.row, metric] = LIKE_BEST
    return found


def _measured(row: Summary, metric: str) -> _Entry | None:
    estimate = row.estimates.get(metric)
    if estimate is None:
        return None
    records, right = row.records, estimate.mean * estimate.n
    whole = abs(right - round(right)) < 1e-6 and 0 <= estimate.mean <= 1
    ranked = (
        records.selected == records.total
        and not records.missing
        and not records.info.get("off_protocol")
        and records.info.get("retriever") != "oracle"
    )
    # A mean over several samples is no count of questions.
    counts = (round(right),) if whole and records.repeats == 1 else ()
    return _Entry(id(row), estimate.mean, counts, estimate.n, False, ranked)


def published_rows(
    others: Sequence[Beside], columns: Sequence[str], near: Marks
) -> list[list[str]]:
    """Rows in the form of a measured task's table: marked "published", numbered by source."""
    numbers = _numbers(others)
    return [
        [
            escape(o.name),
            "published",
            "",
            o.n,
            "",
            *[c.text(near.get((id(o), m), "")) if (c := o.cells.get(m)) else "" for m in columns],
            "",
            f"published ({numbers[o.table.id]})",
        ]
        for o in others
    ]


def sources(others: Sequence[Beside], near: Marks) -> list[str]:
    """Where the published rows are from, how they were measured, and what the mark says."""
    if not others:
        return []
    lines: list[str] = []
    if near:
        lines.append(
            f"- {LIKE_BEST} not distinguishable from the best row of its column (Fisher's exact "
            "test on the counts, 5%, unpaired, unadjusted, clusters left out; only where one of "
            "the two is published; no mark proves nothing)."
        )
    if any(c.single_sample for o in others for c in o.cells.values()):
        lines.append(
            f"- {SINGLE} single sample a question: not to be set beside a mean over many samples."
        )
    for table_id, number in _numbers(others).items():
        table = next(o.table for o in others if o.table.id == table_id)
        lines.append(f"- ({number}) {table.title}. {citation(table)}")
        lines += [f"  - {key}: {table.protocol[key]}" for key in ("sampling", "judge", "retriever")
                  if key in table.protocol]  # fmt: skip
        lines += [f"  - known inconsistency: {text}" for text in table.inconsistencies]
    return [
        "Published rows are as printed, with k/n where the figure allows one count, and Wilson's "
        "interval as if questions were independent.",
        "",
        *lines,
        "",
    ]


def _numbers(others: Sequence[Beside]) -> dict[str, int]:
    ids = dict.fromkeys(o.table.id for o in others)
    return {table_id: number for number, table_id in enumerate(ids, start=1)}
