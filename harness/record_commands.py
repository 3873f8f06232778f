"""What the verbs do that work on records alone: rescore."""

from __future__ import annotations

from pathlib import Path

from harness.cli import RescoreArgs, one_line, split
from harness.errors import UsageError
from harness.report.markdown import table
from harness.rescore import Rescored, frozen_from, rescore
from harness.runs import find_run


def rescore_command(args: RescoreArgs) -> int:
    """Score a stored run again and print what changed."""
    if bool(args.run) == bool(args.model):
        raise UsageError("rescore needs run=ID or model=NAME (its newest run)")
    out, baselines = Path(args.out), Path(args.baselines)
    name = args.run or args.model
    results = rescore(name, split(args.tasks), judge=args.judge, out=out, baselines=baselines)
    print_rescored(results)
    run = find_run(name, out)
    if any(r.before != r.after or r.docs for r in results):
        for frozen in frozen_from(run, baselines):
            print(
                f"note: the frozen baseline '{frozen}' keeps its old scores: "
                f"freeze run={run.name} as={frozen}"
            )
    unscored = sum(r.unscored for r in results)
    if unscored:
        print(f"incomplete: {unscored} samples are unscored; the same command asks again")
    print(f"rescored {sum(r.samples for r in results)} samples of {run}")
    return 3 if unscored else 0


def print_rescored(results: tuple[Rescored, ...]) -> None:
    """Print scorers before and after, and every metric that changed."""
    rows = [
        [r.task, r.before, "the same" if r.after == r.before else one_line(r.after),
         str(r.samples), str(r.docs), str(r.unscored)]
        for r in results
    ]  # fmt: skip
    head = ["task", "scorer before", "scorer now", "samples", "docs changed", "unscored"]
    print(table(rows, head))
    changes = [
        [r.task, c.metric, str(c.docs), _number(c.before), _number(c.after)]
        for r in results
        for c in r.metrics
    ]
    if changes:
        print()
        print(table(changes, ["task", "metric", "docs changed", "before", "now"]))


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"
