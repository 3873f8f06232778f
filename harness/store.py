"""The run store: one SQLite file a run, one committed transaction a rollout.

    runs/<model>-<run id>/run.sqlite    docs, samples, verdicts, scores, invocations
    runs/<model>-<run id>/run.lock      held by the process that writes

A killed process loses what was in flight and nothing else. The unit of resume is
(task, doc, repeat, request), where the request is the prompt with its sampling and policy.
A *selection* is how many docs of a task, in the nested seeded order, one invocation asked
for; only completed selections are read as results, so a half-finished larger run (whose
quick answers came first) never biases a figure.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import codec
from harness.errors import StoreError
from harness.schema import Rollout, Score, Verdict
from harness.stored import (
    FILE,
    SCHEMA_VERSION,
    StoredDoc,
    StoredRun,
    TaskRun,
    find_runs,
    foreign,
)

__all__ = [
    "FILE", "SCHEMA_VERSION", "NewScore", "Store", "StoredDoc", "StoredRun", "TaskRun", "find_runs",
]  # fmt: skip

_NETWORK_FILE_SYSTEMS = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "9p", "afs", "orangefs",
}  # fmt: skip

_TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE invocations(
    id INTEGER PRIMARY KEY, started TEXT NOT NULL, finished TEXT, status TEXT NOT NULL,
    info TEXT NOT NULL);
CREATE TABLE tasks(
    task TEXT PRIMARY KEY, info TEXT NOT NULL, total INTEGER NOT NULL,
    repeats INTEGER NOT NULL, complete INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE docs(
    task TEXT NOT NULL, doc_id TEXT NOT NULL, rank INTEGER NOT NULL, request TEXT NOT NULL,
    prompt_sha TEXT NOT NULL, prompt TEXT NOT NULL, doc TEXT NOT NULL,
    PRIMARY KEY(task, doc_id)) WITHOUT ROWID;
CREATE TABLE samples(
    task TEXT NOT NULL, doc_id TEXT NOT NULL, repeat INTEGER NOT NULL, request TEXT NOT NULL,
    rollout TEXT NOT NULL, ids BLOB NOT NULL, logprobs BLOB NOT NULL, verdicts TEXT NOT NULL,
    metrics TEXT, reasons TEXT, scorer TEXT NOT NULL, invocation INTEGER NOT NULL,
    PRIMARY KEY(task, doc_id, repeat, request));
CREATE TABLE failures(
    task TEXT NOT NULL, doc_id TEXT NOT NULL, repeat INTEGER NOT NULL, request TEXT NOT NULL,
    error TEXT NOT NULL, at TEXT NOT NULL, invocation INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class NewScore:
    """Verdicts and score that a stored sample is to have from now on.

    Attributes:
        scorer: What the score depends on besides the rollout.
    """

    task: str
    doc_id: str
    repeat: int
    request: str
    verdicts: tuple[Verdict, ...]
    score: Score | None
    scorer: str


def now() -> str:
    """UTC time, ISO 8601, to the second."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()


def file_system(path: Path) -> str:
    """Type of the file system that holds a path ("" where it cannot be told)."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    target = str(path.resolve())
    for line in mounts:
        parts = line.split()
        if len(parts) < 3:
            continue
        mount = parts[1].replace("\\040", " ")
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, parts[2]
    return kind


class Store(StoredRun):
    """One run on disk. Use `Store.create` to write and `Store.open` to read."""

    def __init__(
        self, folder: Path, connection: sqlite3.Connection, lock: int | None = None
    ) -> None:
        super().__init__(folder, connection)
        self._lock = lock
        self._invocation = 0

    @classmethod
    def create(cls, folder: Path, meta: Mapping[str, Any]) -> Store:
        """Open a run for writing, creating it if it is not there.

        Args:
            folder: The run's folder.
            meta: Written once, when the run is new: run_id, model, identity.

        Raises:
            StoreError: The folder is read-only, in use, or holds something else.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder / "run.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(
                f"cannot write {folder}: {error.strerror}; choose another folder with out=DIR"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise StoreError(f"another process is writing {folder}; wait for it") from None
        except OSError:
            pass  # some network file systems have no locks; primary keys still forbid doubles
        path = folder / FILE
        fresh = not path.exists() or path.stat().st_size == 0
        try:
            db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            network = file_system(folder) in _NETWORK_FILE_SYSTEMS
            # WAL needs shared memory, which network file systems do not give.
            db.execute(f"PRAGMA journal_mode={'DELETE' if network else 'WAL'}")
            db.execute(f"PRAGMA synchronous={'FULL' if network else 'NORMAL'}")
            if fresh:
                db.execute("BEGIN IMMEDIATE")
                for statement in _TABLES.split(";\n"):
                    if statement.strip():
                        db.execute(statement)
                rows = {"schema": SCHEMA_VERSION, "created": now(), **meta}
                db.executemany(
                    "INSERT INTO meta VALUES(?, ?)",
                    [(key, json.dumps(value, ensure_ascii=False)) for key, value in rows.items()],
                )
                db.execute("COMMIT")
        except sqlite3.Error as error:
            os.close(lock)
            raise StoreError(foreign(path, error)) from None
        store = cls(folder, db, lock)
        try:
            store._verify()
        except StoreError:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Close the file and release the lock; idempotent."""
        super().close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise StoreError(
                f"cannot write {self.folder / FILE}: {error}; free space or choose out=DIR, "
                "the same command resumes"
            ) from None

    def begin(self, info: Mapping[str, Any]) -> int:
        """Log an invocation (command, code, packages, hardware) and return its number."""
        with self._transaction() as db:
            cursor = db.execute(
                "INSERT INTO invocations(started, status, info) VALUES(?, 'running', ?)",
                (now(), codec.dumps(info)),
            )
        self._invocation = int(cursor.lastrowid or 0)
        return self._invocation

    def end(self, status: str, measured: Mapping[str, Any] | None = None) -> None:
        """Close the current invocation with "complete", "incomplete", ...

        Args:
            status: How it ended.
            measured: Seconds and tokens of what was played; `plan` reads them.
        """
        with self._transaction() as db:
            db.execute(
                "UPDATE invocations SET finished = ?, status = ?,"
                " info = json_set(info, '$.measured', json(?)) WHERE id = ?",
                (now(), status, codec.dumps(dict(measured or {})), self._invocation),
            )

    def put_task(
        self, task: str, info: Mapping[str, Any], total: int, repeats: int,
        docs: Sequence[StoredDoc],
    ) -> None:  # fmt: skip
        """Store the docs of a selection, replacing what an older data set left.

        A doc whose request changed keeps its old samples on disk, but they are no longer
        read, and the task's completed selection starts again from 0.
        """
        with self._transaction() as db:
            old = db.execute("SELECT info, repeats FROM tasks WHERE task = ?", (task,)).fetchone()
            known = dict(
                db.execute("SELECT doc_id, request FROM docs WHERE task = ?", (task,)).fetchall()
            )
            changed = any(known.get(d.doc.id, d.request) != d.request for d in docs)
            stale_set = old is not None and (
                json.loads(old[0])["fingerprints"].get("dataset")
                != info["fingerprints"].get("dataset")
            )
            if stale_set:
                db.execute("DELETE FROM docs WHERE task = ?", (task,))
            restart = changed or stale_set or (old is not None and old[1] < repeats)
            db.execute(
                "INSERT INTO tasks(task, info, total, repeats) VALUES(?, ?, ?, ?)"
                " ON CONFLICT(task) DO UPDATE SET info = excluded.info, total = excluded.total,"
                " repeats = excluded.repeats",
                (task, codec.dumps(info), total, repeats),
            )
            if restart:
                db.execute("UPDATE tasks SET complete = 0 WHERE task = ?", (task,))
            db.executemany(
                "INSERT OR REPLACE INTO docs VALUES(?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        task, d.doc.id, d.rank, d.request, d.prompt_sha,
                        codec.dumps(codec.messages_to_json(d.messages)),
                        codec.dumps(codec.doc_to_json(d.doc)),
                    )
                    for d in docs
                ],
            )  # fmt: skip

    def complete(self, task: str, selected: int) -> None:
        """Mark a selection of the first `selected` docs as finished."""
        with self._transaction() as db:
            db.execute(
                "UPDATE tasks SET complete = max(complete, ?) WHERE task = ?", (selected, task)
            )

    def put_sample(
        self, task: str, request: str, rollout: Rollout, verdicts: Sequence[Verdict],
        score: Score | None, scorer: str,
    ) -> None:  # fmt: skip
        """Commit one finished rollout. A sample that is there already is left as it is."""
        body, ids, logprobs = codec.rollout_to_row(rollout)
        with self._transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO samples VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    task, rollout.doc_id, rollout.repeat, request, body, ids, logprobs,
                    codec.dumps([codec.verdict_to_json(v) for v in verdicts]),
                    None if score is None else codec.dumps(dict(score.metrics)),
                    None if score is None else codec.dumps(list(score.reasons)),
                    scorer, self._invocation,
                ),
            )  # fmt: skip

    def put_scores(
        self, scores: Sequence[NewScore], infos: Mapping[str, Mapping[str, Any]] | None = None,
        log: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Replace verdicts and scores of stored samples, all of them or none.

        Args:
            scores: Their rollouts are left as they are.
            infos: New info of tasks, by name.
            log: Entered as an invocation of its own, in the same transaction.
        """
        with self._transaction() as db:
            for s in scores:
                db.execute(
                    "UPDATE samples SET verdicts = ?, metrics = ?, reasons = ?, scorer = ?"
                    " WHERE task = ? AND doc_id = ? AND repeat = ? AND request = ?",
                    (
                        codec.dumps([codec.verdict_to_json(v) for v in s.verdicts]),
                        None if s.score is None else codec.dumps(dict(s.score.metrics)),
                        None if s.score is None else codec.dumps(list(s.score.reasons)),
                        s.scorer, s.task, s.doc_id, s.repeat, s.request,
                    ),
                )  # fmt: skip
            for task, info in (infos or {}).items():
                db.execute("UPDATE tasks SET info = ? WHERE task = ?", (codec.dumps(info), task))
            if log is not None:
                db.execute(
                    "INSERT INTO invocations(started, finished, status, info)"
                    " VALUES(?, ?, 'rescored', ?)",
                    (now(), now(), codec.dumps(log)),
                )

    def put_failure(self, task: str, doc_id: str, repeat: int, request: str, error: str) -> None:
        """Log an infrastructure failure; the sample stays missing and is retried."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO failures VALUES(?, ?, ?, ?, ?, ?, ?)",
                (task, doc_id, repeat, request, error, now(), self._invocation),
            )
