"""Finding stored runs and baselines by what a person types."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import paths
from harness.errors import NoBaselineError, StoreError, UsageError, nearest
from harness.records import RecordSet, from_store, frozen_tasks, load_frozen
from harness.store import Store, find_runs


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One stored run, as the listing shows it."""

    folder: Path
    run_id: str
    model: str
    created: str
    status: str
    tasks: dict[str, str]


def describe(folder: Path) -> RunInfo:
    """Read a run's heading.

    Raises:
        StoreError: The file is not a run.
    """
    with Store.open(folder) as store:
        meta = store.meta()
        invocations = store.invocations()
        tasks = {
            name: f"{run.complete}/{run.total}" if run.complete else f"incomplete/{run.total}"
            for name, run in store.tasks().items()
        }
    status = invocations[-1]["status"] if invocations else "empty"
    return RunInfo(folder, meta["run_id"], meta["model"], meta["created"], status, tasks)


def list_runs(out: Path) -> tuple[list[RunInfo], list[str]]:
    """All readable runs, newest first, and one line for each that is not."""
    found: list[RunInfo] = []
    broken: list[str] = []
    for folder in find_runs(out):
        try:
            found.append(describe(folder))
        except StoreError as error:
            broken.append(str(error))
    return found, broken


def find_run(text: str, out: Path) -> Path:
    """Folder of a run given by folder, run id (or its beginning), or model name (the newest).

    Raises:
        UsageError: Nothing fits, or a beginning fits several.
        StoreError: The folder holds no readable run.
    """
    if not text:
        raise UsageError("name a run: a run id, a run folder or a model (see: harness runs)")
    direct = Path(text).expanduser()
    if "/" in text and direct.is_dir():
        return direct
    runs, _ = list_runs(out)
    if (out / text).is_dir() and "/" not in text and text not in (".", ".."):
        return out / text
    for run in runs:
        if run.model == text:
            return run.folder
    starts = [run for run in runs if run.run_id.startswith(text)]
    if len(starts) == 1:
        return starts[0].folder
    if starts:
        raise UsageError(f"run id '{text}' fits {', '.join(r.run_id for r in starts)}")
    known = [r.model for r in runs] + [r.run_id for r in runs]
    raise UsageError(f"no run '{text}' in {out}: {nearest(text, known)}")


def load_run(
    text: str, out: Path = paths.RUNS, tasks: tuple[str, ...] = ()
) -> dict[str, RecordSet]:
    """Record sets of a run, by task.

    Args:
        text: Run id, run folder, or model name (its newest run).
        out: Folder of runs.
        tasks: Only these; empty takes all.

    Raises:
        UsageError, StoreError: As for `find_run`; a task that the run has not.
    """
    with Store.open(find_run(text, out)) as store:
        have = list(store.tasks())
        for task in tasks:
            if task not in have:
                raise UsageError(f"{store.folder} has no task '{task}': {nearest(task, have)}")
        return {task: from_store(store, task) for task in tasks or have}


def load_baseline(text: str, out: Path, baselines: Path) -> dict[str, RecordSet]:
    """Record sets of a frozen baseline, or of a run.

    Raises:
        NoBaselineError: There is neither; the message gives the nearest names.
        DataError: A frozen file is damaged.
    """
    folder = baselines / text
    if text and "/" not in text and text not in (".", "..") and frozen_tasks(folder):
        return {task: load_frozen(folder, task) for task in frozen_tasks(folder)}
    try:
        return load_run(text, out)
    except UsageError:
        known = [p.name for p in baselines.glob("*") if frozen_tasks(p)]
        runs, _ = list_runs(out)
        known += [r.model for r in runs]
        raise NoBaselineError(
            f"no baseline '{text}': {nearest(text, known)} (freeze run=ID as=NAME makes one)"
        ) from None


def frozen_names(baselines: Path) -> list[str]:
    """Names of all frozen baselines."""
    return sorted(p.name for p in baselines.glob("*") if p.is_dir() and frozen_tasks(p))


def board_sets(out: Path, baselines: Path) -> list[RecordSet]:
    """What the boards show: the newest run of each kind, and baselines that no run replaces.

    Unreadable runs are left out (`check` names them).
    """
    chosen: dict[tuple[Any, ...], RecordSet] = {}
    for folder in find_runs(out):
        try:
            with Store.open(folder) as store:
                for task in store.tasks():
                    records = from_store(store, task)
                    if records.docs:
                        chosen.setdefault(_kind(records), records)
        except StoreError:
            continue
    for name in frozen_names(baselines):
        for records in load_baseline(name, out, baselines).values():
            chosen.setdefault(_kind(records), records)
    return [chosen[key] for key in sorted(chosen, key=str)]


def _kind(records: RecordSet) -> tuple[Any, ...]:
    info = records.info
    return (
        records.task,
        records.name,
        info.get("policy"),
        str(info.get("policy_options")),
        info.get("retriever"),
        tuple(info.get("off_protocol", ())),
    )
