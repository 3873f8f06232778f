"""The `plan` verb: tokens, time, memory and what the gate can decide, before a run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.arguments import PlanArgs
from harness.commands import models_of, settings_of
from harness.engines import open_engine
from harness.engines.codec import ChatCodec, open_codec
from harness.engines.size import Size, size_of
from harness.environment import environment
from harness.errors import EngineError, StoreError, UsageError
from harness.forecast import (
    Length,
    Rate,
    calibrate,
    expected_length,
    guess_tokens,
    stored_rate,
)
from harness.gates import Gates, load_gates
from harness.models import load_model
from harness.plan_gate import print_gate
from harness.plan_judge import Judge, asked_of, judge_to_ask, told
from harness.progress import Progress, clock
from harness.records import RecordSet
from harness.report.cells import escape, table
from harness.rollouts import summaries
from harness.runs import board_sets
from harness.schema import Engine, Message, Model
from harness.stored import StoredRun

if TYPE_CHECKING:
    from harness.evaluate import Prepared
    from harness.lm import Prompt
    from harness.settings import Settings
    from harness.task_plan import TaskPlan

LOCAL = ("hf", "llamacpp")
CALIBRATED_BELOW = 2 << 30
"""Bytes of weights up to which an engine is loaded for a measurement unless told otherwise."""

COUNTED = 64
"""Prompts a task that are tokenised; the others count as their mean."""


@dataclass(frozen=True, slots=True)
class TaskForecast:
    """What one task of a run still asks for; token counts are totals over what is left.

    Attributes:
        each: Expected new tokens of a sample, `most` at most: summaries are among them.
        summaries: Of a sample, at most.
        longest: Tokens of its longest context.
        length: What the expectation is from; None: from nothing, the limit is taken.
    """

    name: str
    docs: int
    left: int
    prompt_tokens: float
    new_tokens: float
    each: float
    most: int
    summaries: int
    longest: int
    length: Length | None


def plan_command(args: PlanArgs) -> int:
    """Print, for each model, what the evaluation will take and what it can show."""
    gates = load_gates(Path(args.baselines), args.profile)
    models = models_of(args)
    settings = settings_of(args)
    judge = judge_to_ask(args)
    total = 0.0
    known = True
    for model in models:
        seconds = _plan_model(args, model, settings, gates, judge)
        known = known and seconds is not None
        total += seconds or 0.0
    if len(models) > 1:
        print(f"\nin all: {'about' if known else 'unknown, above'} {clock(total)}")
    return 0


def _plan_model(
    args: PlanArgs, model: Model, settings: Settings, gates: Gates, judge: Judge | None
) -> float | None:
    from harness.evaluate import prepare, rendered, window
    from harness.planning import run_identity

    progress = Progress(quiet=True)
    notes: list[str] = []

    def identify() -> Mapping[str, object]:
        try:
            return run_identity(model, settings)
        except (UsageError, EngineError) as error:
            notes.append(f"weights out of reach: {error}")
            return run_identity(replace(model, engine="none"), settings)

    prepared = prepare(model, settings, progress, identify, played=False)
    started = time.perf_counter()
    prompts = rendered(prepared)
    rendering = time.perf_counter() - started
    left = _left(prepared, prompts)
    plays = any(p.needs for p in prepared.plans.values())
    size = None if notes or not plays else _size(model, notes)
    rate = None
    if plays and not notes:
        rate = stored_rate(settings.out, prepared.identity, environment()["hardware"])
    engine = None
    todo = any(left.values())
    wanted = args.calibrate
    if wanted is None:
        wanted = rate is None and size is not None and size.weights <= CALIBRATED_BELOW
    try:
        if plays and todo and wanted and not notes and model.engine in LOCAL:
            started = time.perf_counter()
            engine = _open(model, notes)
            if engine is not None:
                loading = time.perf_counter() - started
                messages, plan = _sample(prepared, prompts)
                rate = calibrate(engine, messages, plan.sampling, window(prepared))
                rate = replace(rate, load=loading)
        count = _counter(model, engine, bool(notes), plays, notes)
        sets = board_sets(settings.out, Path(args.baselines))
        names = _lineage(model, Path(args.baselines))
        tasks = [_task(prepared.plans[t], prompts[t], left[t], names, sets, count) for t in prompts]
    finally:
        if engine is not None:
            engine.close()
    overhead = progress.seconds.get("tasks", 0.0) + rendering
    seconds = _print_cost(prepared, tasks, rate, size, overhead, plays, window(prepared))
    if judge is not None:
        each = {t.name: t.each for t in tasks}
        print(told(judge, asked_of(judge, prepared, prompts, each, sets)))
    if plays:
        print(f"prompt tokens: counted by {count.source}")
    for note in dict.fromkeys((*notes, *prepared.notes)):
        print(f"note: {note}")
    print_gate(args, prepared, prompts, gates)
    return seconds


# --- what is left to play ---------------------------------------------------------------------


def _left(prepared: Prepared, prompts: Mapping[str, Sequence[Prompt]]) -> dict[str, int]:
    """Samples that the run's store does not hold yet, by task."""
    want = {task: len(asked) * prepared.plans[task].repeats for task, asked in prompts.items()}
    if prepared.settings.fresh:
        return want
    try:
        with StoredRun.open(prepared.folder) as run:
            for task, asked in prompts.items():
                if task not in run.tasks():
                    continue
                requests = {d.doc.id: d.request for d in run.docs(task)}
                ours = {p.stored.doc.id: p.stored.request for p in asked}
                want[task] -= sum(
                    repeat < prepared.plans[task].repeats
                    and doc_id in ours
                    and requests.get(doc_id) == ours[doc_id]
                    for doc_id, repeat in run.finished(task)
                )
    except StoreError:
        pass  # no run yet; one that cannot be read is named by eval and by check
    return want


def _lineage(model: Model, baselines: Path) -> list[str]:
    """The checkpoint, its parent, and so on."""
    names = [model.name]
    parent = model.parent
    while parent and parent not in names:
        names.append(parent)
        try:
            parent = load_model(parent, baselines).parent
        except UsageError:
            break
    return names


# --- tokens -----------------------------------------------------------------------------------


class _Counter:
    """Counts prompt tokens with whatever is at hand."""

    def __init__(self, codec: ChatCodec | Engine | None, source: str) -> None:
        self._codec = codec
        self.source = source

    def __call__(self, prompt: Prompt, thinking: bool | None) -> int:
        messages: list[Message] = list(prompt.stored.messages)
        if self._codec is None:
            return guess_tokens("\n".join(m.content for m in messages))
        return len(self._codec.render(messages, thinking))  # the choices of a doc share it


def _counter(
    model: Model, engine: Engine | None, unreachable: bool, plays: bool, notes: list[str]
) -> _Counter:
    if engine is not None:
        return _Counter(engine, "the model's tokenizer")
    if plays and not unreachable and model.engine not in ("openai", "scripted"):
        try:
            return _Counter(open_codec(model), "the model's tokenizer")
        except (UsageError, EngineError) as error:
            notes.append(str(error))
    return _Counter(None, "the number of characters (no tokenizer at hand): a rough figure")


def _task(
    plan: TaskPlan,
    prompts: Sequence[Prompt],
    left: int,
    names: Sequence[str],
    sets: Sequence[RecordSet],
    count: _Counter,
) -> TaskForecast:
    if not plan.needs or not prompts:
        return TaskForecast(plan.name, len(prompts), left, 0, 0, 0, 0, 0, 0, None)
    counted = [count(p, plan.sampling.thinking) for p in prompts[:COUNTED]]
    said = 0 if plan.needs == "loglikelihood" else plan.sampling.max_tokens
    side, tokens = summaries(plan.policy, plan.policy_options, said)
    most = said + side * tokens
    length = expected_length(plan.name, plan.policy, names, sets) if most else None
    each = min(length.mean, most) if length else most
    read = sum(counted) / len(counted)
    if length is not None and length.context is not None:
        read = max(read, length.context - length.mean)
    return TaskForecast(
        name=plan.name,
        docs=len(prompts),
        left=left,
        prompt_tokens=left * read,
        new_tokens=left * each,
        each=each,
        most=most,
        summaries=side,
        longest=max(counted) + said,
        length=length,
    )


# --- time and memory --------------------------------------------------------------------------


def _size(model: Model, notes: list[str]) -> Size | None:
    if model.engine in ("openai", "scripted"):
        return None
    try:
        return size_of(model)
    except (UsageError, EngineError) as error:
        notes.append(str(error))
        return None


def _open(model: Model, notes: list[str]) -> Engine | None:
    try:
        return open_engine(model)
    except (UsageError, EngineError) as error:
        notes.append(f"not calibrated: {error}")
        return None


def _sample(
    prepared: Prepared, prompts: Mapping[str, Sequence[Prompt]]
) -> tuple[list[tuple[Message, ...]], TaskPlan]:
    """Some prompts of every task that asks the model, and how one of them is sampled."""
    asked = [t for t in prompts if prepared.plans[t].needs and prompts[t]]
    return (
        [p.stored.messages for t in asked for p in prompts[t][:16]],
        prepared.plans[asked[0]],
    )


def _print_cost(
    prepared: Prepared,
    tasks: Sequence[TaskForecast],
    rate: Rate | None,
    size: Size | None,
    overhead: float,
    plays: bool,
    window: int,
) -> float | None:
    """Print tokens, time and memory; return the expected seconds, None where unknown."""
    model = prepared.model
    left = sum(t.left for t in tasks)
    asked = sum(t.docs * prepared.plans[t.name].repeats for t in tasks)
    print(f"\n{model.name}: {left} samples to play, {asked - left} stored ({prepared.folder})\n")
    head = ["task", "docs", "to play", "prompt tokens", "new tokens", "most a sample", "seconds"]
    body = [
        [
            escape(t.name),
            str(t.docs),
            str(t.left),
            f"{t.prompt_tokens:,.0f}",
            ("" if t.length or not t.most else "at most ") + f"{t.new_tokens:,.0f}",
            str(t.most),
            f"{rate.seconds(t.prompt_tokens, t.new_tokens):.0f}" if rate else "",
        ]
        for t in tasks
    ]
    print(table(body, head))
    print()
    if not plays or not left:
        why = "no model is asked" if not plays else "everything is stored"
        print(f"time: about {clock(overhead)} ({why})")
        return overhead
    for source in dict.fromkeys(t.length.source for t in tasks if t.length):
        print(f"new tokens: mean of the records of {source}")
    if any(t.most and not t.length for t in tasks):
        print("new tokens: no records tell the length; the limit is taken, an upper bound")
    for t in tasks:
        if t.summaries and not t.length:
            print(f"new tokens: {t.name} with up to {t.summaries} summaries a sample")
    if any(_asks_again(prepared.plans[t.name], t) for t in tasks):
        print("tokens: of the first turn; a policy that asks again takes more")
    seconds = None
    if rate is None:
        print("time: unknown (no earlier run of this model here; calibrate=true measures one)")
    else:
        playing = sum(rate.seconds(t.prompt_tokens, t.new_tokens) for t in tasks)
        seconds = overhead + (rate.load or 0.0) + playing
        print(
            f"time: about {clock(seconds)} = prepare {clock(overhead)} + load "
            f"{clock(rate.load or 0.0)} + generate {clock(playing)} (from {rate.source}: "
            f"{rate.prefill:.0f} prompt tokens/s, {rate.decode:.0f} new tokens/s)"
        )
    if size is None:
        print("memory: unknown")
    else:
        longest = max(t.longest for t in tasks)
        context = model.context_length or size.context_length or longest
        reserved = context if model.engine == "llamacpp" else min(longest, context)
        cache = size.per_token * reserved * window
        print(
            f"memory: about {_gib(size.weights + cache)} = weights {_gib(size.weights)} + KV cache "
            f"{_gib(cache)} ({window} rollouts in flight of up to {reserved} tokens), and the "
            "engine's own"
        )
    return seconds


def _asks_again(plan: TaskPlan, task: TaskForecast) -> bool:
    """Whether there are later prompts that nothing tells the length of."""
    counted = task.length is not None and task.length.context is not None
    return plan.policy != "single_turn" and plan.needs in ("generate", "continue") and not counted


def _gib(count: float) -> str:
    return f"{count / 2**30:.2f} GiB"
