"""Test questions among the rows to learn from: exact, and by n-grams.

    found = overlaps(passages_of(rows), test_items)      # one Overlap a flagged test item

A test item is flagged where its question is a row's question (letters and digits alone, as
`harness.leaks` compares them), or where an n-gram of it stands in what a row shows: its prompt
without the retrieved passages, worked examples and few-shots included, and its target.

N-grams are of 13 words (GPT-3, arXiv 2005.14165, appendix C), for text without spaces between
words of 20 characters; a shorter question counts as one n-gram, from 5 words or 8 characters on.
Below that only an equal question is found. A paraphrase is not found.

Pure functions over texts.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.leaks import bare
from harness.scoring.text import CJK

WORDS, CHARACTERS = 13, 20
LEAST_WORDS, LEAST_CHARACTERS = 5, 8

_CJK = re.compile(f"[{CJK}]")

Grams = Mapping[int, frozenset[tuple[str, ...] | str]]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a row shows the model.

    Attributes:
        text: Prompt without its passages, and target.
    """

    id: str
    question: str
    text: str


@dataclass(frozen=True, slots=True)
class Item:
    """A question of a test set."""

    test_set: str
    id: str
    question: str


@dataclass(frozen=True, slots=True)
class Overlap:
    """A test item that a row gives away.

    Attributes:
        kind: "exact" (the same question), or "ngram".
        share: Of the item's n-grams that the row has, in (0, 1].
        rows: Ids of all such rows, in order.
    """

    item: Item
    kind: str
    share: float
    rows: tuple[str, ...]


def shown(row_id: str, question: str, prompt: str, target: str, passages: Iterable[str]) -> Shown:
    """What a row shows, its retrieved passages cut out once each: documents are no questions."""
    for passage in sorted(passages, key=len, reverse=True):
        if passage:
            prompt = prompt.replace(passage, "\n", 1)
    return Shown(row_id, question, f"{prompt}\n{target}")


def overlaps(rows: Sequence[Shown], items: Sequence[Item]) -> list[Overlap]:
    """Flagged test items, in their order.

    Returns:
        One a flagged item, with every row that shows it. Exact before n-gram.
    """
    grams = [_grams(item.question) for item in items]
    sizes = {(spoken, n) for spoken, n, _ in grams if n}
    wanted = {gram for _, _, own in grams for gram in own}
    having: dict[tuple[str, ...] | str, list[int]] = {}
    equal: dict[str, list[int]] = {}
    for at, row in enumerate(rows):
        equal.setdefault(bare(row.question), []).append(at)
        words, characters = _words(row.text), bare(row.text)
        for spoken, n in sizes:
            parts = _of_words(words, n) if spoken else _of_characters(characters, n)
            for gram in set(parts) & wanted:
                having.setdefault(gram, []).append(at)
    found: list[Overlap] = []
    for item, (_, _, own) in zip(items, grams, strict=True):
        same = equal.get(bare(item.question), []) if bare(item.question) else []
        hits = Counter(at for gram in own for at in having.get(gram, ()))
        if same or hits:
            share = max(hits.values()) / len(own) if hits else 1.0
            ids = tuple(rows[at].id for at in sorted({*same, *hits}))
            found.append(Overlap(item, "exact" if same else "ngram", 1.0 if same else share, ids))
    return found


def shares(found: Sequence[Overlap], items: Sequence[Item]) -> dict[str, tuple[int, int]]:
    """Test set -> (flagged items, all items)."""
    total = Counter(item.test_set for item in items)
    flagged = Counter(overlap.item.test_set for overlap in found)
    return {name: (flagged[name], n) for name, n in total.items()}


def _grams(text: str) -> tuple[bool, int, list[tuple[str, ...] | str]]:
    """Whether n-grams are of words, n, and the n-grams of a question; none if it is too short."""
    letters = bare(text)
    if 3 * len(_CJK.findall(letters)) > len(letters):
        n = min(CHARACTERS, len(letters))
        if n < LEAST_CHARACTERS:
            return False, 0, []
        return False, n, list(dict.fromkeys(_of_characters(letters, n)))
    words = _words(text)
    n = min(WORDS, len(words))
    if n < LEAST_WORDS:
        return True, 0, []
    return True, n, list(dict.fromkeys(_of_words(words, n)))


def _words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return re.findall(r"\w+", folded)


def _of_words(words: Sequence[str], n: int) -> list[tuple[str, ...] | str]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def _of_characters(text: str, n: int) -> list[tuple[str, ...] | str]:
    return [text[i : i + n] for i in range(len(text) - n + 1)]
