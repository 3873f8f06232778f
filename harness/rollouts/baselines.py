"""The baseline methods of multi-hop question answering that play in one or a few plain prompts.

    naive        no retrieval, no reasoning: what the model knows
    cot          zero-shot chain of thought (Kojima et al., arXiv 2205.11916)
    rag          retrieve once with the question, then read (Lewis et al., arXiv 2005.11401)
    iter_retgen  retrieve with question and last output, then read, again and again
                 (Shao et al., arXiv 2305.15294, Algorithm of Section 3)

Prompts are ours (prompts.toml) and ask for the answer between tags; `naive` and `rag` with
`tags=false` ask for it alone, and the whole output counts, as in FlashRAG: for models that do not
follow a format. Known differences to the papers: no few-shot examples.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.dialects import contents
from harness.rollouts.options import Prompts, read, takes
from harness.rollouts.prompts import messages
from harness.rollouts.trace import Trace
from harness.schema import Command, Completion, Doc, Passage, PolicyConfig, Retrieve, Rollout

Steps = Generator[Command, Any, Rollout]


@dataclass(frozen=True, slots=True)
class NoOptions:
    """None."""


@dataclass(frozen=True, slots=True)
class NaiveOptions:
    """Settings of `naive`.

    Attributes:
        tags: Ask for the answer between tags; false: the whole output is the answer.
    """

    tags: bool = True


@dataclass(frozen=True, slots=True)
class RagOptions:
    """Settings of `rag`.

    Attributes:
        top_k: Passages.
        tags: As for `naive`.
    """

    top_k: int = 5
    tags: bool = True

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        at_least_one(top_k=self.top_k)


@dataclass(frozen=True, slots=True)
class IterOptions:
    """Settings of `iter_retgen`.

    Attributes:
        top_k: Passages an iteration.
        iterations: Rounds of retrieval and generation.
    """

    top_k: int = 5
    iterations: int = 3

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        at_least_one(top_k=self.top_k, iterations=self.iterations)


def at_least_one(**values: int) -> None:
    """Refuse counts below 1.

    Raises:
        ValueError: Names the option.
    """
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"option '{name}' must be at least 1, is {value}")


def numbered(passages: Sequence[Passage]) -> str:
    """Passages one a line, as every prompt here shows them."""
    lines = [f"({rank}){contents(p)}" for rank, p in enumerate(passages, start=1)]
    return "\n".join(lines) or "(no documents)"


def tagged(answer: str) -> str:
    """An answer between the tags that scoring reads, its own dropped; "" stays without one."""
    bare = answer.replace("<answer>", "").replace("</answer>", "").strip()
    return f"<answer>{bare}</answer>" if bare else ""


def _prompt(policy: str, *, tags: bool) -> str:
    return policy if tags else f"{policy}_plain"


def _prompt_of(policy: str) -> Prompts:
    return lambda given: [_prompt(policy, tags=bool(given.get("tags", True)))]


@takes(NaiveOptions, _prompt_of("naive"))
def naive(doc: Doc, config: PolicyConfig) -> Steps:
    """Answer at once from what the model knows: no retrieval, no reasoning."""
    options: NaiveOptions = read(naive, config.options)
    text = _prompt("naive", tags=options.tags)
    return (yield from _ask_once(doc, config, text, tags=options.tags))


@takes(NoOptions, ["cot"])
def cot(doc: Doc, config: PolicyConfig) -> Steps:
    """Think step by step, then answer, without retrieval (arXiv 2205.11916)."""
    read(cot, config.options)
    return (yield from _ask_once(doc, config, "cot", tags=True))


def _ask_once(doc: Doc, config: PolicyConfig, prompt: str, *, tags: bool) -> Steps:
    trace = Trace(doc, config)
    completion = yield trace.ask(messages(prompt, question=doc.question), config.sampling)
    trace.said(completion)
    return trace.end(completion.text if tags else tagged(completion.text))


@takes(RagOptions, _prompt_of("rag"))
def rag(doc: Doc, config: PolicyConfig) -> Steps:
    """Retrieve once with the question, then read and answer (arXiv 2005.11401)."""
    options: RagOptions = read(rag, config.options)
    trace = Trace(doc, config)
    prompt = _prompt("rag", tags=options.tags)
    completion = yield from _read(trace, prompt, doc.question, options.top_k)
    return trace.end(completion.text if options.tags else tagged(completion.text))


@takes(IterOptions, ["iter_retgen"])
def iter_retgen(doc: Doc, config: PolicyConfig) -> Steps:
    """Retrieve with question and last output, read, and again (arXiv 2305.15294)."""
    options: IterOptions = read(iter_retgen, config.options)
    trace = Trace(doc, config)
    query, text = doc.question, ""
    for _ in range(options.iterations):
        completion = yield from _read(trace, "iter_retgen", query, options.top_k)
        text = completion.text
        if completion.finish == "context":
            break
        query = f"{doc.question} {text}"
    return trace.end(text)


def _read(trace: Trace, prompt: str, query: str, top_k: int) -> Generator[Command, Any, Completion]:
    """Retrieve, put the passages into a fresh prompt, and generate."""
    passages = trace.found((yield Retrieve((query,), top_k)))
    shown = numbered(passages)
    trace.shown(shown, passages)
    asked = messages(prompt, question=trace.doc.question, documents=shown)
    completion: Completion = yield trace.ask(asked, trace.config.sampling)
    trace.said(completion)
    return completion
