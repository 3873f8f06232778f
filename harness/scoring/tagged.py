"""The tagged protocol: `<answer>...</answer>` and `<page>...</page>`, once each, nothing else.

Source: BJTU railway report, appendix X.A. White space around and between the two is free, and
thinking in front (usually an empty `<think></think>`) is split off first. Everything else is a
failure with a reason:

    over_output       text before, between or after, or an essay where a page number belongs
    repeated_output   a tag more than once
    bad_format        a tag missing, nested, in the wrong order or left open; with it
    missing_answer, missing_page    nothing between those tags
    unreadable_page   a page without a number (the format itself is right)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.scoring.text import THINK_TAGS, fold, split_thinking, visible

REASONS = (
    "repeated_output",
    "over_output",
    "bad_format",
    "missing_answer",
    "missing_page",
    "unreadable_page",
)
"""The vocabulary, in the order in which reasons are given."""

MAX_PAGE_TEXT = 64
"""Characters between the page tags above which the text is excess output."""

_TAG = re.compile(r"<(/?)(answer|page)>")
_NUMBER = re.compile(r"\d+")
_HAN_PAGE = re.compile(r"([零〇一二三四五六七八九十百]+)页|^第?([零〇一二三四五六七八九十百]+)$")
_HAN_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"〇": 0}
_RIGHT_ORDER = ["<answer>", "</answer>", "<page>", "</page>"]


@dataclass(frozen=True, slots=True)
class TaggedAnswer:
    """What was read from an output.

    Attributes:
        answer: Text of the first complete answer, stripped; None if there is none.
        page_text: Text of the first complete page, stripped; None if there is none.
        pages: Page numbers in it, each once, in order.
        reasons: Subset of `REASONS`, in that order.
        well_formed: Both tags exactly once, filled, in order, and nothing else.
    """

    answer: str | None
    page_text: str | None
    pages: tuple[int, ...]
    reasons: tuple[str, ...]
    well_formed: bool


def parse(text: str, think_tags: tuple[str, str] | None = THINK_TAGS) -> TaggedAnswer:
    """Read the two tags; never raises, linear in the length of the text.

    Args:
        text: Raw output.
        think_tags: Tags of the reasoning; None takes nothing but an empty default block off.
    """
    rest = visible(_without_thinking(text, think_tags))
    tags = list(_TAG.finditer(rest))
    spans: dict[str, list[str]] = {"answer": [], "page": []}
    outside: list[str] = []
    end = 0
    for i, tag in enumerate(tags):
        outside.append(rest[end : tag.start()])
        end = tag.end()
        if tag[1]:  # a closing tag: what precedes it was taken with its opening tag
            continue
        after = tags[i + 1] if i + 1 < len(tags) else None
        if after is not None and after[1] and after[2] == tag[2]:
            spans[tag[2]].append(rest[tag.end() : after.start()].strip())
            end = after.start()
        elif after is not None:  # left open or nested: its text is lost, not excess
            end = after.start()
        else:
            end = len(rest)
    outside.append(rest[end:])

    names = [tag[0] for tag in tags]
    answer = next(iter(spans["answer"]), None)
    page_text = next(iter(spans["page"]), None)
    pages = parse_pages(page_text or "")
    any_span = bool(spans["answer"] or spans["page"])
    found = {
        "repeated_output": len(set(names)) < len(names),
        "over_output": (any_span and any(part.strip() for part in outside))
        or len(page_text or "") > MAX_PAGE_TEXT,
        "bad_format": names != _RIGHT_ORDER or not answer or not page_text,
        "missing_answer": not answer,
        "missing_page": not page_text,
        "unreadable_page": bool(page_text) and not pages,
    }
    reasons = tuple(reason for reason in REASONS if found[reason])
    well_formed = not {"repeated_output", "over_output", "bad_format"}.intersection(reasons)
    return TaggedAnswer(answer or None, page_text or None, pages, reasons, well_formed)


def parse_pages(text: str) -> tuple[int, ...]:
    """Page numbers in a text: "5", "第5页", "page 5", "５", "第十二页", "5, 6".

    Returns:
        Each number once, in order; numbers of more than nine digits are no page numbers.
    """
    folded = fold(text)
    found = [int(n) for n in _NUMBER.findall(folded) if len(n) <= 9]
    if not found:
        hans = [a or b for a, b in _HAN_PAGE.findall(folded.strip())]
        found = [_han_number(h) for h in hans if len(h) <= 5]
    return tuple(dict.fromkeys(found))


def _without_thinking(text: str, think_tags: tuple[str, str] | None) -> str:
    thinking, rest, _ = split_thinking(text, think_tags or THINK_TAGS)
    return text if think_tags is None and thinking else rest


def _han_number(text: str) -> int:
    """Chinese numeral below 1000, written with or without units (十二, 一百零三, 一二)."""
    if not set(text) & set("十百"):
        return int("".join(str(_HAN_DIGITS[c]) for c in text))
    total = digit = 0
    for c in text:
        if c in "十百":
            total += (digit or 1) * (10 if c == "十" else 100)
            digit = 0
        else:
            digit = _HAN_DIGITS[c]
    return total + digit
