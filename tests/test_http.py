"""harness.http against a real server on this machine that misbehaves on request."""

from __future__ import annotations

import asyncio
import email.utils
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("httpx", reason="httpx is not installed: pip install checkrail")

from harness.errors import EngineError, UsageError
from harness.http import HttpClient, HttpError, retry_after

Act = Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    """Plays a list of acts, the last one for ever, and counts."""

    daemon_threads = True

    def __init__(self, acts: list[Act]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.acts = acts
        self.requests: list[tuple[str, str, Any, dict[str, str]]] = []
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()
        self.let_go = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is part of the tests."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        with self.server.lock:
            number = len(self.server.requests)
            self.server.requests.append(
                (self.command, self.path, json.loads(body or b"null"), dict(self.headers))
            )
            self.server.in_flight += 1
            self.server.most_in_flight = max(self.server.most_in_flight, self.server.in_flight)
        try:
            self.server.acts[min(number, len(self.server.acts) - 1)](self)
        finally:
            with self.server.lock:
                self.server.in_flight -= 1

    do_GET = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        pass


def answer(status: int, body: str | bytes = "{}", **headers: str) -> Act:
    data = body.encode() if isinstance(body, str) else body

    def act(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return act


def break_off(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"text": "half of')
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)


def slam(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def hang(handler: BaseHTTPRequestHandler) -> None:
    handler.server.let_go.wait(5)  # type: ignore[attr-defined]  # our Server
    handler.close_connection = True


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*acts: Act) -> Server:
        server = Server(list(acts))
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    yield start
    for server in servers:
        server.let_go.set()
        server.shutdown()
        server.server_close()


class Waits:
    """A sleep that only notes for how long, and a clock that it moves."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        return self.now


def ask(url: str, waits: Waits | None = None, **options: Any) -> Any:
    waits = waits or Waits()
    options = {"sleep": waits.sleep, "clock": waits.clock, "jitter": lambda: 0.5, **options}
    complaint = options.pop("complaint", None)

    async def run() -> Any:
        async with HttpClient(url, options.pop("headers", None), **options) as client:
            body = {"prompt": "Zug 火车"}
            return await client.request_json("POST", "/completions", body, complaint=complaint)

    return asyncio.run(run())


def test_json_goes_out_and_comes_back(serve: Callable[..., Server]) -> None:
    server = serve(answer(200, '{"text": "列车"}'))
    reply = ask(server.url, headers={"Authorization": "Bearer sk-secret"})
    assert reply == {"text": "列车"}
    [(method, path, body, headers)] = server.requests
    assert (method, path, body) == ("POST", "/v1/completions", {"prompt": "Zug 火车"})
    assert headers["Authorization"] == "Bearer sk-secret"


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_a_passing_status_is_retried_until_it_passes(
    serve: Callable[..., Server], status: int
) -> None:
    server = serve(answer(status), answer(status), answer(200, "[1]"))
    waits = Waits()
    assert ask(server.url, waits) == [1]
    assert waits.waits == [0.25, 0.5]  # half of 0.5 and of 1.0, by the fixed jitter


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 301])
def test_a_lasting_status_fails_at_once(serve: Callable[..., Server], status: int) -> None:
    server = serve(answer(status, "no such model", location="http://elsewhere/"))
    with pytest.raises(HttpError, match=str(status)) as caught:
        ask(server.url)
    assert len(server.requests) == 1
    assert caught.value.status == status
    assert isinstance(caught.value, EngineError)


def test_a_reply_that_the_caller_has_no_use_for_is_asked_for_again(
    serve: Callable[..., Server],
) -> None:
    def complaint(reply: Any) -> str:
        return "" if reply else "it is empty, sk-secret"

    server = serve(answer(200, "[]"), answer(200, '{"cut'), answer(200, "[1]"))
    assert ask(server.url, complaint=complaint) == [1]
    server = serve(answer(200, "[]"))
    with pytest.raises(HttpError, match=r"it is empty, \*\*\* \(after 3 attempts\)"):
        ask(
            server.url,
            complaint=complaint,
            retries=2,
            headers={"Authorization": "Bearer sk-secret"},
        )


@pytest.mark.parametrize("act", [break_off, slam])
def test_a_connection_that_breaks_off_is_retried(serve: Callable[..., Server], act: Act) -> None:
    server = serve(act, answer(200, '{"ok": 1}'))
    assert ask(server.url) == {"ok": 1}
    assert len(server.requests) == 2


def test_a_server_that_hangs_is_retried_after_the_time_out(serve: Callable[..., Server]) -> None:
    server = serve(hang, answer(200, '{"ok": 1}'))
    assert ask(server.url, timeout=0.2) == {"ok": 1}


def test_a_server_that_always_hangs_fails_with_the_fix(serve: Callable[..., Server]) -> None:
    server = serve(hang)
    with pytest.raises(HttpError, match=r"ReadTimeout.*raise the time-out.*after 2 attempts"):
        ask(server.url, timeout=0.1, retries=1)


def test_nobody_listening_asks_whether_the_server_runs() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(HttpError, match="is the server running") as caught:
        ask(f"http://127.0.0.1:{port}", retries=2)
    assert caught.value.status is None


def test_retry_after_in_seconds_is_obeyed(serve: Callable[..., Server]) -> None:
    server = serve(answer(429, "slow down", Retry_After="7"), answer(200))
    waits = Waits()
    ask(server.url, waits)
    assert waits.waits == [7.25]


def test_retry_after_as_a_date_is_obeyed(serve: Callable[..., Server]) -> None:
    date = email.utils.formatdate(time.time() + 30, usegmt=True)
    server = serve(answer(503, Retry_After=date), answer(200))
    waits = Waits()
    ask(server.url, waits)
    assert 28 < waits.waits[0] < 31


def test_retry_after_is_capped(serve: Callable[..., Server]) -> None:
    server = serve(answer(429, Retry_After="86400"), answer(200))
    waits = Waits()
    ask(server.url, waits, max_retry_after=20)
    assert waits.waits == [20.25]


def test_waits_grow_up_to_their_ceiling(serve: Callable[..., Server]) -> None:
    server = serve(answer(500, "boom"))
    waits = Waits()
    with pytest.raises(HttpError, match=r"500: boom.*after 6 attempts"):
        ask(server.url, waits, jitter=lambda: 1.0, max_backoff=3)
    assert waits.waits == [0.5, 1, 2, 3, 3]


def test_the_deadline_ends_the_retries(serve: Callable[..., Server]) -> None:
    server = serve(answer(500))
    waits = Waits()
    with pytest.raises(HttpError, match="no time left of 2 s"):
        ask(server.url, waits, jitter=lambda: 1.0, deadline=2, retries=50)
    assert waits.waits == [0.5, 1]


def test_the_deadline_ends_a_request_that_hangs(serve: Callable[..., Server]) -> None:
    server = serve(hang)
    started = time.monotonic()
    with pytest.raises(HttpError, match=r"no answer within the 0\.2 s"):
        ask(server.url, deadline=0.2)
    assert time.monotonic() - started < 3


def test_something_that_is_not_json_is_shown(serve: Callable[..., Server]) -> None:
    server = serve(answer(200, "<html>Welcome"))
    with pytest.raises(HttpError, match=r"not JSON: <html>Welcome; is this the API"):
        ask(server.url)
    assert len(server.requests) == 1


def test_a_body_is_cut_and_its_control_characters_escaped(serve: Callable[..., Server]) -> None:
    server = serve(answer(400, "line\n\x1b[31mred\x00" + "x" * 900))
    with pytest.raises(HttpError) as caught:
        ask(server.url)
    message = str(caught.value)
    assert "line\\n\\x1b[31mred\\x00xxx" in message
    assert message.count("x") < 230
    assert all(character.isprintable() for character in message)


def test_a_key_that_the_server_echoes_is_not_shown(serve: Callable[..., Server]) -> None:
    server = serve(answer(401, "invalid key sk-very-secret (Bearer sk-very-secret)"))
    url = server.url.replace("http://", "http://user:pass-word@")
    with pytest.raises(HttpError, match="check the API key") as caught:
        ask(url, headers={"authorization": "Bearer sk-very-secret"})
    assert "secret" not in str(caught.value)
    assert "pass-word" not in str(caught.value) and "pass-word" not in caught.value.url


def test_no_more_requests_than_allowed_are_in_flight(serve: Callable[..., Server]) -> None:
    def slow(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.02)
        answer(200)(handler)

    server = serve(slow)

    async def run() -> None:
        async with HttpClient(server.url, concurrency=3) as client:
            await asyncio.gather(*(client.request_json("GET", "/x") for _ in range(12)))

    asyncio.run(run())
    assert len(server.requests) == 12
    assert server.most_in_flight <= 3


def test_a_client_works_in_one_event_loop_after_another(serve: Callable[..., Server]) -> None:
    server = serve(answer(200, "1"))
    client = HttpClient(server.url)
    assert [asyncio.run(client.request_json("GET", "x")) for _ in range(2)] == [1, 1]


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "nonsense", "http://[bad", "http://h:x/"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(UsageError, match="write http://HOST:PORT/v1"):
        HttpClient(url)


def test_a_header_that_cannot_be_sent_fails_without_retries(serve: Callable[..., Server]) -> None:
    waits = Waits()
    with pytest.raises(HttpError, match="headers"):
        ask(serve(answer(200)).url, waits, headers={"X-Name": "a\r\nb"})
    assert waits.waits == []


@given(st.text(max_size=30))
def test_retry_after_never_crashes_or_goes_back_in_time(value: str) -> None:
    seconds = retry_after(value, 1_000_000.0)
    assert seconds is None or seconds >= 0
