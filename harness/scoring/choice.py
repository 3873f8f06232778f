r"""The scorer of multiple choice: by log-likelihood, or by the letter that a text states.

A rollout with `choices` is scored by them: the choice of the largest log-likelihood, summed
(`accuracy`) or per character (`accuracy_norm`, lm-eval's acc_norm; absent where all choices are
equally long, as letters are, since it is `accuracy` then). The first of equals is taken.

Any other rollout is read for a stated letter. The thinking is split off, and four forms are
looked for, in this order:

    1  a label with a colon    Answer: B   정답: B   答案：B          the first one
    2  a sentence              the answer is B   정답은 B   故选B     the last one
    3  a box                   \boxed{B}                              the last one
    4  nothing but the choice  B   (B)   B. its text                  one line

Form 1 and its "first" are simple-evals' (re.search of "Answer: [A-D]"); the label exists here in
three languages, and letters that go on as a word ("Answer: Both") are none. The other forms are
for outputs without a label; a conclusion follows its reasoning, so the last one counts.

No answer, or several at once ("A or B"), is a wrong answer with its reason, never unscored. As
everywhere, an output that is repeated, excess, truncated or lost in thought is wrong too.

Fields read from `Doc.meta`: choices (list of str), gold (index into it). A doc's `stratum` is its
subject: `macro_accuracy`, the mean over subjects, is made by the statistics (harness.records).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache

from harness.schema import Doc, Rollout, Score, Verdict
from harness.scoring import degenerate
from harness.scoring.text import THINK_TAGS, split_thinking, visible

VERSION = 1

METRICS = {
    "accuracy": True,
    "macro_accuracy": True,
    "accuracy_norm": True,
    "answered": True,
    "output_tokens": False,
    "degenerate": False,
}
"""Metric -> whether higher is better; macro_accuracy is an aggregate, no doc has it."""

REASONS = (*degenerate.REASONS, "no_answer", "several_answers")
"""Every reason this scorer can give, in the order in which it gives them."""

LETTERS = "ABCDEFGHIJ"
"""Names of the choices, in order."""

_LABEL = r"(?:(?i:\banswer)|정답|답안|답변|답|答案)"
_SAID = (
    r"(?i:\b(?:answer|option|choice)(?:\s+(?:is|would\s+be|should\s+be|must\s+be)))"
    r"|(?:정답|답안|답)\s{0,3}(?:은|는|이)"
    r"|아니(?:라|고)"
    r"|(?:答案|正确选项|正確選項)\s{0,3}(?:应该|應該)?(?:是|为|為|选|選)"
    r"|(?<!不)(?:故选|应选|因此选|所以选|选择|故選|應選|選擇)"
)
_OPEN = r"(?:[\s*_`$\"'“‘(\[{<「【:]|\\(?:boxed|text|textbf|mathbf|mathrm)\b){0,12}"
_CLOSE = r"[\s*_`\"'”’)\]}>」】]{0,12}"
_NOUN = r"(?:(?i:(?:the\s+)?(?:option|choice|letter))\b|보기|선택지|选项|選項)?"
_END = r"(?![A-Za-z0-9\u00c0-\u024f]|['’-][A-Za-z])(?!\s{0,3}(?:가|이|은|는)?\s{0,3}아니)"
_AND = r"\s{0,3}(?:,|/|&|、|(?i:or|and)\b|또는|및|와|과|이나|나|或|和)\s{0,3}"


def score(
    doc: Doc,
    rollout: Rollout,
    verdicts: Sequence[Verdict] = (),
    think_tags: tuple[str, str] | None = THINK_TAGS,
) -> Score:
    """Score one rollout.

    Args:
        doc: With `choices` and `gold` in its meta.
        rollout: An errored one gets no metric at all.
        verdicts: Not needed.
        think_tags: Tags of the reasoning.

    Returns:
        Metrics in [0, 1], output_tokens in [0, inf); reasons from `REASONS`.
    """
    del verdicts
    if rollout.error is not None or rollout.finish == "error":
        return Score({})
    choices: Sequence[str] = doc.meta["choices"]
    gold = int(doc.meta["gold"])
    if rollout.choices is not None:
        return Score(likelihood_metrics(rollout.choices, [len(c) for c in choices], gold))
    letters = stated(rollout.answer, len(choices), think_tags)
    output = degenerate.reasons(rollout.answer, rollout.finish, think_tags)
    given = {*output}
    if len(letters) != 1:
        given.add("several_answers" if letters else "no_answer")
    metrics = {
        "accuracy": float(letters == LETTERS[gold] and not output),
        "answered": float(len(letters) == 1),
        "degenerate": float(bool(output)),
    }
    if rollout.completion_tokens is not None:
        metrics["output_tokens"] = float(rollout.completion_tokens)
    return Score(metrics, tuple(reason for reason in REASONS if reason in given))


def likelihood_metrics(
    totals: Sequence[float], lengths: Sequence[int], gold: int
) -> dict[str, float]:
    """Accuracy by summed log-likelihood, and per character where lengths differ.

    Args:
        totals: Log-likelihood of each choice.
        lengths: Characters of each choice, without the space in front; at least 1.
        gold: Index of the right one.

    Source: lm-eval's acc and acc_norm (its `multiple_choice`).
    """
    metrics = {"accuracy": float(_argmax(totals) == gold)}
    if len(set(lengths)) > 1:
        per_character = [t / max(n, 1) for t, n in zip(totals, lengths, strict=True)]
        metrics["accuracy_norm"] = float(_argmax(per_character) == gold)
    return metrics


def stated(text: str, n: int = 4, think_tags: tuple[str, str] | None = THINK_TAGS) -> str:
    """The letter that an output states; "" for none, several letters where it names several.

    Args:
        text: Raw output.
        n: Number of choices, at most 10.
        think_tags: Tags of the reasoning.

    Example:
        >>> stated("정답은 (나)가 아니라 B입니다. 정답: B")
        'B'
    """
    rest = split_thinking(text, think_tags)[1]
    seen = unicodedata.normalize("NFKC", visible(rest)).strip()
    for pattern, first in _forms(n):
        found = [m["first"] + (m["second"] or "") for m in pattern.finditer(seen)]
        if found:
            letters = (found[0] if first else found[-1]).upper()
            return "".join(dict.fromkeys(letters))
    return ""


@cache
def _forms(n: int) -> tuple[tuple[re.Pattern[str], bool], ...]:
    """The four forms for n choices, and whether the first match of the form counts."""
    upper, lower = LETTERS[:n], LETTERS[:n].lower()
    # A small letter is an answer only where nothing follows: "a mixture" is none.
    one = rf"(?P<first>[{upper}]{_END}|[{lower}](?=[.):*\"'}}]*\s*$))"
    many = rf"{one}(?:{_CLOSE}{_AND}{_OPEN}(?P<second>[{upper}]){_END})?"
    box = rf"\\boxed\s{{0,3}}\{{{_OPEN}{many}"
    alone = rf"\A{_OPEN}{many}(?:{_CLOSE}[.。]?{_CLOSE}|[.):][^\n]*)\Z"
    return (
        (re.compile(rf"{_LABEL}{_CLOSE}:{_OPEN}{_NOUN}{_OPEN}{many}", re.MULTILINE), True),
        (re.compile(rf"(?:{_SAID}){_OPEN}{_NOUN}{_OPEN}{many}", re.MULTILINE), False),
        (re.compile(box, re.MULTILINE), False),
        (re.compile(alone), True),
    )


def _argmax(values: Sequence[float]) -> int:
    return values.index(max(values))
