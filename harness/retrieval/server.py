"""A retrieval server: `serve`, for rollouts and trainers on other processes and machines.

    POST /retrieve      {"queries": ["..."], "topk": 3, "return_scores": true}
                        -> {"result": [[{"document": {"id", "contents", ...}, "score": 1.5}]]}
    POST /search        {"query": "...", "top_n": 5, "return_score": false} -> [{"id", "contents"}]
    POST /batch_search  {"query": ["..."], ...}  -> a list of those; [lists, scores] with scores
    GET  /health        {"status": "ok", "retriever": FINGERPRINT}
    GET  /metrics       counters in Prometheus' text form

`/retrieve` is what Search-R1's retrieval server answers and what the search tools of Search-R1 and
veRL ask; the other two are those of servers around FlashRAG's retrievers. `contents` is the title
in quotes, a line break, the text, as in FlashRAG's corpora. Requests that arrive while one is
searched are searched together. A query that could not be answered is a 503 for its request.
"""

from __future__ import annotations

import hmac
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from harness.batcher import Batcher
from harness.errors import UsageError, missing_dependency
from harness.schema import Passage, RetrievalError, Retriever

if TYPE_CHECKING:
    from fastapi import FastAPI

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MOST = 1000
"""Passages a query, and queries a request, that are served at most."""


def check_bind(host: str, key: str) -> None:
    """Refuse to be seen by others without a key.

    Raises:
        UsageError: The host is not loopback and there is no key.
    """
    if host not in LOOPBACK and not key:
        raise UsageError(
            f"host={host} can be reached from other machines: put a key into an environment "
            f"variable and name it with key_env=NAME, or keep host=127.0.0.1"
        )


def document(passage: Passage) -> dict[str, Any]:
    """A passage as clients of Search-R1 and FlashRAG read it, with its parts beside."""
    contents = f'"{passage.title}"\n{passage.text}' if passage.title else passage.text
    parts = {"id": passage.doc_id, "contents": contents, "title": passage.title}
    page = {} if passage.page is None else {"page": passage.page}
    return {**parts, "text": passage.text, **page}


class Service:
    """A retriever with a queue before it, and counts.

    Args:
        retriever: Answers; called from one thread at a time.
    """

    def __init__(self, retriever: Retriever) -> None:
        self.fingerprint = retriever.fingerprint
        self.counts: Counter[str] = Counter()
        self.seconds = 0.0
        self._retriever = retriever
        self._batcher = Batcher(self._call)

    def _call(self, queries: list[str], k: int) -> list[list[Passage] | RetrievalError]:
        started = time.perf_counter()
        try:
            return self._retriever.retrieve(queries, k)
        finally:
            self.counts["batches"] += 1
            self.seconds += time.perf_counter() - started

    async def answer(self, queries: list[str], k: int) -> list[list[Passage]]:
        """Passages of every query.

        Raises:
            HTTPException: 503 where a query could not be answered.
        """
        from fastapi import HTTPException

        self.counts["requests"] += 1
        self.counts["queries"] += len(queries)
        try:
            found = await self._batcher.submit(queries, k) if queries else []
        except Exception as error:  # of a whole batch: the client may ask again
            self.counts["errors"] += 1
            raise HTTPException(503, f"the retriever failed: {error}") from error
        failed = [f for f in found if isinstance(f, RetrievalError)]
        if failed:
            self.counts["errors"] += 1
            raise HTTPException(503, f"{failed[0].message}: {failed[0].query[:80]!r}")
        return found

    def metrics(self) -> str:
        """The counts in Prometheus' text form, version 0.0.4."""
        lines: list[str] = []
        for name, about in {
            "requests": "Requests to search",
            "queries": "Queries in them",
            "batches": "Calls of the retriever",
            "errors": "Requests that failed",
        }.items():
            full = f"checkrail_retrieval_{name}_total"
            lines += [f"# HELP {full} {about}.", f"# TYPE {full} counter",
                      f"{full} {self.counts[name]}"]  # fmt: skip
        full = "checkrail_retrieval_seconds_total"
        lines += [f"# HELP {full} Seconds in the retriever.", f"# TYPE {full} counter",
                  f"{full} {self.seconds:.6f}"]  # fmt: skip
        return "\n".join(lines) + "\n"


def create_app(retriever: Retriever, *, key: str = "", default_k: int = 5) -> FastAPI:
    """The server as an ASGI application.

    Args:
        retriever: Answers.
        key: Wanted as `Authorization: Bearer KEY`, but for /health; "" asks for none.
        default_k: Passages where a request does not say.

    Raises:
        UsageError: FastAPI is not installed.
    """
    try:
        from fastapi import Depends, FastAPI, HTTPException, Request
        from fastapi.responses import PlainTextResponse
        from pydantic import BaseModel, Field
    except ImportError as error:
        raise missing_dependency("fastapi", "serve", error) from None

    class Retrieve(BaseModel):
        queries: list[str] = Field(max_length=MOST)
        topk: int | None = Field(default=None, ge=1, le=MOST)
        return_scores: bool = False

    class Search(BaseModel):
        query: str
        top_n: int = Field(default=default_k, ge=1, le=MOST)
        return_score: bool = False

    class BatchSearch(BaseModel):
        query: list[str] = Field(max_length=MOST)
        top_n: int = Field(default=default_k, ge=1, le=MOST)
        return_score: bool = False

    def keyed(request: Request) -> None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if key and not hmac.compare_digest(given.encode(), key.encode()):
            raise HTTPException(401, "wrong or missing key: Authorization: Bearer KEY")

    service = Service(retriever)
    app = FastAPI(title="Checkrail retrieval", docs_url=None, redoc_url=None, openapi_url=None)
    guarded = [Depends(keyed)]

    async def retrieve(body: Retrieve) -> dict[str, Any]:
        found = await service.answer(body.queries, body.topk or default_k)
        if body.return_scores:
            scored = [[{"document": document(p), "score": p.score} for p in r] for r in found]
            return {"result": scored, "retriever": service.fingerprint}
        result = [[document(p) for p in r] for r in found]
        return {"result": result, "retriever": service.fingerprint}

    async def search(body: Search) -> list[Any]:
        (found,) = await service.answer([body.query], body.top_n)
        documents = [document(p) for p in found]
        return [documents, [p.score for p in found]] if body.return_score else documents

    async def batch_search(body: BatchSearch) -> list[Any]:
        found = await service.answer(body.query, body.top_n)
        documents = [[document(p) for p in r] for r in found]
        return (
            [documents, [[p.score for p in r] for r in found]] if body.return_score else documents
        )

    def health() -> dict[str, str]:
        return {"status": "ok", "retriever": service.fingerprint}

    def metrics() -> PlainTextResponse:
        return PlainTextResponse(service.metrics(), media_type="text/plain; version=0.0.4")

    # Annotations are strings here, and these classes are local: FastAPI is given them itself.
    retrieve.__annotations__["body"] = Retrieve
    search.__annotations__["body"] = Search
    batch_search.__annotations__["body"] = BatchSearch
    metrics.__annotations__.pop("return")
    keyed.__annotations__["request"] = Request
    app.post("/retrieve", dependencies=guarded)(retrieve)
    app.post("/search", dependencies=guarded)(search)
    app.post("/batch_search", dependencies=guarded)(batch_search)
    app.get("/health")(health)
    app.get("/metrics", dependencies=guarded)(metrics)
    return app
