"""Verdicts and results as the terminal and gate.json show them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from harness.arguments import Gate
from harness.cli import one_line
from harness.compare import Gated, Line, worst
from harness.differences import Agreement
from harness.errors import StoreError
from harness.records import RecordSet
from harness.report.cells import cell, escape, table
from harness.report.summary import summarise


def finish(
    args: Gate,
    gated: Sequence[Gated],
    incomplete: Sequence[str],
    agreements: Sequence[Agreement] = (),
) -> int:
    """Print the verdicts, write gate.json, return the exit code."""
    lines = [line for g in gated for line in g.lines]
    if lines:
        print()
        print(verdict_table(lines))
    notes: dict[str, list[str]] = {}
    for line in lines:
        c = line.comparison
        if c.note:
            notes.setdefault(c.note, []).append(f"{c.task} {c.metric}")
    for note, places in notes.items():
        print(f"note: {one_line(note)} ({', '.join(places)})")
    for shared in agreements:
        print(f"outputs: {shared}")
    for text in incomplete:
        print(f"incomplete: {one_line(text)}")
    code, reason = worst(gated, bool(incomplete))
    path = Path(args.gate) if args.gate else Path(args.out) / "gate.json"
    body = {
        "exit_code": code,
        "reason": reason,
        "profile": args.profile,
        "incomplete": list(incomplete),
        "comparisons": [
            {**asdict(line.comparison), "blocking": line.rule.blocking} for line in lines
        ],
        **({"outputs": [asdict(shared) for shared in agreements]} if agreements else {}),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(body, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}; choose gate=FILE") from None
    print(f"{reason} (exit code {code}, verdicts in {path})")
    return code


def verdict_table(lines: Sequence[Line]) -> str:
    """Verdicts as a table: every number that the decision rests on."""
    rows: list[list[str]] = []
    for line in lines:
        c = line.comparison
        ends = f"[{c.interval[0]:+.3f}, {c.interval[1]:+.3f}]" if c.interval else "none"
        rows.append(
            [
                escape(c.candidate),
                c.task,
                c.metric + ("" if line.rule.blocking else " (not blocking)"),
                "" if c.delta is None else f"{c.delta:+.3f}",
                "" if c.delta is None else ends,
                str(c.n),
                str(c.clusters),
                "" if c.p_adjusted is None else f"{c.p_adjusted:.3g}",
                "none" if c.mde is None else f"{c.mde:.3f}",
                f"{c.margin:.3f}",
                c.verdict,
            ]
        )
    head = ["checkpoint", "task", "metric", "delta", "95% interval", "n", "clusters",
            "p (Holm)", "MDE", "margin", "verdict"]  # fmt: skip
    return table(rows, head)


def print_results(records: Sequence[RecordSet]) -> None:
    """Print the metrics of each task with intervals, and what went wrong."""
    for r in records:
        summary = summarise(r)
        print(f"\n{r.task} ({r.name}): {len(r.docs)} of {r.total} docs")
        columns = [*(r.info.get("columns") or summary.estimates),
                   *(r.info.get("context_columns") or ())]  # fmt: skip
        for metric in columns:
            if metric in summary.estimates:
                print(f"  {metric:24} {cell(summary.estimates[metric])}")
        if summary.reasons:
            reasons = ", ".join(f"{k} {v}" for k, v in summary.reasons.items())
            print(f"  {'reasons':24} {reasons}")
        for flag in summary.flags:
            print(f"  flag: {flag}")
