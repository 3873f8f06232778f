"""What a build keeps on disk, and how a killed one goes on.

    build.json        what was asked, of which document and model; figures of the last finish
    pages.jsonl       page chunks
    replies.jsonl     raw replies: one line a page, on disk before the page counts as done
    questions.jsonl   accepted questions, each with its set ("test", "sft", "rl")
    rejects.jsonl     candidates that were not accepted, with reasons
    test.jsonl        the test set
    zero, sft, rl.jsonl   training rows with prompt, retrieved passages and gold output

All but replies.jsonl is made again from it by every finish; each file is replaced as a whole.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from harness.building.ask import Reply
from harness.errors import StoreError, UsageError
from harness.jsonl import read_rows

BUILD, REPLIES = "build.json", "replies.jsonl"


class Folder:
    """A build's folder, held by one process.

    Args:
        path: Made where it is missing.
        identity: What the replies depend on, by name.
        fresh: Drop the replies of another identity (or of this one).

    Raises:
        UsageError: The folder holds a build of something else; the first difference is named.
        StoreError: It cannot be written, or another process builds there.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any], *, fresh: bool = False) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._stream: TextIO = (path / REPLIES).open("a+", encoding="utf-8")
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}; choose out=DIR") from error
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._stream.close()
            raise StoreError(f"{path}: another process builds here") from error
        if fresh:
            self._stream.truncate(0)
        else:
            self._check(identity)
        self._mend()
        self.write_json(BUILD, {"identity": dict(identity)})

    def close(self) -> None:
        """Let go of the folder."""
        self._stream.close()

    def replies(self) -> dict[str, list[Reply]]:
        """Replies so far, by chunk id."""
        return {
            str(row["chunk_id"]): [Reply(str(r["text"]), str(r["answer"])) for r in row["replies"]]
            for _, row in read_rows(self.path / REPLIES)
        }

    def add(self, chunk_id: str, replies: Iterable[Reply]) -> None:
        """Commit the replies of a page: one whole line, on disk when this returns."""
        row = {
            "chunk_id": chunk_id,
            "replies": [{"text": r.text, "answer": r.answer} for r in replies],
        }
        self._stream.write(_line(row))
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def write_rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace a file of JSON lines."""
        self._replace(name, "".join(map(_line, rows)))

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Replace a JSON file."""
        self._replace(name, json.dumps(value, ensure_ascii=False, indent=2) + "\n")

    def _replace(self, name: str, text: str) -> None:
        part = self.path / f"{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(self.path / name)

    def _check(self, identity: Mapping[str, Any]) -> None:
        path = self.path / BUILD
        if not path.exists():
            return
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))["identity"]
            differing = [k for k in identity if stored.get(k) != identity[k]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{path}: is damaged ({error}); start over with fresh=true") from error
        if differing:
            key = differing[0]
            self._stream.close()
            raise UsageError(
                f"{self.path} holds a build with {key} {_short(stored.get(key))}, not "
                f"{_short(identity[key])}: choose another out=DIR, or start over with fresh=true"
            )

    def _mend(self) -> None:
        """Cut off a last line that a kill left unfinished."""
        path = self.path / REPLIES
        raw = path.read_bytes()
        whole = raw.rfind(b"\n") + 1
        if whole < len(raw):
            os.truncate(path, whole)


def _line(row: Mapping[str, Any]) -> str:
    text = json.dumps(row, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can escape and UTF-8 cannot hold
        text = json.dumps(row)
    return text + "\n"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
