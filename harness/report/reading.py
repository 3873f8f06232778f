"""Retrieval and reading apart: how right a model is where the gold page was retrieved.

Computed from stored records. P(right | gold page retrieved) is a ratio of two random counts: its
interval is that of the mean over the docs whose passages hold the gold page, with their clusters
(to first order the linearised ratio, as docs without it have no residual). The oracle and none
columns are runs of the same model and policy with `retriever=oracle` and `retriever=none`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.records import RecordSet
from harness.report.cells import cell, escape, table
from harness.report.summary import Summary, policy_name
from harness.stats.intervals import Estimate, estimate

GOLD = "gold_page_in_topk"
ENDS = ("oracle", "none")


def given(records: RecordSet, metric: str, *, gold: bool) -> Estimate | None:
    """Mean of a metric over the docs whose gold page was retrieved (or was not).

    Args:
        records: One task of a run.
        metric: Its values of a doc are averaged over repeats first.
        gold: Which docs.

    Returns:
        None where there are no such docs.
    """
    chosen = [
        (value, d.cluster or d.doc_id)
        for d in records.docs
        if d.mean(GOLD) == float(gold) and (value := d.mean(metric)) is not None
    ]
    if not chosen:
        return None
    clustered = any(d.cluster is not None for d in records.docs)
    return estimate([v for v, _ in chosen], clusters=[c for _, c in chosen] if clustered else None)


def reading(rows: Sequence[Summary], main: str, name: Mapping[int, str]) -> list[str]:
    """Lines of a board, for tasks whose docs have a gold page.

    Args:
        rows: Of one task.
        main: Its main metric.
        name: id of a row -> name to show.
    """
    body: list[list[str]] = []
    for row in rows:
        records = row.records
        if records.info.get("retriever") in ENDS or GOLD not in row.estimates:
            continue
        with_gold, without = (given(records, main, gold=g) for g in (True, False))
        body.append(
            [
                name[id(row)],
                escape(policy_name(records)),
                escape(records.retriever),
                cell(row.estimates.get(GOLD), interval=False),
                *[f"{cell(e)} (n = {e.n})" if e else "-" for e in (with_gold, without)],
                *[cell(_end(rows, row, end, main)) for end in ENDS],
            ]
        )
    if not body:
        return []
    head = ["model", "policy", "retriever", GOLD, "gold page retrieved", "not retrieved",
            "oracle pages", "no pages"]  # fmt: skip
    return [
        f"Retrieval and reading apart: {escape(main)} where the gold page was retrieved, where it "
        "was not, and in runs with `retriever=oracle` and `retriever=none`:",
        "",
        table(body, head),
        "",
    ]


def _end(rows: Sequence[Summary], row: Summary, end: str, main: str) -> Estimate | None:
    """The main metric of the same model and settings with another retriever."""
    for other in rows:
        mine, theirs = row.records, other.records
        same = theirs.name == mine.name and _held(theirs) == _held(mine)
        whole = theirs.selected == mine.selected and not theirs.missing
        if theirs.info.get("retriever") == end and same and whole:
            return other.estimates.get(main)
    return None


def _held(records: RecordSet) -> dict[str, str]:
    return {key: value for key, value in records.fingerprints.items() if key != "retriever"}
