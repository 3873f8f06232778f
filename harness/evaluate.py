"""One evaluation: a model, its tasks, a run on disk.

`evaluate(model, settings) -> Result` resumes what is there and plays what is missing.
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import codec, paths
from harness.catalog import catalog, check_options, expand
from harness.engines import open_engine
from harness.engines.chat import PLAIN
from harness.environment import environment
from harness.errors import UsageError
from harness.live import LiveRetrievers
from harness.lm import HarnessLM, Outcome, Player, Prompt, PromptLM
from harness.planning import check_capabilities, plan_task, run_identity, scorer_of
from harness.progress import Progress
from harness.records import RecordSet, from_store
from harness.rollouts import policy
from harness.rollouts.driver import Driver
from harness.schema import Engine, Model
from harness.settings import Settings as Settings
from harness.store import Store
from harness.task_loader import LoadedTask, load_tasks, task_manager
from harness.task_plan import TaskPlan

DEFAULT_WINDOW = 16


@dataclass(frozen=True, slots=True)
class Result:
    """A finished (or interrupted) evaluation.

    Attributes:
        run: The run's folder.
        records: One record set a task, over this invocation's selection.
        outcome: How many samples were reused, played, failed.
        lm_eval: What `simple_evaluate` returned under "results".
        seconds: Wall time of the parts: tasks, load, generate, score.
    """

    run: Path
    run_id: str
    records: tuple[RecordSet, ...]
    outcome: Outcome
    lm_eval: Mapping[str, Any]
    seconds: Mapping[str, float]

    @property
    def complete(self) -> bool:
        """Whether every sample that was asked for is there."""
        return all(r.missing == 0 for r in self.records)


@dataclass(frozen=True, slots=True)
class Prepared:
    """An evaluation with its tasks loaded and nothing played.

    Attributes:
        folder: Where the run is stored, or will be.
        manager: lm-eval's TaskManager over the tasks.
        plans: By task name.
        notes: What judges say of how they work here; where nothing is played, also why they
            cannot.
    """

    model: Model
    settings: Settings
    identity: Mapping[str, Any]
    run_id: str
    folder: Path
    manager: Any
    loaded: tuple[LoadedTask, ...]
    plans: Mapping[str, TaskPlan]
    notes: tuple[str, ...] = ()


def evaluate(
    model: Model,
    settings: Settings | None = None,
    *,
    engine: Engine | None = None,
    progress: Progress | None = None,
    announce: Callable[[Prepared], None] | None = None,
) -> Result:
    """Evaluate a model on its tasks and keep every rollout.

    The same call resumes an interrupted run; a finished one loads no model.

    Args:
        model: From `harness.models.load_model`.
        settings: Defaults evaluate the card's tasks in full.
        engine: An opened engine to use instead of the card's (tests, notebooks).
        progress: Where to report; standard error by default.
        announce: Called once the tasks are loaded, before anything is generated.

    Raises:
        UsageError, DataError, StoreError: The user's mistakes, before anything heavy is loaded.
        EngineError: The weights cannot be loaded.
    """
    settings = settings or Settings()
    progress = progress or Progress()
    prepared = prepare(model, settings, progress, lambda: run_identity(model, settings, engine))
    if announce is not None:
        announce(prepared)
    if settings.fresh:
        _set_aside(prepared.folder)
    meta = {"run_id": prepared.run_id, "model": model.name, "identity": prepared.identity,
            "card": dataclasses.asdict(model)}  # fmt: skip
    with Store.create(prepared.folder, meta) as store:
        return _run(store, prepared, engine, progress)


def prepare(
    model: Model,
    settings: Settings,
    progress: Progress,
    identify: Callable[[], Mapping[str, Any]],
    *,
    played: bool = True,
) -> Prepared:
    """Load the tasks of an evaluation and say how each is to be played.

    Args:
        model: As for `evaluate`.
        settings: As for `evaluate`.
        progress: As for `evaluate`.
        identify: Gives the run's identity; called once names of tasks and policy are known to
            be right, since it reads the weights.
        played: False where nothing will be: a judge that cannot work here is then only noted.

    Raises:
        UsageError, DataError: As for `evaluate`.
    """
    names = settings.tasks or model.tasks
    if not names:
        raise UsageError(f"model '{model.name}' names no tasks in its card: add tasks=NAME")
    entries = catalog(settings.tasks_folder)
    tasks = expand(names, entries)
    notes: list[str] = []
    for name in tasks:
        policy(
            settings.policy or model.policy or entries[name].metadata.get("policy", "single_turn")
        )
        scorer = scorer_of(entries[name].metadata, model, settings)
        if scorer.prepare is not None:
            try:
                notes.append(scorer.prepare())
            except UsageError as error:
                if played:
                    raise
                notes.append(str(error))
    judge = settings.judge
    if judge and not any(judge.judges(str(entries[t].metadata.get("scorer", ""))) for t in tasks):
        raise UsageError(f"judge={judge.name}: no LLM judges any of {', '.join(tasks)}")
    identity = identify()
    run_id = codec.sha(identity)[:10]
    check_options(settings.task_options, [entries[t] for t in tasks])
    builder: dict[str, Any] = dict(settings.task_options)
    if settings.retriever:
        builder["retriever"] = settings.retriever
    if settings.retriever_options:
        builder["retriever_options"] = dict(settings.retriever_options)
    data = settings.data or paths.data_root()
    if data is not None:
        builder["data"] = str(data)
    with progress.step("tasks", f"{model.name}: loading {len(tasks)} tasks"):
        manager = task_manager(settings.tasks_folder, builder)
        loaded = load_tasks(
            tasks,
            entries,
            manager=manager,
            settings=builder,
            limit=settings.limit,
            repeats=settings.repeats,
        )
    folder = run_folder(settings.out, model.name, run_id)
    live = LiveRetrievers(settings.retriever, settings.retriever_options, builder, folder)
    return Prepared(
        model=model,
        settings=settings,
        identity=identity,
        run_id=run_id,
        folder=folder,
        manager=manager,
        loaded=tuple(loaded),
        plans={t.name: plan_task(t, model, settings, identity, live) for t in loaded},
        notes=tuple(note for note in dict.fromkeys(notes) if note),
    )


def rendered(prepared: Prepared) -> dict[str, list[Prompt]]:
    """Every prompt of an evaluation, in the nested order, by task; nothing is played."""
    with tempfile.TemporaryDirectory() as scratch, Store.create(Path(scratch), {}) as store:
        chat = prepared.model.chat_template != PLAIN
        lm = PromptLM(store, prepared.plans, Progress(quiet=True), chat=chat)
        _lm_eval(lm, prepared.model, prepared.manager, prepared.loaded, chat)
        return lm.prompts


def _lm_eval(
    lm: HarnessLM, model: Model, manager: Any, loaded: Sequence[LoadedTask], chat: bool
) -> Any:
    from lm_eval.evaluator import simple_evaluate

    return simple_evaluate(
        model=lm,
        model_args={"pretrained": model.name},
        tasks=[t.task for t in loaded],
        task_manager=manager,
        bootstrap_iters=0,
        log_samples=False,
        apply_chat_template=chat,
    )


def _run(store: Store, prepared: Prepared, engine: Engine | None, progress: Progress) -> Result:
    model, settings = prepared.model, prepared.settings
    loaded, plans = prepared.loaded, prepared.plans
    opened: list[Engine] = []

    def open_driver() -> Driver:
        ready = engine or (opened[0] if opened else None)
        if ready is None and any(p.needs for p in plans.values()):
            with progress.step("load", f"{model.name}: loading {model.engine} engine"):
                ready = open_engine(model)
            opened.append(ready)
        if ready is not None:
            check_capabilities(model, ready, plans.values())
        return Driver(ready, window=window(prepared), seed=settings.seed)

    for note in prepared.notes:
        progress.say(f"note: {note}")
    try:
        log = {"limit": settings.limit, "notes": list(prepared.notes)}
        return play(store, model, prepared.manager, loaded, plans, open_driver, progress, log)
    finally:
        for one in opened:
            one.close()


def play(
    store: Store,
    model: Model,
    manager: Any,
    loaded: Sequence[LoadedTask],
    plans: Mapping[str, TaskPlan],
    open_player: Callable[[], Player],
    progress: Progress,
    log: Mapping[str, Any],
) -> Result:
    """Let lm-eval ask for every sample, and a player answer what the store does not hold.

    Args:
        store: The run, open for writing.
        model: Names the run; its chat template says how prompts are rendered.
        manager: lm-eval's task manager.
        loaded: The tasks.
        plans: Theirs, by name.
        open_player: Called only if something is missing.
        progress: Where to report.
        log: What the run's log is to say of this invocation, beside tasks and environment.
    """
    run_id = str(store.meta()["run_id"])
    store.begin({"tasks": [t.name for t in loaded], "environment": environment(), **log})
    chat = model.chat_template != PLAIN
    lm = HarnessLM(store, plans, open_player, progress, chat=chat)
    status = "interrupted"
    try:
        docs = sum(t.selected for t in loaded)
        progress.say(f"{model.name}: run {run_id}, {docs} docs")
        results = _lm_eval(lm, model, manager, loaded, chat)
        with progress.step("score", f"{model.name}: reading back the records"):
            records = tuple(from_store(store, t.name, t.selected) for t in loaded)
        status = "complete" if all(r.missing == 0 for r in records) else "incomplete"
    finally:
        played = {"samples": lm.outcome.played, "prompt_tokens": lm.outcome.prompt_tokens,
                  "completion_tokens": lm.outcome.completion_tokens}  # fmt: skip
        store.end(status, {"seconds": dict(progress.seconds), **played})
    return Result(
        run=store.folder,
        run_id=run_id,
        records=records,
        outcome=lm.outcome,
        lm_eval=dict((results or {}).get("results", {})),
        seconds=dict(progress.seconds),
    )


def window(prepared: Prepared) -> int:
    """Rollouts in flight."""
    asked = prepared.settings.window or prepared.model.parallelism.get("requests")
    return asked or DEFAULT_WINDOW


def run_folder(out: Path, model: str, run_id: str) -> Path:
    """Folder of a run; a model's name cannot leave `out`."""
    return out / f"{re.sub(r'[^A-Za-z0-9._-]', '_', model).lstrip('.') or 'model'}-{run_id}"


def _set_aside(folder: Path) -> None:
    if folder.exists():
        number = 1
        while (aside := folder.with_name(f"{folder.name}.old{number}")).exists():
            number += 1
        folder.rename(aside)
