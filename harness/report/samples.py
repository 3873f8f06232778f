"""The part of a board on several samples a question: pass@1, pass@k, maj@n and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from harness.records import RecordSet
from harness.report.cells import cell, escape, number, table
from harness.report.printed import beside
from harness.report.published import PublishedTable
from harness.report.summary import Summary, policy_name
from harness.stats.repeated import Repeated, repeated

COLUMNS = ("pass@1", "fully_right", "fully_wrong", "output_tokens")
"""Metrics of published tables that find their place here."""

VOTE = "vote"
"""Metric by which a scorer says that two samples answered the same; below 0: no answer."""


def of_records(records: RecordSet, metric: str) -> Repeated | None:
    """The samples of a record set by a 0/1 metric.

    Returns:
        None with one sample a doc, with an unscored one (nothing is counted as wrong), or
        where the metric is a share.
    """
    if records.repeats < 2 or not records.docs:
        return None
    right: list[list[float]] = []
    votes: list[list[float | None]] = []
    for doc in records.docs:
        metrics = [s.metrics or {} for s in doc.samples]
        row = [m.get(metric) for m in metrics]
        if any(value not in (0, 1) for value in row):
            return None
        right.append(cast("list[float]", row))
        votes.append([v if (v := m.get(VOTE, -1)) >= 0 else None for m in metrics])
    clusters = [d.cluster or d.doc_id for d in records.docs]
    shared = any(d.cluster is not None for d in records.docs)
    return repeated(right, votes, clusters=clusters if shared else None)


def section(
    task: str, rows: Sequence[Summary], metric: str, published: Sequence[PublishedTable]
) -> list[str]:
    """Lines of a board; none where every row has a single sample a doc."""
    several = [r for r in rows if r.records.repeats > 1]
    if not several:
        return []
    found = [(r, s) for r in several if (s := of_records(r.records, metric)) is not None]
    ks = sorted({k for _, s in found for k in s.pass_at if k > 1})
    head = ["model", "policy", "questions", "n", "pass@1 [total]", "decoding only"]
    head += [*[f"pass@{k}" for k in ks], "maj@n", "fully right", "fully wrong", "tokens"]
    body = [_line(r, s, ks) for r, s in found]
    printed = [o for o in beside(published, task, COLUMNS) if "pass@1" in o.cells]
    for o in printed:
        shown = {m: c.shown for m, c in o.cells.items()}
        body.append(
            [escape(o.name), "published", o.n, "", shown["pass@1"], "", *["" for _ in ks], "",
             *[shown.get(m, "") for m in COLUMNS[1:]]]
        )  # fmt: skip
    skipped = [r for r in several if not any(r is other for other, _ in found)]
    lines = ["Several samples a question:", "", table(body, head), ""] if body else []
    if found:
        lines += [
            "pass@1 is the mean over all samples, with the interval over new questions and new",
            "samples; `decoding only` is the interval over new samples of these same questions.",
            "pass@k is unbiased (Chen et al. 2021), with the interval over new questions. maj@n:",
            "the most frequent answer is right; a tie counts as a draw. n: samples a question.",
            "",
        ]
    lines += [
        f"- {escape(r.records.name)}: a sample is unscored or no 0/1, so there is no pass@k."
        for r in skipped
    ]
    return lines + [""] * bool(skipped)


def _line(row: Summary, s: Repeated, ks: Sequence[int]) -> list[str]:
    parts = s.parts
    decoding = parts.note or "-"
    if parts.decoding_low is not None and parts.decoding_high is not None:
        decoding = f"[{number(parts.decoding_low)}, {number(parts.decoding_high)}]"
    tokens = row.estimates.get("output_tokens")
    return [
        escape(row.records.name),
        escape(policy_name(row.records)),
        str(s.questions),
        str(s.n),
        cell(parts.total),
        decoding,
        *[cell(s.pass_at.get(k)) for k in ks],
        cell(s.majority),
        f"{s.fully_right}/{s.questions}",
        f"{s.fully_wrong}/{s.questions}",
        "-" if tokens is None else number(tokens.mean, rate=False),
    ]
