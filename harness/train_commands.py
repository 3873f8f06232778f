"""The verbs of training: list recipes, train, report. The trainers themselves are in trainers/."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.arguments import ListArgs, TrainArgs
from harness.errors import CheckrailError, UsageError
from harness.listings import print_table
from harness.models import load_card, load_model

FOLDER = "train"
"""Under the folder of runs."""


def recipes_command(args: ListArgs) -> int:
    """Print every recipe."""
    from trainers.recipe import load_recipe, recipe_names

    rows = [
        (r.name, r.base, r.makes, r.algorithm, r.backend, r.about)
        for r in map(load_recipe, recipe_names())
    ]
    print_table(rows, ("recipe", "base", "makes", "algorithm", "back end", "about"))
    return 0


def train_command(args: TrainArgs) -> int:
    """Train a recipe, or report on a run.

    Returns:
        0 with a card written (or a clean report), 3 with steps left to do.
    """
    if args.report:
        return _report(args)
    from trainers.recipe import load_recipe

    recipe = load_recipe(args.recipe)
    if args.judge:
        recipe = replace(recipe, judge=args.judge)
    if args.contaminated not in ("", "allow"):
        raise UsageError(f"contaminated={args.contaminated}: 'allow' is all it can say")
    if args.limit_steps is not None and args.limit_steps < 1:
        raise UsageError(f"limit_steps={args.limit_steps}: must be 1 or more")
    name = args.name or recipe.makes
    if "/" in name or name.startswith("."):
        raise UsageError(f"name={name}: a name cannot contain '/' or start with '.'")
    if args.emit:
        from trainers.emit import emit

        for path in emit(recipe, Path(args.emit), args.data or None):
            print(f"wrote {path}")
        return 0
    if (args.backend or recipe.backend) != "trl":
        raise UsageError(
            f"recipe '{recipe.name}' is one of {args.backend or recipe.backend}: emit=DIR writes "
            f"its configuration, backend=trl trains it here"
        )
    changes = {key: value for key in ("path", "adapter") if (value := getattr(args, key))}
    baselines = Path(args.baselines)
    model = load_model(args.model or recipe.base, baselines, changes)
    folder = Path(args.out) / FOLDER / name
    if args.fresh and folder.exists():
        folder.rename(_unused(folder))
    from harness.progress import Progress
    from trainers.run import Settings, train

    settings = Settings(
        name=name,
        folder=folder,
        baselines=baselines,
        data=args.data or None,
        limit_steps=args.limit_steps,
        merge=args.merge,
        contaminated=args.contaminated,
    )
    progress = Progress()
    result = train(recipe, model, settings, progress)
    spent = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in progress.seconds.items())
    progress.say(f"{name}: {result.step} of {result.steps} steps ({spent})")
    if result.card is None:
        print(f"{name}: {result.steps - result.step} steps are left; the same command goes on")
        return 3
    if any(result.card.parent.glob("*.jsonl.gz")):
        progress.say(
            f"note: the frozen records beside the card are of earlier weights of {name}; "
            f"python -m harness freeze run=ID as={name} replaces them"
        )
    print(f"wrote {result.card}\nnext: python -m harness eval model={name}")
    return 0


def _unused(folder: Path) -> Path:
    number = 1
    while (kept := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    return kept


# --- report ---------------------------------------------------------------------------------


def _report(args: TrainArgs) -> int:
    """Print what the rewards of a run may have been bought with; no model is loaded."""
    from trainers.diagnostics import collapse
    from trainers.hacking import HeldOut, report
    from trainers.log import read_curve, read_rollouts

    folder = Path(args.out) / FOLDER / args.report
    if not folder.is_dir():
        raise UsageError(f"report={args.report}: there is no run at {folder}")
    curve = [row for row in read_curve(folder) if "reward" in row]
    scores = _held_out(args, folder)
    if scores:
        print_table(
            [(t, m, f"{b:.3f}", f"{a:.3f}", clean) for t, m, b, a, clean in scores],
            ("held-out task", "metric", "parent", args.report, "without flagged questions"),
        )
        print()
    played = read_rollouts(folder)
    held = [HeldOut(task, metric, before, after) for task, metric, before, after, _ in scores]
    rows = [
        (f.name, _figure(f.early), _figure(f.late), "FLAGGED" if f.flagged else "", f.detail)
        for f in report(played, held)
    ]
    if not rows:
        print(f"{args.report}: no rollouts were played (SFT), so no reward to hack")
        return 0
    print_table(rows, ("finding", "early", "late", "", "what"))
    silent = sum(float(row["zero_deviation"]) * int(row["groups"]) for row in curve)
    groups = sum(int(row["groups"]) for row in curve)
    if groups:
        print(f"\n{groups - round(silent)} of {groups} groups had rewards that differ")
    for alarm in collapse(curve):
        print(f"collapse? {alarm}")
    return 0


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _held_out(args: TrainArgs, folder: Path) -> Sequence[tuple[str, str, float, float, str]]:
    """Task, main metric, parent's mean, this checkpoint's, and its mean on clean questions."""
    from harness.leaks import with_and_without
    from harness.runs import load_baseline
    from trainers.run import flagged_ids

    baselines, out = Path(args.baselines), Path(args.out)
    try:
        card = load_card(baselines / args.report / "card.toml")
        ours = load_baseline(args.report, out, baselines)
        theirs = load_baseline(card.parent, out, baselines)
    except CheckrailError:
        return []  # not evaluated yet
    found: list[tuple[str, str, float, float, str]] = []
    for task, records in sorted(ours.items()):
        metric = str(records.info.get("metric", ""))
        mine = {d.doc_id: v for d in records.docs if (v := d.mean(metric)) is not None}
        parent = theirs.get(task)
        docs = parent.docs if parent else ()
        base = {d.doc_id: v for d in docs if (v := d.mean(metric)) is not None}
        shared = mine.keys() & base.keys()
        if not shared:
            continue
        whole, clean = with_and_without(
            {doc_id: mine[doc_id] for doc_id in shared}, flagged_ids(folder, task)
        )
        before = sum(base[doc_id] for doc_id in shared) / len(shared)
        shown = "same" if clean.n == whole.n else f"{_figure(clean.mean)} ({clean.n} docs)"
        found.append((task, metric, before, whole.mean or 0.0, shown))
    return found
