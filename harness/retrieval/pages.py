"""Web pages as text, fetched with limits: a page that a search engine names is not to be trusted.

Only http and https, only public addresses (unless allowed), at most so many bytes and seconds,
only HTML and plain text. The address that was checked is the one that is connected to, so a name
cannot point elsewhere a moment later; every redirect is checked again.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit, urlunsplit

from harness.errors import RetrieverError, missing_dependency

AGENT = "checkrail (evaluation of language models)"
_TYPES = ("text/html", "application/xhtml+xml", "text/plain")
_NOISE = (
    "script, style, noscript, template, svg, iframe, form, button, nav, header, footer, aside, "
    "[hidden], [aria-hidden=true]"
)
_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class PageLimits:
    """What a page may cost.

    Attributes:
        max_bytes: Read at most; the rest of a larger page is dropped.
        timeout: Seconds for the whole page, redirects included.
        redirects: Followed at most.
        allow_private: Also fetch from private and local addresses (a page server of one's own).
    """

    max_bytes: int = 2_000_000
    timeout: float = 15.0
    redirects: int = 5
    allow_private: bool = False


async def fetch_text(url: str, limits: PageLimits) -> str:
    """Main text of a page; "" for a page without any.

    Raises:
        RetrieverError: The page cannot or must not be fetched; one line that says why.
    """
    import httpx

    try:
        async with asyncio.timeout(limits.timeout):
            content, kind, encoding = await _fetch(url, limits)
    except TimeoutError:
        raise RetrieverError(f"{url}: no page within {limits.timeout:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        raise RetrieverError(f"{url}: {type(error).__name__}: {error}") from None
    if kind == "text/plain":
        return content.decode(encoding or "utf-8", errors="replace").strip()
    return await asyncio.to_thread(html_text, content)


def html_text(content: bytes | str) -> str:
    """Text of an HTML page: of its main part where it marks one, without menus and scripts."""
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ModuleNotFoundError as error:
        raise missing_dependency("selectolax", "web", error) from error
    tree = LexborHTMLParser(content)
    for node in tree.css(_NOISE):
        node.decompose()
    root = tree.css_first("article, main, [role=main]") or tree.body
    text = root.text(separator="\n", strip=True) if root is not None else ""
    return "\n".join(line for line in text.splitlines() if line.strip())


async def _fetch(url: str, limits: PageLimits) -> tuple[bytes, str, str]:
    import httpx

    async with httpx.AsyncClient(trust_env=False, timeout=limits.timeout) as client:
        for _ in range(limits.redirects + 1):
            address, headers, name = await _checked(url, limits)
            request = client.build_request(
                "GET",
                address,
                headers={"User-Agent": AGENT, "Accept": ", ".join(_TYPES), **headers},
                extensions={"sni_hostname": name},
            )
            response = await client.send(request, stream=True)
            try:
                if response.status_code in _REDIRECTS and "location" in response.headers:
                    url = urljoin(url, response.headers["location"])
                    continue
                if response.status_code != 200:
                    raise RetrieverError(f"{url}: the page answers {response.status_code}")
                kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                if kind not in _TYPES:
                    raise RetrieverError(f"{url}: a page of type '{kind}' is not read")
                return (
                    await _body(response, limits.max_bytes),
                    kind,
                    response.charset_encoding or "",
                )
            finally:
                await response.aclose()
    raise RetrieverError(f"{url}: more than {limits.redirects} redirects")


async def _body(response: Any, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        parts.append(part[: limit - size])
        size += len(parts[-1])
        if size >= limit:
            break
    return b"".join(parts)


async def _checked(url: str, limits: PageLimits) -> tuple[str, dict[str, str], str]:
    """A URL with its host replaced by an address that may be asked, and the Host header.

    Raises:
        RetrieverError: Another scheme, no host, or an address that is not public.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise RetrieverError(f"{url[:200]}: only http:// and https:// pages are fetched")
    try:
        port = parts.port or _PORTS[parts.scheme]
    except ValueError:
        raise RetrieverError(f"{url[:200]}: the port is no number") from None
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    refused = [a for a in addresses if not (limits.allow_private or is_public(a))]
    if refused or not addresses:
        raise RetrieverError(
            f"{url[:200]}: {parts.hostname} is at {refused[0] if refused else 'no address'}, which "
            f"is not public; allow_private=true fetches from it"
        )
    host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    target = urlunsplit((parts.scheme, f"{host}:{port}", parts.path or "/", parts.query, ""))
    shown = parts.netloc.rpartition("@")[2]
    return target, {"Host": shown}, parts.hostname


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public Internet, IPv4 within IPv6 included."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is not None:
            return inner.is_global and not inner.is_multicast
    return ip.is_global and not ip.is_multicast


def around(text: str, snippet: str, size: int) -> str:
    """At most `size` characters of a page, about where its words and the snippet's meet."""
    if len(text) <= size:
        return text
    words = {word for word in snippet.casefold().split() if len(word) > 3}
    folded = text.casefold()
    step = max(size // 4, 1)
    starts = range(0, len(text) - size + step, step)
    best = max(starts, key=lambda at: (sum(w in folded[at : at + size] for w in words), -at))
    start = min(best, len(text) - size)
    cut = text[start : start + size]
    return cut[cut.find(" ") + 1 :] if start and " " in cut else cut
