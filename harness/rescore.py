"""Scoring and judging again what is stored: neither a model nor a data set is needed.

    rescore("SmolLM2-135M")                    # with the scorers and judges as they are today
    rescore("4f1c", judge="keep")              # score only; the stored verdicts stay

The run keeps its docs, so a record of any age can be scored by a newer scorer. Raw rollouts are
never written. All new scores of a run, what boards read of the scorer, and a line in the run's
log are one transaction: after a kill the run is as it was, or rescored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import paths
from harness.catalog import Entry, catalog
from harness.environment import environment
from harness.errors import UsageError, nearest
from harness.records import frozen_tasks, load_frozen
from harness.runs import find_run
from harness.schema import Record, Score, Verdict
from harness.scoring import TaskScorer, task_scorer
from harness.scoring.llm_judge import PREFIX, AbsentJudge
from harness.scoring.table import (
    of_policy,
    scorer_info,
    with_language,
    with_outside,
    with_think_tags,
)
from harness.store import NewScore, Store, StoredRun

EVERY = 2**62
"""A selection that holds every doc."""

JUDGE = ("again", "keep")


@dataclass(frozen=True, slots=True)
class Change:
    """A metric before and after, as the mean over the samples that have it (None: no sample).

    Attributes:
        docs: Docs of which any sample changed on this metric.
    """

    metric: str
    docs: int
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class Rescored:
    """What became of one task.

    Attributes:
        before: Fingerprint of scorer and judge that the run had.
        after: The one that it has now.
        samples: Samples that were scored again.
        docs: Docs whose metrics or reasons changed.
        unscored: Samples without a score now.
        metrics: Metrics that changed.
    """

    task: str
    before: str
    after: str
    samples: int
    docs: int
    unscored: int
    metrics: tuple[Change, ...]


def scored_by(scorer: str, dataset: str) -> str:
    """What a stored score depends on besides its rollout, from two fingerprints."""
    return f"{scorer}|{dataset}"


def workers_of(scorer: TaskScorer) -> int:
    """Judgements at a time: as many as an outside judge asks for, else the cores, 8 at most."""
    return scorer.outside.workers if scorer.outside else min(8, os.cpu_count() or 1)


def score_again(
    store: StoredRun,
    task: str,
    scorer: TaskScorer,
    *,
    keep: bool = False,
    wanted: Callable[[Record], bool] = lambda record: True,
) -> Iterator[tuple[Record, NewScore]]:
    """Score the current samples of a task again; nothing is written.

    Args:
        store: An open run.
        task: Task name.
        scorer: What to score with.
        keep: Keep the stored verdicts; False asks the judges again, but for the stored verdicts
            of LLMs (see `TaskScorer.judge_and_score`).
        wanted: Which records.

    Yields:
        The record as it is stored, and what its score is to be.
    """
    info = store.tasks()[task].info
    dataset = str(info["fingerprints"]["dataset"])
    decider = str(info["fingerprints"].get("scorer", "")).partition("|")[0].partition("+")[2]
    docs = {d.doc.id: d for d in store.docs(task)}

    def again(record: Record) -> tuple[Record, NewScore]:
        stored = docs[record.doc_id]
        by, verdicts = scorer.fingerprint, record.verdicts
        if keep:
            deciding = _deciding(verdicts, decider) if scorer.judge or decider else ()
            score = scorer.rescore(stored.doc, record.rollout, deciding)
            if scorer.judge is not None or deciding:
                by = _kept(scorer.fingerprint, deciding)
        else:
            verdicts, score = scorer.judge_and_score(stored.doc, record.rollout, record.verdicts)
            by = by if scorer.settled(verdicts) else ""
        return record, NewScore(
            task, record.doc_id, record.repeat, stored.request, verdicts, score,
            scored_by(by, dataset) if by else "",
        )  # fmt: skip

    records = (record for record in store.records(task, EVERY) if wanted(record))
    if keep or not scorer.waits:
        yield from map(again, records)
        return
    with ThreadPoolExecutor(workers_of(scorer), thread_name_prefix="judge") as pool:
        yield from pool.map(again, list(records))


def _deciding(verdicts: Sequence[Verdict], name: str) -> tuple[Verdict, ...]:
    """Of stored verdicts, the one that made the metrics: by its name, else the first."""
    named = [v for v in verdicts if v.judge == name]
    return tuple((named or list(verdicts))[:1])


def _kept(fingerprint: str, deciding: Sequence[Verdict]) -> str:
    """The scorer's fingerprint with the judge whose stored verdict decided."""
    own, bar, beside = fingerprint.partition("|")
    judge = deciding[0].judge if deciding else "no verdict"
    return f"{own.partition('+')[0]}+{judge}{bar}{beside}"


def rescore(
    run: str,
    tasks: Sequence[str] = (),
    *,
    judge: str = "again",
    llm: Callable[[TaskScorer], TaskScorer] | None = None,
    out: Path = paths.RUNS,
    baselines: Path = paths.BASELINES,
    tasks_folder: Path = paths.TASKS,
) -> tuple[Rescored, ...]:
    """Score a stored run again and log what changed.

    Args:
        run: Run id, run folder, or model name (its newest run).
        tasks: Only these; empty takes all that the run has.
        judge: "again" asks the judges again that are code, and keeps what LLMs said; "keep" keeps
            all stored verdicts.
        llm: Puts an LLM judge on a scorer (`harness.judges.OpenJudge.on`); it is asked where its
            verdict is not stored.
        out: Folder of runs.
        baselines: Folder of frozen baselines, to tell a run from a baseline.
        tasks_folder: A task found there is scored by the scorer that it names today, any other
            by the one that it was scored with.

    Returns:
        What changed, by task.

    Raises:
        UsageError: There is no such run or task, or it is a frozen baseline.
        StoreError: The run is damaged, in use, or cannot be written.
    """
    if judge not in JUDGE:
        raise UsageError(f"judge={judge}: {nearest(judge, JUDGE)}")
    folder = _find(run, out, baselines)
    entries = catalog(tasks_folder)
    with Store.open(folder) as reader:
        have = reader.tasks()
    for task in tasks:
        if task not in have:
            raise UsageError(f"{folder} has no task '{task}': {nearest(task, have)}")
    with Store.create(folder, {}) as store:
        results: list[Rescored] = []
        scores: list[NewScore] = []
        infos: dict[str, Mapping[str, Any]] = {}
        notes: list[str] = []
        for task in tasks or have:
            info = store.tasks()[task].info
            scorer = _scorer_of(task, info, entries, llm)
            if scorer.prepare is not None and judge == "again" and (note := scorer.prepare()):
                notes.append(note)
            done = [
                (new, record.score)
                for record, new in score_again(store, task, scorer, keep=judge == "keep")
            ]
            scores += [new for new, _ in done]
            result = _compare(task, str(info["fingerprints"]["scorer"]), scorer, done)
            results.append(result)
            infos[task] = {
                **info,
                **scorer_info(scorer, info.get("pass_at", ())),
                "fingerprints": {**info["fingerprints"], "scorer": result.after},
            }
        log = {
            "rescored": [asdict(r) for r in results],
            "judge": judge,
            "notes": list(dict.fromkeys(notes)),
            "tasks": [r.task for r in results],
            "environment": environment(),
        }
        store.put_scores(scores, infos, log)
    return tuple(results)


def frozen_from(run: Path, baselines: Path) -> list[str]:
    """Frozen baselines that were made from a run, by name."""
    with Store.open(run) as store:
        run_id = str(store.meta()["run_id"])
    return [
        folder.name
        for folder in sorted(p for p in baselines.glob("*") if p.is_dir())
        if any(_origin(folder, task) == run_id for task in frozen_tasks(folder))
    ]


def _origin(folder: Path, task: str) -> str:
    return load_frozen(folder, task).source.partition("(frozen ")[2].rstrip(")")


def _find(run: str, out: Path, baselines: Path) -> Path:
    try:
        return find_run(run, out)
    except UsageError:
        tasks = frozen_tasks(baselines / run) if run and "/" not in run else []
        if not tasks:
            raise
        origin = _origin(baselines / run, tasks[0])
        raise UsageError(
            f"'{run}' is a frozen baseline, which holds no docs to score: rescore the run that "
            f"it came from and freeze again (rescore run={origin}, freeze run={origin} as={run})"
        ) from None


def _scorer_of(
    task: str,
    info: Mapping[str, Any],
    entries: Mapping[str, Entry],
    llm: Callable[[TaskScorer], TaskScorer] | None,
) -> TaskScorer:
    """The task's scorer of today; an LLM that decided goes on deciding, by its stored verdicts."""
    before = str(info["fingerprints"]["scorer"])
    stored = before.partition("@")[0]
    entry = entries.get(task)
    scorer = task_scorer(str(entry.metadata.get("scorer", stored)) if entry else stored)
    decider = before.partition("+")[2]
    if llm is not None:
        scorer = llm(scorer)
    elif decider.startswith(PREFIX):
        scorer = with_outside(scorer, AbsentJudge(decider))
    tags = info.get("think_tags")
    scorer = with_think_tags(scorer, tags)
    language = str(info.get("language", ""))
    scorer = with_language(scorer, language, tags) if language else scorer
    return of_policy(scorer, str(info.get("policy", "")))


def _compare(
    task: str, before: str, scorer: TaskScorer, done: Sequence[tuple[NewScore, Score | None]]
) -> Rescored:
    now = sorted({new.scorer.partition("|")[0] for new, _ in done if new.scorer})
    pairs = [(new.doc_id, _values(old), _values(new.score)) for new, old in done]
    names = sorted({name for _, old, new in pairs for name in (*old, *new)})
    changes = [_change(name, pairs) for name in names]
    return Rescored(
        task=task,
        before=before,
        after=" and ".join(now) or scorer.fingerprint,
        samples=len(done),
        docs=len({new.doc_id for new, old in done if new.score != old}),
        unscored=sum(new.score is None for new, _ in done),
        metrics=tuple(c for c in changes if c.docs),
    )


def _change(
    metric: str, pairs: Sequence[tuple[str, Mapping[str, float], Mapping[str, float]]]
) -> Change:
    return Change(
        metric,
        len({doc for doc, old, new in pairs if old.get(metric) != new.get(metric)}),
        _mean([old[metric] for _, old, _ in pairs if metric in old]),
        _mean([new[metric] for _, _, new in pairs if metric in new]),
    )


def _values(score: Score | None) -> Mapping[str, float]:
    return {} if score is None else score.metrics


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
