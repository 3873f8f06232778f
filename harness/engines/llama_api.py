"""Requests to llama.cpp's server and its replies, the same in this process and over HTTP."""

from __future__ import annotations

from typing import Any

from harness.schema import Completion, Finish, Sampling

_SEED_RANGE = 2**32 - 1  # the largest value means "random" to llama.cpp


def completion_request(
    ids: list[int], sampling: Sampling, room: int, *, cache_prompt: bool = True
) -> dict[str, Any]:
    """Body of a text completion of token ids.

    Args:
        ids: The prompt.
        sampling: How to draw.
        room: Tokens left in the context, at least 1.
        cache_prompt: Reuse the common prefix of a slot's last prompt.
    """
    return {
        "prompt": ids,
        "max_tokens": min(sampling.max_tokens, room),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "repeat_penalty": 1.0,
        # The order of transformers and vLLM; llama.cpp's own scales by temperature last.
        "samplers": ["temperature", "top_k", "top_p"],
        "seed": -1 if sampling.seed is None else sampling.seed % _SEED_RANGE,
        "stop": [text for text in sampling.stop if text],
        "cache_prompt": cache_prompt,
        "return_tokens": True,
        "n_probs": 1,
        "verbose": True,  # the native reply, with ids and the reason of the stop
    }


def native_completion(ids: list[int], sampling: Sampling, reply: dict[str, Any]) -> Completion:
    """Read the native reply, which `verbose` adds under the key `__verbose`.

    Raises:
        KeyError, TypeError, ValueError: It is not such a reply.
    """
    tokens = tuple(int(i) for i in reply["tokens"])
    # The server withholds the probabilities of the tokens of a stop string.
    probabilities = reply.get("completion_probabilities") or []
    logprobs = tuple(float(entry["logprob"]) for entry in probabilities)
    finish: Finish = "stop"
    if reply["stop_type"] == "limit":
        finish = "length" if len(tokens) >= sampling.max_tokens else "context"
    return Completion(
        text=reply["content"],
        prompt_ids=tuple(ids),
        token_ids=tokens,
        logprobs=logprobs if len(logprobs) == len(tokens) else None,
        finish=finish,
        stop_string=reply["stopping_word"] or None,
        prompt_tokens=len(ids),
        completion_tokens=len(tokens),
    )
