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
    """Puts the gold passage first and fills up with another retriever's ranking.

    Args:
        corpus: Where the gold passages are.
        base: Fills the other places; its ranking, without the gold passage.
        gold: Question -> id of its gold passage.

    Raises:
        DataError: A gold id is not in the corpus.
    """

    def __init__(self, corpus: Corpus, base: Retriever, gold: Mapping[str, str]) -> None:
        by_id = {p.doc_id: p for p in corpus.passages}
        unknown = [doc_id for doc_id in gold.values() if doc_id not in by_id]
        if unknown:
            raise DataError(
                f"oracle: gold passage '{unknown[0]}' is not in the corpus "
                f"({len(unknown)} of {len(gold)} are missing)"
            )
        self._gold = {question: by_id[doc_id] for question, doc_id in gold.items()}
        self._base = base
        parts = [base.fingerprint, corpus.fingerprint, sorted(gold.items())]
        self.fingerprint = f"oracle:{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}"

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage] | RetrievalError]:
        """The gold passage (scored by the base where it found it), then the base's others."""
        results: list[list[Passage] | RetrievalError] = []
        for query, others in zip(queries, self._base.retrieve(queries, k), strict=True):
            first = self._gold.get(query)
            if first is None:
                results.append(RetrievalError(query, "oracle: no gold passage for this question"))
            elif isinstance(others, RetrievalError):
                results.append(others)
            else:
                found = {p.doc_id: p for p in others}
                rest = [p for p in others if p.doc_id != first.doc_id]
                results.append([found.get(first.doc_id, first), *rest][: max(k, 0)])
        return results
