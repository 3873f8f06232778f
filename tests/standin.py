"""A local HTTP server in place of a search engine and of the pages it names."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Reply = tuple[int, dict[str, str], bytes]
Answer = Callable[[str, dict[str, str]], Reply]


@contextmanager
def server(answer: Answer) -> Iterator[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """Serve `answer(path, query)`; gives the address and the requests so far."""
    seen: list[tuple[str, dict[str, str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {k: v[0] for k, v in parse_qs(parts.query).items()}
            seen.append((parts.path, query))
            status, headers, body = answer(parts.path, query)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_address[1]}", seen
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


def json_reply(value: Any) -> Reply:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


def html_reply(text: str) -> Reply:
    page = (
        "<html><head><title>T</title><script>var hidden = 1</script></head><body>"
        "<nav>Home Products Contact</nav><article>"
        + "".join(f"<p>{part}</p>" for part in text.split("\n"))
        + "</article></body></html>"
    )
    return 200, {"Content-Type": "text/html; charset=utf-8"}, page.encode()


def google(base: str) -> Answer:
    """Google's Custom Search JSON API, and the page it names."""

    def answer(path: str, query: dict[str, str]) -> Reply:
        if path == "/customsearch/v1":
            if query.get("key") != "secret-key" or query.get("cx") != "engine":
                return 403, {}, b"bad key"
            if query["q"] == "nothing":
                return json_reply({"searchInformation": {"totalResults": "0"}})
            return json_reply({"items": [
                {"link": f"{base}/page", "title": "Bridge", "snippet": f"on {query['q']} Bell"},
                {"link": f"{base}/gone", "title": "Gone", "snippet": "only a snippet"},
            ]})  # fmt: skip
        if path == "/page":
            return html_reply(
                "The bridge at Ironford was built by Ann Bell in the year 1781.\n" * 3
            )
        return 404, {}, b""

    return answer


def searxng(base: str) -> Answer:
    """SearXNG's search API."""

    def answer(path: str, query: dict[str, str]) -> Reply:
        if path != "/search" or query.get("format") != "json":
            return 404, {}, b""
        return json_reply({"query": query["q"], "results": [
            {"url": f"{base}/a", "title": "Bridge", "content": f"Ann Bell and {query['q']}"},
            {"url": f"{base}/b", "title": "Tower", "content": "Cal Dorn"},
        ]})  # fmt: skip

    return answer
