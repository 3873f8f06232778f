"""A BM25 index on disk, for corpora whose postings do not fit in memory.

    retriever=bm25 retriever_options.index=FOLDER

    FOLDER/bm25.json                 corpus, tokenizer, k1, b, ...: what it was made of
           data.csc.index.npy        float64 (postings,): score of a token in a passage
           indices.csc.index.npy     int32 (postings,): the passage, ascending within a token
           indptr.csc.index.npy      int64 (tokens + 1,): where the postings of a token begin
           vocab.index.json, params.index.json

These are bm25s' own files: `bm25s.BM25.load(FOLDER, mmap=True)` opens them. They come from shards
of postings (harness/retrieval/postings.py) by a counting sort: the number of postings of every
token says where its scores go, and block after block of tokens is collected from all shards and
written in one sequential pass. Scores are computed with bm25s' own formulas in the order in which
it computes them, so they equal those of an index in memory to the last bit.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import DataError
from harness.progress import Progress
from harness.retrieval.building import (
    building,
    read_description,
    refuse_stale,
    write_description,
)
from harness.retrieval.corpus import Corpus
from harness.retrieval.postings import NAME as SHARDS
from harness.retrieval.postings import Shard, write_postings

NAME = "bm25.json"
BLOCK = 1 << 23
"""Postings that are merged at a time, and at least those of one token: 400 MB, about."""


def check_index(folder: Path, made_of: Mapping[str, Any]) -> None:
    """Refuse an index of another corpus, tokenizer or formula; nothing is built for that.

    Raises:
        DataError: It is stale; names both.
    """
    found = read_description(folder / NAME)
    if found:
        refuse_stale(folder, found, made_of)


def stored_index(
    folder: Path, corpus: Corpus, cut: Callable[[str], list[str]], made_of: Mapping[str, Any]
) -> Any:
    """The index of a corpus, its arrays mapped into memory; built first where it is not whole.

    Args:
        folder: Where it is kept.
        corpus: What to index.
        cut: Tokenizer.
        made_of: Everything that changes a score; with k1, b, method and idf.

    Returns:
        A `bm25s.BM25`, or None where no passage holds a token.

    Raises:
        DataError: The folder holds another index, or is damaged.
    """
    with building(folder):
        check_index(folder, made_of)
        said = folder / NAME
        description = read_description(said)
        if not description:
            description = {**made_of, "passages": len(corpus)}
            write_description(said, description)
        if "postings" not in description:
            shards, ids = write_postings(folder, corpus, cut)
            postings = _merge(folder, shards, len(ids), made_of)
            (folder / "vocab.index.json").write_text(json.dumps(ids), encoding="utf-8")
            description |= {"postings": postings, "tokens": len(ids)}
            write_description(said, description)
        shutil.rmtree(folder / SHARDS, ignore_errors=True)
    return _open(folder, description) if description["postings"] else None


def _open(folder: Path, description: Mapping[str, Any]) -> Any:
    import bm25s

    try:
        index: Any = bm25s.BM25.load(folder, mmap=True)
    except (OSError, ValueError, TypeError, EOFError) as error:
        raise DataError(f"index {folder}: cannot be read ({error}); delete it") from None
    shapes = [len(index.scores[name]) for name in ("data", "indices", "indptr")]
    wanted = [description["postings"]] * 2 + [description["tokens"] + 1]
    if shapes != wanted:
        raise DataError(f"index {folder}: holds {shapes} numbers, expected {wanted}; delete it")
    return index


def _merge(folder: Path, shards: Sequence[Shard], tokens: int, made_of: Mapping[str, Any]) -> int:
    """Write bm25s' arrays; returns the number of postings."""
    # What `bm25s.BM25.index` calls: with its own functions no score can differ from its scores.
    from bm25s import scoring

    select_idf, select_tfc = scoring._select_idf_scorer, scoring._select_tfc_scorer  # pyright: ignore[reportPrivateUsage]
    lengths = np.concatenate([np.zeros(0, np.int32), *(s.array("lengths") for s in shards)])
    frequencies = np.zeros(tokens, np.int64)
    for shard in shards:
        frequencies[shard.array("terms")] += np.diff(shard.array("starts"))
    indptr = np.concatenate([[0], np.cumsum(frequencies)]).astype(np.int64)
    postings = int(indptr[-1])
    different, which = np.unique(frequencies, return_inverse=True)
    idf_of = select_idf(made_of["idf"])
    idf = np.array([idf_of(df, N=len(lengths)) for df in different.tolist()])[which]
    average = lengths.mean() if len(lengths) else 0.0
    tf_part = select_tfc(made_of["method"])
    k1, b = made_of["k1"], made_of["b"]
    Progress().say(f"  merging {len(shards)} shards, {postings:,} postings of {tokens:,} tokens")
    with (
        _writing(folder / "data.csc.index.npy", "<f8", postings) as data,
        _writing(folder / "indices.csc.index.npy", "<i4", postings) as indices,
    ):
        for low, high in _blocks(indptr):
            passages, counts = _collect(shards, indptr, low, high)
            part = tf_part(
                tf_array=counts, l_d=lengths[passages], l_avg=average, k1=k1, b=b, delta=None
            )
            data(np.repeat(idf[low:high], frequencies[low:high]) * part)
            indices(passages)
    np.save(folder / "indptr.csc.index.npy", indptr)
    parameters = {"k1": k1, "b": b, "method": made_of["method"], "idf_method": made_of["idf"],
                  "dtype": "float64", "int_dtype": "int32", "num_docs": len(lengths)}  # fmt: skip
    write_description(folder / "params.index.json", parameters)
    return postings


def _blocks(indptr: Any) -> Generator[tuple[int, int]]:
    """Ranges of tokens with at most BLOCK postings, or one token with more."""
    low = 0
    while low < len(indptr) - 1:
        high = int(np.searchsorted(indptr, indptr[low] + BLOCK, "right")) - 1
        high = max(high, low + 1)
        yield low, high
        low = high


def _collect(shards: Sequence[Shard], indptr: Any, low: int, high: int) -> tuple[Any, Any]:
    """Passages (int32) and counts (float64) of tokens low to high - 1, by token and passage."""
    size = int(indptr[high] - indptr[low])
    passages, counts = np.empty(size, np.int32), np.empty(size, np.float64)
    heads = indptr[low:high] - indptr[low]  # where the next posting of each token goes
    for shard in shards:
        terms, starts = shard.array("terms"), shard.array("starts")
        first, last = np.searchsorted(terms, [low, high])
        if first == last:
            continue
        own = np.asarray(terms[first:last]) - low
        begin, end = int(starts[first]), int(starts[last])
        runs = np.diff(starts[first : last + 1])
        to = np.repeat(heads[own] - (starts[first:last] - begin), runs) + np.arange(end - begin)
        passages[to] = shard.array("passages")[begin:end]
        counts[to] = shard.array("counts")[begin:end]
        heads[own] += runs
    return passages, counts


@contextmanager
def _writing(path: Path, kind: str, size: int) -> Generator[Callable[[Any], None]]:
    """Write a one-dimensional .npy file part by part; a map would count as memory."""
    header = {"descr": kind, "fortran_order": False, "shape": (size,)}
    with path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        yield lambda part: part.astype(kind, copy=False).tofile(stream)
