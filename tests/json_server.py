"""A real HTTP server on this machine, in place of somebody else's that speaks JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    method: str
    path: str
    body: Any
    authorization: str | None


Answer = Callable[[Request], tuple[int, Any]]


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[Request]]]:
    """Answer every request with a status and a value; gives the address and the requests."""
    seen: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"] or 0))
            body = json.loads(data) if data else None
            request = Request(self.command, self.path, body, self.headers["Authorization"])
            seen.append(request)
            status, value = answer(request)
            said = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def embeddings(embed: Callable[[Sequence[str]], Any]) -> Answer:
    """/v1/embeddings of any function from texts to vectors, the last text's first."""

    def answer(request: Request) -> tuple[int, Any]:
        rows = [
            {"object": "embedding", "index": i, "embedding": [float(x) for x in vector]}
            for i, vector in enumerate(embed(request.body["input"]))
        ]
        return 200, {"object": "list", "data": rows[::-1]}

    return answer
