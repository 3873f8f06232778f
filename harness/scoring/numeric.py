r"""The scorer of mathematics: an integer, a number or an expression that the output states.

The thinking is split off, and the answer is looked for in what follows it:

    1  a box        \boxed{204}  \framebox{204}                          the last one
    2  a sentence   The answer is 204.   #### 204   정답: 204   答案是204   the last one

What counts as right follows from `Doc.meta["kind"]`:

    integer      AIME: 0 to 999, leading zeros or not (025 = 25)
    number       GSM8K: equal as fractions; 1,000 = 1000.00, $18 = 18
    expression   MATH: equal as texts in a normal form, else by math-verify

A target of several parts (`1, -2`) may be spread over several boxes: then all of them together
are the answer; for any other target it is the last box.

`accuracy` wants an answer that is stated, as strict extraction does; `accuracy_flexible`, for
numbers only, takes the last number of the text where none is stated (both after lm-eval's
gsm8k). An output that is repeated, excess, truncated or lost in thought is wrong as everywhere.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from fractions import Fraction

from harness.schema import Doc, Rollout, Score, Verdict
from harness.scoring import degenerate
from harness.scoring.text import THINK_TAGS, fold, split_thinking, squeeze, visible

VERSION = 1

METRICS = {
    "accuracy": True,
    "accuracy_flexible": True,
    "format": True,
    "output_tokens": False,
    "degenerate": False,
}
"""Metric -> whether higher is better. `format`: a readable answer is stated where it belongs."""

REASONS = (
    *degenerate.REASONS,
    "answer_in_thinking",
    "no_answer",
    "unreadable_answer",
    "out_of_range",
    "several_answers",
    "not_comparable",
)
"""Every reason this scorer can give, in the order in which it gives them.

answer_in_thinking: the only box stands before the end of the thinking. several_answers: a wrong
answer beside other boxes. not_comparable: math-verify gave up (see harness/scoring/equality.py).
"""

KINDS = ("integer", "number", "expression")
LARGEST = 999
"""Of AIME's answers."""

LONGEST = 1_000
"""Characters of an answer above which it is not read."""

NO_VOTE = -1.0
"""`vote` of a sample without a usable answer."""

_BRACE = re.compile(r"\\(?:boxed|framebox|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_LABEL = re.compile(
    r"(?:\b(?:final\s+)?answer\b[*_\s]{0,3}(?:is\b|:|=|\bwould\s+be\b)"
    r"|####"
    r"|(?:정답|최종\s?답|답)[*_]{0,2}\s?(?:은|는|이|:)"
    r"|(?:最终答案|答案)[*_]{0,2}\s?(?:是|为|為|:))[*_\s:：]{0,6}",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[.;。；](?=\s|$|\*)|,\s|\n")
_DIGITS = r"\d{1,3}(?:,\d{3})+(?!\d)|\d+"
_NUMBER = re.compile(
    rf"(?<![\d.])(?P<sign>[-−])?(?:\\[dt]?frac\s*\{{\s*(?P<over>-?\d+)\s*\}}\s*\{{\s*"
    rf"(?P<under>\d+)\s*\}}|(?P<whole>{_DIGITS})(?P<part>\.\d+)?(?:\s?/\s?(?P<by>\d+)(?![\d.]))?"
    rf"|(?P<point>\.\d+))"
)
_DRESS = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|rm|it|sf|tt)|mbox|bf|rm|displaystyle"
    r"|left|right|[!,;: ])(?![A-Za-z])|\^\s*\{?\\circ\}?|\\degree|\\%|\\\$|[${}()\[\]*_`%€£₩¥~]"
)
_WORDS = re.compile(r"\\(?:text|mbox|mathrm)[a-z]{0,2}\s*\{[^{}0-9]*[^\W\d_][^{}0-9]*\}")
_SAME = (
    (re.compile(r"\\(?:left|right|displaystyle|[!,;: ])(?![A-Za-z])"), ""),
    (re.compile(r"\\[dt]frac"), r"\\frac"),
    (re.compile(r"\\(?:text|mbox|mathrm|textbf|mathbf)\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\^\s*\{?\\circ\}?|\\%|\\\$|%|\$"), ""),
)


def score(
    doc: Doc,
    rollout: Rollout,
    verdicts: Sequence[Verdict] = (),
    think_tags: tuple[str, str] | None = THINK_TAGS,
) -> Score:
    """Score one rollout.

    Args:
        doc: One target; `kind` in its meta, one of `KINDS` (expression where it says nothing).
        rollout: An errored one gets no metric at all.
        verdicts: Not needed.
        think_tags: Tags of the reasoning.

    Returns:
        Metrics in [0, 1], output_tokens in [0, inf); reasons from `REASONS`. `vote` is no
        quantity: equal answers share it, for majority votes (harness.stats.repeated).
    """
    del verdicts
    if rollout.error is not None or rollout.finish == "error":
        return Score({})
    kind, target = str(doc.meta.get("kind", "expression")), doc.targets[0]
    output = degenerate.reasons(rollout.answer, rollout.finish, think_tags)
    thinking, rest, _ = split_thinking(rollout.answer, think_tags)
    rest = visible(rest)
    found = stated(rest, kind, target)
    normal, trouble = read(found, kind) if found is not None else (None, "no_answer")
    right, unsure = equal(normal, target, kind) if normal is not None else (False, "")
    usable = right and not output
    given = {*output, trouble, unsure}
    if found is None and boxes(thinking):
        given.add("answer_in_thinking")
    if not right and len(set(boxes(rest))) > 1:
        given.add("several_answers")
    metrics = {
        "accuracy": float(usable),
        "format": float(normal is not None and not output),
        "degenerate": float(bool(output)),
    }
    if kind == "number":
        flexible = normal if found is not None else last_number(rest)
        metrics["accuracy_flexible"] = float(
            not output and flexible is not None and equal(flexible, target, kind)[0]
        )
    if rollout.completion_tokens is not None:
        metrics["output_tokens"] = float(rollout.completion_tokens)
    votes = normal is not None and not output
    metrics["vote"] = _vote(target if right else str(normal)) if votes else NO_VOTE
    return Score(metrics, tuple(reason for reason in REASONS if reason in given))


def stated(text: str, kind: str = "integer", target: str = "") -> str | None:
    r"""The answer as it stands in a text without thinking; None where none is stated.

    Args:
        text: What follows the thinking.
        kind: One of `KINDS`.
        target: Only its number of parts matters: one of several parts takes all boxes.

    Example:
        >>> stated(r"First \boxed{7}, so the answer is \boxed{\frac{1}{2}}.")
        '\\frac{1}{2}'
    """
    found = boxes(text)
    if found:
        distinct = list(dict.fromkeys(found))
        if kind == "expression" and len(distinct) > 1 and len(parts(target)) == len(distinct):
            return ", ".join(distinct)
        return (boxes(found[-1]) or found)[-1]  # a box in a box is the answer
    labels = list(_LABEL.finditer(text))
    if not labels:
        return None
    after = text[labels[-1].end() :].lstrip()
    said = _CLAUSE_END.split(after, maxsplit=1)[0].strip()
    return said.strip(" *_") or None


def boxes(text: str) -> list[str]:
    r"""Contents of every \boxed{...} (or \framebox, \fbox) that is closed, in order.

    Braces may be nested; a box within a closed box is part of the outer one. Linear in the text.
    """
    opened: list[tuple[int, bool]] = []  # where each open brace's content starts; is it a box
    closed: list[tuple[int, int]] = []
    for brace in _BRACE.finditer(text):
        if brace[0].endswith("{") and brace[0] != "\\{":
            opened.append((brace.end(), len(brace[0]) > 1))
        elif brace[0] == "}" and opened:
            start, is_box = opened.pop()
            if is_box:
                while closed and closed[-1][0] > start:
                    closed.pop()
                closed.append((start, brace.start()))
    return [text[start:end].strip() for start, end in closed]


def parts(text: str) -> list[str]:
    """The parts of a list: cut at commas that stand in no bracket and separate no thousands."""
    found, depth, start = [""], 0, 0
    for i, c in enumerate(text):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(c, 0)
        thousands = re.match(r"\d{3}(?!\d)", text[i + 1 :]) and text[i - 1 : i].isdigit()
        if c == "," and depth <= 0 and not thousands:
            found[-1] = text[start:i].strip()
            found.append("")
            start = i + 1
    found[-1] = text[start:].strip()
    return found


def read(text: str, kind: str) -> tuple[str | None, str]:
    """An answer in normal form, or None and the reason why it has none."""
    if len(text) > LONGEST:
        return None, "unreadable_answer"
    if kind == "expression":
        return (normal_form(text) or None), ("" if normal_form(text) else "unreadable_answer")
    value = number(text)
    if value is None:
        return None, "unreadable_answer"
    if kind == "integer" and (value.denominator != 1 or not 0 <= value <= LARGEST):
        return None, "out_of_range"
    return str(value), ""


def equal(answer: str, target: str, kind: str) -> tuple[bool, str]:
    """Whether an answer in normal form is the target, and the reason where nobody can say."""
    if kind != "expression":
        return number(answer) == number(target), ""
    if answer == normal_form(target):
        return True, ""
    from harness.scoring import equality

    same = equality.equal(target, answer)
    return (False, "not_comparable") if same is None else (same, "")


def number(text: str) -> Fraction | None:
    r"""The one number that a text consists of, units and dress aside.

    What follows the last equals sign counts ("m+n = 113"), and of a sentence its first number
    ("18 dollars a day"). A number that is part of a term (3x, 2\sqrt{3}, 2^5) is none.

    Example:
        >>> number(r"\$1{,}000.50")
        Fraction(2001, 2)
    """
    text = text.replace("{,}", ",").replace("\\!", "").rpartition("=")[2]
    bare = _DRESS.sub(lambda m: "" if m[0][-1] in "{}$*_`!" else " ", _keep_fractions(text)).strip()
    match = _NUMBER.search(bare)
    if match is None:
        return None
    after = bare[match.end() :]
    beside = bare[: match.start()][-1:] + after[:1]
    is_term = re.search(r"[A-Za-z\\^√×+*/]", beside) or re.search(r"[\\^+√]|[-−]\s?\d", after)
    return None if is_term else _value(match)


def last_number(text: str) -> str | None:
    """The last number anywhere in a text, as flexible extraction takes it."""
    found = list(_NUMBER.finditer(text.replace("{,}", ",")))
    value = _value(found[-1]) if found else None
    return None if value is None else str(value)


def normal_form(text: str) -> str:
    """An expression without layout: spacing, sizes of brackets, text dress, signs of units."""
    for pattern, plain in _SAME:
        text = pattern.sub(plain, text)
    return squeeze(fold(text)).rstrip(".,")


def _vote(text: str) -> float:
    """A whole number below 2^52 that equal texts share."""
    return float(int(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:13], 16))


def _keep_fractions(text: str) -> str:
    r"""Words of units taken out, and \frac{a}{b} written a/b, so that braces mean nothing."""
    text = _WORDS.sub(" ", text)
    return re.sub(r"\\[dt]?frac\s*\{\s*(-?\d+)\s*\}\s*\{\s*(\d+)\s*\}", r" \1/\2", text)


def _value(match: re.Match[str]) -> Fraction | None:
    if len(match[0]) > LONGEST:
        return None
    if match["over"]:
        top, bottom = Fraction(int(match["over"])), int(match["under"])
    else:
        digits = (match["whole"] or "0").replace(",", "") + (match["part"] or match["point"] or "")
        top, bottom = Fraction(digits), int(match["by"] or 1)
    if not bottom:
        return None
    return (-top if match["sign"] else top) / bottom
