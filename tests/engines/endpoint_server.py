"""A real HTTP server on this machine that speaks OpenAI's API, and misbehaves on request."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
Act = Callable[["Handler", Json], None]


class Server(ThreadingHTTPServer):
    """Answers completions by `answer`, after the acts in `acts`, and remembers what it was asked.

    With software="vllm" or "llamacpp" it says so, and tokenizes: a token is a byte.
    """

    daemon_threads = True

    def __init__(self, software: str = "", **card: Any) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.software = software
        self.cards: list[Json] | None = [{"id": "tiny", "owned_by": software, **card}]
        self.acts: list[Act] = []
        self.answer: Callable[[Json], Json | Act] = say("fine")
        self.tokenizes = True
        self.key = ""
        self.requests: list[tuple[str, Json]] = []
        self.keys: list[str | None] = []
        self.lock = threading.Lock()
        self.let_go = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def asked(self) -> list[Json]:
        """Bodies of the completions."""
        return [body for path, body in self.requests if path.endswith("completions")]

    def stop(self) -> None:
        self.let_go.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is part of the tests."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        server, path = self.server, self.path
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        with server.lock:
            server.requests.append((path, body))
            server.keys.append(self.headers.get("authorization"))
            is_completion = path.endswith("completions")
            act = server.acts.pop(0) if is_completion and server.acts else None
        given = self.headers.get("authorization")
        if server.key and given != f"Bearer {server.key}":
            return self.send(401, {"error": {"message": f"{given} is not the key"}})
        if path == "/v1/models" and server.cards is not None:
            return self.send(200, {"object": "list", "data": server.cards})
        if path == "/tokenize" and server.software == "vllm" and server.tokenizes:
            return self.send(200, {"tokens": list(rendered(body).encode()), "max_model_len": 99})
        if path == "/detokenize" and server.software == "vllm" and server.tokenizes:
            return self.send(200, {"prompt": bytes(body["tokens"]).decode()})
        if not is_completion:
            return self.send(404, {"error": "no such page"})
        if act is None:
            made = server.answer(body)
            act = made if callable(made) else answer(200, made)
        return act(self, body)

    do_POST = do_GET

    def send(self, status: int, body: Any, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def rendered(body: Json) -> str:
    if "prompt" in body:
        return str(body["prompt"])
    thinking = body.get("chat_template_kwargs", {}).get("enable_thinking")
    lines = [f"{m['role']}: {m['content']}\n" for m in body["messages"]]
    return "".join(lines) + "assistant: " + ("" if thinking is None else f"[{thinking}]")


def say(text: str | None, finish: str | None = "stop", **more: Any) -> Callable[[Json], Json]:
    """A good answer, in the shape that the request asks for; `more` joins its choice."""
    usage = more.pop("usage", {"prompt_tokens": 7, "completion_tokens": 1})
    reasoning = more.pop("reasoning", {})

    def make(body: Json) -> Json:
        choice: Json = {"index": 0, "finish_reason": finish, **more}
        if "messages" in body:
            choice["message"] = {"role": "assistant", "content": text, **reasoning}
        else:
            choice["text"] = text
        return {"choices": [choice], "usage": usage}

    return make


# --- acts ------------------------------------------------------------------------------------


def answer(status: int, body: Any, **headers: str) -> Act:
    return lambda handler, _: handler.send(status, body, **headers)


def good(make: Callable[[Json], Json]) -> Act:
    return lambda handler, body: handler.send(200, make(body))


def break_off(handler: Handler, _: Json) -> None:
    """Promise a thousand bytes and hang up in the middle."""
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"finish_reason": "stop", "text": "half of')
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)


def cut_short(handler: Handler, _: Json) -> None:
    """The same without a promised length: what arrived could pass for all there is."""
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"finish_reason": "stop", "text": "half of')
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)


def slam(handler: Handler, _: Json) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def hang(handler: Handler, _: Json) -> None:
    handler.server.let_go.wait(10)
    handler.close_connection = True


def overflow(limit: int, prompt: int) -> Act:
    """Refuse as vLLM does where prompt plus max_tokens exceed the context."""

    def act(handler: Handler, body: Json) -> None:
        if prompt + body["max_tokens"] <= limit:
            usage = {"prompt_tokens": prompt, "completion_tokens": body["max_tokens"]}
            return handler.send(200, say("cut", "length", usage=usage)(body))
        text = (
            f"This model's maximum context length is {limit} tokens. However, your request has "
            f"{prompt} input tokens plus {body['max_tokens']} 'max_tokens'."
        )
        return handler.send(400, {"error": {"message": text, "code": 400}})

    return act
