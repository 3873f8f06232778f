"""Training data for Bookmark: long chains of thought, cut into substeps and reflections.

An OpenAI-compatible annotator gets a chain as numbered sentences and says where each part starts
(a number, or the words it starts with), what it is, and its summary. The cuts are made here, in
the original text, so that the parts joined are the original, character for character.

    replies.jsonl    raw replies, one line a chain, on disk before it counts as done
    rows.jsonl       id, question, answer, reasoning, parts (kind, text, summary), text with tags
    rejects.jsonl    chains whose reply is of no use, with the reason and the reply

The last two are made again from the first by every run; a killed run goes on where it was.
Source: the report "NLP-Bookmark-Framework" (2025-12-26), section 2, stage 1 (s1.1 and LIMO,
annotated by Gemini); it gives no prompt, so the prompt is ours.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from harness import codec
from harness.engines.endpoint import Served, connect, find, path_prefix, run_blocking
from harness.errors import DataError, StoreError, UsageError
from harness.jsonl import read_rows, text
from harness.progress import Progress
from harness.rollouts.prompts import messages, prompt_sha
from harness.schema import Model

PROMPT = "bookmark_annotate"
KINDS = ("substep", "reflection")
REASONS = (
    "has_tags",
    "cut_off",
    "no_json",
    "no_parts",
    "unknown_kind",
    "no_summary",
    "start_not_found",
    "out_of_order",
    "starts_late",
    "empty_part",
    "no_substep",
)
"""Why a chain is rejected, in the order in which it is looked at.

has_tags: the chain itself holds the tags. starts_late: text before the first part.
"""

_TAG = re.compile(r"</?(?:substep|reflection)>")
_BREAK = re.compile(r"(?<=\n)(?=[^\n])|(?<=[.!?]\s)(?=\S)|(?<=[。！？])(?=\S)")


@dataclass(frozen=True, slots=True)
class Chain:
    """A question with its chain of thought. `answer` is kept as it is."""

    id: str
    question: str
    reasoning: str
    answer: str


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a chain, white space included."""

    kind: str
    text: str
    summary: str


def sentences(reasoning: str) -> list[str]:
    """The chain in sentences and lines; joined they are the chain."""
    return [piece for piece in _BREAK.split(reasoning) if piece]


def cut(reasoning: str, reply: str) -> list[Part] | str:
    """The parts that a reply makes of a chain, or the reason (of `REASONS`) why it makes none."""
    if _TAG.search(reasoning):
        return "has_tags"
    found = _json(reply)
    if found is None:
        return "no_json"
    rows: Any = cast("dict[str, Any]", found).get("parts") if isinstance(found, dict) else found
    if not isinstance(rows, list) or not rows:
        return "no_parts"
    starts = [0, *itertools.accumulate(len(s) for s in sentences(reasoning))][:-1]
    marks: list[int] = []
    said: list[tuple[str, str]] = []
    for row in cast("list[Any]", rows):
        fields = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
        kind, summary = fields.get("kind"), fields.get("summary")
        if kind not in KINDS:
            return "unknown_kind"
        if not isinstance(summary, str) or not summary.strip():
            return "no_summary"
        mark = _start(reasoning, starts, fields.get("start"), marks[-1] + 1 if marks else 0)
        if mark < 0:
            return "start_not_found"
        if marks and mark <= marks[-1]:
            return "out_of_order"
        marks.append(mark)
        said.append((str(kind), " ".join(summary.split())))
    if reasoning[: marks[0]].strip():
        return "starts_late"
    marks[0] = 0
    ends = [*marks[1:], len(reasoning)]
    parts = [
        Part(kind, reasoning[start:end], summary)
        for (kind, summary), start, end in zip(said, marks, ends, strict=True)
    ]
    if not all(part.text.strip() for part in parts):
        return "empty_part"
    return parts if any(part.kind == "substep" for part in parts) else "no_substep"


def tagged(parts: Sequence[Part]) -> str:
    """The parts between their tags; without the tags it is the chain."""
    return "".join(f"<{p.kind}>{p.text}</{p.kind}>" for p in parts)


def untagged(said: str) -> str:
    """The chain behind `tagged`."""
    return _TAG.sub("", said)


def _start(reasoning: str, starts: Sequence[int], start: Any, after: int) -> int:
    """Where a part starts: the number of a sentence, or words behind `after`; -1 for nowhere."""
    if isinstance(start, int) and not isinstance(start, bool):
        return starts[start - 1] if 1 <= start <= len(starts) else -1
    if isinstance(start, str) and start.strip():
        return reasoning.find(start.strip(), after)
    return -1


def _json(reply: str) -> Any:
    """The JSON of a reply, whatever stands around it; None where there is none."""
    said = reply.rpartition("</think>")[2]
    opening = min((i for i in (said.find("{"), said.find("[")) if i >= 0), default=-1)
    closing = max(said.rfind("}"), said.rfind("]"))
    if opening < 0 or closing < opening:
        return None
    try:
        return json.loads(said[opening : closing + 1])
    except (ValueError, RecursionError):
        return None


# --- asking ---------------------------------------------------------------------------------------


def read_chains(path: Path) -> list[Chain]:
    """Chains of a JSONL file with question, reasoning, answer and, if it likes, id.

    Raises:
        DataError: A line is malformed, or an id occurs twice; names file and line.
    """
    chains: dict[str, Chain] = {}
    for where, row in read_rows(path):
        name = str(row.get("id", len(chains) + 1))
        if name in chains:
            raise DataError(f"{where}: the id '{name}' occurs twice")
        chains[name] = Chain(
            name, text(where, row, "question"), text(where, row, "reasoning"),
            text(where, row, "answer"),
        )  # fmt: skip
    if not chains:
        raise DataError(f"{path}: holds no chain of thought")
    return list(chains.values())


def annotate(
    chains: Sequence[Chain],
    model: Model,
    folder: Path,
    *,
    requests: int = 4,
    max_tokens: int = 16384,
    progress: Progress | None = None,
) -> Counter[str]:
    """Ask for every chain that the folder has no reply for, then write rows and rejects.

    Args:
        chains: From `read_chains`.
        model: The annotator: engine "openai" with its endpoint.
        folder: Made where it is missing.
        requests: At once.
        max_tokens: Of a reply.
        progress: Where to report.

    Returns:
        Counts by reason, and of rows under "rows".

    Raises:
        UsageError: A setting or the endpoint makes no sense.
        EngineError: The server failed; what it replied is kept.
        StoreError: The folder cannot be written.
    """
    if requests < 1 or max_tokens < 1:
        raise UsageError("annotate: requests and max_tokens must be at least 1")
    served = find(model)
    progress = progress or Progress()
    asked = {chain.id: _key(chain, served) for chain in chains}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _mend(folder / "replies.jsonl")
        have = _replies(folder / "replies.jsonl")
        missing = [c for c in chains if asked[c.id] not in have and not _TAG.search(c.reasoning)]
        with (
            (folder / "replies.jsonl").open("a", encoding="utf-8") as stream,
            progress.samples(len(chains), len(chains) - len(missing), "chains"),
        ):

            def keep(chain: Chain, reply: Mapping[str, str]) -> None:
                stream.write(_line({"key": asked[chain.id], "id": chain.id, **reply}))
                stream.flush()
                progress.sample()

            run_blocking(_ask_all(missing, model, served, requests, max_tokens, keep))
        return _write(folder, chains, asked, served)
    except OSError as error:
        raise StoreError(f"cannot write {folder}: {error.strerror}; choose out=DIR") from error


def _key(chain: Chain, served: Served) -> str:
    """What a reply depends on."""
    asked = [served.name, list(served.behind), prompt_sha([PROMPT])]
    return codec.sha([*asked, chain.question, chain.reasoning])[:32]


async def _ask_all(
    chains: Sequence[Chain], model: Model, served: Served, requests: int, max_tokens: int, keep: Any
) -> None:
    timeout = float(model.flags.get("timeout", 600))
    path = f"{path_prefix(model)}/chat/completions"
    async with connect(model, concurrency=requests, timeout=timeout) as client:

        async def one(chain: Chain) -> None:
            numbered = "\n".join(
                f"[{n}] {s.strip()}" for n, s in enumerate(sentences(chain.reasoning), start=1)
            )
            prompt = messages(PROMPT, question=chain.question, documents=numbered)
            body = {
                "model": served.name,
                "messages": [{"role": m.role, "content": m.content} for m in prompt],
                "temperature": 0,
                "max_tokens": max_tokens,
            }
            reply = await client.request_json("POST", path, body, complaint=_complaint)
            choice = reply["choices"][0]
            keep(chain, {"reply": choice["message"]["content"],
                         "finish": str(choice.get("finish_reason"))})  # fmt: skip

        tasks = [asyncio.ensure_future(one(chain)) for chain in chains]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()


def _complaint(reply: Any) -> str:
    try:
        said = reply["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        said = None
    return "" if isinstance(said, str) and said.strip() else "no text in its reply"


def _mend(path: Path) -> None:
    """Cut a line that a kill left unfinished."""
    if path.exists():
        with path.open("rb+") as stream:
            stream.truncate(stream.read().rfind(b"\n") + 1)


def _replies(path: Path) -> dict[str, Mapping[str, Any]]:
    return {str(row["key"]): row for _, row in read_rows(path)} if path.exists() else {}


def _write(
    folder: Path, chains: Sequence[Chain], asked: Mapping[str, str], served: Served
) -> Counter[str]:
    replies = _replies(folder / "replies.jsonl")
    rows: list[dict[str, Any]] = []
    rejects: list[dict[str, Any]] = []
    for chain in chains:
        row = replies.get(asked[chain.id], {})
        reply = str(row.get("reply", ""))
        parts = "cut_off" if row.get("finish") == "length" else cut(chain.reasoning, reply)
        if isinstance(parts, str):
            rejects.append({"id": chain.id, "reason": parts, "reply": reply})
            continue
        if untagged(tagged(parts)) != chain.reasoning:
            raise AssertionError(f"chain {chain.id}: the parts do not join to the original")
        rows.append({**asdict(chain), "parts": [asdict(p) for p in parts],
                     "text": tagged(parts), "annotator": served.name})  # fmt: skip
    for name, lines in (("rows.jsonl", rows), ("rejects.jsonl", rejects)):
        new = folder / f"{name}.new"
        new.write_text("".join(map(_line, lines)), encoding="utf-8")
        new.replace(folder / name)
    return Counter({"rows": len(rows), **Counter(r["reason"] for r in rejects)})


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"
