"""Web search: Google's Custom Search JSON API, and a SearXNG of one's own.

    retriever=google   keys GOOGLE_API_KEY and GOOGLE_CSE_ID in the environment
    retriever=searxng  retriever_options.url=http://HOST:PORT, or SEARXNG_URL in the environment

Both give title, address and snippet of each hit; `pages=true` also fetches the pages and keeps the
part around the snippet. The web changes, so every answer is recorded in the run and can be
replayed without a network (harness/retrieval/journal.py).

APIs: developers.google.com/custom-search/v1/reference/rest/v1/cse/list and
docs.searxng.org/dev/search_api.html (formats: json must be switched on in its settings).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast
from urllib.parse import urlencode

from harness.errors import CheckrailError, RetrieverError, UsageError
from harness.http import HttpClient
from harness.retrieval.pages import PageLimits, around, fetch_text
from harness.schema import Passage, RetrievalError

GOOGLE = "https://customsearch.googleapis.com"
MOST = 10
"""Hits that one request to Google gives at most."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of a search engine."""

    url: str
    title: str
    snippet: str


class SearchApi(Protocol):
    """A search engine's API."""

    base_url: str
    identity: Mapping[str, Any]

    def request(self, query: str, k: int) -> str:
        """Path and query string of a search."""
        ...

    def hits(self, reply: Any) -> list[Hit]:
        """The hits of a reply.

        Raises:
            RetrieverError: The reply is not what the API promises.
        """
        ...


class Google:
    """Google's Custom Search JSON API.

    Args:
        url: Another address of the API.

    Raises:
        UsageError: A key is missing in the environment.
    """

    def __init__(self, url: str = GOOGLE) -> None:
        self._key = _environment("GOOGLE_API_KEY", "google")
        self._engine = _environment("GOOGLE_CSE_ID", "google")
        self.base_url = url
        self.identity: Mapping[str, Any] = {"api": "google", "engine": self._engine}

    def request(self, query: str, k: int) -> str:
        """Path and query string; the key travels in it, and is in no message."""
        fields = {"key": self._key, "cx": self._engine, "q": query, "num": min(k, MOST)}
        return f"customsearch/v1?{urlencode(fields)}"

    def hits(self, reply: Any) -> list[Hit]:
        """The hits; a reply without `items` found nothing."""
        if isinstance(reply, dict) and "items" not in reply:
            return []
        return [
            Hit(_text(item, "link"), _text(item, "title"), _text(item, "snippet"))
            for item in _list(reply, "items", "google")
        ]


class SearXNG:
    """A SearXNG instance with its JSON format switched on.

    Args:
        url: Its address; SEARXNG_URL by default.

    Raises:
        UsageError: No address is given.
    """

    def __init__(self, url: str = "") -> None:
        self.base_url = url or _environment("SEARXNG_URL", "searxng")
        self.identity: Mapping[str, Any] = {
            "api": "searxng",
            "url": self.base_url.rpartition("@")[2],
        }

    def request(self, query: str, k: int) -> str:
        """Path and query string; the instance decides how many hits a page has."""
        return f"search?{urlencode({'q': query, 'format': 'json', 'pageno': 1})}"

    def hits(self, reply: Any) -> list[Hit]:
        """The hits, best first."""
        return [
            Hit(_text(item, "url"), _text(item, "title"), _text(item, "content"))
            for item in _list(reply, "results", "searxng")
        ]


class WebRetriever:
    """Searches the web.

    Args:
        api: The search engine.
        pages: Also fetch the pages, and keep the part around the snippet.
        page_chars: Characters of a page that are kept.
        concurrency: Requests at once.
        allow_private, max_bytes, page_timeout: See `PageLimits`.
        retries: Of a failed request to the search engine.
    """

    def __init__(
        self,
        api: SearchApi,
        *,
        pages: bool = False,
        page_chars: int = 2000,
        concurrency: int = 8,
        allow_private: bool = False,
        max_bytes: int = 2_000_000,
        page_timeout: float = 15.0,
        retries: int = 4,
    ) -> None:
        if page_chars < 1 or concurrency < 1:
            raise UsageError("web search: page_chars and concurrency must be at least 1")
        self._api = api
        self._pages = pages
        self._chars = page_chars
        self._concurrency = concurrency
        self._retries = retries
        self._limits = PageLimits(max_bytes, float(page_timeout), allow_private=allow_private)
        kept = {**api.identity, "pages": pages, "page_chars": page_chars if pages else 0}
        digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:32]
        self.fingerprint = f"{api.identity['api']}:{digest}"

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage] | RetrievalError]:
        """At most k pages for each query; a query that failed is a RetrievalError."""
        return asyncio.run(self._all(queries, k))

    async def _all(self, queries: Sequence[str], k: int) -> list[list[Passage] | RetrievalError]:
        gate = asyncio.Semaphore(self._concurrency)
        client = HttpClient(
            self._api.base_url, concurrency=self._concurrency, timeout=30.0,
            retries=self._retries, deadline=120.0,
        )  # fmt: skip
        async with client:
            return await asyncio.gather(*(self._one(client, gate, q, k) for q in queries))

    async def _one(
        self, client: HttpClient, gate: asyncio.Semaphore, query: str, k: int
    ) -> list[Passage] | RetrievalError:
        try:
            reply = await client.request_json("GET", self._api.request(query, k))
            hits = [hit for hit in self._api.hits(reply) if hit.url][:k]
        except CheckrailError as error:
            return RetrievalError(query, str(error))
        texts = [hit.snippet for hit in hits]
        if self._pages:
            texts = await asyncio.gather(*(self._page(gate, hit) for hit in hits))
        return [
            Passage(hit.url, text, score=1.0 / rank, title=hit.title)
            for rank, (hit, text) in enumerate(zip(hits, texts, strict=True), start=1)
        ]

    async def _page(self, gate: asyncio.Semaphore, hit: Hit) -> str:
        """Text of a page; the snippet where the page cannot be had."""
        async with gate:
            try:
                text = await fetch_text(hit.url, self._limits)
            except RetrieverError:
                return hit.snippet
        return " ".join(around(text, hit.snippet, self._chars).split()) or hit.snippet


def _environment(name: str, retriever: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise UsageError(f"retriever '{retriever}' needs {name} in the environment")
    return value


def _list(reply: Any, key: str, api: str) -> list[Mapping[str, Any]]:
    rows: Any = cast("Mapping[str, Any]", reply).get(key) if isinstance(reply, dict) else None
    if not isinstance(rows, list):
        raise RetrieverError(f"{api} answered without a list '{key}'")
    return [row for row in cast("list[Any]", rows) if isinstance(row, dict)]


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return " ".join(value.split()) if isinstance(value, str) else ""
