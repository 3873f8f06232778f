"""What the verbs do: parse names, call the harness, print, write boards and gate.json."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.arguments import BoardArgs, CheckArgs, CompareArgs, EvalArgs, FreezeArgs, RunsArgs
from harness.audit import export, inspect
from harness.budget import at_budget, over_budget
from harness.catalog import catalog, expand
from harness.cli import one_line, split
from harness.compare import Gated, compare, differing, parse_vary
from harness.differences import Agreement, agreement
from harness.errors import NoBaselineError, StoreError, UsageError
from harness.forecast import decide
from harness.gates import Gates, load_gates
from harness.judge_commands import judge_of, print_judges
from harness.models import at_endpoint, load_model
from harness.paths import TASKS
from harness.progress import Progress
from harness.records import RecordSet, freeze, frozen_tasks, load_frozen
from harness.report.cells import table
from harness.report.markdown import write_boards
from harness.report.published import load_all
from harness.runs import board_sets, find_run, list_runs, load_baseline, load_run
from harness.schema import Comparison, Model
from harness.store import Store, find_runs
from harness.verdicts import finish, print_results

if TYPE_CHECKING:
    from harness.evaluate import Prepared
    from harness.settings import Settings
    from harness.stats.gate import GateRule

DEMO_MODELS = ("extractive", "SmolLM2-135M-SFT")
DEMO_LIMIT = 32
"""Docs a task of the demo: under 4 minutes on 2 cores with the installation, MDE 42 points."""


# --- eval -----------------------------------------------------------------------------------


def evaluate_command(args: EvalArgs) -> int:
    """Evaluate one or more models, write the boards, gate each against its baseline."""
    baselines, out = Path(args.baselines), Path(args.out)
    vary = parse_vary(args.vary)
    gates = load_gates(baselines, args.profile)
    models = models_of(args)
    settings = settings_of(args)
    from harness.evaluate import evaluate

    gated: list[Gated] = []
    agreements: list[Agreement] = []
    incomplete: list[str] = []
    with judge_of(args) as judge:
        settings = replace(settings, judge=judge)
        for model in models:
            progress = Progress()
            warn = partial(_warn, args, gates, progress)
            result = evaluate(model, settings, progress=progress, announce=warn)
            print_results(result.records)
            parts = ", ".join(f"{name} {spent:.1f} s" for name, spent in progress.seconds.items())
            progress.say(f"{model.name}: {result.run} ({parts})")
            if not result.complete:
                missing = sum(r.missing for r in result.records)
                incomplete.append(
                    f"{model.name}: {missing} docs are missing "
                    f"({result.outcome.error or 'interrupted'}); the same command resumes"
                )
            if result.outcome.unjudged:
                incomplete.append(
                    f"{model.name}: {result.outcome.unjudged} samples have no verdict; the same "
                    "command asks the judge again"
                )
            sets = {r.task: r for r in result.records}
            reference = reference_of(model, args.baseline, gates, out, baselines, sets)
            gated.append(compare(sets, reference, gates, vary))
            agreements += _agreements(sets, reference, vary)
            print_judges(result.run, result.records)
        if judge is not None:
            print(f"judge {judge.name}: {judge.tally}")
    _write_boards(Path(args.boards), out, baselines, gates)
    return finish(args, gated, incomplete, agreements)


def _model(name: str, baselines: Path, args: EvalArgs) -> Model:
    changes = {key: value for key in ("engine", "path", "adapter") if (value := getattr(args, key))}
    if not (args.endpoint or args.served):
        return load_model(name, baselines, changes)
    if not args.model:
        raise UsageError("endpoint= needs model=NAME: the card that says how to ask")
    if changes.pop("engine", "openai") != "openai" or changes:
        raise UsageError("endpoint= serves its own weights: leave out engine=, path= and adapter=")
    return at_endpoint(load_model(name, baselines), args.endpoint, args.served)


def models_of(args: EvalArgs) -> list[Model]:
    """The models asked for, with tasks that exist; the demo's where none is named.

    Raises:
        UsageError: A model, a task or a baseline is unknown, or a number is out of range.
    """
    baselines = Path(args.baselines)
    _check_ranges(args, args.limit)
    models = [_model(name, baselines, args) for name in split(args.model) or DEMO_MODELS]
    entries = catalog(TASKS)
    for model in models:
        expand(split(args.tasks) or model.tasks, entries)
    if args.baseline:
        load_baseline(args.baseline, Path(args.out), baselines)  # unknown: say so at once
    return models


def settings_of(args: EvalArgs) -> Settings:
    """The settings that the arguments ask for."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # lm-eval's bars; read once, when it is imported
    from harness.settings import Settings

    return Settings(
        tasks=split(args.tasks),
        policy=args.policy,
        policy_options=args.policy_options,
        task_options=args.task_options,
        retriever=args.retriever,
        retriever_options=dict(args.retriever_options),
        limit=DEMO_LIMIT if not args.model and args.limit is None else args.limit,
        repeats=args.repeats,
        seed=args.seed,
        sampling={
            key: value
            for key in ("temperature", "top_p", "top_k", "max_tokens", "thinking")
            if (value := getattr(args, key)) is not None
        },
        window=args.window,
        data=Path(args.data).expanduser() if args.data else None,
        out=Path(args.out),
        language=args.language,
        unsafe_code=args.unsafe_code,
        fresh=args.fresh,
    )


def _warn(args: EvalArgs, gates: Gates, progress: Progress, prepared: Prepared) -> None:
    """One line before generating: which gates these docs are too few for."""
    out, baselines = Path(args.out), Path(args.baselines)
    clusters = {t.name: t.clusters for t in prepared.loaded}
    known = reference_of(prepared.model, args.baseline, gates, out, baselines, clusters)
    few = [
        f"{task} {rule.metric} ({100 * rule.margin:g} points, {len(labels)} docs)"
        for task, labels in clusters.items()
        for info in [prepared.plans[task].info]
        for rule in gates.of(task, str(info["board"]), str(info["metric"]))
        if rule.blocking
        and decide(task, rule, labels, baseline=known.get(task), with_mde=False).undecidable
    ]
    if few:
        progress.say(f"undecidable at this margin: {', '.join(few)}; see python -m harness plan")


def _check_ranges(args: EvalArgs, limit: int | None) -> None:
    for key, value in (("limit", limit), ("repeats", args.repeats), ("window", args.window)):
        if value is not None and value < 1:
            raise UsageError(f"{key}={value}: must be 1 or more")


def reference_of(
    model: Model,
    baseline: str,
    gates: Gates,
    out: Path,
    baselines: Path,
    tasks: Iterable[str],
) -> dict[str, RecordSet]:
    """Records to compare with: baseline=, else the parent's, else the model's own frozen ones."""
    if baseline:
        return load_baseline(baseline, out, baselines)
    wanted = gates.reference
    names = {"parent": [model.parent, model.name], "self": [model.name]}.get(wanted, [wanted])
    found: dict[str, RecordSet] = {}
    for name in names:
        if name and frozen_tasks(baselines / name):
            for task in tasks:
                if task not in found:
                    try:
                        found[task] = load_frozen(baselines / name, task)
                    except NoBaselineError:
                        continue
    return found


# --- compare --------------------------------------------------------------------------------


def compare_command(args: CompareArgs) -> int:
    """Compare stored records; no model is loaded."""
    baselines, out = Path(args.baselines), Path(args.out)
    if not args.model or not args.baseline:
        raise UsageError("compare needs model= and baseline=")
    vary = parse_vary(args.vary)
    gates = load_gates(baselines, args.profile)
    tasks = split(args.tasks)
    try:
        candidates = load_run(args.model, out, tasks)
    except UsageError:
        if not frozen_tasks(baselines / args.model) or "/" in args.model:
            raise
        candidates = load_baseline(args.model, out, baselines)
        candidates = {t: r for t, r in candidates.items() if not tasks or t in tasks}
    reference = load_baseline(args.baseline, out, baselines)
    if not set(candidates) & set(reference):
        raise NoBaselineError(
            f"'{args.baseline}' has none of the tasks {', '.join(sorted(candidates))}"
        )
    if args.budget is not None:
        candidates = {t: at_budget(r, args.budget) for t, r in candidates.items()}
        reference = {t: at_budget(r, args.budget) for t, r in reference.items() if t in candidates}
        for task, ours in candidates.items():
            for records in (ours, *([reference[task]] if task in reference else [])):
                cut, of = over_budget(records)
                print(f"{task}: {records.label}: {cut} of {of} samples took over {args.budget}")
    gated = compare(candidates, reference, gates, vary)
    incomplete = [f"{t}: {r.missing} docs are missing" for t, r in candidates.items() if r.missing]
    return finish(args, [gated], incomplete, _agreements(candidates, reference, vary))


def _agreements(
    candidates: Mapping[str, RecordSet], baselines: Mapping[str, RecordSet], vary: Sequence[str]
) -> list[Agreement]:
    """Output against output, where the engine is what may differ and nothing else forbids it."""
    if "engine" not in vary:
        return []
    return [
        agreement(ours, theirs)
        for task, ours in candidates.items()
        if (theirs := baselines.get(task)) is not None and not differing(ours, theirs, vary)
    ]


def lineage(gates: Gates) -> Any:
    """How a board compares a run with its parent: on main metrics, weights free to differ."""

    def compared(
        rows: Mapping[str, RecordSet], parents: Mapping[str, RecordSet]
    ) -> dict[str, Comparison]:
        whole = {t: r for t, r in rows.items() if not (r.missing or parents[t].missing)}
        rules = tuple((task, _main_rule(row, gates)) for task, row in whole.items())
        only = Gates(gates.profile, rules, gates.fallback, "parent")
        lines = compare(whole, parents, only, ("weights", "engine", "policy")).lines
        found = [line.comparison for line in lines]
        return {c.task: c for c in found if c.delta is not None}

    return compared


def _main_rule(row: RecordSet, gates: Gates) -> GateRule:
    """The gate of a task's main metric, counted into the family whether it blocks or not."""
    main = str(row.info.get("metric", ""))
    rules = gates.of(row.task, str(row.info.get("board", row.task)), main)
    found = next((rule for rule in rules if rule.metric == main), gates.fallback)
    return replace(found, metric=main, blocking=True)


# --- the run store --------------------------------------------------------------------------


def freeze_command(args: FreezeArgs) -> int:
    """Freeze a finished run under baselines/NAME/."""
    name = args.as_
    if not args.run or not name:
        raise UsageError("freeze needs run= and as=")
    if "/" in name or name.startswith("."):
        raise UsageError(f"as={name}: a baseline's name cannot contain '/' or start with '.'")
    records = load_run(args.run, Path(args.out), split(args.tasks))
    for task in records.values():
        path = freeze(task, Path(args.baselines) / name, name, texts=args.texts)
        print(f"wrote {path}")
    return 0


def runs_command(args: RunsArgs) -> int:
    """List the stored runs, newest first."""
    runs, broken = list_runs(Path(args.out))
    rows = [
        [r.run_id, r.model, r.created, r.status, ", ".join(f"{t} {n}" for t, n in r.tasks.items())]
        for r in runs
    ]
    print(table(rows, ["run", "model", "created", "last invocation", "finished docs"]))
    for line in broken:
        print(f"unreadable: {one_line(line)}")
    return 0


def check_command(args: CheckArgs) -> int:
    """Verify runs and frozen baselines; export one on request."""
    out = Path(args.out)
    folders = [find_run(args.run, out)] if args.run else find_runs(out)
    problems = 0
    for folder in folders:
        try:
            with Store.open(folder) as store:
                found = inspect(store)
                if args.export:
                    print(f"wrote {export(store, Path(args.export))} records to {args.export}")
        except StoreError as error:
            problems += 1
            print(f"bad  {one_line(str(error))}")
            continue
        problems += len(found.problems)
        print(f"{'bad ' if found.problems else 'ok  '} {folder}: {found.samples} samples")
        for problem in found.problems:
            print(f"     {one_line(problem)}")
    if not args.run:
        problems += _check_baselines(Path(args.baselines))
    return 2 if problems else 0


def _check_baselines(folder: Path) -> int:
    problems = 0
    for baseline in sorted(p for p in folder.glob("*") if p.is_dir()):
        for task in frozen_tasks(baseline):
            try:
                frozen = load_frozen(baseline, task)
                print(f"ok   {baseline.name}/{task}: {len(frozen.docs)} docs")
            except Exception as error:  # any damage is what this verb is for
                problems += 1
                print(f"bad  {one_line(str(error))}")
    return problems


def leaderboard_command(args: BoardArgs) -> int:
    """Write the boards again, and the figures if asked; no model is loaded."""
    baselines = Path(args.baselines)
    boards, out, gates = Path(args.boards), Path(args.out), load_gates(baselines, "pr")
    if args.figures:
        from harness.report.figures import write_figures

        published = tuple(load_all(baselines / "published").values())
        for path in write_figures(boards, board_sets(out, baselines), published):
            print(f"wrote {path}")
    _write_boards(boards, out, baselines, gates)
    return 0


def _write_boards(folder: Path, out: Path, baselines: Path, gates: Gates) -> None:
    """Boards of what is stored, of frozen baselines and of the published tables."""
    published = tuple(load_all(baselines / "published").values())
    for path in write_boards(folder, board_sets(out, baselines), lineage(gates), published):
        print(f"wrote {path}")
