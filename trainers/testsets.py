"""The test sets at hand, as contamination wants them: every task's questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import codec, paths
from harness.catalog import catalog
from harness.data import load_datasets
from harness.errors import CheckrailError
from harness.task_loader import load_tasks, task_manager
from trainers.contamination import Item, Overlap, Shown, overlaps, shown
from trainers.data import Example


@dataclass(frozen=True, slots=True)
class QuestionSets:
    """Questions of all tasks whose data are here.

    Attributes:
        items: Of every task; tasks that ask the same (top-1, top-3, ...) stand once, under the
            first name.
        same: Task -> the name it stands under.
        absent: Tasks whose data are not at hand.
    """

    items: tuple[Item, ...]
    same: dict[str, str] = field(default_factory=dict[str, str])
    absent: tuple[str, ...] = ()

    def flagged(self, found: Sequence[Overlap]) -> dict[str, int]:
        """Task -> flagged questions, for every task that has some."""
        counts: dict[str, int] = {}
        for task, first in self.same.items():
            n = sum(overlap.item.test_set == first for overlap in found)
            if n:
                counts[task] = n
        return counts

    def share(self, task: str, found: Sequence[Overlap]) -> float:
        """Share of a task's questions that are flagged, in [0, 1]; 0 for a task not at hand."""
        first = self.same.get(task)
        total = sum(item.test_set == first for item in self.items)
        return self.flagged(found).get(task, 0) / total if total else 0.0


def load_test_sets(data: str | None = None, tasks: Path = paths.TASKS) -> QuestionSets:
    """Load the questions of every task under a folder.

    Args:
        data: Root of outside data sets; None takes CHECKRAIL_DATA.
        tasks: The tasks folder.
    """
    entries = catalog(tasks)
    settings = {"data": data} if data else {}
    manager = task_manager(tasks, settings)
    items: list[Item] = []
    same: dict[str, str] = {}
    seen: dict[str, str] = {}
    absent: list[str] = []
    for name, entry in sorted(entries.items()):
        if entry.members:
            continue
        if not _local(entry.metadata, data):
            absent.append(name)
            continue
        try:
            (loaded,) = load_tasks([name], entries, manager=manager, settings=settings)
        except CheckrailError:  # its data are not here, which is no mistake of the recipe
            absent.append(name)
            continue
        rows: Any = loaded.task.dataset[loaded.task.config.test_split]
        asked = sorted(zip(map(str, rows["id"]), map(str, rows["question"]), strict=True))
        first = seen.setdefault(codec.sha(asked), name)
        same[name] = first
        if first == name:
            items += [Item(name, doc_id, question) for doc_id, question in asked]
    return QuestionSets(tuple(items), same, tuple(absent))


def _local(metadata: dict[str, Any], data: str | None) -> bool:
    """Whether a set that lies on a hub lies here too: nothing is fetched to be compared."""
    known = load_datasets()
    name = str(metadata.get("dataset", ""))
    if name not in known:  # the task's own files, or a user's
        return True
    found = known[name]
    root = Path(data).expanduser() if data else paths.data_root()
    return not found.hub or (root is not None and (root / found.folder).is_dir())


def rows_shown(rows: Sequence[Example]) -> list[Shown]:
    """What the rows of a recipe show."""
    return [
        shown(
            row.doc.id,
            row.doc.question,
            "\n".join(message.content for message in row.messages),
            "\n".join((row.target, *row.doc.targets)),
            [passage.text for passage in row.doc.passages],
        )
        for row in rows
    ]


def check(rows: Sequence[Example], sets: QuestionSets) -> list[Overlap]:
    """Test questions that the rows give away."""
    return overlaps(rows_shown(rows), sets.items)
