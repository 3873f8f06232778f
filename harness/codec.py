"""Docs and rollouts to plain JSON and back, without loss.

Token ids and log-probabilities leave the JSON and travel as packed little-endian arrays: a
20,000-token rollout is then parsed in microseconds, and floats come back bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import sys
from array import array
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from harness.schema import Doc, Message, Passage, Rollout, Sampling, Turn, Verdict


def dumps(value: object) -> str:
    """Compact, deterministic JSON: keys sorted, no NaN, text kept as it is.

    Lone surrogates, which cannot be written as UTF-8, are escaped instead of lost.
    """
    text = json.dumps(
        value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text


def sha(value: object) -> str:
    """Sha256 (hex) of a JSON-serialisable value."""
    return hashlib.sha256(dumps(value).encode()).hexdigest()


def messages_to_json(messages: Sequence[Message]) -> list[list[str]]:
    """Chat messages as [role, content] pairs."""
    return [[m.role, m.content] for m in messages]


def prompt_sha(messages: Sequence[Message]) -> str:
    """Hash of a rendered prompt: part of a record's key."""
    return sha(messages_to_json(messages))


def sampling_to_json(sampling: Sampling) -> dict[str, Any]:
    """Sampling as JSON, without the per-request seed."""
    fields = asdict(sampling)
    del fields["seed"]
    fields["stop"] = list(sampling.stop)
    return fields


def doc_to_json(doc: Doc) -> dict[str, Any]:
    """A doc with its passages."""
    return {
        "id": doc.id,
        "question": doc.question,
        "targets": list(doc.targets),
        "passages": [
            {"doc_id": p.doc_id, "text": p.text, "score": p.score, "title": p.title, "page": p.page}
            for p in doc.passages
        ],
        "cluster": doc.cluster,
        "stratum": doc.stratum,
        "meta": dict(doc.meta),
    }


def doc_from_json(data: dict[str, Any]) -> Doc:
    """Inverse of `doc_to_json`.

    Raises:
        KeyError, TypeError: The JSON is not a doc.
    """
    fields = dict(data)
    fields["targets"] = tuple(fields["targets"])
    fields["passages"] = tuple(Passage(**p) for p in fields["passages"])
    return Doc(**fields)


def _pack(code: str, parts: Sequence[Sequence[float] | None]) -> bytes:
    packed = array(code)
    for part in parts:
        if part:
            packed.extend(part)  # type: ignore[arg-type]  # ints for "i", floats for "d"
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _unpack(code: str, blob: bytes) -> list[Any]:
    packed = array(code)
    packed.frombytes(blob)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tolist()


def rollout_to_row(rollout: Rollout) -> tuple[str, bytes, bytes]:
    """A rollout as (JSON, token ids as int32, log-probabilities as float64)."""
    ids: list[Sequence[float] | None] = []
    logprobs: list[Sequence[float] | None] = []
    turns: list[list[Any]] = []
    for turn in rollout.turns:
        ids += [turn.prompt_ids, turn.token_ids]
        logprobs.append(turn.logprobs)
        lengths = [
            None if part is None else len(part)
            for part in (turn.prompt_ids, turn.token_ids, turn.logprobs)
        ]
        shown = [list(turn.passages)] if turn.passages else []
        turns.append([turn.kind, turn.text, *lengths, *shown])
    body = {
        "turns": turns,
        "answer": rollout.answer,
        "choices": None if rollout.choices is None else list(rollout.choices),
        "finish": rollout.finish,
        "prompt_tokens": rollout.prompt_tokens,
        "completion_tokens": rollout.completion_tokens,
        "searches": rollout.searches,
        "seconds": round(rollout.seconds, 4),
        "error": rollout.error,
    }
    return dumps(body), _pack("i", ids), _pack("d", logprobs)


def rollout_from_row(doc_id: str, repeat: int, body: str, ids: bytes, logprobs: bytes) -> Rollout:
    """Inverse of `rollout_to_row`.

    Raises:
        KeyError, TypeError, ValueError: The row is not a rollout.
    """
    data = json.loads(body)
    id_list, logprob_list = _unpack("i", ids), _unpack("d", logprobs)
    turns: list[Turn] = []
    id_at = logprob_at = 0

    def take(items: list[Any], at: int, length: int | None) -> tuple[tuple[Any, ...] | None, int]:
        if length is None:
            return None, at
        if at + length > len(items):
            raise ValueError("fewer token ids than the record declares")
        return tuple(items[at : at + length]), at + length

    for kind, text, n_prompt, n_tokens, n_logprobs, *shown in data["turns"]:
        prompt_ids, id_at = take(id_list, id_at, n_prompt)
        token_ids, id_at = take(id_list, id_at, n_tokens)
        turn_logprobs, logprob_at = take(logprob_list, logprob_at, n_logprobs)
        passages = tuple(shown[0]) if shown else ()
        turns.append(Turn(kind, text, prompt_ids, token_ids, turn_logprobs, passages))
    if id_at != len(id_list) or logprob_at != len(logprob_list):
        raise ValueError("more token ids than the record declares")
    choices = data["choices"]
    return Rollout(
        doc_id=doc_id,
        repeat=repeat,
        turns=tuple(turns),
        answer=data["answer"],
        finish=data["finish"],
        choices=None if choices is None else tuple(choices),
        prompt_tokens=data["prompt_tokens"],
        completion_tokens=data["completion_tokens"],
        searches=data["searches"],
        seconds=data["seconds"],
        error=data["error"],
    )


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON."""
    values = None if verdict.values is None else dict(verdict.values)
    return {"judge": verdict.judge, "values": values, "raw": verdict.raw}


def verdict_from_json(data: dict[str, Any]) -> Verdict:
    """Inverse of `verdict_to_json`."""
    return Verdict(data["judge"], data["values"], data["raw"])
