"""What stands behind an endpoint: found by asking the server a few cheap questions.

A run belongs to what is served, not to where: its identity is the name the server lists, what it
says is behind that name (vLLM's `root`; llama.cpp's file, size and number of parameters), the
server's software and the context it gives. Host, port, key, time-outs and parallelism are no part
of it, so a server that moves to another port goes on with the same run, and another model starts
another. What a server cannot tell stays invisible: new weights under an old name and path.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from harness.engines import check_flags
from harness.engines.chat import identity
from harness.errors import EngineError, UsageError, nearest
from harness.http import RETRIED, HttpClient, HttpError
from harness.schema import Model

KEY_VARIABLE = "OPENAI_API_KEY"
DEFAULT_REQUESTS = 16
DEFAULT_TIMEOUT = 600
UNKNOWN_CONTEXT = 1 << 20
"""Context of a server that tells none, for a card that names none."""

FLAGS: dict[str, type | tuple[type, ...]] = {
    "endpoint": str,
    "model": str,
    "api_key_env": str,
    "timeout": (int, float),
    "retries": int,
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Served:
    """What a server said of itself.

    Attributes:
        name: The model's name there, sent with each request.
        behind: What the server says is behind the name; () where it says nothing.
        software: "vllm", "llamacpp", or "" for any other.
        context_length: Tokens of prompt plus generation; the smaller of card and server.
        renders: Whether it applies its chat template and tokenizer for us.
    """

    name: str
    behind: tuple[str, ...]
    software: str
    context_length: int
    renders: bool

    @property
    def weights(self) -> str:
        """Fingerprint of what is served."""
        return identity("served", {"name": self.name, "behind": list(self.behind)})

    @property
    def engine(self) -> dict[str, Any]:
        """What else of the server changes outputs."""
        return {"server": self.software or "unknown", "context_length": self.context_length}

    @property
    def capabilities(self) -> frozenset[str]:
        """What can be asked of it; see `harness.schema.Engine`."""
        found = {"generate"}
        if self.renders:
            found |= {"render", "continue", "token_ids", "logprobs", "seed"}
        if self.software == "vllm":
            found |= {"continue", "token_ids", "logprobs", "seed"}
            found |= {"loglikelihood"} if self.renders else set()
        return frozenset(found)


def find(model: Model) -> Served:
    """Ask a card's endpoint what it serves.

    Raises:
        UsageError: The card names no endpoint, a wrong one, or a model that is not served there;
            the key is missing or refused.
        EngineError: No server answers.
    """
    check_flags(model, FLAGS)
    return run_blocking(_find(model))


async def _find(model: Model) -> Served:
    async with connect(model, retries=2, timeout=30.0) as client:
        prefix = path_prefix(model)
        try:
            reply = await client.request_json("GET", f"{prefix}/models")
        except HttpError as error:
            return _without_a_list(model, error)
        card = _pick(model, _cards(model, reply))
        owner = str(card.get("owned_by") or "")
        software = owner if owner in ("vllm", "llamacpp") else ""
        name = str(card["id"])
        behind, length, renders = (str(card.get("root") or ""),), card.get("max_model_len"), False
        if software == "llamacpp":
            props = await _optional(client, "GET", "/props")
            meta = _mapping(card.get("meta"))
            behind = tuple(str(meta.get(key, "")) for key in ("n_params", "size", "n_vocab"))
            behind = (str(props.get("model_path") or ""), *behind)
            slot = _mapping(props.get("default_generation_settings")).get("n_ctx")
            length = slot or meta.get("n_ctx")
            renders = "tokens" in await _optional(client, "POST", "/tokenize", {"content": "a"})
        elif software == "vllm":
            body = {"model": name, "prompt": "a"}
            renders = "tokens" in await _optional(client, "POST", "/tokenize", body)
        return Served(name, behind, software, _context(model, length), renders)


def _without_a_list(model: Model, error: HttpError) -> Served:
    """What to do where GET models fails: some servers have no such list."""
    name = str(model.flags.get("model", ""))
    if error.status is None or error.status >= 500 or error.status in RETRIED:
        raise EngineError(
            f"{model.name}: no model server answers: {error}; nothing was generated, the same "
            f"command goes on once it is there"
        ) from error
    if error.status in (401, 403):
        variable = model.flags.get("api_key_env", KEY_VARIABLE)
        raise UsageError(f"{model.name}: {error} in the environment variable {variable}") from error
    if error.status in (404, 405) and name:
        return Served(name, (), "", _context(model, None), False)
    raise UsageError(
        f"{model.name}: {error}; give the address up to and with /v1, and served=NAME for a "
        f"server that has no list of models"
    ) from error


def _cards(model: Model, reply: Any) -> list[dict[str, Any]]:
    entries = _mapping(reply).get("data")
    cards = [_mapping(entry) for entry in cast(list[Any], entries or [])]
    cards = [card for card in cards if card.get("id")]
    if not isinstance(entries, list) or not cards:
        raise EngineError(f"{model.name}: the endpoint serves no model yet")
    return cards


def _pick(model: Model, cards: list[dict[str, Any]]) -> dict[str, Any]:
    """The wanted model; without a name the only one, or the one named like the card."""
    known = {str(card["id"]): card for card in cards}
    wanted = str(model.flags.get("model", ""))
    if wanted:
        if wanted not in known:
            raise UsageError(
                f"{model.name}: the endpoint serves no '{wanted}': {nearest(wanted, known)}"
            )
        return known[wanted]
    if len(cards) == 1:
        return cards[0]
    for guess in (model.name, "" if model.adapter else model.path):
        if guess in known:
            return known[guess]
    raise UsageError(
        f"{model.name}: the endpoint serves {len(cards)} models, name one with served=NAME: "
        f"{nearest(model.name, known)}"
    )


async def _optional(
    client: HttpClient, method: str, path: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A reply of an extra that a proxy may hide; {} where it does."""
    try:
        return _mapping(await client.request_json(method, path, body))
    except HttpError as error:
        if error.status is None or (error.status >= 500 and error.status != 501):
            raise  # a passing failure must not look like another kind of server
        return {}


def _mapping(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _context(model: Model, length: Any) -> int:
    told = [n for n in (model.context_length, length) if isinstance(n, int) and n > 0]
    return min(told, default=UNKNOWN_CONTEXT)


# --- talking to it ---------------------------------------------------------------------------


def connect(model: Model, **settings: Any) -> HttpClient:
    """Client of the server: paths start at its root, `path_prefix` leads to OpenAI's.

    Raises:
        UsageError: The card names no endpoint, a wrong one, or a key that is not there.
    """
    root = _endpoint(model).removesuffix("/v1")
    return HttpClient(root, _headers(model), **settings)


def path_prefix(model: Model) -> str:
    """Where OpenAI's paths start under the server's root."""
    return "/v1" if _endpoint(model).endswith("/v1") else ""


def _endpoint(model: Model) -> str:
    url = str(model.flags.get("endpoint", "")).rstrip("/")
    if not url:
        raise UsageError(
            f"{model.name}: engine 'openai' needs the address of a server: "
            f"endpoint=http://HOST:PORT/v1"
        )
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # HttpClient says what is wrong
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise UsageError(
            f"{model.name}: the endpoint is stored with the run, so it cannot carry a password, "
            f"'?' or '#': put the key in the environment variable {KEY_VARIABLE}"
        )
    return url


def _headers(model: Model) -> dict[str, str]:
    """The key, read from the environment: it is never stored and never shown."""
    variable = str(model.flags.get("api_key_env", KEY_VARIABLE))
    key = os.environ.get(variable, "").strip()
    if not key:
        if "api_key_env" in model.flags:
            raise UsageError(f"{model.name}: the environment variable {variable} holds no API key")
        return {}
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"{model.name}: {variable} holds characters that no API key has")
    return {"Authorization": f"Bearer {key}"}


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also where an event loop is running (a notebook)."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
