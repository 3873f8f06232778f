"""What the verb `label` does: draw, ask, correct, compare the judge with the labels."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.arguments import LabelArgs
from harness.cli import split
from harness.errors import UsageError
from harness.labelling import Labels, ask, draw, path_of, report
from harness.records import RecordSet, from_store
from harness.report.cells import escape, table
from harness.report.judges import remark
from harness.runs import find_run
from harness.schema import Doc
from harness.stats.ppi import Corrected
from harness.store import Store

DEFAULT_METRIC = {"rag": "answer_accuracy", "qa": "acc_l"}


def label_command(args: LabelArgs) -> int:
    """Ask for labels of a random sample, or correct the figures by them."""
    names = split(args.run)
    if not names or not args.tasks:
        raise UsageError("label needs run=ID (or several with commas) and tasks=ONE")
    if args.n < 1:
        raise UsageError(f"n={args.n}: must be 1 or more")
    out = Path(args.out)
    sets: list[RecordSet] = []
    docs: dict[str, Doc] = {}
    for name in names:
        with Store.open(find_run(name, out)) as store:
            sets.append(from_store(store, args.tasks))
            docs |= {d.doc.id: d.doc for d in store.docs(args.tasks)}
    if len({s.source for s in sets}) < len(sets):
        raise UsageError(f"run={args.run}: the same run twice")
    scorer = str(sets[0].fingerprints.get("scorer", "")).partition("@")[0]
    metric = args.metric or DEFAULT_METRIC.get(scorer, str(sets[0].info.get("metric", "")))
    runs = [s.source for s in sets]
    path = path_of(out, args.name, [args.tasks, metric, runs, args.n, args.seed])
    if path.exists():
        labels = Labels(path)
        same = (labels.design.task, labels.design.metric, list(labels.design.runs))
        if same != (args.tasks, metric, runs):
            raise UsageError(f"{path} is a sample of other runs or another metric: another name=")
    elif args.report:
        raise UsageError(f"{path} does not exist: label first, without report=true")
    else:
        labels = Labels.create(path, draw(sets, metric, args.n, args.seed))
    if not args.report:
        left = ask(labels, sets, docs, sys.stdin.readline, print, args.labeller)
        print(f"\n{path}: {left} outputs left" + (", the same command goes on" if left else ""))
        if left:
            return 3
    _print(labels, sets)
    return 0


def _print(labels: Labels, sets: list[RecordSet]) -> None:
    found = report(labels, sets)
    names = [f"{escape(s.name)} ({s.source})" for s in sets]
    rows = [_row(names[i], c) for i, c in found.means.items()]
    rows += [_row(f"{names[i]} - {names[j]}", c) for (i, j), c in found.deltas.items()]
    head = ["corrected", "judge alone", "by labels", "95% interval", "labels", "judge errors",
            "power"]  # fmt: skip
    print(f"\n{labels.design.task} {labels.design.metric}, by prediction-powered inference\n")
    if rows:
        print(table(rows, head))
    for runs, why in found.refused.items():
        print(f"not corrected: {' - '.join(names[i] for i in runs)}: {why}")
    flagged = [d for d in found.differences if d.flagged]
    for d in flagged:
        print(f"the judge alone is not to be trusted, {names[int(d.model)]}: {remark(d)}")
    if found.differences and not flagged:
        print("the judge is not seen to err otherwise on one run than on the others")


def _row(name: str, c: Corrected) -> list[str]:
    ends = c.note if c.low is None or c.high is None else f"[{c.low:.3f}, {c.high:.3f}]"
    return [name, f"{c.judged:.3f}", f"{c.mean:.3f}", ends, str(c.labels), str(c.errors),
            f"{c.power:.2f}"]  # fmt: skip
