"""BM25 over a corpus, by bm25s (what large corpora use) and by rank_bm25 (the reference).

Both score a passage d for a query q as the sum over the query's tokens t (with repeats) of
idf(t) * tf-part, where N is the number of passages and df the number that hold t:

                            tf-part                                idf
    BM25, method "lucene"   tf / (tf + k1 (1 - b + b |d|/avg))     ln(1 + (N-df+.5)/(df+.5))
    BM25, method "robertson"  the same                             max(0, ln((N-df+.5)/(df+.5)))
    BM25, method "atire"    (k1+1) tf / (tf + k1 (1-b+b |d|/avg))  ln(N / df)
    RankBM25 (BM25Okapi)    as atire                               ln((N-df+.5)/(df+.5)); where
                                                                   negative: epsilon * mean idf

Lucene's idf is always positive, so a token that most passages hold still counts a little;
RankBM25 replaces a negative idf by a quarter of the mean. With tf-part "atire" and idf
"robertson", bm25s equals rank_bm25 on every query whose tokens occur in at most half of the
passages. The factor k1 + 1 never changes a ranking. See Kamphuis et al., "Which BM25 do you
mean?", ECIR 2020.

Passages with a score of zero (nothing in common with the query) are not returned; ties keep
the corpus's order.

BM25 keeps its index in memory, and the passages' tokens while it is built: the fastest for corpora
of some 10,000 passages. Where `index=FOLDER` is given, or from `STORED` passages on, it is built
out of core and mapped from disk (harness/retrieval/bm25_index.py). Scores are the same.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness import paths
from harness.errors import UsageError, nearest
from harness.retrieval import tokenize
from harness.retrieval.corpus import Corpus
from harness.schema import Passage, RetrievalError

METHODS = ("lucene", "robertson", "atire")
STORED = 100_000
"""Passages from which on an index is kept on disk, in the cache unless a folder is named."""


class _Lexical:
    """What both share: lazy index, ranking with stable ties, fingerprint."""

    library: str

    def __init__(self, corpus: Corpus, tokenizer_name: str, parameters: dict[str, Any]) -> None:
        self._corpus = corpus
        self._tokenizer = tokenize.resolve(tokenizer_name, corpus)
        self._tokens = tokenize.tokenizer(self._tokenizer)
        self.fingerprint = _fingerprint(
            self.library, corpus.fingerprint, self._tokenizer, parameters, _version(self.library)
        )
        self._index: Any = None
        self._lock = threading.Lock()

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage] | RetrievalError]:
        """At most k passages for each query, best first, with their BM25 scores."""
        with self._lock:
            if self._index is None:
                self._index = self._build()
        results: list[list[Passage] | RetrievalError] = []
        for query in queries:
            tokens = self._tokens(query)
            scores = self._scores(tokens) if tokens and k > 0 else None
            if scores is None:
                results.append([])
                continue
            passages = self._corpus.passages
            results.append([_scored(passages[i], float(scores[i])) for i in _best(scores, k)])
        return results

    def _build(self) -> Any:
        raise NotImplementedError

    def _corpus_tokens(self) -> list[list[str]]:
        return [self._tokens(text) for text in self._corpus.texts()]

    def _scores(self, tokens: list[str]) -> Any:
        """Scores of all passages as a numpy array; None if the index holds no token at all."""
        raise NotImplementedError


class BM25(_Lexical):
    """BM25 by bm25s.

    Args:
        corpus: What to search.
        k1: Saturation of the term frequency, >= 0.
        b: Length normalisation, in [0, 1].
        method: One of `METHODS`; see the module's docstring.
        idf: idf of another method; "" takes the method's own.
        tokenizer: "words", "cjk_bigram" or "auto" (see `harness.retrieval.tokenize`).
        index: Folder of an index on disk; "" takes one in the cache from `STORED` passages on,
            and memory below.

    Raises:
        UsageError: A setting makes no sense.
        DataError: The folder's index is of another corpus, tokenizer or formula; names both.
    """

    library = "bm25s"

    def __init__(
        self,
        corpus: Corpus,
        k1: float = 1.5,
        b: float = 0.75,
        method: str = "lucene",
        idf: str = "",
        tokenizer: str = "auto",
        index: str = "",
    ) -> None:
        for name in (method, idf or method):
            if name not in METHODS:
                raise UsageError(f"bm25: unknown method '{name}': {nearest(name, METHODS)}")
        _check(k1, b)
        self._parameters: dict[str, Any] = {
            "k1": float(k1),
            "b": float(b),
            "method": method,
            "idf": idf or method,
        }
        super().__init__(corpus, tokenizer, self._parameters)
        self._made_of = {
            "corpus": corpus.fingerprint,
            "tokenizer": f"{self._tokenizer}, version {tokenize.VERSION}",
            **self._parameters,
            "bm25s": _version(self.library),
        }
        self._folder: Path | None = None
        if index:
            self._folder = Path(str(index)).expanduser()
        elif len(corpus) >= STORED:
            self._folder = paths.cache() / "bm25" / self.fingerprint.partition(":")[2]
        if self._folder:
            from harness.retrieval.bm25_index import check_index

            check_index(self._folder, self._made_of)

    def _build(self) -> Any:
        import bm25s

        if self._folder:
            from harness.retrieval.bm25_index import stored_index

            return stored_index(self._folder, self._corpus, self._tokens, self._made_of)
        corpus_tokens = self._corpus_tokens()
        if not any(corpus_tokens):
            return None
        parameters = self._parameters
        index = bm25s.BM25(
            k1=parameters["k1"],
            b=parameters["b"],
            method=parameters["method"],
            idf_method=parameters["idf"],
            dtype="float64",
        )
        index.index(corpus_tokens, create_empty_token=False, show_progress=False)
        return index

    def _scores(self, tokens: list[str]) -> Any:
        if self._index is None:
            return None
        ids = self._index.get_tokens_ids(tokens)
        return self._index.get_scores_from_ids(ids) if ids else None


class RankBM25(_Lexical):
    """BM25Okapi of rank_bm25, the reference: exact, in memory, for small corpora.

    Args:
        corpus: What to search.
        k1: Saturation of the term frequency, >= 0.
        b: Length normalisation, in [0, 1].
        epsilon: A negative idf becomes epsilon times the mean idf, >= 0.
        tokenizer: "words", "cjk_bigram" or "auto" (see `harness.retrieval.tokenize`).
    """

    library = "rank-bm25"

    def __init__(
        self,
        corpus: Corpus,
        k1: float = 1.5,
        b: float = 0.75,
        epsilon: float = 0.25,
        tokenizer: str = "auto",
    ) -> None:
        _check(k1, b)
        self._parameters = {"k1": float(k1), "b": float(b), "epsilon": float(epsilon)}
        super().__init__(corpus, tokenizer, self._parameters)

    def _build(self) -> Any:
        from rank_bm25 import BM25Okapi

        corpus_tokens = self._corpus_tokens()
        return BM25Okapi(corpus_tokens, **self._parameters) if any(corpus_tokens) else None

    def _scores(self, tokens: list[str]) -> Any:
        return None if self._index is None else self._index.get_scores(tokens)


def _best(scores: Any, k: int) -> Any:
    """Rows of the k best scores other than 0, best first, ties in the order of the rows."""
    import numpy as np

    found = np.flatnonzero(scores != 0)
    if len(found) > k:  # a frequent word is in most of a large corpus: sort only what can be shown
        values = scores[found]
        found = found[values >= np.partition(values, len(values) - k)[len(values) - k]]
    return found[np.argsort(-scores[found], kind="stable")][:k]


def _check(k1: float, b: float) -> None:
    if not k1 >= 0:
        raise UsageError(f"bm25: k1 must be at least 0, got {k1}")
    if not 0 <= b <= 1:
        raise UsageError(f"bm25: b must lie in [0, 1], got {b}")


def _scored(passage: Passage, score: float) -> Passage:
    return Passage(passage.doc_id, passage.text, score, passage.title, passage.page)


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "absent"


def _fingerprint(*parts: object) -> str:
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return f"{parts[0]}:{digest[:32]}"
