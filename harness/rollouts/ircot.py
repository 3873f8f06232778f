"""IRCoT: one sentence of reasoning, one retrieval, in turns; then read.

Trivedi et al., "Interleaving Retrieval with Chain-of-Thought Reasoning for Knowledge-Intensive
Multi-Step Questions", arXiv 2212.10509, Section 3.1. The question fetches the first passages; each
sentence of the chain of thought fetches more, until it says "answer is" or the steps are used up.
The passages so far stand in front of every prompt, at most `max_passages`, oldest first.

Known differences: one worked example, ours; in place of the paper's separate reader, the chain's
own answer counts, and a chain that ends without one is asked for it, once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from harness.rollouts.baselines import Steps, at_least_one, numbered, tagged
from harness.rollouts.options import read, takes
from harness.rollouts.prompts import messages
from harness.rollouts.trace import Trace
from harness.schema import Command, Completion, Doc, Passage, PolicyConfig, Retrieve

_ANSWER = re.compile(r"\banswer is:?\s*([^\n]*)", re.IGNORECASE)
CLOSING = "So the answer is:"
_SENTENCE = re.compile(r".*?[.!?](?=\s|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class IrcotOptions:
    """Settings of `ircot`.

    Attributes:
        top_k: Passages a retrieval.
        max_steps: Sentences of reasoning.
        max_passages: Passages in a prompt.
    """

    top_k: int = 5
    max_steps: int = 6
    max_passages: int = 15

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        at_least_one(top_k=self.top_k, max_steps=self.max_steps, max_passages=self.max_passages)


@takes(IrcotOptions, ["ircot"])
def ircot(doc: Doc, config: PolicyConfig) -> Steps:
    """Reason a sentence, retrieve with it, and so on (arXiv 2212.10509)."""
    options: IrcotOptions = read(ircot, config.options)
    trace = Trace(doc, config)
    sampling = dataclasses.replace(config.sampling, stop=("\n", *config.sampling.stop))
    seen: dict[str, Passage] = {}
    shown: list[Passage] = []
    thoughts: list[str] = []

    def say() -> Generator[Command, Completion, str]:
        prompt = messages(
            "ircot",
            question=doc.question,
            documents=numbered(shown),
            thoughts="".join(f" {thought}" for thought in thoughts),
        )
        completion = yield trace.ask(prompt, sampling)
        trace.said(completion)
        return completion.text

    query, text = doc.question, ""
    for step in range(options.max_steps):
        found = trace.found((yield Retrieve((query,), options.top_k)))
        seen.update((p.doc_id, p) for p in found if p.doc_id not in seen)
        shown = list(seen.values())[: options.max_passages]
        trace.shown(numbered(shown), shown)
        text = yield from say()
        last = step + 1 == options.max_steps
        query = text.strip() if last else _first_sentence(text)
        if not query or trace.finish == "context":
            break
        thoughts.append(query)
        if _ANSWER.search(query):
            break
    if not _answer(thoughts) and trace.finish != "context":
        thoughts.append(CLOSING)
        text = yield from say()
        thoughts.append(text.strip())
    return trace.end(tagged(_answer(thoughts)) or text)  # without an answer, what it said last


def _answer(thoughts: Sequence[str]) -> str:
    """What follows the last "answer is", to the end of the line; "" where it was never said."""
    found = _ANSWER.findall(" ".join(thoughts))
    return found[-1].strip().removesuffix(".") if found else ""


def _first_sentence(text: str) -> str:
    found = _SENTENCE.match(text)
    return (found[0] if found else text).strip()
