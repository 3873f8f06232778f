"""What the verbs do that generate no rollout: rescore, import, select, annotate."""

from __future__ import annotations

import os
from pathlib import Path

from harness.arguments import AnnotateArgs, ImportArgs, RescoreArgs, SelectArgs
from harness.cli import one_line, split
from harness.difficulty import DIFFICULT_ABOVE, place_all, write
from harness.errors import UsageError
from harness.judge_commands import judge_of, print_judges
from harness.report.markdown import table
from harness.rescore import Rescored, frozen_from, rescore
from harness.runs import find_run, load_run
from harness.schema import Model
from harness.store import Store


def rescore_command(args: RescoreArgs) -> int:
    """Score a stored run again and print what changed."""
    if bool(args.run) == bool(args.model):
        raise UsageError("rescore needs run=ID or model=NAME (its newest run)")
    out, baselines = Path(args.out), Path(args.baselines)
    name = args.run or args.model
    with judge_of(args) as judge:
        results = rescore(
            name,
            split(args.tasks),
            judge="again" if judge else args.judge,
            llm=judge.on if judge else None,
            out=out,
            baselines=baselines,
        )
    print_rescored(results)
    if judge is not None:
        print(f"judge {judge.name}: {judge.tally}")
    run = find_run(name, out)
    print_judges(run, load_run(str(run), out).values())
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


def import_command(args: ImportArgs) -> int:
    """Import a file of predictions and print how it scores."""
    for key in ("file", "task", "model"):
        if not getattr(args, key):
            raise UsageError("import needs file=, task= and model=")
    os.environ.setdefault("TQDM_DISABLE", "1")  # lm-eval's bars; read once, when it is imported
    from harness.importing import import_predictions
    from harness.verdicts import print_results

    result = import_predictions(
        Path(args.file).expanduser(),
        args.task,
        args.model,
        id_field=args.id,
        answer=args.answer,
        partial=args.partial,
        data=Path(args.data).expanduser() if args.data else None,
        out=Path(args.out),
        baselines=Path(args.baselines),
    )
    print_results(result.records)
    (records,) = result.records
    source = records.info["imported"]
    print(
        f"imported {result.outcome.played} samples into {result.run} (prompt: {source['prompt']})"
    )
    if records.missing:
        print(f"incomplete: {records.missing} docs have no prediction")
    return 0


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


def select_command(args: SelectArgs) -> int:
    """Write a run's questions by the rollouts that they needed."""
    if not args.run or not args.tasks or not args.to:
        raise UsageError("select needs run=, tasks=ONE and to=DIR")
    with Store.open(find_run(args.run, Path(args.out))) as store:
        known = store.tasks()
        metric = args.metric or (
            str(known[args.tasks].info.get("metric", "")) if args.tasks in known else ""
        )
        placed = place_all(store, args.tasks, metric, args.right)
        repeats = known[args.tasks].repeats
    counts = write(placed, args.tasks, Path(args.to))
    print(table([[name, str(n)] for name, n in counts.items()], ["level", "docs"]))
    if counts["unanswered"] and repeats <= DIFFICULT_ABOVE:
        print(f"note: unanswered after {repeats} repeats may still be medium: repeats=21 tells")
    if counts["unfinished"]:
        print("incomplete: unfinished docs lack a scored rollout; resume or rescore the run")
    print(f"right = {metric} of at least {args.right:g}; written to {args.to}")
    return 3 if counts["unfinished"] else 0


def annotate_command(args: AnnotateArgs) -> int:
    """Have chains of thought annotated and print what came of them."""
    for key in ("file", "endpoint", "out"):
        if not getattr(args, key):
            raise UsageError("annotate needs file=, endpoint= and out=")
    from harness.annotating import annotate, read_chains

    flags = {"endpoint": args.endpoint, **({"model": args.served} if args.served else {})}
    counts = annotate(
        read_chains(Path(args.file)),
        Model("annotator", "openai", flags=flags),
        Path(args.out),
        requests=args.requests,
        max_tokens=args.max_tokens,
    )
    rejected = ", ".join(f"{reason} {n}" for reason, n in counts.most_common() if reason != "rows")
    print(f"{counts['rows']} rows in {args.out}; rejected: {rejected or 'none'}")
    return 0
