"""Corpora too large for memory: passages read from their file when they are shown.

    corpus = open_corpus("wiki.jsonl")          # or psgs_w100.tsv
    retriever_options.corpus=wiki.jsonl

The file is read through once, a line at a time, for the places of its lines and the corpus's
fingerprint (the same as that of the corpus in memory); both are kept in the cache by the file's
path, size and time. Afterwards a passage costs one read. Accepted are encyclopaedia passages as
JSON lines (see harness/retrieval/corpus.py) and tab-separated: DPR's and KILT's 100-word passages,
`id TAB text TAB title` with that header, or `id TAB contents` without one. Page chunks (a
`chunk_id` on the first line) are read whole.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from harness import paths
from harness.errors import DataError
from harness.jsonl import row_of
from harness.retrieval.building import (
    Counter,
    building,
    read_description,
    short_hash,
    write_description,
)
from harness.retrieval.corpus import Corpus, entry, load_jsonl, passage_line, split_contents
from harness.schema import Passage

HEADER = ("id", "text", "title")


def open_corpus(path: str | Path) -> Corpus:
    """A corpus whose passages stay in their file; titles are searched.

    Raises:
        DataError: The file is missing, packed, empty, or a line is malformed or a duplicate; names
            the file and the line.
    """
    path = Path(path).expanduser()
    try:
        with path.open("rb") as stream:
            first = stream.readline(1 << 20)
            stat = os.fstat(stream.fileno())
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    if path.suffix == ".gz":
        raise DataError(f"{path}: unpack it first: passages are read from their place in the file")
    if b'"chunk_id"' in first:
        return load_jsonl(path)
    folder = paths.cache() / "corpora" / short_hash(str(path.resolve()))
    wanted = {"file": str(path.resolve()), "size": stat.st_size, "modified": stat.st_mtime_ns}
    with building(folder):
        said = read_description(folder / "corpus.json")
        if {key: said.get(key) for key in wanted} != wanted:
            offsets, fingerprint = _scan(path)
            np.save(folder / "offsets.npy", offsets)
            said = {**wanted, "fingerprint": fingerprint, "passages": len(offsets)}
            write_description(folder / "corpus.json", said)
    offsets = np.load(folder / "offsets.npy", mmap_mode="r")
    return Corpus(PassageFile(path, offsets), str(said["fingerprint"]), titles=True)


class PassageFile(Sequence[Passage]):
    """The passages of a file, each read when it is asked for.

    Args:
        path: JSON lines or tab-separated lines.
        offsets: Where each passage's line begins, in bytes.
    """

    def __init__(self, path: Path, offsets: Any) -> None:
        self._path = path
        self._offsets = offsets
        with path.open("rb") as stream:
            self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, index: int) -> Passage: ...
    @overload
    def __getitem__(self, index: slice) -> list[Passage]: ...
    def __getitem__(self, index: int | slice) -> Passage | list[Passage]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = int(self._offsets[index])
        end = self._bytes.find(b"\n", at)
        line = self._bytes[at : len(self._bytes) if end < 0 else end]
        return _passage(f"{self._path}, byte {at}", line, self._path)


def _scan(path: Path) -> tuple[Any, str]:
    """Offset of each passage, and the corpus's fingerprint."""
    digest = hashlib.sha256(b"titles\n")
    counter = Counter("read", 0)
    offsets = array("q")
    keys = array("Q")  # 64 bits of each id: enough to find two that are the same
    for where, at, line in _lines(path):
        passage = _passage(where, line, path)
        digest.update(passage_line(passage))
        name = hashlib.blake2b(passage.doc_id.encode("utf-8", "replace"), digest_size=8).digest()
        keys.append(int.from_bytes(name, "little"))
        offsets.append(at)
        counter.add(1)
    if not offsets:
        raise DataError(f"{path}: holds no passage; expected one a line")
    names = np.asarray(keys, np.uint64)
    order = np.argsort(names, kind="stable")
    same = np.flatnonzero(names[order][1:] == names[order][:-1])
    if same.size:
        first, second = (int(order[same[0] + step]) + 1 for step in (0, 1))
        raise DataError(f"{path}: passages {first} and {second} have the same id; ids must differ")
    return np.asarray(offsets, np.int64), f"corpus:{digest.hexdigest()[:32]}"


def _lines(path: Path) -> Iterator[tuple[str, int, bytes]]:
    """(place for messages, offset, line) of every line that holds a passage."""
    at = 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            begin, at = at, at + len(line)
            if number == 1 and line.startswith(b"\xef\xbb\xbf"):
                line, begin = line[3:], 3
            header = number == 1 and tuple(line.decode("utf-8", "replace").split()) == HEADER
            if line.strip() and not header:
                yield f"{path}:{number}", begin, line.rstrip(b"\r\n")


def _passage(where: str, line: bytes, path: Path) -> Passage:
    if path.suffix != ".tsv":
        return entry(where, row_of(where, line))
    try:
        fields = [_unquoted(f) for f in line.decode("utf-8").rstrip("\r\n").split("\t")]
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8 (byte {error.start + 1}); convert the file") from None
    if len(fields) not in (2, 3) or not fields[0].strip() or not fields[1].strip():
        raise DataError(f"{where}: expected id TAB text TAB title, or id TAB contents")
    if len(fields) == 3:
        return Passage(fields[0], fields[1], title=fields[2])
    return split_contents(fields[0], fields[1])


def _unquoted(field: str) -> str:
    """A field without the quotes that a CSV writer put round it."""
    if len(field) > 1 and field.startswith('"') and field.endswith('"'):
        return field[1:-1].replace('""', '"')
    return field
