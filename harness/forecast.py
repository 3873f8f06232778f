"""What a run will take and what its gate can decide, told before anything is generated.

Pure functions over records, prompts and an opened engine; `harness/plan.py` prints them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import StoreError
from harness.records import RecordSet
from harness.schema import Engine, Message, Sampling
from harness.stats import power, simulate
from harness.stats.gate import GateRule
from harness.stats.intervals import estimate
from harness.stored import StoredRun, find_runs

CORRELATION = 0.2
"""Of docs in a cluster, where no records tell it; the gate's own MDE assumes the same."""

MIN_CLUSTERS = 8
DECODE_COST = 5.0
"""Prompt tokens that cost as much as a new one, where a run was measured only as a whole."""

CALIBRATION_TOKENS = 1600
CALIBRATION_ROWS = 4
CALIBRATION_NEW = 24
CONTEXT = "total_context_tokens"
"""What a policy that replaces its context measures (harness/scoring/bookmark.py)."""

CHARACTERS_PER_TOKEN = 3.5
"""For Latin text; any other character counts as one token. A rough figure, said to be one."""


# --- what the gate can decide -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decision:
    """What a gate will be able to tell of one metric.

    Attributes:
        clusters: Number of clusters; the docs themselves where they have none.
        correlation: Within-cluster correlation that was taken; None without clusters.
        observed: Whether the baseline's records gave it.
        mde: Smallest drop called a regression 4 times in 5; None: none at all.
        chance: That an unchanged checkpoint is shown to be no worse; None for margin 0 and for
            metrics that are no rates.
        note: One sentence.
    """

    task: str
    rule: GateRule
    n: int
    clusters: int
    correlation: float | None
    observed: bool
    mde: float | None
    chance: float | None
    note: str

    @property
    def undecidable(self) -> bool:
        """Whether an unchanged checkpoint would more often than 1 in 5 not be passed."""
        return self.chance is not None and self.chance < 0.8


def decide(
    task: str,
    rule: GateRule,
    clusters: Sequence[str | None],
    *,
    baseline: RecordSet | None = None,
    repeats: int = 1,
    tests: int = 1,
    with_mde: bool = True,
) -> Decision:
    """Say what a comparison of this many docs will be able to tell.

    Args:
        task: Task name.
        rule: The gate's metric, margin and alpha.
        clusters: Cluster of each doc; None for docs without.
        baseline: Records to compare with, if any are stored: they give the correlation.
        repeats: Samples a doc.
        tests: Blocking tests of the gate (Holm).
        with_mde: False leaves out the MDE, which takes half a second for clustered docs.
    """
    n = len(clusters)
    clustered = any(c is not None for c in clusters)
    labels = [c if c is not None else f"doc {i}" for i, c in enumerate(clusters)]
    sizes = power.cluster_sizes(labels) if clustered else None
    known = correlation(baseline, rule.metric) if baseline and clustered else None
    icc = CORRELATION if known is None else known
    if not 0 <= rule.margin < 1:
        note = f"'{rule.metric}' is no rate: nothing can be said beforehand"
        return Decision(task, rule, n, len(set(labels)), None, False, None, None, note)
    mde = chance = None
    note = "a margin of 0 can never be shown"
    if with_mde:
        mde = power.mde(
            n, sizes, icc=icc, alpha=rule.alpha, tests=tests, margin=rule.margin, repeats=repeats
        )
    if rule.margin > 0:
        found = power.decidable(n, rule.margin, sizes, icc=icc, repeats=repeats, alpha=rule.alpha)
        chance, note = found.chance, found.note
        if not found.ok:
            note = f"undecidable at this margin: {note}"
    return Decision(
        task,
        rule,
        n,
        len(set(labels)),
        icc if clustered else None,
        known is not None,
        mde,
        chance,
        note,
    )


def correlation(records: RecordSet, metric: str) -> float | None:
    """Within-cluster correlation of a metric, from the variance of its cluster means.

    Returns:
        0 to .95; None with fewer than 8 clusters, or where all docs agree.
    """
    scored = [(d, v) for d in records.docs if (v := d.mean(metric)) is not None]
    labels = [d.cluster or d.doc_id for d, _ in scored]
    sizes = power.cluster_sizes(labels)
    if len(sizes) < MIN_CLUSTERS or max(sizes) == 1:
        return None
    values = [v for _, v in scored]
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / len(values)
    se = estimate(values, clusters=labels).se
    if not variance or se is None:
        return None
    effect = se**2 * len(values) / variance
    return min(0.95, max(0.0, (effect - 1) / (simulate.mean_size(sizes) - 1)))


# --- tokens -----------------------------------------------------------------------------------


def guess_tokens(text: str) -> int:
    """Tokens of a text from its characters alone, for a tokenizer that is out of reach."""
    latin = sum(ord(c) < 0x250 for c in text)
    return round(latin / CHARACTERS_PER_TOKEN + len(text) - latin)


@dataclass(frozen=True, slots=True)
class Length:
    """Mean new tokens of a sample, and whose records say so.

    Attributes:
        mean: Of all that was generated, what was said on the side included.
        context: Mean `total_context_tokens`: prompts with what was generated, over all contexts;
            None where the policy measures none.
    """

    mean: float
    source: str
    context: float | None = None


def expected_length(
    task: str, policy: str, names: Sequence[str], sets: Sequence[RecordSet]
) -> Length | None:
    """Mean output length of stored records, from the nearest model that has any.

    Args:
        task: Task name.
        policy: Only records played the same way count.
        names: Models, nearest first: the checkpoint itself, its parent, ...
        sets: Stored runs and frozen baselines.
    """
    found: dict[str, Length] = {}
    for records in sets:
        if records.task != task or records.info.get("policy") != policy:
            continue
        counts = [s.completion_tokens for d in records.docs for s in d.samples]
        known = [c for c in counts if c is not None]
        if known:
            metrics = [s.metrics or {} for d in records.docs for s in d.samples]
            contexts = [m[CONTEXT] for m in metrics if CONTEXT in m]
            context = sum(contexts) / len(contexts) if contexts else None
            length = Length(sum(known) / len(known), records.name, context)
            found.setdefault(records.name, length)
    return next((found[n] for n in (*names, *sorted(found)) if n in found), None)


# --- time -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast an engine is.

    Attributes:
        prefill: Prompt tokens per second.
        decode: New tokens per second, over all rollouts in flight.
        load: Seconds to load the engine; None where that was not seen.
        source: Where the figures are from.
    """

    prefill: float
    decode: float
    load: float | None
    source: str

    def seconds(self, prompt_tokens: float, new_tokens: float) -> float:
        """Seconds to generate."""
        return prompt_tokens / self.prefill + new_tokens / self.decode


def stored_rate(out: Path, identity: Mapping[str, Any], hardware: Mapping[str, Any]) -> Rate | None:
    """The rate of earlier runs of the same weights on the same engine and hardware.

    Args:
        out: Folder of runs.
        identity: Of the run to come.
        hardware: As `harness.environment` names it.
    """
    prompts = new = seconds = 0.0
    loads: list[float] = []
    for folder in find_runs(out):
        try:
            with StoredRun.open(folder) as run:
                theirs, invocations = run.meta()["identity"], run.invocations()
        except (StoreError, KeyError):
            continue
        if any(theirs.get(key) != identity[key] for key in ("weights", "engine")):
            continue
        for one in invocations:
            measured = one.get("measured") or {}
            spent = measured.get("seconds", {})
            if one["environment"].get("hardware") != hardware or not measured.get("prompt_tokens"):
                continue
            if spent.get("generate"):
                prompts += measured["prompt_tokens"]
                new += measured["completion_tokens"]
                seconds += spent["generate"]
                loads += [spent["load"]] if "load" in spent else []
    if not seconds:
        return None
    prefill = (prompts + DECODE_COST * new) / seconds
    load = sum(loads) / len(loads) if loads else None
    return Rate(prefill, prefill / DECODE_COST, load, "earlier runs here")


def calibrate(
    engine: Engine,
    prompts: Sequence[Sequence[Message]],
    sampling: Sampling,
    window: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Rate:
    """Measure an opened engine on a few of the run's own prompts.

    Some prompts are read with a single new token (prefill), others with two dozen (decode).
    Both sets differ, since an engine may keep prompts that it has read.

    Args:
        engine: Opened, idle.
        prompts: Of the run to come, at least one.
        sampling: The run's.
        window: Rollouts in flight.
        clock: Seconds.

    Raises:
        EngineError: The engine failed.
    """
    lengths = [len(engine.render(list(p), sampling.thinking)) for p in prompts]
    order = sorted(range(len(prompts)), key=lengths.__getitem__)
    typical = max(1, sum(lengths) // len(lengths))
    rows = max(1, min(window, CALIBRATION_ROWS, CALIBRATION_TOKENS // typical, len(order) // 2))
    picks = [order[(2 * i + 1) * len(order) // (4 * rows)] for i in range(2 * rows)]

    def play(chosen: Sequence[int], new: int) -> tuple[float, int, int]:
        drawn = Sampling(temperature=0.0, max_tokens=new, thinking=sampling.thinking)

        async def all_at_once() -> list[int]:
            asked = (engine.generate(list(prompts[i]), drawn) for i in chosen)
            return [c.completion_tokens or 1 for c in await asyncio.gather(*asked)]

        started = clock()
        counts = asyncio.run(all_at_once())
        return clock() - started, sum(lengths[i] for i in chosen), sum(counts) - len(counts)

    play([order[0]], 1)  # the first request pays for threads and kernels
    spent, read, _ = play(picks[::2], 1)
    prefill = read / max(spent, 1e-9)
    spent, read, new = play(picks[1::2], CALIBRATION_NEW)
    left = spent - read / prefill
    decode = new / left if new > 0 and left > 0 else prefill / DECODE_COST
    return Rate(prefill, min(decode, prefill), None, "a calibration just now")
