"""The degenerate-output rule: is this output usable at all, whatever it says?

Applied to every task. The rule that repeated or excess output counts as wrong is the BJTU
railway report's (III.B, with its examples in appendices X.A and X.B); the thresholds are ours,
fixed here, deterministic, and linear in the length of the text.

A loop is a stretch in which a unit stands several times in a row. It is looked for at three
grains, since a loop may close on a sentence, a clause or a few words:

    grain      longest unit    times    least weight of the whole stretch
    sentence   12 sentences      3      30
    clause     32 clauses        3      50
    word       24 words          4      50

Weight counts letters, a CJK character as two; digits and punctuation weigh nothing, so tables,
matrices and rulers are left alone (unless one mark repeats 200 times). Beside loops, a sentence
that comes back at least 5 times and makes up 30% of the text is repetition, and so is one that
differs in its numbers only, from 16 times and 50% on ("Step 41: check the page.").
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from operator import eq

from harness.scoring.text import CJK, fold, split_thinking

REASONS = (
    "repeated_output",
    "over_output",
    "unclosed_think",
    "truncated",
    "context_overflow",
    "empty_output",
)
"""The vocabulary, in the order in which reasons are given."""

_SENTENCE_END = re.compile(r"[。！？!?;；\n]+|\.(?=\s|$)|</?\w{1,20}>")
_CLAUSE_END = re.compile(r"[。！？!?;；\n,，、:：]+|\.(?=\s|$)|</?\w{1,20}>")
_WORD = re.compile(rf"[{CJK}]|\d+|[^\W\d_{CJK}]+")
_LETTERS = re.compile(r"[^\W\d_]")
_CJK = re.compile(rf"[{CJK}]")
_NOT_ALNUM = re.compile(r"[\W_]+")
_DIGITS = re.compile(r"\d+")
_ONE_MARK = re.compile(r"(\S{1,8}?)\1{199}")

_OFTEN = 5, 16, 0.3  # occurrences, weight of the sentence, share of the text
_NUMBERED = 16, 16, 0.5

_NEW_TURN = re.compile(
    r"<\|(?:im_start|im_end|endoftext|eot_id|start_header_id|end_header_id)\|>"
    r"|<(?:start|end)_of_turn>|\[/?INST\]"
    r"|(?:^|(?<=>))[ \t*#]*"
    r"(?:Human|User|Assistant|Question|人类|用户|助手|问题|질문)[ \t*]*[:：]",
    re.MULTILINE,
)


def reasons(
    text: str, finish: str = "stop", think_tags: tuple[str, str] | None = None
) -> tuple[str, ...]:
    """Say what makes an output unusable.

    Loops are looked for in what the user sees, and in the reasoning only where it was never
    closed: a finished thought may go in circles as long as an answer comes of it.

    Args:
        text: Raw output, thinking included.
        finish: Why generation ended (`harness.schema.Finish`).
        think_tags: Tags of the reasoning, or None.

    Returns:
        A subset of `REASONS`, in that order; empty for a usable output.
    """
    thinking, rest, closed = split_thinking(text, think_tags)
    found = {
        "repeated_output": repeats(rest if closed else f"{rest}\n{thinking}"),
        "over_output": opens_new_turn(rest),
        "unclosed_think": not closed,
        "truncated": finish == "length",
        "context_overflow": finish == "context",
        "empty_output": closed and not rest.strip(),
    }
    return tuple(reason for reason in REASONS if found[reason])


def opens_new_turn(text: str) -> bool:
    """Whether the output goes on to play another turn of the conversation.

    A speaker ("Human:", "问题：", ...) at the start of a line or right after a tag counts if
    something precedes it; a chat template's control token counts there too.
    """
    return any(text[: match.start()].strip() for match in _NEW_TURN.finditer(text))


def repeats(text: str) -> bool:
    """Whether the text is stuck in a loop, by the thresholds in the module's docstring."""
    text = fold(text)
    sentences = _pieces(_SENTENCE_END, text)
    return (
        _loops(sentences, longest=12, times=3, least=30)
        or _loops(_pieces(_CLAUSE_END, text), longest=32, times=3, least=50)
        or _loops(_WORD.findall(text), longest=24, times=4, least=50)
        or _comes_back(sentences, *_OFTEN)
        or _comes_back([_DIGITS.sub("0", s) for s in sentences], *_NUMBERED)
        or _ONE_MARK.search(text) is not None
    )


def _pieces(end: re.Pattern[str], text: str) -> list[str]:
    """Letters and digits of each piece; pieces without any are dropped."""
    return [p for p in (_NOT_ALNUM.sub("", piece) for piece in end.split(text)) if p]


def _weight(piece: str) -> int:
    return len(_LETTERS.findall(piece)) + len(_CJK.findall(piece))


def _loops(pieces: Sequence[str], longest: int, times: int, least: int) -> bool:
    """Whether some unit of up to `longest` pieces follows itself often and heavily enough.

    For each period p, the places where piece i equals piece i - p are marked at C speed; a run
    of (times - 1) * p marks is that many units in a row.
    """
    if len(pieces) < times:
        return False
    ids: dict[str, int] = {}
    row = [ids.setdefault(piece, len(ids)) for piece in pieces]
    if len(ids) == len(row):
        return False
    weights = [_weight(piece) for piece in ids]
    total = list(accumulate((weights[i] for i in row), initial=0))
    for period in range(1, min(longest, len(row) // times) + 1):
        same = bytes(map(eq, row[period:], row))
        for run in re.finditer(rb"\x01{%d,}" % ((times - 1) * period), same):
            if total[run.end() + period] - total[run.start()] >= least:
                return True
    return False


def _comes_back(sentences: Sequence[str], times: int, weight: int, share: float) -> bool:
    """Whether one sentence of at least `weight` makes up `share` of the text, `times` over."""
    counts = Counter(sentences)
    frequent = [(s, n) for s, n in counts.items() if n >= times]
    if not frequent:
        return False
    total = sum(_weight(s) * n for s, n in counts.items())
    return any(
        (w := _weight(sentence)) >= weight and w * n >= share * total for sentence, n in frequent
    )
