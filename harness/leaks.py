"""Prompt leaks: test questions that the prompt itself shows, as an example or a few-shot.

    leaks = find_leaks(docs, prompts)          # doc id -> why
    whole, clean = with_and_without(scores, leaks)

A leaked doc stays in the task, as published figures count it; every figure is given with and
without it. Pure functions over docs and prompts.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from harness.schema import Doc

IN_PROMPT = "in_prompt"
"""Meta field of a doc whose question the prompt shows; a task may set it itself."""

MIN_LENGTH = 6
"""Letters and digits below which a question is too short to be found in a text for certain."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean and the number of docs it is over; the mean of nothing is None."""

    mean: float | None
    n: int


def bare(text: str) -> str:
    """Letters and digits alone: NFKC, folded case, no white space, no punctuation."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(c for c in folded if unicodedata.category(c)[0] in "LNM")


def find_leaks(
    docs: Sequence[Doc], prompts: Sequence[str] = (), template: str | None = None
) -> dict[str, str]:
    """Docs whose question stands in the fixed part of their prompt.

    The fixed part is the template; or, without one, the doc's own prompt less its passages and
    less the places where the question is asked. A prompt may ask more than once: it does so
    for every doc, so only occurrences beyond the fewest of any doc count. Questions are
    compared by letters and digits (`bare`); a paraphrase is not found.

    Args:
        docs: With the passages that their prompts show.
        prompts: The rendered prompt of each doc, in the same order; not needed with a template.
        template: The prompt before question and documents are filled in.

    Returns:
        Doc id -> reason, in the order of the docs.

    Raises:
        ValueError: Neither a template nor one prompt for each doc is given.
    """
    if template is None and len(prompts) != len(docs):
        raise ValueError(f"{len(docs)} docs need as many prompts, or a template: {len(prompts)}")
    questions = [bare(doc.question) for doc in docs]
    if template is not None:
        fixed = [bare(template)] * len(docs)
        asked = 0
    else:
        fixed = [_without_passages(doc, p) for doc, p in zip(docs, prompts, strict=True)]
        counts = [f.count(q) for f, q in zip(fixed, questions, strict=True) if _long(q)]
        asked = max(1, min(counts, default=1))
    return {
        doc.id: _reason(doc, text)
        for doc, question, text in zip(docs, questions, fixed, strict=True)
        if _long(question) and text.count(question) > asked
    }


def with_and_without(scores: Mapping[str, float], leaked: Collection[str]) -> tuple[Figure, Figure]:
    """The mean over all docs, and over those that do not leak.

    Args:
        scores: Doc id -> score.
        leaked: Ids to leave out (what `find_leaks` returns will do).
    """
    every = list(scores.values())
    clean = [score for doc_id, score in scores.items() if doc_id not in leaked]
    return _figure(every), _figure(clean)


def _figure(values: Sequence[float]) -> Figure:
    return Figure(sum(values) / len(values) if values else None, len(values))


def _long(question: str) -> bool:
    return len(question) >= MIN_LENGTH


def _without_passages(doc: Doc, prompt: str) -> str:
    """The prompt's letters and digits; each passage is cut out once, longest first."""
    text = bare(prompt)
    for passage in sorted((bare(p.text) for p in doc.passages), key=len, reverse=True):
        if passage:
            text = text.replace(passage, "\n", 1)  # nothing joins across the cut
    return text


def _reason(doc: Doc, fixed: str) -> str:
    """Whether the answer is told as well: it stands after the question in the fixed part."""
    after = fixed.partition(bare(doc.question))[2]
    told = any(answer and answer in after for answer in map(bare, doc.targets))
    return "the prompt shows this question" + (" with its answer" if told else "")
