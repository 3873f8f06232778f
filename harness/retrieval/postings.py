"""Postings of a corpus on disk: which passages hold a token, and how often; made shard by shard.

    FOLDER/shards/00000/tokens.json     tokens that no earlier shard has, in the order of their ids
                        lengths.npy     (passages,): tokens of each passage
                        terms.npy       (terms,): ids of the tokens in this shard, ascending
                        starts.npy      (terms + 1,): where the postings of each one begin
                        passages.npy    (postings,): passages, ascending within a token
                        counts.npy      (postings,): how often the token stands there, >= 1

A shard holds consecutive passages of the corpus, and is renamed into place when it is whole: a
build that was killed goes on behind its last shard. In memory are the tokens of one shard and the
vocabulary, which grows with the square root of a corpus, about (Heaps' law).
"""

from __future__ import annotations

import json
import shutil
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import DataError
from harness.retrieval.building import Counter
from harness.retrieval.corpus import Corpus

NAME = "shards"
TOKENS = 1 << 22
"""Tokens after which a shard is written: some 40,000 passages of 100 words, 200 MB at most."""


class Shard:
    """One folder of postings; arrays are mapped into memory, not read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def array(self, name: str) -> Any:
        """An array of the module's table, by the name of its file.

        Raises:
            DataError: It cannot be read.
        """
        path = self._folder / f"{name}.npy"
        try:
            return np.load(path, mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path}: cannot be read ({error}); delete its folder") from None

    def tokens(self) -> list[str]:
        """Tokens that no earlier shard has.

        Raises:
            DataError: They cannot be read.
        """
        path = self._folder / "tokens.json"
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read ({error}); delete its folder") from None


def write_postings(
    folder: Path, corpus: Corpus, cut: Callable[[str], list[str]]
) -> tuple[list[Shard], Mapping[str, int]]:
    """Tokenise what is not tokenised yet.

    Args:
        folder: Where the shards are kept; the caller holds it (`building`).
        corpus: Passages, read once, in order.
        cut: Tokenizer.

    Returns:
        Shards in the order of the corpus, and the id of each token, from 0 without gaps.

    Raises:
        DataError: A shard is damaged.
    """
    shards = folder / NAME
    shards.mkdir(exist_ok=True)
    written = [Shard(shards / name) for name in sorted(p.name for p in shards.glob("[0-9]*"))]
    ids: defaultdict[str, int] = defaultdict()
    for shard in written:
        ids.update(zip(shard.tokens(), count(len(ids))))
    # The next id is the number of tokens so far: a dict that counts by itself.
    ids.default_factory = ids.__len__
    done = sum(len(shard.array("lengths")) for shard in written)
    counter = Counter("tokenised", len(corpus), done)
    found, lengths, known = array("i"), array("i"), len(ids)
    for text in corpus.texts(done):
        tokens = cut(text)
        found.extend(map(ids.__getitem__, tokens))
        lengths.append(len(tokens))
        counter.add(1)
        if len(found) >= TOKENS:
            written.append(_write(shards, len(written), islice(ids, known, None), found, lengths,
                                  done))  # fmt: skip
            done += len(lengths)
            found, lengths, known = array("i"), array("i"), len(ids)
    if lengths:
        written.append(_write(shards, len(written), islice(ids, known, None), found, lengths, done))
    ids.default_factory = None
    return written, ids


def _write(
    shards: Path, number: int, new: Iterable[str], found: Any, lengths: Any, first: int
) -> Shard:
    """Sort the tokens of some passages by token and passage, and write them as one shard."""
    part = shards / "part"  # a killed build leaves it
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    sizes = np.asarray(lengths, np.int32)
    rows = np.repeat(np.arange(first, first + len(sizes), dtype=np.int64), sizes)
    pairs = np.asarray(found, np.int32).astype(np.int64) << 32 | rows
    pairs, counts = np.unique(pairs, return_counts=True)
    terms, frequencies = np.unique(pairs >> 32, return_counts=True)
    (part / "tokens.json").write_text(json.dumps(list(new)), encoding="utf-8")
    np.save(part / "lengths.npy", sizes)
    np.save(part / "terms.npy", terms.astype(np.int32))
    np.save(part / "starts.npy", np.concatenate([[0], np.cumsum(frequencies)]).astype(np.int64))
    np.save(part / "passages.npy", (pairs & 0xFFFFFFFF).astype(np.int32))
    np.save(part / "counts.npy", counts.astype(np.min_scalar_type(int(counts.max(initial=0)))))
    whole = shards / f"{number:05}"
    part.rename(whole)
    return Shard(whole)
