"""Looking into a stored run: is it whole, and what is in it, as JSONL for other tools."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import codec
from harness.errors import StoreError
from harness.schema import Record
from harness.store import Store, StoredDoc


@dataclass(slots=True)
class Inspection:
    """What `check` found in one run."""

    path: Path
    samples: int = 0
    problems: list[str] = field(default_factory=list[str])


def inspect(store: Store) -> Inspection:
    """Verify the file, every record, and that completed selections are complete."""
    found = Inspection(store.folder)
    try:
        found.problems += [f"sqlite: {line}" for line in store.integrity()]
        for task, run in store.tasks().items():
            docs = store.docs(task, run.complete)
            if len(docs) < run.complete:
                found.problems.append(f"{task}: {run.complete - len(docs)} docs are missing")
            wanted = {(d.doc.id, repeat) for d in docs for repeat in range(run.repeats)}
            missing = wanted - store.finished(task, run.complete)
            if missing:
                found.problems.append(
                    f"{task}: {len(missing)} samples of a completed selection are missing, "
                    f"first {min(missing)}"
                )
            for record in store.records(task, 2**62):
                found.samples += 1
                tokens = sum(
                    len(t.token_ids or ()) for t in record.rollout.turns if t.kind == "model"
                )
                counted = record.rollout.completion_tokens
                if tokens and counted is not None and counted != tokens:
                    found.problems.append(
                        f"{task}: {record.doc_id}#{record.repeat} counts {counted} tokens, "
                        f"holds {tokens}"
                    )
    except (sqlite3.Error, StoreError) as error:
        found.problems.append(str(error))
    return found


def export(store: Store, path: Path) -> int:
    """Write every current record as JSONL (one object a line); returns the count.

    Line keys: task, doc (with targets and passages), prompt, record parts, token ids.
    """
    count = 0
    temporary = path.with_name(path.name + ".part")
    try:
        with temporary.open("w", encoding="utf-8") as out:
            for task in store.tasks():
                docs = {d.doc.id: d for d in store.docs(task)}
                for record in store.records(task, 2**62):
                    doc = docs[record.doc_id]
                    out.write(codec.dumps(export_line(record, doc)) + "\n")
                    count += 1
        temporary.replace(path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from None
    return count


def export_line(record: Record, stored: StoredDoc) -> dict[str, Any]:
    """One sample as plain JSON, for other tools."""
    rollout = record.rollout
    return {
        "task": record.task,
        "doc": codec.doc_to_json(stored.doc),
        "prompt": codec.messages_to_json(stored.messages),
        "prompt_sha": record.prompt_sha,
        "repeat": record.repeat,
        "answer": rollout.answer,
        "turns": [
            {
                "kind": t.kind, "text": t.text,
                "prompt_ids": t.prompt_ids, "token_ids": t.token_ids, "logprobs": t.logprobs,
            }
            for t in rollout.turns
        ],
        "choices": rollout.choices,
        "finish": rollout.finish,
        "prompt_tokens": rollout.prompt_tokens,
        "completion_tokens": rollout.completion_tokens,
        "searches": rollout.searches,
        "seconds": rollout.seconds,
        "verdicts": [codec.verdict_to_json(v) for v in record.verdicts],
        "metrics": None if record.score is None else dict(record.score.metrics),
        "reasons": None if record.score is None else list(record.score.reasons),
    }  # fmt: skip
