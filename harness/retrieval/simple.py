"""Retrievers without a model of relevance: the two ends between which every other one lies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from harness.errors import DataError
from harness.retrieval.corpus import Corpus
from harness.schema import Passage, RetrievalError, Retriever


class NoRetrieval:
    """Returns nothing: what a model knows by itself."""

    fingerprint = "none"

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage] | RetrievalError]:
        """An empty list for each query."""
        return [[] for _ in queries]


class Oracle:
    """Puts the gold passages first and fills up with another retriever's ranking.

    Args:
        corpus: Where the gold passages are.
        base: Fills the other places; its ranking, without the gold passages.
        gold: Question -> id of its gold passage, or ids, in the order in which they are shown.

    Raises:
        DataError: A gold id is not in the corpus.
    """

    def __init__(
        self, corpus: Corpus, base: Retriever, gold: Mapping[str, str | Sequence[str]]
    ) -> None:
        by_id = {p.doc_id: p for p in corpus.passages}
        ids = {q: [i] if isinstance(i, str) else list(i) for q, i in gold.items()}
        wanted = [doc_id for each in ids.values() for doc_id in each]
        unknown = [doc_id for doc_id in wanted if doc_id not in by_id]
        if unknown:
            raise DataError(
                f"oracle: gold passage '{unknown[0]}' is not in the corpus "
                f"({len(unknown)} of {len(wanted)} are missing)"
            )
        self._gold = {question: [by_id[i] for i in each] for question, each in ids.items()}
        self._base = base
        parts = [base.fingerprint, corpus.fingerprint, sorted(gold.items())]
        self.fingerprint = f"oracle:{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}"

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage] | RetrievalError]:
        """The gold passages (scored by the base where it found them), then the base's others."""
        results: list[list[Passage] | RetrievalError] = []
        for query, others in zip(queries, self._base.retrieve(queries, k), strict=True):
            gold = self._gold.get(query)
            if gold is None:
                results.append(RetrievalError(query, "oracle: no gold passage for this question"))
            elif isinstance(others, RetrievalError):
                results.append(others)
            else:
                found = {p.doc_id: p for p in others}
                first = [found.get(p.doc_id, p) for p in gold]
                rest = [p for p in others if p not in first]
                results.append([*first, *rest][: max(k, 0)])
        return results
