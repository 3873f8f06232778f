"""One build: ask for every page that has no replies yet, then check, split and write the sets."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness import codec
from harness.building.ask import Asker, Style, candidates, prompt_questions, prompt_texts
from harness.building.checks import Question, Reject, across, validate
from harness.building.documents import Document, chunk_row
from harness.building.folder import BUILD, Folder
from harness.building.split import How, Split, split
from harness.engines.endpoint import Served, connect
from harness.progress import Progress
from harness.schema import Model

Rows = Callable[[Sequence[Question]], list[dict[str, Any]]]
"""Training rows of questions, with prompt and retrieved passages."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a build.

    Attributes:
        proposed: Candidates of all pages.
        reasons: Rejected candidates by reason, most frequent first.
        shared: Questions of the training set that the test set asks too, with reasons.
    """

    pages: int
    proposed: int
    questions: tuple[Question, ...]
    reasons: Mapping[str, int]
    split: Split
    shared: tuple[tuple[str, str, str], ...]

    @property
    def acceptance(self) -> float:
        """Share of the candidates that was accepted; 0 where there was none."""
        return len(self.questions) / self.proposed if self.proposed else 0.0

    def figures(self) -> dict[str, Any]:
        """For people and for build.json."""
        s = self.split
        return {
            "pages": self.pages,
            "proposed": self.proposed,
            "accepted": len(self.questions),
            "acceptance": round(self.acceptance, 4),
            "rejected": dict(self.reasons),
            "sets": {"test": len(s.test), "zero": len(s.zero), "sft": len(s.sft), "rl": len(s.rl)},
            "shared_by_train_and_test": [list(found) for found in self.shared],
        }


def identity(document: Document, served: Served, style: Style) -> dict[str, Any]:
    """What the replies depend on: a folder holds the replies of one identity."""
    text = codec.dumps([chunk_row(c) for c in document.chunks])
    return {
        "document": document.name,
        "pages": hashlib.sha256(text.encode()).hexdigest()[:16],
        "model": served.name,
        "behind": list(served.behind),
        "prompts": codec.sha(prompt_texts())[:16],
        **asdict(style),
    }


def ask_all(
    document: Document,
    model: Model,
    served: Served,
    style: Style,
    folder: Folder,
    requests: int,
    progress: Progress,
) -> None:
    """Ask for every page that the folder has no replies for.

    Raises:
        EngineError: The server failed; finished pages are stored.
    """
    stored = folder.replies()
    missing = [c for c in document.chunks if c.doc_id not in stored]

    async def work() -> None:
        timeout = float(model.flags.get("timeout", 600))
        async with connect(model, concurrency=requests, timeout=timeout) as client:
            asker = Asker(client, model, served, style)
            gate = asyncio.Semaphore(requests)

            async def one(index: int) -> None:
                async with gate:
                    chunk = missing[index]
                    folder.add(chunk.doc_id, await asker.ask(chunk))
                    progress.sample()

            tasks = [asyncio.ensure_future(one(i)) for i in range(len(missing))]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()

    with progress.samples(len(document.chunks), len(document.chunks) - len(missing), "pages"):
        asyncio.run(work())


def finish(
    document: Document, folder: Folder, given: Mapping[str, Any], how: How, sft: int, seed: int
) -> tuple[Outcome, list[Reject]]:
    """Check and split what the model replied; pure but for reading the replies.

    Raises:
        DataError: Too few questions were accepted for two sets.
    """
    replies = folder.replies()
    proposed = {
        chunk_id: [c for r in each for c in (candidates(r) or [{"reply": r.text}])]
        for chunk_id, each in replies.items()
    }
    accepted, rejects = validate(document.chunks, proposed, prompt_questions())
    folder.write_rows("pages.jsonl", map(chunk_row, document.chunks))
    folder.write_rows("rejects.jsonl", (r.row() for r in rejects))
    reasons = dict(Counter(r.reason for r in rejects).most_common())
    count = sum(len(proposed.get(c.doc_id, ())) for c in document.chunks)
    figures = {"pages": len(document.chunks), "proposed": count, "accepted": len(accepted)}
    folder.write_json(BUILD, {"identity": dict(given), "figures": figures | {"rejected": reasons}})
    sets = split(accepted, how, sft, seed)
    shared = tuple(across(sets.test, sets.zero))
    outcome = Outcome(len(document.chunks), count, tuple(accepted), reasons, sets, shared)
    return outcome, rejects


def write(folder: Folder, outcome: Outcome, given: Mapping[str, Any], rows: Rows) -> None:
    """Write the sets and the figures."""
    s = outcome.split
    named = {"test": s.test, "sft": s.sft, "rl": s.rl}
    member = {q.id: name for name, questions in named.items() for q in questions}
    folder.write_rows(
        "questions.jsonl", (q.row() | {"set": member[q.id]} for q in outcome.questions)
    )
    folder.write_rows("test.jsonl", (q.row() for q in s.test))
    for name, questions in (("zero", s.zero), ("sft", s.sft), ("rl", s.rl)):
        folder.write_rows(f"{name}.jsonl", rows(questions))
    folder.write_json(BUILD, {"identity": dict(given), "figures": outcome.figures()})
