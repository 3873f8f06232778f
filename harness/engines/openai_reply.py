"""Reading replies of OpenAI's API and its dialects: pure functions, nothing is asked here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from harness.schema import Completion, Sampling

DEFAULT_TAGS = ("<think>", "</think>")
_ENDS = ("stop", "length")
_OVERFLOW = re.compile(
    r"maximum context length|context_length_exceeded|exceed_context_size|"
    r"exceeds the (?:available|model'?s?) (?:maximum )?context|maximum model length|"
    r"prompt is too long|longer than the model'?s context",
    re.IGNORECASE,
)
_LIMIT = re.compile(r"(?:maximum context length is|context size \()\s*(\d+)", re.IGNORECASE)


def complaint(reply: Any) -> str:
    """What makes a reply of a completion unusable; "" for nothing.

    Such a reply is a failure of the server, not an answer of the model: it is asked for again.
    """
    if not isinstance(reply, dict):
        return "the reply is no JSON object"
    body = cast(dict[str, Any], reply)
    if body.get("error"):
        return f"the reply is an error: {body['error']!r}"
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return "its 'choices' are empty"
    choice = cast(dict[str, Any], choices[0])
    if choice.get("finish_reason") not in _ENDS:
        return f"it ended with finish_reason {choice.get('finish_reason')!r}"
    if _text(choice) is None and not _reasoning(choice):
        return "it holds no content"
    return ""


def completion(
    reply: dict[str, Any],
    sampling: Sampling,
    think_tags: tuple[str, str] | None,
    prompt_ids: Sequence[int] | None = None,
) -> Completion:
    """A reply without complaints as a `Completion`.

    Token ids are counted where the server gives them; its own count is taken otherwise, unless
    it cannot be true (none for a text, or more than was asked for): then it is unknown.

    Args:
        reply: Of chat or text completions.
        sampling: What was wanted (`max_tokens` before it was cut to the context).
        think_tags: Put around reasoning that the server has taken out of the text.
        prompt_ids: Of the prompt, where they are known.
    """
    choice = cast(dict[str, Any], reply["choices"][0])
    usage = _mapping(reply.get("usage"))
    text = whole_text(_reasoning(choice), _text(choice) or "", think_tags or DEFAULT_TAGS)
    ids = _ids(choice.get("token_ids"))
    if prompt_ids is None:
        prompt_ids = _ids(choice.get("prompt_token_ids") or reply.get("prompt_token_ids"))
    count = len(ids) if ids is not None else _count(usage, text, sampling.max_tokens)
    logprobs = _logprobs(choice.get("logprobs"))
    known = ids is not None and logprobs is not None and len(ids) == len(logprobs)
    stop = choice.get("stop_reason")
    finish = "stop"
    if choice["finish_reason"] == "length":
        finish = "length" if count is None or count >= sampling.max_tokens else "context"
    return Completion(
        text=text,
        prompt_ids=None if prompt_ids is None else tuple(prompt_ids),
        token_ids=ids,
        logprobs=logprobs if known else None,
        finish=finish,
        stop_string=stop if isinstance(stop, str) and stop in sampling.stop else None,
        prompt_tokens=len(prompt_ids) if prompt_ids is not None else _prompt_tokens(usage),
        completion_tokens=count,
    )


def miscounted(reply: dict[str, Any], made: Completion) -> bool:
    """Whether the server's count of generated tokens is missing or contradicts the reply."""
    usage = _mapping(reply.get("usage"))
    return made.completion_tokens is None or usage.get("completion_tokens") not in (
        None, made.completion_tokens,
    )  # fmt: skip


def whole_text(reasoning: str, content: str, tags: tuple[str, str]) -> str:
    """Reasoning and answer as the model wrote them, tags included.

    Servers with a reasoning parser return the two apart and drop the tags. Reasoning that no
    answer follows was never closed, as far as can be told.
    """
    if not reasoning:
        return content
    return f"{tags[0]}{reasoning}{tags[1] + content if content else ''}"


def overflows(message: str) -> bool:
    """Whether a refusal says that prompt plus max_tokens do not fit the context."""
    return _OVERFLOW.search(message) is not None


def limit_of(message: str) -> int | None:
    """The context length that such a refusal names, in tokens."""
    found = _LIMIT.search(message)
    return int(found[1]) if found else None


def _text(choice: dict[str, Any]) -> str | None:
    value = (
        _mapping(choice["message"]).get("content") if "message" in choice else choice.get("text")
    )
    return value if isinstance(value, str) else None


def _reasoning(choice: dict[str, Any]) -> str:
    message = _mapping(choice.get("message"))
    for key in ("reasoning_content", "reasoning"):
        if isinstance(message.get(key), str) and message[key]:
            return str(message[key])
    return ""


def _ids(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    return tuple(int(i) for i in cast(list[Any], value))


def _mapping(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _count(usage: dict[str, Any], text: str, most: int) -> int | None:
    count = _whole(usage.get("completion_tokens"))
    if count is None or count > most or (text and not count):
        return None
    return count


def _prompt_tokens(usage: dict[str, Any]) -> int:
    return _whole(usage.get("prompt_tokens")) or 0


def _logprobs(value: Any) -> tuple[float, ...] | None:
    """Of chat completions (a list under "content") or text completions ("token_logprobs")."""
    if not isinstance(value, dict):
        return None
    table = cast(dict[str, Any], value)
    entries = cast(list[Any], table.get("token_logprobs") or [])
    if isinstance(table.get("content"), list):
        entries = [entry.get("logprob") for entry in table["content"]]
    if not all(isinstance(entry, int | float) for entry in entries):
        return None
    return tuple(float(entry) for entry in entries)
