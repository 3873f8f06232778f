"""Retrievers by name, and rankings that are made once in a process.

Adding a retriever: one builder `(corpus, gold, options) -> Retriever` and a line in `_BUILDERS`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import RetrieverError, UsageError, nearest
from harness.retrieval.corpus import Corpus
from harness.schema import Passage, RetrievalError, Retriever

Gold = Mapping[str, str | Sequence[str]]
"""Question -> id of its gold passage, or ids."""

Builder = Callable[[Corpus, Gold | None, dict[str, Any]], Retriever]

MIN_RANKING = 5
"""A ranking is never made shorter, so that top-1, top-3 and top-5 come from one."""


def _bm25(corpus: Corpus, gold: Gold | None, options: dict[str, Any]) -> Retriever:
    from harness.retrieval.bm25 import BM25

    return BM25(corpus, **_known("bm25", BM25, options))


def _rank_bm25(corpus: Corpus, gold: Gold | None, options: dict[str, Any]) -> Retriever:
    from harness.retrieval.bm25 import RankBM25

    return RankBM25(corpus, **_known("rank_bm25", RankBM25, options))


def _oracle(corpus: Corpus, gold: Gold | None, options: dict[str, Any]) -> Retriever:
    from harness.retrieval.simple import Oracle

    if gold is None:
        raise UsageError("retriever 'oracle' needs the gold passages, which this task lacks")
    base = str(options.pop("base", "bm25"))
    if base == "oracle":
        raise UsageError("retriever 'oracle': option 'base' cannot be 'oracle' itself")
    return Oracle(corpus, open_retriever(base, corpus, gold, **options), gold)


def _published(corpus: Corpus, gold: Gold | None, options: dict[str, Any]) -> Retriever:
    from harness.retrieval.published import Published

    _known("published", Published, options)
    if "rankings" not in options:
        raise UsageError("retriever 'published' needs a ranking, which this task's data lacks")
    return Published(corpus, options["rankings"])


def _none(corpus: Corpus, gold: Gold | None, options: dict[str, Any]) -> Retriever:
    from harness.retrieval.simple import NoRetrieval

    _known("none", NoRetrieval, options)
    return NoRetrieval()


def _dense(corpus: Corpus, gold: Gold | None, options: dict[str, Any]) -> Retriever:
    from harness.retrieval.dense import Dense
    from harness.retrieval.encoders import ENCODERS, open_encoder

    if "encoder" not in options:
        raise UsageError(
            f"retriever 'dense' needs retriever_options.encoder=NAME, one of {', '.join(ENCODERS)}"
        )
    own = {k.removeprefix("encoder_"): v for k, v in options.items() if k.startswith("encoder_")}
    settings = {k: v for k, v in options.items() if not k.startswith("encoder")}
    _known("dense", Dense, settings)
    return Dense(corpus, open_encoder(str(options["encoder"]), **own), **settings)


def _hybrid(corpus: Corpus, gold: Gold | None, options: dict[str, Any]) -> Retriever:
    from harness.retrieval.hybrid import Hybrid

    names = [n.strip() for n in str(options.pop("of", "bm25,dense")).split(",") if n.strip()]
    if "hybrid" in names or len(set(names)) < len(names):
        raise UsageError("retriever 'hybrid': option 'of' names other retrievers, each once")
    parts: dict[str, dict[str, Any]] = {name: {} for name in names}
    settings: dict[str, Any] = {}
    for option, value in options.items():  # dense.encoder=e5 is option encoder of dense
        name, dot, key = option.partition(".")
        (parts[name] if dot and name in parts else settings)[key if dot else option] = value
    _known("hybrid", Hybrid, settings)
    return Hybrid([open_retriever(n, corpus, gold, **o) for n, o in parts.items()], **settings)


def _google(corpus: Corpus, gold: Gold | None, options: dict[str, Any]) -> Retriever:
    from harness.retrieval.web import Google, WebRetriever

    settings = {k: v for k, v in options.items() if k != "url"}
    api = Google(str(options["url"])) if "url" in options else Google()
    return WebRetriever(api, **_known("google", WebRetriever, settings))


def _searxng(corpus: Corpus, gold: Gold | None, options: dict[str, Any]) -> Retriever:
    from harness.retrieval.web import SearXNG, WebRetriever

    settings = {k: v for k, v in options.items() if k != "url"}
    api = SearXNG(str(options.get("url", "")))
    return WebRetriever(api, **_known("searxng", WebRetriever, settings))


def _remote(corpus: Corpus, gold: Gold | None, options: dict[str, Any]) -> Retriever:
    from harness.retrieval.remote import Remote

    return Remote(**_known("remote", Remote, options))


def _replay(corpus: Corpus, gold: Gold | None, options: dict[str, Any]) -> Retriever:
    from harness.retrieval.journal import Replay

    if "path" not in options:
        raise UsageError("retriever 'replay' needs a run: retriever_options.run=RUN")
    return Replay(**_known("replay", Replay, {**options, "path": Path(str(options["path"]))}))


RETRIEVERS = {
    "bm25": "BM25 (bm25s, Lucene's formula); options k1, b, method, idf, tokenizer, index",
    "rank_bm25": "BM25Okapi of rank_bm25, the reference; options k1, b, epsilon, tokenizer",
    "dense": "FAISS; options encoder, encoder_KEY, index, kind (flat, hnsw, ivf), m, lists, ...",
    "hybrid": "reciprocal rank fusion; options of=bm25,dense, dense.encoder=NAME, constant, depth",
    "oracle": "the gold passages first, then another retriever's ranking; option base",
    "published": "the ranking that was published with the data, where a task's data has one",
    "none": "no passages: what the model knows by itself",
    "google": "Google's Custom Search JSON API (GOOGLE_API_KEY, GOOGLE_CSE_ID); option pages, ...",
    "searxng": "a SearXNG instance (option url, or SEARXNG_URL); option pages, ...",
    "remote": "a retrieval server (ours or Search-R1's); options url, key_env, ...",
    "replay": "the recorded searches of a run, without a network; option run",
}
"""Name -> one line for the listing."""

RECORDED = frozenset({"google", "searxng", "remote"})
"""Retrievers whose answers may differ tomorrow: a run keeps what they said."""

WITHOUT_CORPUS = RECORDED | {"none", "replay"}
"""Retrievers that search something else than the task's corpus."""

_BUILDERS: dict[str, Builder] = {
    "bm25": _bm25,
    "rank_bm25": _rank_bm25,
    "dense": _dense,
    "hybrid": _hybrid,
    "oracle": _oracle,
    "published": _published,
    "none": _none,
    "google": _google,
    "searxng": _searxng,
    "remote": _remote,
    "replay": _replay,
}


def open_retriever(
    name: str, corpus: Corpus, gold: Gold | None = None, **options: Any
) -> Retriever:
    """Open a retriever; its index is built at the first query.

    Args:
        name: One of `RETRIEVERS`.
        corpus: What to search.
        gold: Gold passages of each question; only the oracle reads them.
        options: The retriever's own settings.

    Raises:
        UsageError: Unknown name or option; the message gives the nearest ones.
    """
    if name not in _BUILDERS:
        raise UsageError(f"unknown retriever '{name}': {nearest(name, _BUILDERS)}")
    return _BUILDERS[name](corpus, gold, dict(options))


class Ranking(list[list[Passage]]):
    """Passages of every query, best first, with the `fingerprint` of the retriever."""

    def __init__(self, passages: Sequence[list[Passage]], fingerprint: str) -> None:
        super().__init__(passages)
        self.fingerprint = fingerprint

    @property
    def passages(self) -> list[list[Passage]]:
        """The ranking itself."""
        return self


_RANKINGS: dict[tuple[str, tuple[str, ...]], tuple[int, list[list[Passage]]]] = {}
_LOCK = threading.Lock()


def ranking(
    name: str,
    corpus: Corpus,
    queries: Sequence[str],
    k: int,
    gold: Gold | None = None,
    **options: Any,
) -> Ranking:
    """The top k passages of every query, from one ranking a (retriever, queries) in the process.

    Args:
        name: One of `RETRIEVERS`.
        corpus: What to search.
        queries: All at once.
        k: Passages a query, >= 0; the first k of a longer ranking.
        gold: Gold passages of each question, for the oracle.
        options: The retriever's own settings.

    Raises:
        UsageError: Unknown name or option.
        RetrieverError: A query could not be answered.
    """
    retriever = open_retriever(name, corpus, gold, **options)
    key = retriever.fingerprint, tuple(queries)
    with _LOCK:
        depth, rows = _RANKINGS.get(key, (-1, []))
        if depth < k:
            depth = max(k, MIN_RANKING)
            rows = [_ranked(name, r) for r in retriever.retrieve(list(queries), depth)]
            _RANKINGS[key] = depth, rows
    return Ranking([row[: max(k, 0)] for row in rows], retriever.fingerprint)


def _ranked(name: str, result: list[Passage] | RetrievalError) -> list[Passage]:
    if isinstance(result, RetrievalError):
        raise RetrieverError(f"retriever '{name}': {result.message}: {result.query[:80]!r}")
    return result


def _known(name: str, target: Callable[..., object], options: dict[str, Any]) -> dict[str, Any]:
    """The options, after a check against the parameters of what they configure."""
    given = ("corpus", "api", "args", "encoder", "retrievers")
    known = [p for p in inspect.signature(target).parameters if p not in given]
    for option in options:
        if option not in known:
            raise UsageError(
                f"retriever '{name}': unknown option '{option}': {nearest(option, known)}"
            )
    return options
