"""The ranking that was published with a data set, replayed.

It needs no encoder and no index, so a system can be evaluated on exactly what its authors
retrieved; every other retriever is measured against it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from harness.errors import DataError
from harness.retrieval.corpus import Corpus
from harness.schema import Passage, RetrievalError


class Published:
    """Looks questions up; nothing is searched.

    A passage's score is 1 / its rank, as published rankings carry none.

    Args:
        corpus: Where the ranked passages are.
        rankings: Question -> ids of its passages, best first.

    Raises:
        DataError: A ranking names a passage that the corpus lacks, or one twice.
    """

    def __init__(self, corpus: Corpus, rankings: Mapping[str, Sequence[str]]) -> None:
        by_id = {p.doc_id: p for p in corpus.passages}
        self._ranked: dict[str, list[Passage]] = {}
        for question, ids in rankings.items():
            unknown = [doc_id for doc_id in ids if doc_id not in by_id]
            if unknown:
                raise DataError(
                    f"published ranking: passage '{unknown[0]}' of {question[:80]!r} is not in "
                    f"the corpus"
                )
            if len(set(ids)) < len(ids):
                raise DataError(f"published ranking: {question[:80]!r} has a passage twice")
            self._ranked[question] = [
                Passage(p.doc_id, p.text, 1.0 / rank, p.title, p.page)
                for rank, p in enumerate((by_id[doc_id] for doc_id in ids), start=1)
            ]
        parts = [corpus.fingerprint, sorted((q, list(ids)) for q, ids in rankings.items())]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        self.fingerprint = f"published:{digest[:32]}"

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage] | RetrievalError]:
        """At most k passages for each query, as many as were published."""
        results: list[list[Passage] | RetrievalError] = []
        for query in queries:
            ranked = self._ranked.get(query)
            if ranked is None:
                results.append(RetrievalError(query, "no published ranking for this question"))
            else:
                results.append(ranked[: max(k, 0)])
        return results
