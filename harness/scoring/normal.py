"""Normal forms of short answers, as four published evaluations define them.

Every variant lowers the case, drops the articles a, an and the, and squeezes white space. They
differ in what else they do, so a figure names its variant:

                r1_searcher            squad        hotpotqa     search_r1    flashrag
    punctuation a space                removed      removed      removed      removed
    ‘ ’ ´       punctuation            kept         kept         kept         kept
    "_"         a space                removed      removed      removed      removed
    True, False yes, no                kept         kept         kept         kept
    closed      yes, no, noanswer      none         as left      none         as left

Punctuation is ASCII's (`string.punctuation`). True and False count as yes and no only where they
are the whole text, capital letter included. A *closed* answer scores an F1 of 0 against anything
but itself ("no" against "no evidence").

    text            r1_searcher     squad, hotpotqa, search_r1, flashrag
    "L'Oréal"       l oréal         loréal
    "U.S."          u s             us
    "1,000"         1 000           1000
    "The-Dream"     dream           thedream
    "’Allo"         allo            ’allo
    "True"          yes             true

Sources: R1-Searcher's evaluation and reward servers (RUCAIBox/R1-Searcher @631167cbb3c2);
SQuAD v1.1 and HotpotQA's official scripts; Search-R1's `qa_em.py`; FlashRAG's evaluator. The
last four share one normal form: squad and search_r1 differ from hotpotqa and flashrag in the
closed answers, and search_r1 publishes no F1 (it is given SQuAD's here).

A target that is nothing but articles and punctuation ("The The", "A") has an empty normal form.
The published evaluations then find it everywhere (cover match) or in every other empty answer
(EM); here such a target is compared without the removal of articles, and only one of bare
punctuation as it stands.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.errors import UsageError, nearest

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII = string.punctuation
_R1 = string.punctuation + "‘’´`"


@dataclass(frozen=True, slots=True)
class Variant:
    """One published normal form.

    Attributes:
        punctuation: Character -> what stands in its place; "" removes it.
        booleans: Whole texts that mean something else.
        closed: Normal forms whose F1 is all or nothing.
    """

    punctuation: Mapping[int, str]
    booleans: Mapping[str, str] = field(default_factory=dict[str, str])
    closed: frozenset[str] = frozenset()

    def normalise(self, text: str) -> str:
        """The normal form, words parted by single spaces; may be empty."""
        return " ".join(_ARTICLES.sub(" ", self._plain(text)).split())

    def pair(self, prediction: str, target: str) -> tuple[str, str]:
        """Normal forms of both, by the weaker rule where the target's would be empty."""
        gold = self.normalise(target)
        if gold:
            return self.normalise(prediction), gold
        gold = " ".join(self._plain(target).split())
        if gold:
            return " ".join(self._plain(prediction).split()), gold
        return prediction.strip(), target.strip()

    def _plain(self, text: str) -> str:
        return self.booleans.get(text, text).lower().translate(self.punctuation)


_YES_NO = frozenset({"yes", "no", "noanswer"})
_REMOVED = {ord(c): "" for c in _ASCII}

_SQUAD = Variant(_REMOVED)
_HOTPOTQA = Variant(_REMOVED, closed=_YES_NO)

VARIANTS: Mapping[str, Variant] = {
    "r1_searcher": Variant(
        {ord(c): " " for c in _R1}, {"True": "yes", "False": "no"}, _YES_NO
    ),
    "squad": _SQUAD,
    "hotpotqa": _HOTPOTQA,
    "search_r1": _SQUAD,
    "flashrag": _HOTPOTQA,
}  # fmt: skip
"""Variant by name."""

DEFAULT = "r1_searcher"


def variant(name: str) -> Variant:
    """Return a variant by name.

    Raises:
        UsageError: Unknown name; the message gives the nearest ones.
    """
    if name not in VARIANTS:
        raise UsageError(f"unknown normalisation '{name}': {nearest(name, VARIANTS)}")
    return VARIANTS[name]
