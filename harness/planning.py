"""How an evaluation will be played: what makes its run, and the plan of each task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from harness import codec
from harness.engines import CAN, endpoint, identity_flags
from harness.engines.weights import fingerprint as weights_fingerprint
from harness.engines.weights import resolve
from harness.errors import UsageError
from harness.live import LiveRetrievers
from harness.retrieval.encoders import open_encoder
from harness.rollouts import BY_LIKELIHOOD, MODEL_FREE, SEARCHING, encoder_name
from harness.rollouts import identity as policy_identity
from harness.schema import Encoder, Engine, Model, Sampling
from harness.scoring import TaskScorer, task_scorer
from harness.scoring.table import of_policy, scorer_info, with_language, with_think_tags
from harness.settings import Settings
from harness.task_loader import LoadedTask, effective_sampling
from harness.task_plan import TaskPlan


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


def scorer_of(metadata: Mapping[str, Any], model: Model, settings: Settings) -> TaskScorer:
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
    if settings.policy_options:
        off.append("policy_options")
    if settings.repeats is not None and settings.repeats != int(loaded.metadata.get("repeats", 1)):
        off.append("repeats")
    off += [o for o in settings.task_options if o in loaded.metadata.get("options", ())]
    scorer = of_policy(scorer_of(loaded.metadata, model, settings), chosen)
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
        "retriever_options": {k: str(v) for k, v in settings.retriever_options.items()},
        "board": str(loaded.metadata.get("board", loaded.name)),
        "metric": str(loaded.metadata.get("metric", "")),
        **scorer_info(scorer, pass_at),
        "off_protocol": sorted(off),
        "pass_at": pass_at,
        "language": settings.language,
        **({"think_tags": list(model.think_tags)} if model.think_tags else {}),
        "flags": [
            *["programs ran without a sandbox (unsafe_code=true)"]
            * (scorer.slow and settings.unsafe_code),
            *_contaminated(model, loaded.name),
        ],
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


def _contaminated(model: Model, task: str) -> list[str]:
    """What the trainer noted on the card: test questions that the checkpoint learnt from."""
    counts = model.training.get("contaminated", {})
    n = counts.get(task, 0) if isinstance(counts, Mapping) else 0
    return [f"{n} of the questions stand in the training data"] if n else []
