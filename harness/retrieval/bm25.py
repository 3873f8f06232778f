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
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from harness.errors import UsageError, nearest
from harness.retrieval.corpus import Corpus
from harness.retrieval.tokenize import resolve, tokenizer
from harness.schema import Passage, RetrievalError

METHODS = ("lucene", "robertson", "atire")


class _Lexical:
    """What both share: lazy index, ranking with stable ties, fingerprint."""

    library: str

    def __init__(self, corpus: Corpus, tokenizer_name: str, parameters: dict[str, Any]) -> None:
        self._corpus = corpus
        resolved = resolve(tokenizer_name, corpus)
        self._tokens = tokenizer(resolved)
        self.fingerprint = _fingerprint(
            self.library, corpus.fingerprint, resolved, parameters, _version(self.library)
        )
        self._index: Any = None
        self._lock = threading.Lock()

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage] | RetrievalError]:
        """At most k passages for each query, best first, with their BM25 scores."""
        import numpy as np

        with self._lock:
            if self._index is None:
                self._index = self._build([self._tokens(t) for t in self._corpus.texts()])
        results: list[list[Passage] | RetrievalError] = []
        for query in queries:
            tokens = self._tokens(query)
            scores = self._scores(tokens) if tokens and k > 0 else None
            if scores is None:
                results.append([])
                continue
            found = np.flatnonzero(scores)
            best = found[np.argsort(-scores[found], kind="stable")][:k]
            results.append([_scored(self._corpus.passages[i], float(scores[i])) for i in best])
        return results

    def _build(self, corpus_tokens: list[list[str]]) -> Any:
        raise NotImplementedError

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

    def _build(self, corpus_tokens: list[list[str]]) -> Any:
        import bm25s

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

    def _build(self, corpus_tokens: list[list[str]]) -> Any:
        from rank_bm25 import BM25Okapi

        return BM25Okapi(corpus_tokens, **self._parameters) if any(corpus_tokens) else None

    def _scores(self, tokens: list[str]) -> Any:
        return None if self._index is None else self._index.get_scores(tokens)


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
