"""Tasks through lm-eval's TaskManager: YAML -> a task with its rows in the nested order.

lm-eval reads the YAML, calls the task's `custom_dataset` builder (where retrieval happens) and
renders the prompts. What is added here: no silent loss of a broken YAML, stable ids, a nested
seeded order (so that `limit=20` contains `limit=10`), and fingerprints of data set and prompt.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import codec
from harness.catalog import Entry
from harness.errors import CheckrailError, ConfigError, DataError
from harness.schema import Sampling

ORDER_SALT = "checkrail-nested-order"

_PLACEHOLDER = [
    {"doc_id": f"placeholder-{i}", "text": f"Placeholder {i}.", "score": 0.0, "title": "",
     "page": i}
    for i in (1, 2)
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task ready to run.

    Attributes:
        task: lm-eval's task object; its rows are the selection, in the nested order.
        total: Docs in the whole set.
        selected: Docs in the selection.
        metadata: The YAML's metadata block.
        protocol: Sampling settings that the task's protocol fixes.
        repeats: Samples a doc.
        fingerprints: "dataset", "prompt", "retriever".
        retriever: Name of the retriever whose passages the rows carry; "" without.
        by_likelihood: Whether it asks for log-likelihoods of choices, not for text.
    """

    name: str
    task: Any
    total: int
    selected: int
    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]
    repeats: int
    fingerprints: Mapping[str, str]
    retriever: str
    by_likelihood: bool = False

    @property
    def clusters(self) -> list[str | None]:
        """Cluster of each selected doc; None for docs without one."""
        rows = self.task.dataset[self.task.config.test_split]
        if "cluster" not in rows.column_names:
            return [None] * len(rows)
        return [None if c is None else str(c) for c in rows["cluster"]]


def quiet_lm_eval() -> None:
    """Keep the libraries' logs off the terminal; ours are enough."""
    for name in ("lm_eval", "lm-eval", "datasets", "evaluate", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)


def task_manager(folder: Path, settings: Mapping[str, Any]) -> Any:
    """lm-eval's TaskManager over one folder; its own 14,000 tasks stay out (10 seconds).

    Args:
        folder: The tasks folder.
        settings: Given to the builders (retriever, data, ...), over the YAML's metadata.
    """
    quiet_lm_eval()
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=[str(folder)], include_defaults=False, metadata=dict(settings))


def load_tasks(
    names: Sequence[str],
    entries: Mapping[str, Entry],
    *,
    manager: Any,
    settings: Mapping[str, Any],
    limit: int | None = None,
    repeats: int | None = None,
) -> list[LoadedTask]:
    """Load tasks by name.

    Args:
        names: Single tasks (groups are expanded by `catalog.expand`).
        entries: The catalogue of the same folder.
        manager: From `task_manager`, with the same settings.
        settings: What the builders were given.
        limit: Docs a task at most: a nested seeded sample, not the first n.
        repeats: Samples a doc; None takes the task's own.

    Raises:
        DataError: A data set is missing, empty, or has doubled ids.
        ConfigError: lm-eval does not accept the YAML.
    """
    return [
        _load(name, manager, entries[name], settings, limit=limit, repeats=repeats)
        for name in names
    ]


def _load(
    name: str,
    manager: Any,
    entry: Entry,
    settings: Mapping[str, Any],
    *,
    limit: int | None,
    repeats: int | None,
) -> LoadedTask:
    try:
        with contextlib.redirect_stdout(None):
            task = manager.load([name])["tasks"][name]
    except CheckrailError:
        raise
    except Exception as error:  # lm-eval has no error type of its own
        raise ConfigError(
            f"{entry.path}: lm-eval cannot load '{name}': {type(error).__name__}: {error}"
        ) from error
    if repeats is not None:
        task.set_config("repeats", repeats)
    split = task.config.test_split
    rows = task.dataset[split]
    if len(rows) == 0:
        raise DataError(f"{entry.path}: the test set of '{name}' is empty")
    order = nested_order(name, [str(i) for i in rows["id"]])
    selected = len(order) if limit is None else min(limit, len(order))
    task.dataset[split] = rows.select(order[:selected])
    task.task_docs = task.eval_docs
    retriever = str(rows[0].get("retriever") or "")
    return LoadedTask(
        name=name,
        task=task,
        total=len(order),
        selected=selected,
        metadata=entry.metadata,
        protocol=protocol_sampling(task.config.generation_kwargs or {}, entry.metadata),
        repeats=int(task.config.repeats),
        fingerprints={
            "dataset": dataset_fingerprint(rows),
            "prompt": prompt_fingerprint(task, rows[order[0]], entry),
            "retriever": retriever or "none",
        },
        retriever=str(settings.get("retriever") or entry.metadata.get("retriever") or "")
        if retriever
        else "",
        by_likelihood=task.OUTPUT_TYPE in ("multiple_choice", "loglikelihood"),
    )


def nested_order(task: str, ids: Sequence[str]) -> list[int]:
    """Positions of the docs in a seeded order that does not depend on their own.

    The first n of it are the sample of `limit=n`, so a larger limit contains a smaller one.
    The task's name is no part of the seed: tasks that share docs select the same ones.

    Raises:
        DataError: An id is empty or occurs twice.
    """
    seen: dict[str, int] = {}
    for position, doc_id in enumerate(ids):
        if not doc_id:
            raise DataError(f"task {task}: row {position} has an empty id")
        if doc_id in seen:
            raise DataError(
                f"task {task}: rows {seen[doc_id]} and {position} share the id '{doc_id}'"
            )
        seen[doc_id] = position
    keys = [
        hashlib.sha256(f"{ORDER_SALT}\0{doc_id}".encode("utf-8", "surrogatepass")).digest()
        for doc_id in ids
    ]
    return sorted(range(len(ids)), key=keys.__getitem__)


def protocol_sampling(
    generation_kwargs: Mapping[str, Any], metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """What a task fixes about sampling, in the names of `Sampling`.

    `do_sample: false` fixes temperature 0, as lm-eval itself understands it.
    """
    fixed: dict[str, Any] = {}
    for key, ours in (("temperature", "temperature"), ("top_p", "top_p"), ("top_k", "top_k"),
                      ("max_gen_toks", "max_tokens")):  # fmt: skip
        if key in generation_kwargs:
            fixed[ours] = generation_kwargs[key]
    if generation_kwargs.get("do_sample") is False:
        fixed["temperature"] = 0.0
    until = generation_kwargs.get("until")
    if until is not None:
        fixed["stop"] = [until] if isinstance(until, str) else list(until)
    if "thinking" in metadata:
        fixed["thinking"] = metadata["thinking"]
    return fixed


def effective_sampling(
    protocol: Mapping[str, Any], card: Mapping[str, Any], overrides: Mapping[str, Any]
) -> tuple[Sampling, list[str]]:
    """Protocol over card, command line over both.

    Returns:
        The sampling, and the keys in which the command line departs from the protocol.
    """
    merged = {**card, **protocol, **overrides}
    off = [key for key, value in overrides.items() if key in protocol and protocol[key] != value]
    if "stop" in merged:
        merged["stop"] = tuple(merged["stop"])
    return Sampling(**merged), sorted(off)


def dataset_fingerprint(rows: Any) -> str:
    """Hash of the whole set: everything of a row but its passages; independent of the order."""
    keep = [c for c in rows.column_names if c not in ("passages", "retriever")]
    digests = sorted(codec.sha(row) for row in rows.select_columns(keep))
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


def prompt_fingerprint(task: Any, row: Mapping[str, Any], entry: Entry) -> str:
    """Hash of the prompt's form: one real row rendered over placeholder passages.

    Two runs that differ only in what was retrieved have the same prompt fingerprint.
    """
    probe = dict(row)
    if "passages" in probe:
        probe["passages"] = _PLACEHOLDER
    shots = int(task.config.num_fewshot or 0)
    try:
        text = task.fewshot_context(probe, shots)
    except Exception as error:
        raise ConfigError(
            f"{entry.path}: doc_to_text fails on doc '{row['id']}': {type(error).__name__}: {error}"
        ) from error
    return codec.sha([text, shots])[:16]
