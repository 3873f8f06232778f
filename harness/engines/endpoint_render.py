"""Prompts rendered by the server: its chat template and tokenizer, asked over HTTP.

llama.cpp has /apply-template and /tokenize, vLLM /tokenize (of messages or text) and /detokenize;
all of them beside /v1, not under it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.engines.chat import plain_text, split_open_turn
from harness.engines.endpoint import Served
from harness.http import HttpClient
from harness.schema import Message


class Renderer:
    """Messages to token ids and text, as the server sees them.

    Args:
        client: Of the server's root.
        served: With `renders`.
        plain: Whether messages are plain text (base models) and no template is applied.
    """

    def __init__(self, client: HttpClient, served: Served, plain: bool) -> None:
        self._client = client
        self._served = served
        self._plain = plain
        self._is_llama = served.software == "llamacpp"

    async def ids(self, messages: Sequence[Message], thinking: bool | None) -> list[int]:
        """Token ids of a chat; a trailing assistant message is left open."""
        if self._plain or self._is_llama:
            text = await self.text(messages, thinking)
            return await self._tokenize(text, special=self._plain)
        closed, tail = split_open_turn(messages)
        ids = await self._chat_ids(closed, thinking) if closed else []
        # Behind the rendered ids, as the model itself would have gone on from them.
        return ids + (await self._tokenize(tail, special=False) if tail else [])

    async def text(self, messages: Sequence[Message], thinking: bool | None) -> str:
        """The text behind `ids`."""
        if self._plain:
            return plain_text(messages)
        closed, tail = split_open_turn(messages)
        if not closed:
            return tail
        if self._is_llama:
            return (
                str(await self._post("/apply-template", _chat(closed, thinking), "prompt")) + tail
            )
        body = {"model": self._served.name, "tokens": await self._chat_ids(closed, thinking)}
        return str(await self._post("/detokenize", body, "prompt")) + tail

    async def whole(self, text: str) -> list[int]:
        """Token ids of a text from its start: with the token that begins one, but never twice."""
        ids = await self._tokenize(text, special=True)
        bare = await self._tokenize(text, special=False)
        return bare if bare[:1] == ids[:1] else ids

    async def _chat_ids(self, closed: Sequence[Message], thinking: bool | None) -> list[int]:
        body = {"model": self._served.name, **_chat(closed, thinking)}
        return [int(i) for i in await self._post("/tokenize", body, "tokens")]

    async def _tokenize(self, text: str, *, special: bool) -> list[int]:
        if self._is_llama:
            body = {"content": text, "add_special": special, "parse_special": True}
        else:
            body = {"model": self._served.name, "prompt": text, "add_special_tokens": special}
        return [int(i) for i in await self._post("/tokenize", body, "tokens")]

    async def _post(self, path: str, body: dict[str, Any], key: str) -> Any:
        def complaint(reply: Any) -> str:
            return "" if isinstance(reply, dict) and key in reply else f"it holds no '{key}'"

        reply = await self._client.request_json("POST", path, body, complaint=complaint)
        return reply[key]


def raw(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as JSON."""
    return [{"role": m.role, "content": m.content} for m in messages]


def _chat(closed: Sequence[Message], thinking: bool | None) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": raw(closed), "add_generation_prompt": True}
    if thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": thinking}
    return body
