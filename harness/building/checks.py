"""Which candidate questions are kept: pure functions, and every reason has a name.

A candidate is kept where all of these hold (reasons in the order of the checks):

    malformed             question and answer are texts that are not empty
    not_a_question        it ends with a question mark, is at least 6 units long (characters of
                          Chinese, words of English: `scoring.text.units`), and asks: in Chinese
                          and English it has an interrogative (`asks`)
    answer_not_on_page    the answer stands on its page, white space and its final punctuation
                          removed
    answer_too_long       it is no more than `LONGEST_ANSWER` units long
    answer_in_question    the question does not give it away
    refers_to_page        the question can be understood without the page at hand: it has none of
                          the words of `REFERENCES` (this page, the table below, 上述, 本条, ...)
    from_prompt           it is none of the prompt's own examples, nor near one
    duplicate             no accepted question of any page has the same words
    near_duplicate        none shares `NEAR` of its pairs of neighbouring units (Dice)

Whether a page is really enough to answer is for people or a stronger model to say: these are
heuristics, and the word list errs on the side of rejecting. The near-duplicate rule also rejects
pairs that differ in one decisive word; on the published railway questions it finds exactly the
two exact and two near pairs that training and test set share. `asks` finds an interrogative in all
712 published railway questions, 3,216 of the 3,218 of CMRC 2018 dev and 9,993 of 10,018 English
multi-hop questions; weak models like to put a question mark behind a clause of the page.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from harness.schema import Passage
from harness.scoring.text import CJK, FINAL_PUNCTUATION, normalise, squeeze, units

NEAR = 0.85
LONGEST_ANSWER = 120
SHORTEST_QUESTION = 6

REFERENCES = re.compile(
    r"[本此该前][页条章节款]|[上下][一]?页|第\s*\d+\s*页|[上下前后]文|上述|前述|如[上下](?!班|车)|"
    r"下列|以[上下](?:内容|情况|哪|各?项|条款|规定|表|图|选项|步骤|信息)|"
    r"[上下附该本此](?:表|图)|附[件录]|文中|[原本此该]文|材料中|这[段页]|(?:所给|给定|提供)的?(?:材料|内容)|"
    r"\b(?:this|previous|preceding|next|following|given) (?:page|passage|text|section|table|figure|"
    r"paragraph|excerpt|article)|\b(?:above|below|aforementioned|as follows)\b|"
    r"\b(?:the|in) (?:passage|excerpt|paragraph|provided text|table|figure)\b|"
    r"\b(?:on|see) page \d+",
    re.IGNORECASE,
)

_ASKS_ZH = re.compile(
    r"谁|[什甚]么|哪|何|几|多[少久长大高远宽深重快详]|啥|吗|呢|怎|[是能可应会有须]否|还是|是不是|有没有|能不能|"
    r"[是么][？?]$|简述"
)
_AUXILIARY = (
    "is|are|was|were|am|be|do|does|did|can|could|must|may|might|should|shall|will|would|has|have|"
    "had|need"
)
_ASKS_EN = re.compile(
    r"\b(?:who|whom|whose|what|when|where|which|why|how)\b|"
    rf"(?:^|[,;:]|\b(?:and|or|but)\b)\s*(?:{_AUXILIARY})\b",
    re.IGNORECASE,
)
_HAN, _OTHER = re.compile(f"[{CJK}]"), re.compile(r"[\u0370-\u1fff\u3040-\u30ff\uac00-\ud7af]")

Grams = Counter[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Question:
    """A question that passed.

    Attributes:
        id: Hash of page chunk and question; does not depend on what else was asked.
        answer: Without white space around it and without final punctuation.
    """

    id: str
    page: int
    chunk_id: str
    question: str
    answer: str

    def row(self) -> dict[str, Any]:
        """As a line of JSON."""
        return {
            "id": self.id,
            "page": self.page,
            "chunk_id": self.chunk_id,
            "question": self.question,
            "answer": self.answer,
        }


@dataclass(frozen=True, slots=True)
class Reject:
    """A candidate that did not pass, and why; `other` is the id of what it repeats."""

    chunk_id: str
    reason: str
    candidate: Any
    other: str = ""

    def row(self) -> dict[str, Any]:
        """As a line of JSON."""
        row = {"chunk_id": self.chunk_id, "reason": self.reason, "candidate": self.candidate}
        return row | ({"other": self.other} if self.other else {})


def validate(
    chunks: Sequence[Passage],
    candidates: Mapping[str, Iterable[Any]],
    examples: Iterable[str] = (),
) -> tuple[list[Question], list[Reject]]:
    """Check all candidates, page by page: of two that repeat each other the first is kept.

    Args:
        chunks: In the order of the document.
        candidates: Chunk id -> what a model proposed, of any shape.
        examples: Questions that the prompt shows.
    """
    accepted: list[Question] = []
    rejects: list[Reject] = []
    seen, shown = Seen(), Seen(Question("", 0, "", example, "") for example in examples)
    for chunk in chunks:
        page = squeeze(chunk.text)
        for candidate in candidates.get(chunk.doc_id, ()):
            question, answer = _texts(candidate)
            reason = fault(question, answer, page)
            other = ""
            if not reason and shown.repeated(question)[0]:
                reason = "from_prompt"
            if not reason:
                reason, other = seen.repeated(question)
            if reason:
                rejects.append(Reject(chunk.doc_id, reason, candidate, other))
                continue
            new = Question(_id(chunk.doc_id, question), chunk.page or 0, chunk.doc_id, question,
                           answer)  # fmt: skip
            seen.add(new)
            accepted.append(new)
    return accepted, rejects


def fault(question: str, answer: str, page: str) -> str:
    """Why a candidate is wrong by itself, "" where it is not; `page` has no white space."""
    if not question or not answer:
        return "malformed"
    if question[-1] not in "？?" or len(units(question)) < SHORTEST_QUESTION or not asks(question):
        return "not_a_question"
    if squeeze(answer) not in page:
        return "answer_not_on_page"
    if len(units(answer)) > LONGEST_ANSWER:
        return "answer_too_long"
    if _within(units(answer), units(question)):
        return "answer_in_question"
    if REFERENCES.search(question):
        return "refers_to_page"
    return ""


def asks(question: str) -> bool:
    """Whether a Chinese or English question has an interrogative; True of other languages."""
    if _OTHER.search(question):
        return True
    return bool(_ASKS_EN.search(question) or (_HAN.search(question) and _ASKS_ZH.search(question)))


class Seen:
    """Questions so far, to find those that are asked again."""

    def __init__(self, questions: Iterable[Question] = ()) -> None:
        self._exact: dict[str, str] = {}
        self._grams: list[tuple[str, Grams]] = []
        for question in questions:
            self.add(question)

    def add(self, question: Question) -> None:
        """Remember a question."""
        self._exact.setdefault(normalise(question.question), question.id)
        self._grams.append((question.id, _grams(question.question)))

    def repeated(self, question: str) -> tuple[str, str]:
        """("duplicate" or "near_duplicate", id of what it repeats), or ("", "")."""
        same = self._exact.get(normalise(question))
        if same is not None:
            return "duplicate", same
        mine = _grams(question)
        near = max(((dice(mine, g), i) for i, g in self._grams), default=(0.0, ""))
        return ("near_duplicate", near[1]) if near[0] >= NEAR else ("", "")


def across(first: Iterable[Question], second: Iterable[Question]) -> list[tuple[str, str, str]]:
    """(reason, id, id of what it repeats) for each question of `second` that `first` has."""
    seen = Seen(first)
    found = [(seen.repeated(q.question), q.id) for q in second]
    return [(reason, mine, other) for (reason, other), mine in found if reason]


def dice(a: Grams, b: Grams) -> float:
    """Share of common pairs of neighbouring units, 0 to 1; 0 where both have none."""
    total = sum(a.values()) + sum(b.values())
    return 2 * sum((a & b).values()) / total if total else 0.0


def _grams(question: str) -> Grams:
    found = units(question)
    return Counter(pairwise(found))


def _within(part: list[str], whole: list[str]) -> bool:
    """Whether `part` occurs in `whole` in one piece; an empty one does not."""
    n = len(part)
    return n > 0 and any(whole[i : i + n] == part for i in range(len(whole) - n + 1))


def _texts(candidate: Any) -> tuple[str, str]:
    """Question and answer of a candidate, "" for what it lacks."""
    if not isinstance(candidate, Mapping):
        return "", ""
    pair = [candidate.get(key) for key in ("question", "answer")]
    question, answer = (v.strip() if isinstance(v, str) and _sound(v) else "" for v in pair)
    return question, answer.rstrip(FINAL_PUNCTUATION).strip()


def _sound(text: str) -> bool:
    """Whether it can be written as UTF-8: no lone surrogates."""
    return text.encode("utf-8", "replace").decode() == text


def _id(chunk_id: str, question: str) -> str:
    return hashlib.sha256(f"{chunk_id}\0{normalise(question)}".encode()).hexdigest()[:16]
