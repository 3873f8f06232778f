"""Any server that speaks OpenAI's API: nothing is loaded here.

    engine = open_engine(Model("m", "openai", flags={"endpoint": "http://localhost:8000/v1"}))

Where the server renders prompts for us (llama.cpp, vLLM), messages become token ids there and
are asked for as text completions of those ids. The prompt is then known to the token, a trailing
assistant message is continued exactly, and no reasoning parser touches the text. Other servers
get chat completions; reasoning that they return apart is put back between the card's think_tags.

The client is harness.http, not the package `openai`: that one would retry a refused request, but
not an answer that is empty or cut short, waits less than a loaded server's Retry-After asks for,
and hides the dialects' extra fields. Nothing is streamed, so an answer is whole or it is no
answer: a connection that breaks off is asked again. `timeout` (seconds without a byte, default
600) therefore has to cover the longest generation.

Sampling: temperature, top_p, max_tokens, seed and stop are always sent. vLLM and llama.cpp are
also told to leave off what they would add by themselves (top_k, min_p, repetition penalty of
the model's generation_config). To other servers top_k goes only where it is set.

Log-likelihood needs the probabilities of prompt tokens: vLLM gives them, llama.cpp does not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

from harness.engines import openai_reply
from harness.engines.chat import PLAIN, identity, overflow, plain_text
from harness.engines.endpoint import (
    DEFAULT_REQUESTS,
    DEFAULT_TIMEOUT,
    UNKNOWN_CONTEXT,
    connect,
    find,
    path_prefix,
    run_blocking,
)
from harness.engines.endpoint_render import Renderer, raw
from harness.engines.llama_api import completion_request, native_completion
from harness.errors import EngineError, UsageError
from harness.http import HttpError
from harness.schema import Completion, Message, Model, Sampling

_LOG = logging.getLogger("checkrail")

T = TypeVar("T")


class OpenAIEngine:
    """Asks a server.

    Flags of a card: `endpoint` (its address, up to and with /v1), `model` (its name for the
    model; may be left out where it serves one), `api_key_env` (environment variable of the key,
    default OPENAI_API_KEY), `timeout` (seconds), `retries` (attempts after the first, default 5).

    Args:
        model: The card; `parallelism.requests` in flight at most (default 16).
        backoff: Seconds of the first wait between attempts, see harness.http.

    Raises:
        UsageError: A flag is unknown, the endpoint or key is wrong, or the model not served.
        EngineError: No server answers.
    """

    def __init__(self, model: Model, *, backoff: float = 0.5) -> None:
        self._plain = model.chat_template == PLAIN
        if model.chat_template is not None and not self._plain:
            raise UsageError(
                f"{model.name}: an endpoint applies its own chat template: start the server with "
                f"{model.chat_template}, and leave chat_template out of the card"
            )
        self._served = find(model)
        self._model = model
        self._name = model.name
        self._prefix = path_prefix(model)
        self._tags = model.think_tags
        self._client = connect(
            model,
            concurrency=model.parallelism.get("requests", DEFAULT_REQUESTS),
            timeout=float(model.flags.get("timeout", DEFAULT_TIMEOUT)),
            retries=int(model.flags.get("retries", 5)),
            backoff=backoff,
        )
        self._renderer = Renderer(self._client, self._served, self._plain)
        self.context_length = self._served.context_length
        self.capabilities = self._served.capabilities
        self.fingerprint = identity(
            "openai",
            {
                "weights": self._served.weights,
                "engine": self._served.engine,
                "template": model.chat_template,
            },
        )
        self.miscounts = 0
        self._closed = False

    # --- prompts ------------------------------------------------------------------------------

    def render(self, messages: Sequence[Message], thinking: bool | None) -> list[int]:
        """Token ids of a chat, by the server's own template.

        Raises:
            UsageError: The server offers no such thing.
        """
        return self._blocking(lambda ask: ask.ids(messages, thinking))

    def render_text(self, messages: Sequence[Message], thinking: bool | None) -> str:
        """The text behind `render`.

        Raises:
            UsageError: The server offers no such thing.
        """
        return self._blocking(lambda ask: ask.text(messages, thinking))

    def _blocking(self, work: Callable[[Renderer], Coroutine[Any, Any, T]]) -> T:
        if not self._served.renders:
            raise UsageError(f"{self._name}: this endpoint does not render prompts to token ids")

        async def alone() -> T:  # connections cannot move between event loops: one of its own
            async with connect(self._model, timeout=60.0) as client:
                return await work(Renderer(client, self._served, self._plain))

        return run_blocking(alone())

    # --- generation ---------------------------------------------------------------------------

    async def generate(
        self, prompt: Sequence[Message] | Sequence[int], sampling: Sampling
    ) -> Completion:
        """Continue messages or token ids.

        Raises:
            UsageError: A trailing assistant message on a server that cannot continue one.
            EngineError: The server failed, attempt after attempt; or the engine is closed.
        """
        if self._closed:
            raise EngineError(f"{self._name}: the engine is closed")
        is_chat = bool(prompt) and isinstance(prompt[0], Message)
        if not is_chat:
            return await self._complete(list(cast(Sequence[int], prompt)), sampling)
        messages = cast(Sequence[Message], prompt)
        if self._served.renders:
            ids = await self._renderer.ids(messages, sampling.thinking)
            return await self._complete(ids, sampling)
        if self._plain:
            body = {"prompt": plain_text(messages), **self._drawing(sampling, chat=False)}
            return await self._fitting("/completions", body, sampling)
        return await self._chat(messages, sampling)

    async def _complete(
        self, ids: list[int], sampling: Sampling, length: int | None = None
    ) -> Completion:
        """Text completion of token ids, never longer than the context."""
        length = length or self.context_length
        nothing = overflow(ids)
        room = length - len(ids)
        if room <= 0:
            return nothing
        try:
            return await self._complete_within(ids, sampling, room)
        except HttpError as error:
            if not openai_reply.overflows(str(error)):
                raise
            limit = openai_reply.limit_of(str(error))
            if limit is not None and limit < length:  # smaller than we knew
                return await self._complete(ids, sampling, limit)
            if length == UNKNOWN_CONTEXT:
                raise
            return nothing

    async def _complete_within(self, ids: list[int], sampling: Sampling, room: int) -> Completion:
        if self._served.software == "llamacpp":
            body = {"model": self._served.name, **completion_request(ids, sampling, room)}
            reply = await self._ask("/completions", body)
            try:
                return native_completion(ids, sampling, reply["__verbose"])
            except (KeyError, TypeError, ValueError):
                return self._read(reply, sampling, ids)  # a server that hides its own format
        body = {"prompt": ids, **self._drawing(sampling, chat=False)}
        body["max_tokens"] = min(sampling.max_tokens, room)
        return self._read(await self._ask("/completions", body), sampling, ids)

    async def _chat(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        body: dict[str, Any] = {"messages": raw(messages), **self._drawing(sampling, chat=True)}
        if sampling.thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": sampling.thinking}
        if messages[-1].role == "assistant":
            if "continue" not in self.capabilities:
                raise UsageError(
                    f"{self._name}: this endpoint cannot continue a trailing assistant message "
                    f"(vLLM's and llama.cpp's own servers can); use another policy or engine"
                )
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        return await self._fitting("/chat/completions", body, sampling)

    async def _fitting(self, path: str, body: dict[str, Any], sampling: Sampling) -> Completion:
        """Ask; if prompt plus max_tokens exceed the context, ask for what is left of it."""
        try:
            return self._read(await self._ask(path, body), sampling)
        except HttpError as error:
            if not openai_reply.overflows(str(error)):
                raise
            refusal = error
        try:  # one token: is it the prompt alone, and how long is it?
            short = self._read(await self._ask(path, body | {"max_tokens": 1}), sampling)
        except HttpError as error:
            if openai_reply.overflows(str(error)):
                return Completion("", None, None, None, "context", None, 0, 0)
            raise
        length = min(self.context_length, openai_reply.limit_of(str(refusal)) or 1 << 62)
        room = length - short.prompt_tokens
        if not (short.prompt_tokens and 0 < room < sampling.max_tokens):
            raise refusal
        return self._read(await self._ask(path, body | {"max_tokens": room}), sampling)

    def _drawing(self, sampling: Sampling, *, chat: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._served.name,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if stop := [text for text in sampling.stop if text]:
            body["stop"] = stop
        if self._served.software == "vllm":
            body |= {
                "top_k": sampling.top_k or -1,
                "min_p": 0.0,
                "repetition_penalty": 1.0,
                "return_token_ids": True,
                "logprobs": True if chat else 0,
            }
        elif self._served.software == "llamacpp":
            body |= {"top_k": sampling.top_k, "min_p": 0.0, "repeat_penalty": 1.0}
        elif sampling.top_k:
            body["top_k"] = sampling.top_k
        return body

    def _read(
        self, reply: dict[str, Any], sampling: Sampling, ids: list[int] | None = None
    ) -> Completion:
        made = openai_reply.completion(reply, sampling, self._tags, ids)
        if openai_reply.miscounted(reply, made):
            self.miscounts += 1
            if self.miscounts == 1:
                _LOG.warning(
                    "%s: the server's count of generated tokens is missing or wrong; it is not "
                    "used (%s tokens by its ids)",
                    self._name,
                    "unknown" if made.token_ids is None else len(made.token_ids),
                )
        return made

    async def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        complaint = openai_reply.complaint
        return await self._client.request_json(
            "POST", self._prefix + path, body, complaint=complaint
        )

    # --- log-likelihood -----------------------------------------------------------------------

    async def loglikelihood(
        self, context: str, continuations: Sequence[str]
    ) -> list[tuple[float, bool]]:
        """Sum of log-probabilities of each continuation, and whether it is the greedy one.

        Tokens are cut as lm-eval cuts them: spaces at the end of the context move to the
        continuation, and the two are encoded together.

        Raises:
            UsageError: The server gives no probabilities of prompt tokens.
            EngineError: The server failed.
        """
        if "loglikelihood" not in self.capabilities:
            raise UsageError(
                f"{self._name}: this endpoint gives no probabilities of prompt tokens (vLLM's "
                f"server does): use engine=hf for this task"
            )
        bare = context.rstrip()
        spaces = context[len(bare) :]
        head = len(await self._renderer.whole(bare)) if bare else 0
        if not head:
            raise UsageError(f"{self._name}: log-likelihood without a context needs engine=hf")
        return [await self._likelihood(bare + spaces + text, head) for text in continuations]

    async def _likelihood(self, text: str, head: int) -> tuple[float, bool]:
        ids = await self._renderer.whole(text)
        scored = len(ids) - head
        ids = ids[-(self.context_length - 1) :]  # room for the one token that has to be drawn
        body = {
            "model": self._served.name, "prompt": ids, "max_tokens": 1, "temperature": 0.0,
            "prompt_logprobs": 0,
        }  # fmt: skip
        reply = await self._ask("/completions", body)
        try:
            table = reply["choices"][0]["prompt_logprobs"]
            start = max(1, len(ids) - scored)
            entries = [table[i][str(ids[i])] for i in range(start, len(ids))]
            total = sum(float(entry["logprob"]) for entry in entries)
            return total, all(entry["rank"] == 1 for entry in entries)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise EngineError(
                f"{self._name}: the server gave no usable prompt_logprobs ({error!r})"
            ) from error

    def close(self) -> None:
        """Refuse further calls; the server is left as it is. Idempotent."""
        self._closed = True
