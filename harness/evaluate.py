"""One evaluation: a model, its tasks, a run on disk.

`evaluate(model, settings) -> Result` resumes what is there and plays what is missing.
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from harness import codec, paths
from harness.catalog import catalog, check_options, expand
from harness.engines import CAN, endpoint, identity_flags, open_engine
from harness.engines.chat import PLAIN
from harness.engines.weights import fingerprint as weights_fingerprint
from harness.engines.weights import resolve
from harness.environment import environment
from harness.errors import UsageError
from harness.judges import OpenJudge
from harness.live import LiveRetrievers
from harness.lm import HarnessLM, Outcome, Player, Prompt, PromptLM, TaskPlan
from harness.progress import Progress
from harness.records import RecordSet, from_store
from harness.retrieval.encoders import open_encoder
from harness.rollouts import BY_LIKELIHOOD, MODEL_FREE, SEARCHING, encoder_name, policy
from harness.rollouts import identity as policy_identity
from harness.rollouts.driver import Driver
from harness.schema import Encoder, Engine, Model, Sampling
from harness.scoring import TaskScorer, task_scorer
from harness.scoring.table import of_policy, scorer_info, with_language, with_think_tags
from harness.store import Store
from harness.task_loader import LoadedTask, effective_sampling, load_tasks, task_manager

DEFAULT_WINDOW = 16


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may change about an evaluation.

    Attributes:
        tasks: Tasks or groups; empty takes the card's.
        policy: Replaces the task's policy; "" keeps it.
        policy_options: Settings of the policy, over the card's.
        retriever: Replaces the task's retriever; "" keeps it.
        retriever_options: Settings of the retriever.
        task_options: Given to the tasks' builders, over their YAML (`subjects`, `shots`, ...);
            marks the row off protocol.
        limit: Docs a task at most (nested seeded sample).
        repeats: Samples a doc; None takes the task's.
        seed: Of the run.
        sampling: Overrides of the task's protocol; marks the row off protocol.
        window: Rollouts in flight; None takes the card's, or 16.
        data: Root of outside data sets; None takes CHECKRAIL_DATA.
        out: Folder of runs.
        tasks_folder: Folder of tasks.
        language: Also measure language consistency: ko, en, zh, ja, or prompt.
        judge: An LLM judge (`harness.judges.open_judge`); None leaves it to the scorer's own.
        unsafe_code: Run programs that a model wrote without a sandbox where there is none.
        fresh: Start over, keeping the old run beside the new one.
    """

    tasks: tuple[str, ...] = ()
    policy: str = ""
    policy_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    retriever: str = ""
    retriever_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    task_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    limit: int | None = None
    repeats: int | None = None
    seed: int = 0
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    window: int | None = None
    data: Path | None = None
    out: Path = paths.RUNS
    tasks_folder: Path = paths.TASKS
    language: str = ""
    judge: OpenJudge | None = None
    unsafe_code: bool = False
    fresh: bool = False


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
    """

    model: Model
    settings: Settings
    identity: Mapping[str, Any]
    run_id: str
    folder: Path
    manager: Any
    loaded: tuple[LoadedTask, ...]
    plans: Mapping[str, TaskPlan]


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
) -> Prepared:
    """Load the tasks of an evaluation and say how each is to be played.

    Args:
        model: As for `evaluate`.
        settings: As for `evaluate`.
        progress: As for `evaluate`.
        identify: Gives the run's identity; called once names of tasks and policy are known to
            be right, since it reads the weights.

    Raises:
        UsageError, DataError: As for `evaluate`.
    """
    names = settings.tasks or model.tasks
    if not names:
        raise UsageError(f"model '{model.name}' names no tasks in its card: add tasks=NAME")
    entries = catalog(settings.tasks_folder)
    tasks = expand(names, entries)
    for name in tasks:
        policy(
            settings.policy or model.policy or entries[name].metadata.get("policy", "single_turn")
        )
        scorer = _scorer(entries[name].metadata, model, settings)
        if scorer.prepare is not None:
            scorer.prepare()
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

    try:
        log = {"limit": settings.limit}
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


def check_capabilities(model: Model, engine: Engine, plans: Iterable[TaskPlan]) -> None:
    """Refuse, before a sample is played, a task that the engine cannot play.

    Raises:
        UsageError: Names the task, what it needs, and engines that have it.
    """
    for plan in plans:
        if plan.needs and plan.needs not in engine.capabilities:
            others = " or ".join(f"engine={name}" for name in CAN.get(plan.needs, ()))
            raise UsageError(
                f"task '{plan.name}' needs {plan.needs}, which engine '{model.engine}' does not "
                f"offer: use {others}, or another task or policy"
            )


def run_folder(out: Path, model: str, run_id: str) -> Path:
    """Folder of a run; a model's name cannot leave `out`."""
    return out / f"{re.sub(r'[^A-Za-z0-9._-]', '_', model).lstrip('.') or 'model'}-{run_id}"


def _set_aside(folder: Path) -> None:
    if folder.exists():
        number = 1
        while (aside := folder.with_name(f"{folder.name}.old{number}")).exists():
            number += 1
        folder.rename(aside)


def run_identity(model: Model, settings: Settings, engine: Engine | None = None) -> dict[str, Any]:
    """What makes a run this run: change any of it and another run begins.

    Not in it: limit, tasks, code, packages, hardware, scorer, judge, and the address of an
    endpoint (see harness/engines/endpoint.py). Data set and rendered prompts are part of each
    sample's key instead, so that one run can grow by tasks.
    """
    flags = identity_flags(model)
    if engine is not None:
        weights, kind = engine.fingerprint, "given"
    elif model.engine in ("none", "scripted"):
        weights = kind = model.engine
    elif model.engine == "openai":
        served = endpoint.find(model)
        weights, kind, flags = served.weights, model.engine, served.engine
    else:
        weights = weights_fingerprint(resolve(model))
        if model.adapter:
            weights += "+" + weights_fingerprint(Path(model.adapter).expanduser())
        kind = model.engine
    return {
        "weights": weights,
        "engine": codec.dumps({"kind": kind, **flags}),
        "template": codec.dumps([model.chat_template, model.think_tags, model.context_length]),
        "card_sampling": dict(model.sampling),
        "sampling": dict(settings.sampling),
        "seed": settings.seed,
        "policy": [settings.policy or model.policy,
                   dict(model.policy_options), dict(settings.policy_options)],
        "retriever": settings.retriever,
        **({"retriever_options": dict(settings.retriever_options)}
           if settings.retriever_options else {}),
        **({"task_options": dict(settings.task_options)} if settings.task_options else {}),
    }  # fmt: skip


@cache
def _encoder(name: str) -> Encoder | None:
    """One encoder a process: tasks share its weights."""
    return open_encoder(name) if name else None


def _scorer(metadata: Mapping[str, Any], model: Model, settings: Settings) -> TaskScorer:
    """The task's scorer as this invocation and the model's card want it."""
    scorer = task_scorer(str(metadata.get("scorer", "")), unsafe_code=settings.unsafe_code)
    if settings.judge is not None:
        scorer = settings.judge.on(scorer)
    scorer = with_think_tags(scorer, model.think_tags)
    if settings.language:
        return with_language(scorer, settings.language, model.think_tags)
    return scorer


def plan_task(
    loaded: LoadedTask,
    model: Model,
    settings: Settings,
    identity: Mapping[str, Any],
    live: LiveRetrievers | None = None,
) -> TaskPlan:
    """How a task is played by a model, and what its run keeps of that.

    Args:
        loaded: The task.
        model: Who plays it.
        settings: What the user changed.
        identity: The run's.
        live: Opens what a policy searches; None where nothing is played.
    """
    task_policy = str(loaded.metadata.get("policy", "single_turn"))
    chosen = settings.policy or model.policy or task_policy
    if loaded.by_likelihood and not settings.policy:
        chosen = task_policy  # a card's policy says how the model generates
    if loaded.by_likelihood != (chosen in BY_LIKELIHOOD):
        kind = "asks for log-likelihoods" if loaded.by_likelihood else "generates"
        raise UsageError(f"task '{loaded.name}' {kind}: policy '{chosen}' cannot play it")
    options: dict[str, Any] = {
        **(loaded.metadata.get("policy_options", {}) if chosen == task_policy else {}),
        **(model.policy_options if chosen == (model.policy or task_policy) else {}),
        **settings.policy_options,
    }
    sampling, off = effective_sampling(loaded.protocol, model.sampling, settings.sampling)
    if loaded.by_likelihood:  # nothing is drawn: only the template's switch matters
        sampling, off = Sampling(thinking=sampling.thinking), []
    if settings.policy and settings.policy != task_policy:
        off.append("policy")
    if settings.repeats is not None and settings.repeats != int(loaded.metadata.get("repeats", 1)):
        off.append("repeats")
    off += [o for o in settings.task_options if o in loaded.metadata.get("options", ())]
    scorer = of_policy(_scorer(loaded.metadata, model, settings), chosen)
    pass_at = [k for k in loaded.metadata.get("pass_at", ()) if 1 < k <= loaded.repeats]
    shown = {} if chosen in MODEL_FREE else codec.sampling_to_json(sampling)
    if loaded.by_likelihood:
        shown = {"thinking": sampling.thinking}
    retriever = live.open(loaded) if live and chosen in SEARCHING else None
    searched = {"retriever": retriever.fingerprint} if retriever else {}
    encoder = _encoder(encoder_name(chosen, options)) if live else None
    embedded = [encoder.fingerprint] if encoder else []
    info = {
        "fingerprints": {
            **loaded.fingerprints,
            **searched,
            "version": str(loaded.metadata.get("version", "0")),
            "scorer": scorer.fingerprint.partition("|")[0],
            "weights": identity["weights"],
            "engine": identity["engine"],
            "template": identity["template"],
            "sampling": codec.dumps({**shown, "repeats": loaded.repeats}),
            "policy": codec.dumps([*policy_identity(chosen, options), *embedded]),
        },
        "policy": chosen,
        "policy_options": options,
        "retriever": live.name(loaded) if live and retriever else loaded.retriever,
        "board": str(loaded.metadata.get("board", loaded.name)),
        "metric": str(loaded.metadata.get("metric", "")),
        **scorer_info(scorer, pass_at),
        "off_protocol": sorted(off),
        "pass_at": pass_at,
        "language": settings.language,
        **({"think_tags": list(model.think_tags)} if model.think_tags else {}),
        "flags": ["programs ran without a sandbox (unsafe_code=true)"]
        if scorer.slow and settings.unsafe_code
        else [],
        "parent": model.parent,
        "note": model.note,
    }
    return TaskPlan(
        name=loaded.name,
        info=info,
        policy=chosen,
        policy_options=options,
        sampling=sampling,
        scorer=scorer,
        repeats=loaded.repeats,
        selected=loaded.selected,
        total=loaded.total,
        retriever=retriever,
        encoder=encoder,
    )
