r"""How the answer is found in an output, as the published code of each dialect finds it.

    r1_searcher        generation ends at the first </answer>; from the last <answer> before it,
                       white space kept; without both tags there is no answer
    search_r1,         the last <answer>...</answer> pair, read from the left, stripped
    flashrag
    self_ask, ircot    what follows the last "answer is", to the end of the line
    search_o1          the last \boxed{...}
    plain              the whole output (FlashRAG's naive generation and standard RAG)

Every function is total and linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from harness.errors import UsageError, nearest

DEFAULT = "r1_searcher"
OPEN, CLOSE = "<answer>", "</answer>"

_PAIRS = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_SAYS = re.compile(r"\b(?:final answer|answer) is:?\s*([^\n]*)", re.IGNORECASE)
_BOXED = "\\boxed{"


def _first_closed(text: str) -> str | None:
    """R1-Searcher: generation ends at the first closing tag; the last opening one before it."""
    before, closed, _ = text.partition(CLOSE)
    _, opened, answer = before.rpartition(OPEN)
    return answer if closed and opened else None


def _last_pair(text: str) -> str | None:
    """Search-R1 and FlashRAG: the last pair, read from the left, stripped."""
    found = _PAIRS.findall(text[: text.rfind(CLOSE) + len(CLOSE)] if CLOSE in text else "")
    return found[-1].strip() if found else None


def _says(text: str) -> str | None:
    """Self-Ask and IRCoT: what follows the last "answer is", to the end of the line."""
    found = _SAYS.findall(text)
    return found[-1].strip().removesuffix(".") if found else None


def _boxed(text: str) -> str | None:
    r"""Search-o1: the last \boxed{...}, braces balanced; None where it is never closed."""
    start = text.rfind(_BOXED)
    if start < 0:
        return None
    depth = 1
    for end in range(start + len(_BOXED), len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[start + len(_BOXED) : end]
    return None


def _whole(text: str) -> str | None:
    """Naive generation and standard RAG in FlashRAG: the whole output is the answer."""
    return text.strip() or None


EXTRACTORS: dict[str, Callable[[str], str | None]] = {
    "r1_searcher": _first_closed,
    "search_r1": _last_pair,
    "flashrag": _last_pair,
    "self_ask": _says,
    "ircot": _says,
    "search_o1": _boxed,
    "plain": _whole,
}
"""Dialect -> how its published code finds the answer in the model's output.

Search-R1's code reads prompt and output together and asks for two pairs, since its prompt holds
one as an example; over the output alone that is one pair.
"""


def extract(text: str, dialect: str = DEFAULT) -> str | None:
    """The answer in an output, as it stands there; None without one.

    Raises:
        UsageError: Unknown dialect; the message gives the nearest ones.
    """
    if dialect not in EXTRACTORS:
        raise UsageError(f"unknown dialect '{dialect}': {nearest(dialect, EXTRACTORS)}")
    return EXTRACTORS[dialect](text)
