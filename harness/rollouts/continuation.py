"""Token ids in, token ids out: how a rollout of several turns goes on.

A policy knows text only; it yields `Generate(prompt, sampling, turns)`. Here the prompt of the
next request is made of what the engine itself said it had read and written:

    prompt ids of the last model turn + its own ids + encoded text of the environment

so that the next prompt begins with the last one, token for token, and prefix caches hit. Encoding
the whole text again could cut the model's own words into other tokens. Where an engine does not
know its tokens (an endpoint, say), the turns go as the text of an open assistant message.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.schema import Completion, Engine, Generate, Message, Tokenizer, Turn


def continued(engine: Engine, command: Generate) -> Sequence[Message] | Sequence[int]:
    """The prompt to send for a command: token ids where they are known, else messages.

    Raises:
        ValueError: The prompt is token ids, but the engine cannot encode text.
    """
    turns = [turn for turn in command.turns if turn.kind != "summary"]
    if not turns:
        return command.prompt
    if isinstance(engine, Tokenizer):
        ids = _from_ids(engine, turns)
        if ids is not None:
            return ids
    text = "".join(turn.text for turn in turns)
    if any(isinstance(part, int) for part in command.prompt):
        if not isinstance(engine, Tokenizer):
            raise ValueError("turns after a prompt of token ids need an engine with a tokenizer")
        return [*(p for p in command.prompt if isinstance(p, int)), *engine.encode(text)]
    messages = [p for p in command.prompt if isinstance(p, Message)]
    if messages and messages[-1].role == "assistant":
        text = messages.pop().content + text
    return [*messages, Message("assistant", text)]


def _from_ids(tokenizer: Tokenizer, turns: Sequence[Turn]) -> list[int] | None:
    last = max((i for i, turn in enumerate(turns) if turn.kind == "model"), default=-1)
    said = turns[last]
    if last < 0 or said.prompt_ids is None or said.token_ids is None:
        return None
    text = "".join(turn.text for turn in turns[last:])
    kept, rest = spoken(tokenizer, said.token_ids, text)
    return [*said.prompt_ids, *kept, *(tokenizer.encode(rest) if rest else [])]


def spoken(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> tuple[list[int], str]:
    """The ids to keep of a turn, and the text behind them that is still to be encoded.

    The last token often holds more than the stop string (`>` and two line ends are one token of
    Qwen's). It is kept if the environment's text begins with just that; else it is cut, and
    only what it said of the text is encoded again. An end-of-turn token is cut: the turn
    goes on.

    Args:
        tokenizer: The engine that wrote the ids.
        ids: The model's own.
        text: What the turn counts as having said, and what follows it.
    """
    end = len(ids)
    while end:
        said = tokenizer.decode(ids[:end])
        if text.startswith(said):
            while end and tokenizer.decode(ids[: end - 1]) == said:
                end -= 1
            return list(ids[:end]), text[len(said) :]
        end -= 1
    return [], text


def tail_of(tokenizer: Tokenizer, completion: Completion) -> str:
    """What the last token of a completion says behind its stop string; "" where none is known."""
    said = completion.text + (completion.stop_string or "")
    text = tokenizer.decode(completion.token_ids or ())
    return text.removeprefix(said) if text.startswith(said) else ""
