"""Corpora: a tuple of passages with a fingerprint, read from JSON lines.

{"doc_name": "Emergency_Plan.pdf", "page": 5, "chunk_id": "p5_c0", "text": "..."}

One page chunk a line. The chunk id becomes the passage's id, so it has to be unique in the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import DataError
from harness.schema import Passage


@dataclass(frozen=True, slots=True)
class Corpus:
    """What a retriever searches.

    Attributes:
        passages: In the order of the source, which breaks ties between equal scores.
        fingerprint: Hash of ids, titles, pages and texts in that order.
    """

    passages: tuple[Passage, ...]
    fingerprint: str

    @classmethod
    def of(cls, passages: Sequence[Passage]) -> Corpus:
        """Make a corpus of passages at hand.

        Raises:
            DataError: Two passages share an id.
        """
        digest = hashlib.sha256()
        seen: set[str] = set()
        for p in passages:
            if p.doc_id in seen:
                raise DataError(f"corpus: passage id '{p.doc_id}' occurs twice; ids must differ")
            seen.add(p.doc_id)
            line = json.dumps([p.doc_id, p.title, p.page, p.text])
            digest.update(line.encode("ascii") + b"\n")
        return cls(tuple(passages), f"corpus:{digest.hexdigest()[:32]}")

    def __len__(self) -> int:
        return len(self.passages)


def load_jsonl(path: str | Path) -> Corpus:
    """Read page chunks: one JSON object a line with doc_name, page, chunk_id and text.

    Blank lines and further keys are ignored; a byte order mark is skipped.

    Raises:
        DataError: The file is missing, empty, not UTF-8, or a line is malformed, empty or a
            duplicate; names the file and the line.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    passages: list[Passage] = []
    first_seen: dict[str, int] = {}
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        passage = _passage(f"{path}:{number}", line)
        if passage.doc_id in first_seen:
            raise DataError(
                f"{path}:{number}: chunk '{passage.doc_id}' is already on line "
                f"{first_seen[passage.doc_id]}; remove one or rename its chunk_id"
            )
        first_seen[passage.doc_id] = number
        passages.append(passage)
    if not passages:
        raise DataError(f"{path}: holds no passage; expected one JSON object a line")
    return Corpus.of(passages)


def _passage(where: str, line: bytes) -> Passage:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8 (byte {error.start + 1}); convert the file") from error
    try:
        row: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not valid JSON ({_one_line(error)})") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected a JSON object, got {type(row).__name__}")
    page = row.get("page")
    if not isinstance(page, int) or isinstance(page, bool):
        raise DataError(f"{where}: key 'page' must be a whole number, got {page!r:.40}")
    return Passage(
        _string(where, row, "chunk_id"),
        _string(where, row, "text"),
        title=_string(where, row, "doc_name"),
        page=page,
    )


def _string(where: str, row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        problem = "is missing" if key not in row else f"must be a string, got {value!r:.40}"
        raise DataError(f"{where}: key '{key}' {problem}")
    if not value.strip():
        raise DataError(f"{where}: key '{key}' is empty")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: key '{key}' holds a broken character (\\ud800-like)") from error
    return value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:80]
