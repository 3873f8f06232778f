"""Training sets by difficulty: how many rollouts a question needed to its first right answer.

Easy below 10, medium 10 to 20, difficult above 20 (R1-Searcher, arXiv 2503.05592, Section 2.1).
A run with repeats gives the rollouts, in the order of their repeats. Two kinds of docs have no
level and are kept apart, never guessed:

    unanswered    every rollout is there and none is right: more than the run's repeats
    unfinished    a rollout before the first right one is missing or unscored
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import codec
from harness.errors import StoreError, UsageError, nearest
from harness.schema import Doc
from harness.store import Store

MEDIUM_FROM, DIFFICULT_ABOVE = 10, 20
LEVELS = ("easy", "medium", "difficult", "unanswered", "unfinished")


@dataclass(frozen=True, slots=True)
class Placed:
    """A doc with its level; `needed` is the number of rollouts, the right one included."""

    doc: Doc
    level: str
    needed: int | None
    repeats: int


def level(needed: int) -> str:
    """Level of a doc whose first right answer came with rollout number `needed`, from 1."""
    if needed < MEDIUM_FROM:
        return "easy"
    return "medium" if needed <= DIFFICULT_ABOVE else "difficult"


def place(doc: Doc, values: Mapping[int, float | None], repeats: int, right: float = 1.0) -> Placed:
    """Place a doc.

    Args:
        doc: The doc.
        values: Repeat (from 0) -> metric; None or absent where unscored.
        repeats: Rollouts that the run plays of each doc.
        right: Least value of the metric that counts as right.
    """
    for repeat in range(repeats):
        value = values.get(repeat)
        if value is None:
            return Placed(doc, "unfinished", None, repeats)
        if value >= right:
            return Placed(doc, level(repeat + 1), repeat + 1, repeats)
    return Placed(doc, "unanswered", None, repeats)


def place_all(store: Store, task: str, metric: str, right: float = 1.0) -> list[Placed]:
    """Place every doc of a task of a run, in the run's order.

    Raises:
        UsageError: The run has no such task, or no sample has the metric.
    """
    tasks = store.tasks()
    if task not in tasks:
        raise UsageError(f"{store.folder}: no task '{task}': {nearest(task, tasks)}")
    values: dict[str, dict[int, float | None]] = {}
    known: set[str] = set()
    for record in store.records(task, tasks[task].total):
        metrics = record.score.metrics if record.score else {}
        known |= set(metrics)
        values.setdefault(record.doc_id, {})[record.repeat] = metrics.get(metric)
    if metric not in known:
        raise UsageError(f"{task}: no sample has the metric '{metric}': {nearest(metric, known)}")
    repeats = tasks[task].repeats
    return [place(d.doc, values.get(d.doc.id, {}), repeats, right) for d in store.docs(task)]


def write(placed: Sequence[Placed], task: str, folder: Path) -> dict[str, int]:
    """Write LEVEL.jsonl for each level; every file is written, so that none is stale.

    A row: id, question, golden_answers, rollouts (null where none was right), repeats, task.

    Returns:
        Docs of each level.

    Raises:
        StoreError: A file cannot be written.
    """
    counts: dict[str, int] = {}
    for name in LEVELS:
        rows = [
            codec.dumps({
                "id": p.doc.id, "question": p.doc.question, "golden_answers": list(p.doc.targets),
                "rollouts": p.needed, "repeats": p.repeats, "task": task,
            })
            for p in placed if p.level == name
        ]  # fmt: skip
        path = folder / f"{name}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}; choose to=DIR") from None
        counts[name] = len(rows)
    return counts
