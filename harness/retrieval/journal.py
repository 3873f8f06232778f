"""What outside retrievers answered, kept beside the run: one JSON line an answer.

    {"retriever": FINGERPRINT, "query": "...", "k": 5, "passages": [{...}, ...]}

`Recorded` writes it, and asks nobody twice: the same query gets the same answer within a run, also
when it resumes. `Replay` reads it, so a run plays again without a network, with the same prompts.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import DataError, UsageError
from harness.schema import Passage, RetrievalError, Retriever

NAME = "searches.jsonl"
"""File in a run's folder."""

Key = tuple[str, str, int]
Answers = dict[Key, list[Passage]]


def load(path: Path) -> Answers:
    """Every answer of a journal; a line that a crash cut off at the end is skipped.

    Raises:
        DataError: Another line is no answer; names the line.
    """
    answers: Answers = {}
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
            key = str(row["retriever"]), str(row["query"]), int(row["k"])
            answers[key] = [Passage(**passage) for passage in row["passages"]]
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break
            raise DataError(f"{path}, line {number}: no recorded search ({error})") from None
    return answers


class Recorded:
    """A retriever whose answers are kept.

    Args:
        retriever: Asked for what the journal does not have.
        path: The journal; written from the first answer on, one line each, flushed to disk.
    """

    def __init__(self, retriever: Retriever, path: Path) -> None:
        self._retriever = retriever
        self._path = path
        self._answers: Answers | None = None
        self._lock = threading.Lock()
        self.fingerprint = retriever.fingerprint

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage] | RetrievalError]:
        """Recorded answers where there are some, else the retriever's; failures are not kept."""
        with self._lock:
            if self._answers is None:
                self._answers = load(self._path) if self._path.exists() else {}
            known = self._answers
            missing = [q for q in dict.fromkeys(queries) if self._key(q, k) not in known]
            failed: dict[str, RetrievalError] = {}
            if missing:
                found = self._retriever.retrieve(missing, k)
                for query, result in zip(missing, found, strict=True):
                    if isinstance(result, RetrievalError):
                        failed[query] = result
                    else:
                        known[self._key(query, k)] = result
                self._write([q for q in missing if q not in failed], k, known)
            return [failed[q] if q in failed else known[self._key(q, k)] for q in queries]

    def _key(self, query: str, k: int) -> Key:
        return self.fingerprint, query, k

    def _write(self, queries: Sequence[str], k: int, answers: Answers) -> None:
        if not queries:
            return
        lines = [
            json.dumps({
                "retriever": self.fingerprint, "query": query, "k": k,
                "passages": [dataclasses.asdict(p) for p in answers[self._key(query, k)]],
            })
            for query in queries
        ]  # fmt: skip
        with self._path.open("ab+") as file:
            if file.tell():
                # A line that a crash cut off must not swallow the next one.
                file.seek(-1, os.SEEK_END)
                whole = file.read(1) == b"\n"
                if not whole:
                    _drop_last_line(file)
            file.write("".join(line + "\n" for line in lines).encode("ascii"))
            file.flush()
            os.fsync(file.fileno())


def _drop_last_line(file: Any) -> None:
    file.seek(0)
    file.truncate(file.read().rfind(b"\n") + 1)
    file.seek(0, os.SEEK_END)


class Replay:
    """Answers from a journal, and from nothing else.

    Args:
        path: The journal of a run.

    Attributes:
        fingerprint: That of the retriever that was recorded.

    Raises:
        UsageError: There is no such journal, or it holds several retrievers' answers.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise UsageError(f"{path} does not exist: that run recorded no searches")
        answers = load(path)
        names = sorted({retriever for retriever, _, _ in answers})
        if len(names) != 1:
            raise UsageError(f"{path} holds the answers of {len(names)} retrievers, wanted one")
        self.fingerprint = names[0]
        self._answers = answers

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage] | RetrievalError]:
        """The recorded passages; a query that was never asked is a RetrievalError."""
        missing = "not among the recorded searches: nothing was asked with this text"
        return [
            self._answers.get((self.fingerprint, query, k), RetrievalError(query, missing))
            for query in queries
        ]
