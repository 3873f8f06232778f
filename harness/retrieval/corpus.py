"""Corpora: a tuple of passages with a fingerprint, read from JSON lines.

`load_jsonl` reads page chunks, one a line; the chunk id becomes the passage's id:

    {"doc_name": "Emergency_Plan.pdf", "page": 5, "chunk_id": "p5_c0", "text": "..."}

`load_passages` reads encyclopaedia passages in either of two forms:

    {"id": "12", "title": "Lyon", "text": "Lyon is a city ..."}
    {"id": "12", "contents": "Lyon   Lyon is a city ..."}

Ids have to be unique in the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import DataError
from harness.jsonl import read_rows, text
from harness.schema import Passage


@dataclass(frozen=True, slots=True)
class Corpus:
    """What a retriever searches.

    Attributes:
        passages: In the order of the source, which breaks ties between equal scores.
        fingerprint: Hash of ids, titles, pages and texts in that order.
        titles: Whether a title is searched with its text (the title of a page chunk is the
            name of its file, that of an encyclopaedia passage its subject).
    """

    passages: Sequence[Passage]
    fingerprint: str
    titles: bool = False

    @classmethod
    def of(cls, passages: Sequence[Passage], *, titles: bool = False) -> Corpus:
        """Make a corpus of passages at hand.

        Raises:
            DataError: Two passages share an id.
        """
        digest = hashlib.sha256(b"titles\n" if titles else b"")
        seen: set[str] = set()
        for p in passages:
            if p.doc_id in seen:
                raise DataError(f"corpus: passage id '{p.doc_id}' occurs twice; ids must differ")
            seen.add(p.doc_id)
            digest.update(passage_line(p))
        return cls(tuple(passages), f"corpus:{digest.hexdigest()[:32]}", titles)

    def texts(self, start: int = 0) -> Iterator[str]:
        """What is searched of each passage, from the `start`-th on."""
        for i in range(start, len(self.passages)):
            p = self.passages[i]
            yield f"{p.title} {p.text}" if self.titles and p.title else p.text

    def __len__(self) -> int:
        return len(self.passages)


def passage_line(passage: Passage) -> bytes:
    """What a passage adds to its corpus's fingerprint."""
    line = json.dumps([passage.doc_id, passage.title, passage.page, passage.text])
    return line.encode("ascii") + b"\n"


def load_jsonl(path: str | Path) -> Corpus:
    """Read page chunks: one JSON object a line with doc_name, page, chunk_id and text.

    Further keys are ignored.

    Raises:
        DataError: The file is missing, empty, not UTF-8, or a line is malformed, empty or a
            duplicate; names the file and the line.
    """
    return Corpus.of(_read(Path(path), "chunk_id", _chunk))


def load_passages(path: str | Path) -> Corpus:
    """Read encyclopaedia passages: id, and title and text or contents; titles are searched.

    `contents` is title, three spaces, text (the KILT passages of R1-Searcher) or title, line
    break, text (FlashRAG's corpora); without either it is all text.

    Raises:
        DataError: As for `load_jsonl`.
    """
    return Corpus.of(_read(Path(path), "id", entry), titles=True)


def _read(path: Path, key: str, make: Callable[[str, dict[str, Any]], Passage]) -> list[Passage]:
    passages: list[Passage] = []
    first_seen: dict[str, str] = {}
    for where, row in read_rows(path):
        passage = make(where, row)
        if passage.doc_id in first_seen:
            line = first_seen[passage.doc_id].rpartition(":")[2]
            raise DataError(
                f"{where}: passage '{passage.doc_id}' is already on line {line}; "
                f"remove one or rename its {key}"
            )
        first_seen[passage.doc_id] = where
        passages.append(passage)
    if not passages:
        raise DataError(f"{path}: holds no passage; expected one JSON object a line")
    return passages


def _chunk(where: str, row: dict[str, Any]) -> Passage:
    page = row.get("page")
    if not isinstance(page, int) or isinstance(page, bool):
        raise DataError(f"{where}: key 'page' must be a whole number, got {page!r:.40}")
    return Passage(
        text(where, row, "chunk_id"),
        text(where, row, "text"),
        title=text(where, row, "doc_name"),
        page=page,
    )


def entry(where: str, row: dict[str, Any]) -> Passage:
    """An encyclopaedia passage of its JSON object; `where` is for messages.

    Raises:
        DataError: A key is missing or of the wrong type.
    """
    doc_id = row.get("id")
    if isinstance(doc_id, int) and not isinstance(doc_id, bool):
        doc_id = str(doc_id)
    else:
        doc_id = text(where, row, "id")
    if "contents" not in row:
        return Passage(doc_id, text(where, row, "text"), title=str(row.get("title") or ""))
    return split_contents(doc_id, text(where, row, "contents"))


def split_contents(doc_id: str, contents: str) -> Passage:
    """A passage of "title, three spaces or a line break, text"."""
    for separator in ("   ", "\n"):
        title, found, body = contents.partition(separator)
        if found and title.strip() and body.strip():
            return Passage(doc_id, body, title=title)
    return Passage(doc_id, contents)
