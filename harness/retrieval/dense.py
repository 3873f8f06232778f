"""Dense retrieval: FAISS over the vectors of an encoder, by inner product.

    retriever=dense retriever_options.encoder=e5
    retriever=dense retriever_options.encoder=openai:MODEL@URL retriever_options.index=FOLDER
    retriever=dense retriever_options.encoder=openai:MODEL@URL retriever_options.index=FILE.index

A folder is made where there is none (by default in the cache, under a name of its own): vectors
batch by batch, then, unless `kind=flat`, a graph or lists over them. Vectors have unit length, so
the inner product is the cosine. `flat` is exact and reads the vectors from disk; `hnsw` (Malkov and
Yashunin, arXiv 1603.09320) and `ivf` (Sivic and Zisserman, 2003; Johnson et al., arXiv 1702.08734)
are approximate, and their recall against flat is measured when they are built, and kept beside
them. A FILE is a FAISS index that somebody published, its rows in the order of the corpus.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from harness import paths
from harness.errors import DataError, EngineError, UsageError, missing_dependency, nearest
from harness.progress import Progress
from harness.retrieval.building import building, read_description, short_hash, write_description
from harness.retrieval.corpus import Corpus
from harness.retrieval.vectors import check_vectors, stored_vectors
from harness.schema import Encoder, Passage, RetrievalError

KINDS = ("flat", "hnsw", "ivf")
BLOCK = 1 << 16
"""Vectors that flat search reads at a time."""
SAMPLE = 256
"""Passages that ask for their neighbours when recall is measured."""
DEPTHS = (1, 5, 10)

Search = Callable[[Any, int], tuple[Any, Any]]
"""(queries, k) -> scores and rows, both (queries, k); row -1 where there is none."""


class Dense:
    """Nearest passages by inner product.

    Args:
        corpus: What to search.
        encoder: Encodes queries, and passages where they are not stored.
        index: Folder of the index, or a FAISS file; "" takes a folder in the cache.
        kind: One of `KINDS`; a FAISS file has its own.
        batch: Passages that are encoded at a time.
        m: Links of a node (hnsw), >= 2.
        ef_construction, ef_search: Candidates kept while building and searching (hnsw).
        lists: Cells (ivf); 0 takes about 4 sqrt(passages).
        probes: Cells that are searched (ivf).

    Raises:
        UsageError: A setting makes no sense.
        DataError: The index is of another corpus, encoder or dimension; names both.
    """

    def __init__(
        self,
        corpus: Corpus,
        encoder: Encoder,
        *,
        index: str = "",
        kind: str = "flat",
        batch: int = 256,
        m: int = 32,
        ef_construction: int = 200,
        ef_search: int = 64,
        lists: int = 0,
        probes: int = 16,
    ) -> None:
        if kind not in KINDS:
            raise UsageError(f"dense: unknown kind '{kind}': {nearest(kind, KINDS)}")
        numbers = (batch, ef_construction, ef_search, probes, m, lists)
        if not all(type(n) is int for n in numbers):
            raise UsageError("dense: batch, m, ef_..., lists and probes are whole numbers")
        if min(batch, ef_construction, ef_search, probes) < 1 or m < 2 or lists < 0:
            raise UsageError("dense: batch, ef and probes must be at least 1, m at least 2")
        self._corpus = corpus
        self._encoder = encoder
        self._batch = batch
        self._search: Search | None = None
        self._lock = threading.Lock()
        self._kind = kind
        built: dict[str, dict[str, int]] = {
            "flat": {},
            "hnsw": {"m": m, "ef_construction": ef_construction},
            "ivf": {"lists": lists or max(1, round(4 * len(corpus) ** 0.5))},
        }
        self._built = built[kind]
        self._searched = {"flat": {}, "hnsw": {"ef": ef_search}, "ivf": {"probes": probes}}[kind]
        self.recall: Mapping[str, float] = {}
        """Recall against flat, as "recall@5", in [0, 1]; {} for flat and before it is opened."""
        made_of = [corpus.fingerprint, encoder.fingerprint]
        stored = short_hash(corpus.fingerprint, encoder.passage_fingerprint)
        own = paths.cache() / "dense" / stored
        self._path = path = Path(str(index)).expanduser() if index else own
        if path.is_file():
            self._open_file(path)
            self.fingerprint = f"dense:{short_hash(*made_of, _sha256(path))}"
            return
        if path.suffix in (".index", ".faiss"):
            raise DataError(f"{path}: there is no such index; a folder would be made")
        check_vectors(path, corpus, encoder)
        version = [] if kind == "flat" else [str(_faiss().__version__)]
        self.fingerprint = (
            f"dense:{short_hash(*made_of, kind, self._built, self._searched, *version)}"
        )

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage] | RetrievalError]:
        """At most k passages for each query, best first, with their cosines."""
        if not queries or k < 1:
            return [[] for _ in queries]
        try:
            self.open()
            vectors = self._encoder.encode(queries, "query")
        except EngineError as error:  # a server: the others may be asked again later
            return [RetrievalError(query, str(error)) for query in queries]
        scores, rows = self.search(vectors, k)
        passages = self._corpus.passages
        return [
            [replace(passages[int(r)], score=float(s)) for s, r in zip(ss, rr, strict=True)
             if r >= 0]
            for ss, rr in zip(scores, rows, strict=True)
        ]  # fmt: skip

    def search(self, vectors: Any, k: int) -> tuple[Any, Any]:
        """Nearest rows of vectors.

        Args:
            vectors: float32 (queries, dimension), of unit length.
            k: Rows a query, >= 1.

        Returns:
            Scores and rows of the corpus, both (queries, min(k, passages)), best first, ties in
            the order of the corpus; row -1 where an approximate index found no more.
        """
        scores, rows = self.open()(np.ascontiguousarray(vectors, np.float32), self._within(k))
        order = np.lexsort((rows, -scores))
        return np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)

    def open(self) -> Search:
        """Build what is missing, open the rest; `retrieve` does it at the first query."""
        with self._lock:
            if self._search is None:
                vectors = stored_vectors(self._path, self._corpus, self._encoder, self._batch)
                self._search = self._over(vectors)
            return self._search

    def _within(self, k: int) -> int:
        return max(1, min(k, len(self._corpus)))

    # --- one's own index ------------------------------------------------------------------------

    def _over(self, vectors: Any) -> Search:
        exact = flat(vectors)
        if self._kind == "flat" or not len(vectors):
            return exact
        faiss = _faiss()
        name = f"{self._kind}-{short_hash(self._built)[:12]}"
        path, said = self._path / f"{name}.faiss", self._path / f"{name}.json"
        with building(self._path):
            if not path.exists():
                Progress().say(f"  building {self._kind} over {len(vectors):,} vectors")
                scratch = path.with_suffix(".part")
                faiss.write_index(approximate(vectors, self._kind, **self._built), str(scratch))
                scratch.replace(path)
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
            if self._kind == "hnsw":
                index.hnsw.efSearch = self._searched["ef"]
            else:
                index.nprobe = self._searched["probes"]
            measured = read_description(said)
            key = short_hash(self._searched)[:12]
            if key not in measured:
                recall = recall_against_flat(index.search, exact, vectors)
                measured[key] = {**self._searched, **recall}
                write_description(said, measured)
        self.recall = {k: v for k, v in measured[key].items() if k.startswith("recall")}
        shown = ", ".join(f"{k} {v:.3f}" for k, v in self.recall.items())
        Progress().say(f"  {self._kind} against flat: {shown}")
        return index.search

    # --- somebody else's ------------------------------------------------------------------------

    def _open_file(self, path: Path) -> None:
        faiss = _faiss()
        try:
            index = faiss.read_index(str(path))
        except RuntimeError as error:
            said = " ".join(str(error).split())[-120:]
            raise DataError(f"{path}: no index that FAISS can read ({said})") from None
        if index.ntotal != len(self._corpus):
            raise DataError(
                f"index {path} has {index.ntotal} vectors, but the corpus {len(self._corpus)} "
                f"passages: their rows must be the same"
            )
        if index.d != self._encoder.dimension:
            raise DataError(
                f"index {path} has vectors of {index.d} numbers, but encoder "
                f"{self._encoder.fingerprint} gives {self._encoder.dimension}: take the encoder "
                f"that it was built with"
            )
        far = index.metric_type == faiss.METRIC_L2

        def search(vectors: Any, k: int) -> tuple[Any, Any]:
            scores, rows = index.search(vectors, k)
            return (1 - scores / 2 if far else scores), rows  # |a - b|^2 = 2 - 2ab for unit length

        self._search = search


def flat(vectors: Any) -> Search:
    """Exact search that reads `vectors` block by block."""
    faiss = _faiss()

    def search(queries: Any, k: int) -> tuple[Any, Any]:
        scores = np.empty((len(queries), 0), np.float32)
        rows = np.empty((len(queries), 0), np.int64)
        for start in range(0, len(vectors), BLOCK):
            block = np.ascontiguousarray(vectors[start : start + BLOCK])
            wanted = min(k, len(block))
            s, r = faiss.knn(queries, block, wanted, metric=faiss.METRIC_INNER_PRODUCT)
            scores, rows = np.hstack([scores, s]), np.hstack([rows, r + start])
            best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            scores = np.take_along_axis(scores, best, 1)
            rows = np.take_along_axis(rows, best, 1)
        return scores, rows

    return search


def approximate(vectors: Any, kind: str, **parameters: int) -> Any:
    """A FAISS graph or lists over vectors, added block by block.

    Args:
        vectors: float32 (rows, dimension), of unit length.
        kind: hnsw (m, ef_construction) or ivf (lists).
        parameters: Of the kind.
    """
    faiss = _faiss()
    n, dimension = vectors.shape
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dimension, parameters["m"], faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = parameters["ef_construction"]
    else:
        lists = min(parameters["lists"], n)
        quantizer = faiss.IndexFlatIP(dimension)
        index = faiss.IndexIVFFlat(quantizer, dimension, lists, faiss.METRIC_INNER_PRODUCT)
        sample = np.unique(np.linspace(0, n - 1, min(n, 64 * lists)).astype(np.int64))
        index.train(np.ascontiguousarray(vectors[sample]))
    for start in range(0, n, BLOCK):
        index.add(np.ascontiguousarray(vectors[start : start + BLOCK]))
    return index


def recall_against_flat(search: Search, exact: Search, vectors: Any) -> dict[str, float]:
    """Share of the true nearest neighbours that a search finds, averaged over sample passages.

    Each passage of an evenly spaced sample asks for its neighbours; itself does not count.

    Returns:
        recall@1, recall@5, recall@10 in [0, 1].
    """
    n = len(vectors)
    sample = np.unique(np.linspace(0, n - 1, min(n, SAMPLE)).astype(np.int64))
    queries = np.ascontiguousarray(vectors[sample])
    k = min(max(DEPTHS) + 1, n)
    _, true = exact(queries, k)
    _, found = search(queries, k)
    shares: dict[str, float] = {}
    for depth in DEPTHS:
        pairs = [
            ([r for r in t if r != own][:depth], [r for r in f if r != own][:depth])
            for own, t, f in zip(sample, true, found, strict=True)
        ]
        kept = [len(set(t) & set(f)) / len(t) for t, f in pairs if t]
        shares[f"recall@{depth}"] = float(np.mean(kept)) if kept else 1.0
    return shares


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise missing_dependency("faiss", "", error) from None
    return faiss


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
