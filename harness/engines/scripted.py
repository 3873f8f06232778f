"""An engine without a model, for unit tests: it says what it is told to say.

    engine = ScriptedEngine(["first reply", "second reply"])
    engine = ScriptedEngine(lambda prompt, sampling: "42", latency=0.01, fail_every=5)

Tokens are UTF-8 bytes, so ids are reversible, and every count can be worked out by hand.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from harness.engines.chat import overflow, prompt_ids
from harness.errors import EngineError, UsageError
from harness.schema import Completion, Finish, Message, Model, Sampling

Prompt = tuple[Message, ...] | tuple[int, ...]
Reply = str | Completion | Exception
Replies = Sequence[Reply] | Mapping[str, Reply] | Callable[[Prompt, Sampling], Reply]
Likelihood = Callable[[str, str], tuple[float, bool]]

END = 256
"""Id of the end-of-turn token; the ids below it are bytes."""


def encode(text: str) -> list[int]:
    """Toy tokenizer: one id for each UTF-8 byte."""
    return list(text.encode())


def decode(ids: Sequence[int]) -> str:
    """Inverse of `encode`; the end-of-turn token has no text."""
    return bytes(i for i in ids if i < END).decode("utf-8", errors="replace")


class ScriptedEngine:
    """Plays back replies.

    Args:
        replies: A list, played in the order of the calls (an error once it is used up); a
            mapping from a substring of the prompt's text to the reply (the first key that
            occurs; "" matches all); a function of prompt and sampling; or a `Model`, whose flag
            `reply` is then always said, after `latency` seconds. A reply that is an exception
            is raised, a `Completion` is returned as it is.
        latency: Seconds before each reply, or a function of the 0-based call number.
        fail_every: Every n-th call raises an EngineError; 0 for none.
        likelihood: (context, continuation) -> (log-likelihood, greedy). By default -1 for each
            byte, never greedy.
        context_length: Tokens (bytes) of prompt plus generation.

    Attributes:
        calls: Calls of `generate` so far.
        max_concurrency: Most calls in flight at any time.
        prompts: Every prompt, in order of arrival, as text.
    """

    def __init__(
        self,
        replies: Replies | Model,
        *,
        latency: float | Callable[[int], float] = 0.0,
        fail_every: int = 0,
        likelihood: Likelihood | None = None,
        context_length: int = 1 << 20,
        fingerprint: str = "scripted",
    ) -> None:
        if isinstance(replies, Model):
            fixed = replies.flags.get("reply")
            if not isinstance(fixed, str):
                raise UsageError(f"{replies.name}: engine 'scripted' needs the flag reply = TEXT")
            context_length = replies.context_length or context_length
            latency = float(replies.flags.get("latency", 0.0))
            replies = {"": fixed}
        self.fingerprint = fingerprint
        self.capabilities = frozenset(
            {"generate", "loglikelihood", "token_ids", "logprobs", "seed", "render", "continue"}
        )
        self.context_length = context_length
        self.calls = 0
        self.max_concurrency = 0
        self.prompts: list[str] = []
        self.closed = False
        self._replies = replies
        self._latency = latency
        self._fail_every = fail_every
        self._likelihood = likelihood
        self._in_flight = 0
        self._lock = threading.Lock()

    def render(self, messages: Sequence[Message], thinking: bool | None) -> list[int]:
        """Token ids of `role: content` lines; a trailing assistant message is left open."""
        return encode(self.render_text(messages, thinking))

    def render_text(self, messages: Sequence[Message], thinking: bool | None) -> str:
        """The text behind `render`."""
        del thinking
        lines = [f"{message.role}: {message.content}\n" for message in messages]
        if messages and messages[-1].role == "assistant":
            return "".join(lines)[:-1]
        return "".join(lines) + "assistant: "

    def encode(self, text: str) -> list[int]:
        """Token ids of a text in the middle of a prompt."""
        return encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, as completions have it."""
        return decode(ids)

    async def generate(
        self, prompt: Sequence[Message] | Sequence[int], sampling: Sampling
    ) -> Completion:
        """Play the next reply, honouring stop strings, `max_tokens` and the context.

        Raises:
            EngineError: By `fail_every`, after `close`, or with the script used up.
        """
        fixed = cast(Prompt, tuple(prompt))
        ids = prompt_ids(fixed, self.render, sampling.thinking)
        with self._lock:
            call = self.calls
            self.calls += 1
            self.prompts.append(decode(ids))
            self._in_flight += 1
            self.max_concurrency = max(self.max_concurrency, self._in_flight)
        try:
            wait = self._latency(call) if callable(self._latency) else self._latency
            await asyncio.sleep(wait)
            if self.closed:
                raise EngineError("the scripted engine is closed")
            if self._fail_every and (call + 1) % self._fail_every == 0:
                raise EngineError(f"scripted failure of call {call}")
            reply = self._reply(call, fixed, decode(ids), sampling)
        finally:
            with self._lock:
                self._in_flight -= 1
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Completion):
            return reply
        return self._complete(ids, reply, sampling)

    def _reply(self, call: int, prompt: Prompt, text: str, sampling: Sampling) -> Reply:
        if callable(self._replies):
            return self._replies(prompt, sampling)
        if isinstance(self._replies, Mapping):
            for key, reply in self._replies.items():
                if key in text:
                    return reply
            raise EngineError(f"no scripted reply for the prompt {text[-80:]!r}")
        if call >= len(self._replies):
            raise EngineError(
                f"the script has {len(self._replies)} replies, this is call {call + 1}"
            )
        return self._replies[call]

    def _complete(self, prompt_ids: list[int], reply: str, sampling: Sampling) -> Completion:
        room = self.context_length - len(prompt_ids)
        if room <= 0:
            return overflow(prompt_ids)
        hits = [(reply.find(stop), stop) for stop in sampling.stop if stop and stop in reply]
        end, stop_string = min(hits, default=(len(reply), None))
        # A model has said the stop string by the time it stops.
        ids = encode(reply[:end] + stop_string) if stop_string else [*encode(reply), END]
        text = reply[:end]
        finish: Finish = "stop"
        limit = min(sampling.max_tokens, room)
        if len(ids) > limit:
            finish = "length" if limit == sampling.max_tokens else "context"
            ids, stop_string = ids[:limit], None
            text = decode(ids)
        logprobs = tuple(-1.0 for _ in ids)
        return Completion(
            text, tuple(prompt_ids), tuple(ids), logprobs, finish, stop_string,
            len(prompt_ids), len(ids),
        )  # fmt: skip

    async def loglikelihood(
        self, context: str, continuations: Sequence[str]
    ) -> list[tuple[float, bool]]:
        """By the given function, or -1 for each byte; fails by `fail_every` and after `close`."""
        with self._lock:
            call = self.calls
            self.calls += 1
            self.prompts.append(context)
        if self.closed:
            raise EngineError("the scripted engine is closed")
        if self._fail_every and (call + 1) % self._fail_every == 0:
            raise EngineError(f"scripted failure of call {call}")
        if self._likelihood is not None:
            return [self._likelihood(context, text) for text in continuations]
        return [(-float(len(encode(text))), False) for text in continuations]

    def close(self) -> None:
        """Refuse further calls; idempotent."""
        self.closed = True
