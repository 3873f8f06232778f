"""The one HTTP client: concurrency, time-outs, retries with jitter, Retry-After.

    async with HttpClient("http://localhost:8000/v1", {"Authorization": f"Bearer {key}"}) as client:
        reply = await client.request_json("POST", "/completions", {"prompt": "Hello"})

Every failure is an `HttpError` that names the URL, the status and the beginning of the body.
Credentials are cut out of it.
"""

from __future__ import annotations

import asyncio
import email.utils
import json as json_module
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from harness.errors import EngineError, UsageError

if TYPE_CHECKING:
    import httpx

RETRIED = frozenset({408, 409, 425, 429})
"""Retried beside every 5xx."""
_SECRET_HEADERS = ("authorization", "proxy-authorization", "x-api-key", "api-key", "cookie")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SHOWN = 200
_HINTS = {
    401: "check the API key",
    403: "check the API key and its permissions",
    404: "check the endpoint and the model name",
    413: "the request is too large: lower top_k or the prompt",
    429: "the server limits the rate: lower parallelism.requests",
}


class HttpError(EngineError):
    """A request that failed for good.

    Attributes:
        url: Without credentials and query.
        status: None where no response came.
    """

    def __init__(self, message: str, url: str, status: int | None = None) -> None:
        super().__init__(message)
        self.url = url
        self.status = status


class HttpClient:
    """Sends JSON, receives JSON.

    Args:
        base_url: Paths are appended to it.
        headers: Sent with each request; their credentials never appear in an error.
        concurrency: Requests in flight. One that waits for its next attempt counts: a server
            under pressure should see fewer requests.
        timeout: Seconds without a byte of the response.
        connect_timeout: Seconds to connect.
        retries: Attempts after the first, on 408, 409, 425, 429, 5xx, and connections that
            fail or break off.
        deadline: Seconds for a request, attempts and waits together; None for no limit.
        backoff: Seconds; the n-th wait is uniform between 0 and backoff * 2**n (full jitter).
        max_backoff: Longest such wait.
        max_retry_after: Longest wait that a server may ask for by Retry-After.
        sleep: Waits (replaced in tests).
        clock: Monotonic seconds (replaced in tests).
        jitter: Uniform numbers in [0, 1) (replaced in tests).

    Raises:
        UsageError: The base URL is no HTTP address.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        *,
        concurrency: int = 16,
        timeout: float = 600.0,
        connect_timeout: float = 10.0,
        retries: int = 5,
        deadline: float | None = None,
        backoff: float = 0.5,
        max_backoff: float = 30.0,
        max_retry_after: float = 120.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.base_url = _address(base_url)
        self._headers = dict(headers or {})
        self._secrets = _secrets(self.base_url, self._headers)
        self._concurrency = concurrency
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._retries = retries
        self._deadline = deadline
        self._backoff = backoff
        self._max_backoff = max_backoff
        self._max_retry_after = max_retry_after
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter
        self._client: httpx.AsyncClient | None = None
        self._gate = asyncio.Semaphore(concurrency)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> HttpClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections; idempotent."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    async def request_json(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        complaint: Callable[[Any], str] | None = None,
    ) -> Any:
        """Send a request and decode the JSON it answers.

        Args:
            method: GET, POST, ...
            path: Appended to the base URL.
            json: Body; None sends none.
            complaint: Says what is wrong with a decoded reply, "" for nothing. With it, a reply
                that is of no use (or cut short, so no JSON) is asked for again like a 5xx.

        Raises:
            HttpError: The last attempt failed, retrying makes no sense, or time is up.
        """
        import httpx

        client = self._open()
        url = f"{self.base_url}/{path.lstrip('/')}"
        async with self._gate:
            end = math.inf if self._deadline is None else self._clock() + self._deadline
            for attempt in range(self._retries + 1):
                wait = None
                left = end - self._clock()
                try:
                    async with asyncio.timeout(None if left == math.inf else max(left, 0.001)):
                        response = await client.request(method, url, json=json)
                    failure = self._check(response, url)
                    if failure is None:
                        reply, failure = self._read(response, url, complaint)
                        if failure is None:
                            return reply
                    elif not (failure.status in RETRIED or (failure.status or 0) >= 500):
                        raise failure
                    wait = self._asked_for(response)
                except (httpx.LocalProtocolError, httpx.InvalidURL) as error:
                    raise self._broken(url, error, "check the endpoint and the headers") from error
                except httpx.RequestError as error:
                    failure = self._broken(url, error, _hint(error))
                except TimeoutError as error:  # asyncio.timeout, not httpx
                    hint = f"no answer within the {self._deadline:g} s that it may take in all"
                    raise self._broken(url, error, hint) from error
                if wait is None:
                    ceiling = min(self._max_backoff, self._backoff * 2**attempt)
                    wait = ceiling * self._jitter()
                if attempt == self._retries or self._clock() + wait >= end:
                    tries = f"{attempt + 1} attempt{'s' if attempt else ''}"
                    late = attempt < self._retries
                    reason = f", no time left of {self._deadline:g} s" if late else ""
                    text = f"{failure} (after {tries}{reason})"
                    raise HttpError(text, failure.url, failure.status)
                await self._sleep(wait)
        raise AssertionError("the loop returns or raises")

    def _open(self) -> httpx.AsyncClient:
        """The client of the running event loop: connections cannot move between loops."""
        import httpx

        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            host = urlsplit(self.base_url).hostname or ""
            self._client = httpx.AsyncClient(
                headers=self._headers,
                timeout=httpx.Timeout(
                    self._timeout, connect=self._connect_timeout, write=60.0, pool=None
                ),
                limits=httpx.Limits(
                    max_connections=self._concurrency,
                    max_keepalive_connections=self._concurrency,
                ),
                trust_env=host not in _LOOPBACK,  # a proxy does not know our localhost
            )
            self._gate = asyncio.Semaphore(self._concurrency)
            self._loop = loop
        return self._client

    def _check(self, response: httpx.Response, url: str) -> HttpError | None:
        status = response.status_code
        if 200 <= status < 300:
            return None
        body = self._clean(response.text)
        hint = _HINTS.get(status, "")
        if 300 <= status < 400:
            hint = f"it has moved to {self._clean(response.headers.get('location', '?'))}"
        text = f"{_shown(url)} answered {status}"
        text += f": {body}" if body else ""
        return HttpError(f"{text}; {hint}" if hint else text, _shown(url), status)

    def _read(
        self, response: httpx.Response, url: str, complaint: Callable[[Any], str] | None
    ) -> tuple[Any, HttpError | None]:
        """The decoded reply, or why another attempt may give a better one."""
        try:
            reply = self._decode(response, url)
        except HttpError as error:
            if complaint is None:
                raise
            return None, error
        wrong = complaint(reply) if complaint else ""
        if not wrong:
            return reply, None
        text = f"{_shown(url)} answered {response.status_code}, but {self._clean(wrong)}"
        return None, HttpError(text, _shown(url), response.status_code)

    def _decode(self, response: httpx.Response, url: str) -> Any:
        try:
            return json_module.loads(response.content)
        except ValueError:
            body = self._clean(response.text)
            raise HttpError(
                f"{_shown(url)} answered {response.status_code} with something that is not JSON: "
                f"{body or '(empty)'}; is this the API's address?",
                _shown(url),
                response.status_code,
            ) from None

    def _broken(self, url: str, error: Exception, hint: str) -> HttpError:
        detail = self._clean(str(error)) or type(error).__name__
        return HttpError(f"{_shown(url)}: {type(error).__name__}: {detail}; {hint}", _shown(url))

    def _asked_for(self, response: httpx.Response) -> float | None:
        """Seconds that Retry-After asks for, capped, plus jitter so that not all come at once."""
        seconds = retry_after(response.headers.get("retry-after"), time.time())
        if seconds is None:
            return None
        return min(seconds, self._max_retry_after) + self._backoff * self._jitter()

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = text.strip()
        cut = text[:_SHOWN] + ("..." if len(text) > _SHOWN else "")
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def retry_after(value: str | None, now: float) -> float | None:
    """Seconds to wait by a Retry-After header (seconds or an HTTP date); None if it has none.

    Args:
        value: The header.
        now: Seconds since 1970.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _hint(error: Exception) -> str:
    kind = type(error).__name__
    if kind == "ConnectError":
        return "is the server running, and the endpoint right?"
    if kind.endswith("Timeout"):
        return "the server is too slow: lower parallelism.requests or raise the time-out"
    return "the connection broke off"


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # unbalanced brackets, a port that is no number
        valid = False
    if not valid:
        raise UsageError(
            "the endpoint is no http:// or https:// address: write http://HOST:PORT/v1"
        )
    return url.rstrip("/")


def _shown(url: str) -> str:
    """The URL without user, password, query and fragment."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _secrets(base_url: str, headers: Mapping[str, str]) -> list[str]:
    found = [value for name, value in headers.items() if name.lower() in _SECRET_HEADERS]
    # "Bearer KEY": a server may echo the key alone.
    found += [value.partition(" ")[2] for value in found]
    password = urlsplit(base_url).password
    found += [password] if password else []
    return sorted({secret for secret in found if len(secret) >= 4}, key=len, reverse=True)
