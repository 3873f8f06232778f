"""Plain-text helpers of the scorers: thinking, normal forms, units, character F1.

Nothing here knows a task. Every function is total: any string gives a result.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

THINK_TAGS = ("<think>", "</think>")
"""Tags assumed where a card names none."""

FINAL_PUNCTUATION = "。．.!！?？;；,，、:：…"

CJK = (
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\u1100-\u11ff"
    "\U00020000-\U0003134f"
)
"""Character class (for use inside [...]) of Han, Kana and Hangul: scripts cut by character."""

_INVISIBLE = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u00ad]+")
_SPACE = re.compile(r"\s+")
_UNITS = re.compile(rf"[{CJK}]|\d+(?:[.,]\d+)*|[^\W\d_{CJK}]+")


def split_thinking(text: str, tags: tuple[str, str] | None) -> tuple[str, str, bool]:
    """Split reasoning from what the user sees.

    The reasoning ends at the first closing tag. Without an opening tag before it (templates
    that open the block in the prompt) it starts at the beginning of the text. An opening tag
    that is never closed swallows everything after it.

    Args:
        text: Raw output.
        tags: Opening and closing tag; None means that the model does not think.

    Returns:
        (thinking, rest, closed); closed is False only for a block that is never closed.
    """
    if tags is None:
        return "", text, True
    start, end = tags
    head, found, tail = text.partition(end)
    if found:
        before, opened, thinking = head.partition(start)
        if not opened:
            return head.strip(), tail, True
        if start in tail.rpartition(end)[2]:  # a second block, left open
            seen, _, again = tail.partition(start)
            return f"{thinking.strip()}\n{again.strip()}", before + seen, False
        return thinking.strip(), before + tail if before.strip() else tail, True
    before, opened, thinking = text.partition(start)
    if opened:
        return thinking.strip(), before, False
    return "", text, True


def visible(text: str) -> str:
    """The text without zero-width characters, which nobody can read or object to."""
    return _INVISIBLE.sub("", text)


def squeeze(text: str) -> str:
    """The text without any white space."""
    return _SPACE.sub("", text)


def fold(text: str) -> str:
    """NFKC and case folding, repeated until nothing changes (so that folding is idempotent)."""
    for _ in range(4):
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        if folded == text:
            break
        text = folded
    return text


def normalise(text: str) -> str:
    """NFKC, folded case, no white space, no final punctuation; idempotent.

    Example:
        >>> normalise(" 移交 车站。")
        '移交车站'
    """
    for _ in range(4):  # taking a space away may join a letter and its accent
        folded = squeeze(visible(fold(text)))
        if folded == text:
            break
        text = folded
    return text.rstrip(FINAL_PUNCTUATION)


def units(text: str) -> list[str]:
    """Cut a text into comparable units: CJK characters, Latin words and numbers.

    This is the mixed segmentation of CMRC 2018's evaluation. White space inside Chinese text
    (line breaks of a PDF) and punctuation vanish; "15" never contains "5", nor "category" "cat".

    Example:
        >>> units("GSM-R 专用, 1,000 次")
        ['gsm', 'r', '专', '用', '1000', '次']
    """
    found = _UNITS.findall(visible(fold(text)))
    return [u.replace(",", "") if u[0].isdecimal() else u for u in found]


def char_f1(prediction: str, gold: str) -> float:
    """F1 of the two bags of units (`units`): characters in Chinese, words in English.

    Symmetric, in [0, 1]; 1 for two texts with the same units, 0 where one has none.
    """
    a, b = Counter(units(prediction)), Counter(units(gold))
    if not a or not b:
        return 0.0
    common = sum((a & b).values())
    return 2 * common / (sum(a.values()) + sum(b.values()))
