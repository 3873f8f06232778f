"""What a judge once said, kept beside the runs: the same question is not paid for twice.

One SQLite file, safe for threads and for several processes: each verdict is one statement, and
who comes second leaves the first one's verdict as it is.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path

from harness.codec import dumps, verdict_from_json, verdict_to_json
from harness.errors import StoreError
from harness.schema import Verdict

FILE = "judge-cache.sqlite"
_WAIT = 60.0  # seconds for another process to finish its write


class VerdictCache:
    """Verdicts by key.

    Args:
        path: The file; None keeps them in memory.

    Raises:
        StoreError: The file cannot be opened, or is something else.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                path or ":memory:", timeout=_WAIT, check_same_thread=False, isolation_level=None
            )
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS verdicts(key TEXT PRIMARY KEY, judge TEXT NOT NULL,"
                " verdict TEXT NOT NULL) WITHOUT ROWID"
            )
        except (sqlite3.Error, OSError) as error:
            raise self._failed(error) from None

    def get(self, key: str) -> Verdict | None:
        """The verdict of a key, or None.

        Raises:
            StoreError: The file cannot be read.
        """
        try:
            with self._lock:
                row = self._db.execute(
                    "SELECT verdict FROM verdicts WHERE key = ?", (key,)
                ).fetchone()
            return None if row is None else verdict_from_json(json.loads(row[0]))
        except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
            raise self._failed(error) from None

    def put(self, key: str, verdict: Verdict) -> None:
        """Keep a verdict; one that is there already stays.

        Raises:
            StoreError: The file cannot be written.
        """
        row = (key, verdict.judge, dumps(verdict_to_json(verdict)))
        try:
            with self._lock:
                self._db.execute("INSERT OR IGNORE INTO verdicts VALUES(?, ?, ?)", row)
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def forget(self, key: str) -> None:
        """Drop a verdict, so that the judge is asked again."""
        with self._lock:
            self._db.execute("DELETE FROM verdicts WHERE key = ?", (key,))

    def close(self) -> None:
        """Close the file; idempotent."""
        self._db.close()

    def _failed(self, error: Exception) -> StoreError:
        return StoreError(
            f"{self._path}: the judge's cache cannot be used ({error}); move it away, verdicts "
            "of finished runs are in the runs"
        )
