"""Reading a stored run: its docs, samples and log. `harness.store` writes the file."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from harness import codec
from harness.errors import StoreError
from harness.schema import Doc, Message, Record, Score

SCHEMA_VERSION = 1
FILE = "run.sqlite"


@dataclass(frozen=True, slots=True)
class StoredDoc:
    """A doc as one run saw it.

    Attributes:
        rank: Position in the nested seeded order of the whole set, from 0.
        request: Hash of prompt, effective sampling and policy: what a resume looks up.
    """

    doc: Doc
    rank: int
    messages: tuple[Message, ...]
    prompt_sha: str
    request: str


@dataclass(frozen=True, slots=True)
class TaskRun:
    """What a store knows of one task.

    Attributes:
        info: {"fingerprints": {...}, "version", "scorer", "board", "flags", ...}.
        total: Docs in the whole set.
        repeats: Samples a doc.
        complete: Size of the largest completed selection.
    """

    task: str
    info: Mapping[str, Any]
    total: int
    repeats: int
    complete: int


class StoredRun:
    """One run on disk, open for reading."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder = folder
        self._db = connection

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a run for reading.

        Raises:
            StoreError: There is no run, or the file is truncated, foreign or newer.
        """
        path = folder / FILE
        if not path.is_file():
            raise StoreError(f"no run in {folder}: {FILE} is missing")
        try:
            # A reader of a WAL file may need to write its index; a read-only folder cannot.
            mode = "ro" if os.access(folder, os.W_OK) else "ro&immutable=1"
            uri = f"{path.resolve().as_uri()}?mode={mode}"
            db = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
            store = cls(folder, db)
            store._verify()
        except sqlite3.Error as error:
            raise StoreError(foreign(path, error)) from None
        return store

    def _verify(self) -> None:
        try:
            version = self.meta().get("schema")
        except (sqlite3.Error, ValueError) as error:
            raise StoreError(foreign(self.folder / FILE, error)) from None
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"{self.folder / FILE} has schema {version}, this version reads {SCHEMA_VERSION}"
            )

    def close(self) -> None:
        """Close the file; idempotent."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def meta(self) -> dict[str, Any]:
        """The run's constants: schema, run_id, model, identity, created."""
        return {k: json.loads(v) for k, v in self._db.execute("SELECT key, value FROM meta")}

    def invocations(self) -> list[dict[str, Any]]:
        """Every invocation, oldest first, with code, packages and hardware."""
        rows = self._db.execute(
            "SELECT id, started, finished, status, info FROM invocations ORDER BY id"
        )
        return [
            {"id": i, "started": s, "finished": f, "status": status, **json.loads(info)}
            for i, s, f, status, info in rows
        ]

    def tasks(self) -> dict[str, TaskRun]:
        """Every task of the run, by name."""
        rows = self._db.execute(
            "SELECT task, info, total, repeats, complete FROM tasks ORDER BY task"
        )
        return {t: TaskRun(t, json.loads(i), n, r, c) for t, i, n, r, c in rows}

    def docs(self, task: str, limit: int | None = None) -> list[StoredDoc]:
        """Docs in the nested order, the first `limit` of them."""
        rows = self._db.execute(
            "SELECT doc, rank, prompt, prompt_sha, request FROM docs WHERE task = ?"
            " AND rank < ? ORDER BY rank",
            (task, 2**62 if limit is None else limit),
        )
        return [
            StoredDoc(
                codec.doc_from_json(json.loads(doc)),
                rank,
                tuple(Message(r, c) for r, c in json.loads(prompt)),
                prompt_sha,
                request,
            )
            for doc, rank, prompt, prompt_sha, request in rows
        ]

    def finished(self, task: str, limit: int | None = None) -> set[tuple[str, int]]:
        """Keys (doc id, repeat) of the current samples among the first `limit` docs."""
        rows = self._db.execute(
            "SELECT s.doc_id, s.repeat FROM samples s JOIN docs d"
            " ON d.task = s.task AND d.doc_id = s.doc_id AND d.request = s.request"
            " WHERE s.task = ? AND d.rank < ?",
            (task, 2**62 if limit is None else limit),
        )
        return {(doc_id, repeat) for doc_id, repeat in rows}

    def stale(self, task: str, scorer: str) -> set[tuple[str, int]]:
        """Keys (doc id, repeat) of current samples that something else scored."""
        rows = self._db.execute(
            "SELECT s.doc_id, s.repeat FROM samples s JOIN docs d"
            " ON d.task = s.task AND d.doc_id = s.doc_id AND d.request = s.request"
            " WHERE s.task = ? AND s.scorer <> ?",
            (task, scorer),
        )
        return {(doc_id, repeat) for doc_id, repeat in rows}

    def records(self, task: str, limit: int | None = None) -> Iterator[Record]:
        """Current records of the first `limit` docs, in the nested order, then by repeat.

        Args:
            task: Task name.
            limit: None reads the largest completed selection.

        Raises:
            StoreError: A row is damaged; the message names it.
        """
        if limit is None:
            limit = self.tasks()[task].complete
        rows = self._db.execute(
            "SELECT s.doc_id, s.repeat, d.prompt_sha, s.rollout, s.ids, s.logprobs, s.verdicts,"
            " s.metrics, s.reasons FROM samples s JOIN docs d"
            " ON d.task = s.task AND d.doc_id = s.doc_id AND d.request = s.request"
            " JOIN tasks t ON t.task = s.task"
            " WHERE s.task = ? AND d.rank < ? AND s.repeat < t.repeats"
            " ORDER BY d.rank, s.repeat",
            (task, limit),
        )
        try:
            for row in rows:
                yield self._record(task, row)
        except sqlite3.Error as error:
            raise StoreError(foreign(self.folder / FILE, error)) from None

    def _record(self, task: str, row: tuple[Any, ...]) -> Record:
        doc_id, repeat, prompt_sha, body, ids, logprobs, verdicts, metrics, reasons = row
        try:
            return Record(
                task,
                doc_id,
                repeat,
                prompt_sha,
                codec.rollout_from_row(doc_id, repeat, body, ids, logprobs),
                tuple(codec.verdict_from_json(v) for v in json.loads(verdicts)),
                None if metrics is None else Score(json.loads(metrics), tuple(json.loads(reasons))),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"{self.folder / FILE}: sample ({task}, {doc_id}, {repeat}) is damaged: {error}"
            ) from None

    def failures(self, task: str | None = None) -> list[tuple[str, str, int, str]]:
        """Logged infrastructure failures: (task, doc id, repeat, error), oldest first."""
        rows = self._db.execute(
            "SELECT task, doc_id, repeat, error FROM failures"
            " WHERE ? IS NULL OR task = ? ORDER BY rowid",
            (task, task),
        )
        return list(rows)

    def redone(self) -> int:
        """Samples that no longer belong to a current request (kept, not read)."""
        total = self._db.execute("SELECT count(*) FROM samples").fetchone()[0]
        current = self._db.execute(
            "SELECT count(*) FROM samples s JOIN docs d"
            " ON d.task = s.task AND d.doc_id = s.doc_id AND d.request = s.request"
        ).fetchone()[0]
        return int(total) - int(current)

    def integrity(self) -> list[str]:
        """What SQLite's own check of the file says; empty if it is sound."""
        return [line for (line,) in self._db.execute("PRAGMA integrity_check") if line != "ok"]


def find_runs(out: Path) -> list[Path]:
    """Folders under `out` that hold a run, newest first."""
    if not out.is_dir():
        return []
    found = [p.parent for p in out.glob(f"*/{FILE}")]
    return sorted(found, key=lambda p: (-(p / FILE).stat().st_mtime_ns, p.name))


def foreign(path: Path, error: Exception) -> str:
    """What to say of a file that is not a run."""
    return (
        f"{path} is not a readable run file ({error}); move it away and run again, "
        "or restore it from a copy"
    )
