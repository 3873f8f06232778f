"""A retrieval server's client: `retriever=remote retriever_options.url=http://HOST:PORT`.

It asks `POST /retrieve` as Search-R1's clients do, so it also searches their servers. Our own
server (harness/retrieval/server.py) says in /health what it searches, and that is the fingerprint:
the same index behind another address is the same retriever, another one behind the same address is
not. Of a server that does not say, address and settings have to do. What a server answered is
recorded in the run (harness/retrieval/journal.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any, cast

from harness.errors import CheckrailError, RetrieverError, UsageError
from harness.http import HttpClient, HttpError
from harness.retrieval.building import short_hash
from harness.schema import Passage, RetrievalError


class Remote:
    """Searches what a server searches.

    Args:
        url: Address of the server, without /retrieve.
        key_env: Environment variable that holds its key; never stored or shown.
        batch: Queries a request.
        concurrency: Requests at once.
        retries: Of a failed request.
        timeout: Seconds without a byte of the answer.

    Raises:
        UsageError: The address or a setting makes no sense.
        RetrieverError: The server cannot be reached.
    """

    def __init__(
        self,
        url: str = "",
        *,
        key_env: str = "",
        batch: int = 64,
        concurrency: int = 8,
        retries: int = 4,
        timeout: float = 120.0,
    ) -> None:
        if not url:
            raise UsageError("retriever 'remote' needs retriever_options.url=http://HOST:PORT")
        if batch < 1 or concurrency < 1 or retries < 0 or not timeout > 0:
            raise UsageError("remote: batch, concurrency and timeout must be above 0")
        key = os.environ.get(key_env, "").strip() if key_env else ""
        if key_env and not key:
            raise UsageError(f"retriever 'remote': {key_env} is not set in the environment")
        self._url = str(url).rstrip("/").removesuffix("/retrieve")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._batch = batch
        self._concurrency = concurrency
        self._retries = retries
        self._timeout = float(timeout)
        self._served = asyncio.run(self._health())
        self.fingerprint = f"remote:{short_hash(self._served or self._url.rpartition('@')[2])}"

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage] | RetrievalError]:
        """At most k passages for each query; queries of a request that failed are errors."""
        if k < 1:
            return [[] for _ in queries]
        parts = [list(queries[i : i + self._batch]) for i in range(0, len(queries), self._batch)]
        return asyncio.run(self._all(parts, k))

    def _client(self) -> HttpClient:
        return HttpClient(
            self._url, self._headers, concurrency=self._concurrency, timeout=self._timeout,
            retries=self._retries, deadline=4 * self._timeout,
        )  # fmt: skip

    async def _health(self) -> str:
        """What the server says that it searches; "" where it does not say."""
        async with self._client() as client:
            try:
                reply = await client.request_json("GET", "health")
            except HttpError as error:
                if error.status is not None and error.status < 500:
                    return ""  # another kind of server
                raise RetrieverError(f"no retrieval server: {error}") from None
        said: Any = cast("dict[str, Any]", reply).get("retriever") if _is(reply) else None
        return said if isinstance(said, str) else ""

    async def _all(self, parts: list[list[str]], k: int) -> list[list[Passage] | RetrievalError]:
        async with self._client() as client:
            found = await asyncio.gather(*(self._one(client, part, k) for part in parts))
        return [result for part in found for result in part]

    async def _one(
        self, client: HttpClient, queries: list[str], k: int
    ) -> list[list[Passage] | RetrievalError]:
        body = {"queries": queries, "topk": k, "return_scores": True}
        try:
            reply = await client.request_json("POST", "retrieve", body)
            return list(_passages(reply, len(queries), k, self._served))
        except CheckrailError as error:
            return [RetrievalError(query, str(error)) for query in queries]


def _is(reply: Any) -> bool:
    return isinstance(reply, dict)


def _passages(reply: Any, n: int, k: int, served: str) -> list[list[Passage]]:
    """The passages of a reply.

    Raises:
        RetrieverError: It is not what was asked for, or another index has answered.
    """
    try:
        if reply.get("retriever", served) != served:
            raise RetrieverError(
                f"the server searches something else now ({reply['retriever']}, not {served}): "
                f"run the command again, it will be another run"
            )
        results = [[_passage(hit) for hit in hits][:k] for hits in reply["result"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RetrieverError(f"the retrieval server's answer has no result ({error!r})") from None
    if len(results) != n:
        raise RetrieverError(f"the retrieval server gave {len(results)} results for {n} queries")
    return results


def _passage(hit: Any) -> Passage:
    found: dict[str, Any] = hit["document"]
    contents = str(found.get("contents") or "")
    first, _, rest = contents.partition("\n")
    title = str(found["title"]) if "title" in found else first.strip('"') if rest else ""
    text = str(found["text"]) if "text" in found else rest or first
    page = found.get("page")
    return Passage(
        str(found.get("id", contents[:80])),
        text,
        float(hit["score"]),
        title,
        page if isinstance(page, int) else None,
    )
