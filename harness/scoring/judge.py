"""The deterministic judge: is the answer right, is the page right, without any model.

It reads the extracted spans as data only, so nothing a prediction says about itself ("this
answer is correct") can matter. An answer is right if, for one of the targets,

1. it is at most `MAX_LENGTH_RATIO` times as long (copying the page must not win), and
2. it contains the target; or the target contains it and it is at least `MIN_SHARE` of the
   target; or their F1 is at least `MIN_F1` and they name the same numbers.

Containment and F1 work on `harness.scoring.text.units`, never within a word or a number. A
negation before the shared part, or on one side only, breaks the match: "do not open the doors"
is no paraphrase of "open the doors". The thresholds are settings of this judge; a change of one
is a new version.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.schema import Doc, Verdict
from harness.scoring.tagged import TaggedAnswer
from harness.scoring.text import char_f1, normalise, units

NAME = "deterministic@1"
MAX_LENGTH_RATIO = 3.0
MIN_SHARE = 0.5
MIN_F1 = 0.7

_NEGATIONS = frozenset("不没未非无勿禁莫") | {"not", "no", "never", "cannot", "without", "nor", "t"}
_REACH = 4  # units before the shared part in which a negation bears on it


def judge(doc: Doc, parsed: TaggedAnswer) -> Verdict:
    """Judge one parsed answer.

    Args:
        doc: Its `targets`, and `meta["gold_page"]` (int) or `meta["gold_pages"]` (list).
        parsed: What the output said.

    Returns:
        Values answer_correct and page_correct; each only where the doc knows the gold.
    """
    values: dict[str, bool | float] = {}
    if doc.targets:
        values["answer_correct"] = any(answer_matches(parsed.answer or "", t) for t in doc.targets)
    gold = gold_pages(doc)
    if gold:
        values["page_correct"] = set(parsed.pages) == gold
    return Verdict(NAME, values or None)


def gold_pages(doc: Doc) -> set[int]:
    """Pages the answer must name, all of them; empty where the doc has none."""
    pages = doc.meta.get("gold_pages")
    if pages is None:
        page = doc.meta.get("gold_page")
        pages = [] if page is None else [page]
    return {int(p) for p in pages}


def answer_matches(prediction: str, target: str) -> bool:
    """Whether a prediction says what the target says, by the rule in the module's docstring."""
    if len(normalise(prediction)) > MAX_LENGTH_RATIO * len(normalise(target)):
        return False
    said, gold = units(prediction), units(target)
    if not said or not gold:
        return normalise(prediction) == normalise(target) != ""  # signs only: "±"
    place = _find(gold, said)
    if place is not None:
        return not _negated(said, place)
    place = _find(said, gold)
    if place is not None and len(said) >= MIN_SHARE * len(gold):
        return not _negated(gold, place)
    return (
        char_f1(prediction, target) >= MIN_F1
        and _numbers(said) == _numbers(gold)
        and bool(_NEGATIONS.intersection(said)) == bool(_NEGATIONS.intersection(gold))
    )


def _find(part: Sequence[str], whole: Sequence[str]) -> int | None:
    """Index at which `part` occurs in `whole` as a stretch of units."""
    marked = "\n" + "\n".join(whole) + "\n"
    place = marked.find("\n" + "\n".join(part) + "\n")
    return None if place < 0 else marked.count("\n", 0, place)


def _negated(unit: Sequence[str], place: int) -> bool:
    return bool(_NEGATIONS.intersection(unit[max(0, place - _REACH) : place]))


def _numbers(unit: Sequence[str]) -> list[str]:
    return sorted(u for u in unit if u[0].isdecimal())
