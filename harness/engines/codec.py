"""Text to token ids and back, as every engine with a Hugging Face tokenizer does it.

One class, so that two engines that load the same folder see the same ids, and cut a
log-likelihood at the same place.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from harness.engines.chat import (
    PLAIN,
    plain_text,
    prompt_ids,
    split_open_turn,
    template_text,
)
from harness.engines.weights import resolve
from harness.errors import EngineError, UsageError, missing_dependency, nearest
from harness.schema import Message, Model

_DTYPES = ("auto", "float32", "bfloat16", "float16")


class ChatCodec:
    """A tokenizer that two threads may use: fast tokenizers change state while encoding.

    Args:
        model: The card: its name for messages, and whether it wants plain text.
        tokenizer: A transformers tokenizer.
        template: Jinja source that replaces the tokenizer's own chat template.
    """

    def __init__(self, model: Model, tokenizer: Any, template: str | None = None) -> None:
        if template is not None:
            tokenizer.chat_template = template
        self.tokenizer = tokenizer
        self._plain = model.chat_template == PLAIN
        self._name = model.name
        self._lock = threading.Lock()

    @property
    def template(self) -> str:
        """What chats are rendered with: Jinja source, or the word for plain text."""
        return PLAIN if self._plain else str(self.tokenizer.chat_template)

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids; `special` adds what the tokenizer puts around a plain text."""
        with self._lock:
            return list(self.tokenizer.encode(text, add_special_tokens=special))

    def decode(self, ids: Sequence[int]) -> str:
        """Text without special tokens."""
        with self._lock:
            return self.tokenizer.decode(
                list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )

    def render(self, messages: Sequence[Message], thinking: bool | None) -> list[int]:
        """Token ids of a chat, by the tokenizer's template unless the card names another.

        Raises:
            UsageError: There is no template.
        """
        return self.encode(self.render_text(messages, thinking), special=self._plain)

    def render_text(self, messages: Sequence[Message], thinking: bool | None) -> str:
        """The text behind `render`: the context of a log-likelihood.

        Raises:
            UsageError: There is no template.
        """
        if self._plain:
            return plain_text(messages)
        if not self.tokenizer.chat_template:
            raise UsageError(
                f"{self._name}: these weights have no chat template: set chat_template to a Jinja "
                f'file, or to "none" for a base model'
            )
        closed, tail = split_open_turn(messages)
        if not closed:
            return tail
        options = {} if thinking is None else {"enable_thinking": thinking}
        chat = [{"role": m.role, "content": m.content} for m in closed]
        text = self.tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=True, **options
        )
        return text + tail

    def pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Token ids of a context and of what follows it, cut as lm-eval's HFLM cuts them.

        Spaces at the end of the context move to the continuation, and the two are encoded
        together. An empty context becomes the token that begins a text.
        """
        if not context:
            start = self.tokenizer.bos_token_id
            start = self.tokenizer.eos_token_id if start is None else start
            ids = self.encode(continuation, special=False)
            return ([start], ids) if ids[:1] != [start] else (ids[:1], ids[1:])
        spaces = len(context) - len(context.rstrip())
        if spaces:
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        whole, head = self._encode(context + continuation), self._encode(context)
        return whole[: len(head)], whole[len(head) :]

    def _encode(self, text: str) -> list[int]:
        bos = self.tokenizer.bos_token
        return self.encode(text, special=not (bos and text.startswith(bos)))


class CodecEngine:
    """What engines share that have a `ChatCodec`: its methods, and the check of a prompt's ids."""

    context_length: int
    _codec: ChatCodec
    _name: str
    _vocabulary: int

    def render(self, messages: Sequence[Message], thinking: bool | None) -> list[int]:
        """Token ids of a chat, by the tokenizer's template unless the card names another.

        Raises:
            UsageError: There is no template.
        """
        return self._codec.render(messages, thinking)

    def render_text(self, messages: Sequence[Message], thinking: bool | None) -> str:
        """The text behind `render`.

        Raises:
            UsageError: There is no template.
        """
        return self._codec.render_text(messages, thinking)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text in the middle of a prompt."""
        return self._codec.encode(text, special=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Text without special tokens, as completions have it."""
        return self._codec.decode(ids)

    def _prompt_ids(
        self, prompt: Sequence[Message] | Sequence[int], thinking: bool | None
    ) -> list[int]:
        """Token ids of a prompt, none of which the weights do not know.

        Raises:
            EngineError: There are none, or some are out of range.
        """
        ids = prompt_ids(prompt, self.render, thinking)
        if not ids or min(ids) < 0 or max(ids) >= self._vocabulary:
            raise EngineError(
                f"{self._name}: a prompt needs token ids from 0 to {self._vocabulary - 1}"
            )
        return ids


def dtype_of(model: Model, asked: str | None = None) -> str:
    """Name of the dtype to compute in: what was asked for, else the card's flag, else "auto".

    Raises:
        UsageError: There is no such dtype.
    """
    name = asked or str(model.flags.get("dtype", "auto"))
    if name not in _DTYPES:
        raise UsageError(f"{model.name}: unknown dtype '{name}', {nearest(name, _DTYPES)}")
    return name


def open_codec(model: Model) -> ChatCodec:
    """The codec of a card's weights alone, for counting tokens: no model is loaded.

    Raises:
        UsageError: The weights are not on this machine, or transformers is not installed.
        EngineError: They carry no tokenizer that transformers reads.
    """
    path = resolve(model)
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise missing_dependency("transformers", "hf", error) from error
    where: dict[str, Any] = {"local_files_only": True}
    folder = path
    if path.suffix == ".gguf":
        folder, where = path.parent, where | {"gguf_file": path.name}
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, **where)
    except Exception as error:  # transformers has a dozen types for "no tokenizer here"
        reason = str(error).strip().partition("\n")[0][:200]
        raise EngineError(f"{model.name}: {path} has no readable tokenizer ({reason})") from error
    return ChatCodec(model, tokenizer, template_text(model))
