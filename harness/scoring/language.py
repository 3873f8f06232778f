r"""Language consistency: is what the model wrote in the language it should be in?

Before anything is counted, what belongs to no language is taken out: code, LaTeX, URLs, tags,
quotations, a gloss in brackets right behind its word ("경사하강법(gradient descent)"), numbers and
symbols, and of Latin letters also single ones, abbreviations (DNA), units (km), function names
(sin), identifiers (max_value) and names attached to a CJK word (Python으로).

    share       characters of the wanted language / all that are left, in [0, 1]
    strict      1 if nothing else is left, else 0: one unexpected English word gives 0
    lenient     1 if the share is at least 0.9

Scripts decide between Korean, Japanese, Chinese and Latin; which language Latin text is in is for
py3langid to say (github.com/adbar/py3langid; measured in benchmarks/language_id.py).
Thinking and answer are measured apart.

Source: the language reward of the Korean reasoning report (Oracle-Guided Dr.GRPO, section 3.3):
1 if all of reasoning and answer is in the language, formats, code and symbols left aside, 0 if any
unexpected English is mixed in. Its program was not published; the rules above are this one's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

from harness.errors import UsageError, missing_dependency, nearest
from harness.schema import Doc, Rollout
from harness.scoring.text import THINK_TAGS, split_thinking

VERSION = 1

LANGUAGES = ("ko", "en", "zh", "ja")
PROMPT = ("prompt", "auto")
"""Values of `language=` that mean the language of the doc's question."""

METRICS = {
    "language_share_thinking": True,
    "language_share_answer": True,
    "language_consistent_thinking": True,
    "language_consistent_answer": True,
    "language_consistent": True,
}
"""Metric -> whether higher is better; the last: thinking and answer both."""

LENIENT = 0.9

Variant = Literal["strict", "lenient"]

_HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"
_KANA = "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9d"
_HAN = "\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_LATIN = "A-Za-z\u00c0-\u024f"

_WITHOUT_LANGUAGE = [
    re.compile(p, re.DOTALL | re.MULTILINE)
    for p in (
        r"^[ \t]*(`{3,}|~{3,}).*?(?:^[ \t]*\1|\Z)",  # fenced code
        r"`[^`\n]+`",
        r"\$\$.*?\$\$",
        r"\\\[.*?\\\]",
        r"\\\(.*?\\\)",
        r"\\begin\{(\w+\*?)\}.*?\\end\{\1\}",
        r"\$[^$\n]+\$",
        r"\\boxed\s*\{(?:[^{}]|\{[^{}]*\})*\}",
        r"\\text(?:bf|it|rm)?\s*\{[^{}]*\}",
        r"\\[A-Za-z]+",
        r"(?:https?|ftp)://[^\s)>\]]+",
        r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
        r"</?[A-Za-z][^<>\n]{0,60}>",
        r"<\|[^<>|\n]{1,40}\|>",
        # quotations of one line
        r"\"[^\"\n]{1,200}\"",
        r"“[^”\n]{1,200}”",
        r"‘[^’\n]{1,200}’",
        r"「[^」\n]{1,200}」",
        r"『[^』\n]{1,200}』",
        r"《[^》\n]{1,200}》",
        r"«[^»\n]{1,200}»",
        r"(?<![^\W_])'[^'\n]{1,200}'(?![A-Za-z])",
    )
]
_GLOSS = re.compile(
    rf"(?<=[{_HANGUL}{_KANA}{_HAN}])[(（][{_LATIN}{_HAN} '-]{{1,40}}[)）]"
    rf"|(?<=[{_LATIN}])\([{_HANGUL}{_KANA}{_HAN} ]{{1,20}}\)"
)
_WORD = re.compile(rf"[{_LATIN}][{_LATIN}\d_'’.]*(?:\(\))?|[{_LATIN}]")
_IDENTIFIER = re.compile(r"[_\d()]|[a-z][A-Z]|\w\.\w")
_NEUTRAL = frozenset(
    (
        "km", "cm", "mm", "nm", "kg", "mg", "ml", "mL", "dL", "dB", "Hz", "kHz", "MHz", "GHz",
        "kB", "KB", "MB", "GB", "TB", "kW", "kWh", "MW", "mol", "rad", "deg", "ms", "min", "sec",
        "pH", "kPa", "hPa", "Pa", "kcal", "cal", "eV", "bps", "fps", "sin", "cos", "tan", "csc",
        "cot", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "log", "ln", "lg", "exp",
        "lim", "max", "sup", "inf", "mod", "gcd", "lcm", "det", "arg", "sqrt", "dx", "dy", "dt",
        "bc",
    )
)  # fmt: skip
"""Units and function names: the same in every language."""
_COMMON = frozenset(
    (
        "A", "An", "And", "Answer", "Alternatively", "Also", "But", "Case", "Check", "Final",
        "First", "For", "From", "Given", "Hence", "How", "However", "If", "In", "It", "Its", "Let",
        "Lets", "Let's", "Maybe", "Next", "No", "Note", "Now", "Of", "Oh", "Okay", "Ok", "On",
        "Or", "Please", "Problem", "Question", "Second", "Since", "So", "Solution", "Step", "That",
        "The", "Then", "There", "Therefore", "This", "Thus", "To", "Wait", "We", "Well", "What",
        "When", "Where", "Which", "Why", "With", "Yes", "You",
    )
)  # fmt: skip
"""English words that a sentence may begin with: never a name, wherever they stand."""
_CJK = re.compile(rf"[{_HANGUL}{_KANA}{_HAN}]")
_HANGUL_LETTER = re.compile(f"[{_HANGUL}]")
_KANA_LETTER = re.compile(f"[{_KANA}]")
_HAN_LETTER = re.compile(f"[{_HAN}]")
_OTHER = re.compile(
    rf"[^\W\d_{_HANGUL}{_KANA}{_HAN}{_LATIN}\u00aa-\u00ba\u0250-\u03ff\u2070-\u2bff]"
)
"""Letters of other scripts; Greek and letter-like signs are symbols here."""
_SENTENCE = re.compile(r"(?<=[。．！？!?\n;；])|(?<=\.)\s")
_SHINJITAI = frozenset("駅発対図気円実価売読変単関経済続転伝広拡検険験応択権鉄総戻込働畑峠辺歩沢浜")
"""Characters that neither Chinese standard writes: pure Han with one of them is Japanese."""


def strip(text: str) -> str:
    """The text without what belongs to no language; each piece leaves a space."""
    for pattern in _WITHOUT_LANGUAGE:
        text = pattern.sub(" ", text)
    return _GLOSS.sub("", text)


def characters(text: str) -> Counter[str]:
    """Characters of each language in a text, by ISO 639-1 code ("other" for other scripts)."""
    rest = strip(text)
    found: Counter[str] = Counter()
    kana = _KANA_LETTER.search(rest) is not None
    for sentence in _SENTENCE.split(rest):
        hangul = len(_HANGUL_LETTER.findall(sentence))
        kanas = len(_KANA_LETTER.findall(sentence))
        han = _HAN_LETTER.findall(sentence)
        found["ko"] += hangul
        found["ja"] += kanas
        found[_han(han, kanas > 0, hangul > 0, kana)] += len(han)
    found["other"] += len(_OTHER.findall(rest))
    words = _latin_words(rest)
    if words:
        found[_latin_language(words)] += sum(map(len, words))
    return +found


def _han(han: Sequence[str], kana: bool, hangul: bool, kana_elsewhere: bool) -> str:
    if kana or (_SHINJITAI & set(han)):
        return "ja"
    if kana_elsewhere and not hangul and len(han) < 8:
        return "ja"
    return "zh"


def _latin_words(text: str) -> list[str]:
    """Words of a language in Latin letters; what stands for a thing everywhere is left out."""
    words: list[str] = []
    for match in _WORD.finditer(text):
        word = match[0].rstrip(".'’")
        letters = re.sub(f"[^{_LATIN}]", "", word)
        if len(letters) < 2 or word in _NEUTRAL or _IDENTIFIER.search(word):
            continue
        if word.isupper() and len(word) <= 6:
            continue
        start, end = match.span()
        attached = _CJK.match(text[end : end + 1]) or _CJK.match(text[max(0, start - 1) : start])
        if attached and word[0].isupper() and word not in _COMMON:
            continue
        words.append(letters)
    return words


def _latin_language(words: Sequence[str]) -> str:
    """English, unless there is enough text for the identifier to say otherwise."""
    return str(_identifier().classify(" ".join(words))[0]) if len(words) >= 5 else "en"


@cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise missing_dependency("py3langid", "language", error) from None
    found: Any = LanguageIdentifier.from_model_file(MODEL_FILE)
    found.set_languages(["en", "fr", "de", "es", "it", "pt", "nl", "id", "vi", "tr"])
    return found


def identify(text: str) -> str:
    """The language of a text: its code, "mixed" for several, "none" without any word."""
    found = characters(text)
    return next(iter(found)) if len(found) == 1 else "mixed" if found else "none"


def share(text: str, language: str) -> float | None:
    """Share of characters in the language, in [0, 1]; None without any word."""
    found = characters(text)
    total = sum(found.values())
    return found[language] / total if total else None


def consistent(text: str, language: str, variant: Variant = "strict") -> bool | None:
    """Whether a text is in the language; None without any word.

    Args:
        text: Thinking or answer.
        language: One of `LANGUAGES`.
        variant: "strict" (the reward's) allows nothing else, "lenient" a tenth of the characters.
    """
    value = share(text, language)
    return None if value is None else value == 1.0 if variant == "strict" else value >= LENIENT


def check(language: str) -> None:
    """Refuse a value of `language=` that means nothing, or a missing package.

    Raises:
        UsageError: One line.
    """
    if language not in (*LANGUAGES, *PROMPT):
        raise UsageError(f"language={language}: {nearest(language, (*LANGUAGES, *PROMPT))}")
    _identifier()


def metrics(
    doc: Doc, rollout: Rollout, language: str, think_tags: tuple[str, str] | None = THINK_TAGS
) -> Mapping[str, float]:
    """The metrics of one rollout; those of a part without any word are absent.

    Args:
        doc: Its question names the language where `language` is one of `PROMPT`; a question
            without one language of its own gives no metrics.
        rollout: Its answer is read, raw.
        language: One of `LANGUAGES` or `PROMPT`.
        think_tags: Tags of the reasoning.
    """
    if language in PROMPT:
        found = characters(doc.question)
        if not found:
            return {}
        language = max(found, key=lambda name: found[name])
    thinking, answer, _ = split_thinking(rollout.answer, think_tags)
    values: dict[str, float] = {}
    for part, text in (("thinking", thinking), ("answer", answer)):
        value = share(text, language)
        if value is not None:
            values[f"language_share_{part}"] = value
            values[f"language_consistent_{part}"] = float(value == 1.0)
    verdicts = [v for name, v in values.items() if name.startswith("language_consistent")]
    if verdicts:
        values["language_consistent"] = min(verdicts)
    return values
