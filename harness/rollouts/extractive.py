"""A reader without a model: the floor that every checkpoint has to beat.

It looks for the sentence of the passages that shares the rarest words with the question, cuts
the stretch of it that the question does not already say, and names the sentence's page, in the
tagged format. What the question asks for (a number, a person, a place, a reason) moves the
stretch. No training, no network, no randomness: the same doc gives the same bytes for ever.

Words are compared by their first five letters, Chinese, Japanese and Korean by character pairs.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from harness.rollouts.options import read, takes
from harness.schema import Command, Doc, Passage, PolicyConfig, Rollout, Turn
from harness.scoring.text import CJK

MODES = ("span", "page")
UNKNOWN = "unknown"

MAX_WORDS = 6
MAX_CHARACTERS = 24
"""Longest answer, in words, or in characters of a CJK text: gold answers are short, and one
over three times their length is wrong."""

_STEM = 5
_TOKEN = re.compile(rf"[{CJK}]|\d+(?:[.,:]\d+)*|[^\W\d_{CJK}]+(?:['’-][^\W\d_]+)*")
_IS_CJK = re.compile(rf"[{CJK}]")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^\Wa-z])|(?<=[。！？；])")
_SECTION = re.compile(rf"^(?:\d+(?:\.\d+)+\.?|\d+\.)\s*(?=[A-Z{CJK}])")  # "3.4 Platforms."
_BREAK = re.compile(r"[,;:()，；：（）、。.!?！？]")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FUNCTION = _words(
    "a an the of in on at to for from by with and or but as is are was were be been being it its "
    "this that these those which who whom whose what when where why how do does did has have had "
    "not no must may can should will would shall if than then so into out up over under they "
    "their them he she his her there any all each some after before during until while also only "
    "的 了 在 是 和 与 及 或 等 应 须 要 由 对 被 把 将 为 以 并 后 前 时 其 该 中 上 下"
)
_NUMBER_WORDS = _words(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety "
    "hundred thousand half quarter once twice dozen third double"
)
_PLACES = _words("in on at to behind under beside near from outside inside above below")
_REASONS = _words("because since so as otherwise")
_PERSON = re.compile(
    r"(?:er|or|ers|ors|ist|ant|ants|ian|man|men|police|crew|party|team|长|员|警|师)$"
)

_ASKS = (
    (
        "number",
        re.compile(
            r"\bhow (?!(?:do|does|did|is|are|should|can|must|may)\b)\w+"
            r"|\b(?:speed|distance|temperature|percentage|share|number|quantity|height|pace)\b"
            r"|\b(?:minimum|maximum|limit)\b|\b(?:what|target) time\b|多少|几|多久|多长|何时"
        ),
    ),
    ("person", re.compile(r"\bwho(?:m|se)?\b|谁|哪些人|何人")),
    ("reason", re.compile(r"\bwhy\b|\bwhat reason\b|为什么|为何|目的")),
    ("place", re.compile(r"\bwhere\b|\bwhich (?:car|room|place|side|station)\b|哪里|何处|哪儿")),
)
"""What a question asks for, by its words; the first that fits."""


@dataclass(frozen=True, slots=True)
class _Token:
    """A word or CJK character of a sentence, with its place there."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ExtractiveOptions:
    """Settings of `extractive`, explained there."""

    mode: str = "span"
    drop_every: int = 0

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        if self.mode not in MODES:
            raise ValueError(f"option 'mode' must be one of {', '.join(MODES)}, is '{self.mode}'")
        if self.drop_every < 0:
            raise ValueError(f"option 'drop_every' must be 0 or more, is {self.drop_every}")


@takes(ExtractiveOptions)
def extractive(doc: Doc, config: PolicyConfig) -> Generator[Command, Any, Rollout]:
    """Answer from the passages without asking anything of a model.

    Options (`PolicyConfig.options`):
        mode: "span" (default), or "page", which copies the whole best page: a reader that must
            score 0 on answers.
        drop_every: n > 0 makes a reader that answers "unknown", without a page, for about 1 in
            n docs, chosen by a hash of the doc's id: a known loss, to see a gate fire. 0 (the
            default) never does.

    Raises:
        UsageError: Unknown option or bad value.
    """
    options: ExtractiveOptions = read(extractive, config.options)
    mode, drop_every = options.mode, options.drop_every
    if drop_every and _dropped(doc.id, drop_every):
        text = _formatted(UNKNOWN, None)
    elif mode == "page":
        _, passage = best_sentence(doc.question, doc.passages)
        text = _formatted(" ".join(passage.text.split()) if passage else UNKNOWN, passage)
    else:
        sentence, passage = best_sentence(doc.question, doc.passages)
        text = _formatted(span(doc.question, sentence) or UNKNOWN, passage)
    return Rollout(doc.id, config.repeat, (Turn("model", text),), text)
    yield  # a generator that never asks for anything


def best_sentence(question: str, passages: Sequence[Passage]) -> tuple[str, Passage | None]:
    """The sentence that shares the rarest words with the question, and its passage.

    Each word counts with its idf over the sentences of all passages; the passage as a whole
    counts a little, and so does its rank. Ties go to the earlier sentence.
    """
    asked = set(_stems(_tokens(question)))
    rows: list[tuple[str, Passage, set[str]]] = []
    for passage in passages:
        whole = _joined(passage.text)
        for piece in _SENTENCE.split(whole):
            sentence = _SECTION.sub("", piece.strip())
            stems = set(_stems(_tokens(sentence)))
            if stems:
                rows.append((sentence, passage, stems))
    if not rows:
        return "", passages[0] if passages else None
    frequency = Counter(stem for _, _, stems in rows for stem in stems)
    idf = {stem: math.log(1 + len(rows) / frequency[stem]) for stem in asked if frequency[stem]}
    by_page: dict[str, float] = {}
    for _, passage, stems in rows:
        found = math.fsum(idf[stem] for stem in asked & stems)
        by_page[passage.doc_id] = by_page.get(passage.doc_id, 0.0) + found
    best, best_score = rows[0], -1.0
    ranks = {p.doc_id: rank for rank, p in enumerate(passages)}
    for row in rows:
        _, passage, stems = row
        score = math.fsum(idf[stem] for stem in asked & stems) / (1 + 0.02 * len(stems))
        score += 0.1 * by_page[passage.doc_id] - 0.1 * ranks[passage.doc_id]
        if score > best_score:
            best, best_score = row, score
    return best[0], best[1]


def span(question: str, sentence: str) -> str:
    """The stretch of a sentence that most likely answers the question.

    Words that the question already says weigh against a stretch, new ones for it, more so near
    what the question says and where they are of the kind it asks for; the heaviest stretch of
    at most `MAX_WORDS` words (`MAX_CHARACTERS` characters in CJK) wins, with the function words
    in front of it.
    """
    tokens = _tokens(sentence)
    if not tokens:
        return ""
    cjk = 2 * sum(bool(_IS_CJK.match(t.text)) for t in tokens) > len(tokens)
    limit = MAX_CHARACTERS if cjk else MAX_WORDS
    weights = _weights(question, sentence, tokens)
    best, best_score = (0, 1), -math.inf
    for start in range(len(tokens)):
        score = 0.0
        for end in range(start + 1, min(start + limit, len(tokens)) + 1):
            score += weights[end - 1]
            if end - start > 1 and _BREAK.search(
                sentence, tokens[end - 2].end, tokens[end - 1].start
            ):
                score -= 1.0
            if score > best_score + 1e-9:
                best, best_score = (start, end), score
    start, end = best
    while (
        start > 0
        and end - start < limit
        and tokens[start - 1].text.lower() in _FUNCTION
        and not _BREAK.search(sentence, tokens[start - 1].end, tokens[start].start)
    ):
        start -= 1
    return sentence[tokens[start].start : tokens[end - 1].end]


def _weights(question: str, sentence: str, tokens: Sequence[_Token]) -> list[float]:
    """How much each token speaks for a stretch that holds it."""
    asked = set(_stems(_tokens(question)))
    said = [bool(asked & set(_stems([t]))) for t in tokens]
    if any(_IS_CJK.match(t.text) for t in tokens):
        pairs = [a.text + b.text in asked for a, b in pairwise(tokens)]
        for i, hit in enumerate(pairs):
            if hit:
                said[i] = said[i + 1] = True
    places = [i for i, hit in enumerate(said) if hit]
    kind = next((name for name, pattern in _ASKS if pattern.search(question.lower())), "")
    weights: list[float] = []
    for i, token in enumerate(tokens):
        word = token.text.lower()
        near = min((abs(i - place) for place in places), default=0)
        if said[i]:
            weight = -0.6
        elif word in _FUNCTION:
            weight = 0.05
        else:
            weight = 1.0 / (1.0 + 0.3 * near)
        weights.append(weight + _kind_bonus(kind, tokens, i))
    return weights


def _kind_bonus(kind: str, tokens: Sequence[_Token], i: int) -> float:
    word = tokens[i].text.lower()
    before = tokens[i - 1].text.lower() if i else ""
    if kind == "number":
        if _is_number(word):
            return 3.0
        return 1.0 if _is_number(before) else -0.3
    if kind == "person":
        return 1.0 if _PERSON.search(word) else 0.0
    if kind == "place":
        return 0.8 if before in _PLACES or word in _PLACES else 0.0
    if kind == "reason":
        return 0.5 if any(t.text.lower() in _REASONS for t in tokens[max(0, i - 6) : i]) else 0.0
    return 0.0


def _is_number(word: str) -> bool:
    return word[:1].isdecimal() or any(part in _NUMBER_WORDS for part in word.split("-"))


def _tokens(text: str) -> list[_Token]:
    return [_Token(m[0], m.start(), m.end()) for m in _TOKEN.finditer(text)]


def _stems(tokens: Sequence[_Token]) -> list[str]:
    """Comparable parts: first letters of content words, character pairs of CJK runs."""
    words = [
        re.sub(r"['’]s?$", "", t.text.lower())[:_STEM]
        for t in tokens
        if not _IS_CJK.match(t.text) and t.text.lower() not in _FUNCTION
    ]
    pairs = [
        a.text + b.text
        for a, b in pairwise(tokens)
        if a.end == b.start and _IS_CJK.match(a.text) and _IS_CJK.match(b.text)
    ]
    return words + pairs


def _joined(text: str) -> str:
    """The text on one line, without the spaces a PDF leaves inside Chinese."""
    return re.sub(rf"(?<=[{CJK}，。；：、])\s+(?=[{CJK}，。；：、])", "", " ".join(text.split()))


def _formatted(answer: str, passage: Passage | None) -> str:
    page = passage.page if passage is not None and passage.page is not None else UNKNOWN
    answer = re.sub(r"[<>]+", " ", answer).strip()  # no tag of a passage gets through
    if not any(c.isprintable() and not c.isspace() for c in answer):
        answer = UNKNOWN  # nothing to see: soft hyphens, zero-width marks, controls
    return f"<answer>{answer}</answer>\n<page>{page}</page>"


def _dropped(doc_id: str, every: int) -> bool:
    digest = hashlib.sha256(f"extractive-lossy:{doc_id}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % every == 0
