"""What every in-process engine does to messages before its own chat template sees them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from harness.errors import UsageError
from harness.schema import Completion, Message, Model

PLAIN = "none"
"""The `chat_template` of a base model: messages become plain text."""


def split_open_turn(messages: Sequence[Message]) -> tuple[list[Message], str]:
    """Separate a trailing assistant message, which is to be continued.

    Engines render the rest with a generation prompt and append the text as it stands. Handing it
    to the template instead would let templates rewrite it: Qwen3's, for one, moves the reasoning
    about, and a search policy could no longer continue its own words.

    Returns:
        The messages to render, and the text to append ("" where there is nothing to continue).
    """
    if messages and messages[-1].role == "assistant":
        return list(messages[:-1]), messages[-1].content
    return list(messages), ""


def plain_text(messages: Sequence[Message]) -> str:
    """Messages as text for a base model: a blank line between them, none before an open turn."""
    closed, tail = split_open_turn(messages)
    return "\n\n".join(message.content for message in closed) + tail


def prompt_ids(
    prompt: Sequence[Message] | Sequence[int],
    render: Callable[[Sequence[Message], bool | None], list[int]],
    thinking: bool | None,
) -> list[int]:
    """Token ids of a prompt, rendering it if it is a chat."""
    if prompt and isinstance(prompt[0], Message):
        return render(cast(Sequence[Message], prompt), thinking)
    return list(cast(Sequence[int], prompt))


def overflow(ids: Sequence[int]) -> Completion:
    """What a prompt gets that leaves no room in the context for a new token."""
    return Completion("", tuple(ids), (), (), "context", None, len(ids), 0)


def template_text(model: Model) -> str | None:
    """The Jinja source that a card points to; None where it names none or asks for plain text.

    Raises:
        UsageError: The file cannot be read.
    """
    if model.chat_template in (None, PLAIN):
        return None
    path = Path(str(model.chat_template)).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{model.name}: cannot read chat_template {path}: {error}; give the path of a Jinja "
            f'file, or "none" for plain text'
        ) from None


def identity(kind: str, fields: dict[str, Any]) -> str:
    """Fingerprint of an engine: its kind, and a hash of everything that changes its outputs."""
    text = json.dumps(fields, sort_keys=True, ensure_ascii=False, default=str)
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
