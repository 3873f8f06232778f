"""Reciprocal rank fusion of any retrievers.

    retriever=hybrid retriever_options.of=bm25,dense retriever_options.dense.encoder=e5

A passage's score is the sum over the rankings that hold it of 1 / (constant + its rank), ranks
from 1. Only ranks count, so scores of different kinds need no scale. Source: Cormack, Clarke and
Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods",
SIGIR 2009; the constant is theirs, 60.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.errors import UsageError
from harness.retrieval.building import short_hash
from harness.schema import Passage, RetrievalError, Retriever


class Hybrid:
    """Fuses the rankings of several retrievers.

    Args:
        retrievers: At least two, over the same corpus.
        constant: Damps the first ranks, > 0.
        depth: Length of each ranking that is fused (k where that is more), >= 1.

    Raises:
        UsageError: A setting makes no sense.
    """

    def __init__(
        self, retrievers: Sequence[Retriever], *, constant: float = 60, depth: int = 100
    ) -> None:
        if len(retrievers) < 2 or not constant > 0 or depth < 1:
            raise UsageError("hybrid: two retrievers or more, constant above 0, depth at least 1")
        self._retrievers = tuple(retrievers)
        self._constant = constant
        self._depth = depth
        parts = [r.fingerprint for r in self._retrievers]
        self.fingerprint = f"hybrid:{short_hash(parts, float(constant), depth)}"

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage] | RetrievalError]:
        """At most k passages for each query; a query that one retriever failed on has failed."""
        if k < 1:
            return [[] for _ in queries]
        depth = max(k, self._depth)
        rankings = [r.retrieve(queries, depth) for r in self._retrievers]
        results: list[list[Passage] | RetrievalError] = []
        for found in zip(*rankings, strict=True):
            error = next((f for f in found if isinstance(f, RetrievalError)), None)
            lists = [f for f in found if not isinstance(f, RetrievalError)]
            results.append(error or fuse(lists, self._constant)[:k])
        return results


def fuse(rankings: Sequence[Sequence[Passage]], constant: float = 60) -> list[Passage]:
    """Passages of all rankings by their fused scores, ties in the order in which they came.

    Args:
        rankings: Best first, each passage once.
        constant: Added to every rank.
    """
    scores: dict[str, float] = {}
    passages: dict[str, Passage] = {}
    for ranking in rankings:
        for rank, passage in enumerate(ranking, start=1):
            scores[passage.doc_id] = scores.get(passage.doc_id, 0.0) + 1 / (constant + rank)
            passages.setdefault(passage.doc_id, passage)
    best = sorted(scores, key=lambda doc_id: -scores[doc_id])
    return [replace(passages[doc_id], score=scores[doc_id]) for doc_id in best]
