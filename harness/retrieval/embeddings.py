"""Vectors from an OpenAI-compatible server: POST /v1/embeddings.

API: platform.openai.com/docs/api-reference/embeddings; vLLM, llama.cpp, TEI and others serve it.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

from harness.errors import UsageError
from harness.http import HttpClient
from harness.schema import TextKind

KEY_VARIABLE = "OPENAI_API_KEY"


class Embeddings:
    """A model of a server.

    Args:
        url: Up to and with /v1.
        model: Its name there.
        dimensions: Asks for shorter vectors; 0 leaves it to the model.
        batch: Texts a request.
        api_key_env: Environment variable that holds the key, which is never stored or shown.
        retries: Of a failed request.
        concurrency: Requests at once.

    Raises:
        UsageError: The address or a setting makes no sense.
    """

    OPTIONS: ClassVar = ("dimensions", "batch", "api_key_env", "retries", "concurrency")

    def __init__(
        self,
        url: str,
        model: str,
        *,
        dimensions: int = 0,
        batch: int = 64,
        api_key_env: str = KEY_VARIABLE,
        retries: int = 4,
        concurrency: int = 8,
    ) -> None:
        if dimensions < 0 or batch < 1 or concurrency < 1 or retries < 0:
            raise UsageError("encoder 'openai': batch and concurrency must be at least 1")
        if "@" in urlsplit(url).netloc or "?" in url:
            raise UsageError(
                f"encoder 'openai': no key in the address: it belongs in {api_key_env}"
            )
        key = os.environ.get(api_key_env, "").strip()
        if not key and api_key_env != KEY_VARIABLE:
            raise UsageError(f"encoder 'openai': {api_key_env} is not set in the environment")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._url = url
        self._body: dict[str, Any] = {"model": model, "encoding_format": "float"}
        if dimensions:
            self._body["dimensions"] = dimensions
        self._batch = batch
        self._retries = retries
        self._concurrency = concurrency
        self.fingerprint = f"openai:{model}" + (f"-{dimensions}" if dimensions else "")
        self._client()  # an address that is none is said at once

    def embed(self, texts: list[str], kind: TextKind) -> list[list[float]]:
        """One vector a text, in order.

        Raises:
            HttpError: The server failed, or answered something else than vectors.
        """
        parts = [texts[i : i + self._batch] for i in range(0, len(texts), self._batch)]
        return asyncio.run(self._all(parts))

    def _client(self) -> HttpClient:
        return HttpClient(
            self._url, self._headers, concurrency=self._concurrency, timeout=120.0,
            retries=self._retries, deadline=600.0,
        )  # fmt: skip

    async def _all(self, parts: list[list[str]]) -> list[list[float]]:
        async with self._client() as client:
            replies = await asyncio.gather(*(self._one(client, part) for part in parts))
        return [vector for reply in replies for vector in reply]

    async def _one(self, client: HttpClient, texts: list[str]) -> list[list[float]]:
        def complaint(reply: Any) -> str:
            return "" if _vectors(reply, len(texts)) else f"no {len(texts)} vectors of numbers"

        # An empty text is an error for some servers; nobody asks what it means.
        body = {**self._body, "input": [text or " " for text in texts]}
        reply = await client.request_json("POST", "/embeddings", body, complaint=complaint)
        return _vectors(reply, len(texts))


def _vectors(reply: Any, n: int) -> list[list[float]]:
    """The vectors of a reply by their index; [] where it is not what the API promises."""
    try:
        rows = sorted(cast("list[dict[str, Any]]", reply["data"]), key=lambda row: row["index"])
        indices = [row["index"] for row in rows]
        vectors = [[float(x) for x in row["embedding"]] for row in rows]
    except (TypeError, KeyError, ValueError):
        return []
    lengths = {len(vector) for vector in vectors}
    return vectors if indices == list(range(n)) and len(lengths) == 1 and 0 not in lengths else []
