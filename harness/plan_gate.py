"""What the gate of a planned evaluation can decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.arguments import PlanArgs
from harness.commands import reference_of
from harness.forecast import Decision, decide
from harness.gates import Gates
from harness.report.cells import escape, number, table

if TYPE_CHECKING:
    from harness.evaluate import Prepared
    from harness.lm import Prompt


def print_gate(
    args: PlanArgs, prepared: Prepared, prompts: Mapping[str, Sequence[Prompt]], gates: Gates
) -> None:
    """Print, for each metric that the gate watches, what these docs can decide."""
    baselines = Path(args.baselines)
    reference = reference_of(
        prepared.model, args.baseline, gates, prepared.settings.out, baselines, prompts
    )
    rules = [
        (task, rule)
        for task in prompts
        for rule in gates.of(
            task,
            str(prepared.plans[task].info["board"]),
            str(prepared.plans[task].info["metric"]),
        )
    ]
    tests = max(1, sum(rule.blocking for _, rule in rules))
    found = [
        decide(
            task,
            rule,
            [p.stored.doc.cluster for p in prompts[task]],
            baseline=reference.get(task),
            repeats=prepared.plans[task].repeats,
            tests=tests,
        )
        for task, rule in rules
    ]
    if not found:
        return
    head = ["task", "metric", "margin", "docs", "clusters", "correlation", "MDE", "can it decide?"]
    print()
    print(table([_row(d) for d in found], head))
    print(
        "\nMDE: smallest drop that this gate calls a regression 4 times in 5. Assumed: 10% of docs "
        f"differ though nothing changed; correlation within a cluster "
        f"{number(0.2)} unless a baseline's records give one (*)."
    )
    bare = [task for task in prompts if task not in reference]
    if bare:
        print(f"note: nothing is stored to compare with for {', '.join(bare)}")


def _row(d: Decision) -> list[str]:
    icc = "" if d.correlation is None else number(d.correlation) + ("*" if d.observed else "")
    return [
        escape(d.task),
        d.rule.metric + ("" if d.rule.blocking else " (not blocking)"),
        f"{d.rule.margin:g}",
        str(d.n),
        str(d.clusters),
        icc,
        "none" if d.mde is None else f"{d.mde:.3f}",
        d.note,
    ]
