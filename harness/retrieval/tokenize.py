"""Tokenizers of the lexical retrievers, by name.

words        words and numbers, case folded; any script that puts spaces between words
cjk_bigram   runs of CJK characters as overlapping pairs (a lone character stays), the rest
             as words; white space between two CJK characters (a PDF's line break) is removed
auto         cjk_bigram if at least a fifth of the letters (of the first 10,000 passages) are
             CJK, else words

A fingerprint names the tokenizer that "auto" led to.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from harness.errors import UsageError, nearest
from harness.retrieval.corpus import Corpus

VERSION = 1
"""Raised when a tokenizer cuts differently; an index on disk is then refused."""

CJK_SHARE = 0.2
AUTO = 10_000
"""Passages from the beginning that "auto" looks at."""

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0003134f"
_WORD = re.compile(r"[^\W_]+")
_MIXED = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_GAP = re.compile(rf"(?<=[{_CJK}])\s+(?=[{_CJK}])")
_IS_CJK = re.compile(rf"[{_CJK}]")
_LETTER = re.compile(r"[^\W\d_]")
_ASCII = {i: chr(i).lower() if chr(i).isalnum() else " " for i in range(128)}
"""What `_fold` and `_WORD` make of ASCII, faster: a corpus has millions of passages."""


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def words(text: str) -> list[str]:
    """Words and numbers, NFKC and case folded.

    Example:
        >>> words("The GSM-R radio, page 12.")
        ['the', 'gsm', 'r', 'radio', 'page', '12']
    """
    if text.isascii():
        return text.translate(_ASCII).split()
    return _WORD.findall(_fold(text))


def cjk_bigram(text: str) -> list[str]:
    """Character pairs of CJK runs, words elsewhere.

    Example:
        >>> cjk_bigram("列车 长用GSM")
        ['列车', '车长', '长用', 'gsm']
    """
    if text.isascii():
        return words(text)
    tokens: list[str] = []
    for run in _MIXED.findall(_GAP.sub("", _fold(text))):
        if len(run) > 1 and _IS_CJK.match(run):
            tokens.extend(run[i : i + 2] for i in range(len(run) - 1))
        else:
            tokens.append(run)
    return tokens


TOKENIZERS: dict[str, Callable[[str], list[str]]] = {"words": words, "cjk_bigram": cjk_bigram}


def resolve(name: str, corpus: Corpus) -> str:
    """Turn "auto" into the tokenizer that fits the corpus.

    Raises:
        UsageError: Unknown name.
    """
    if name == "auto":
        letters = cjk = 0
        for passage in corpus.passages[:AUTO]:
            letters += len(_LETTER.findall(passage.text))
            cjk += len(_IS_CJK.findall(passage.text))
        return "cjk_bigram" if cjk >= CJK_SHARE * letters and cjk else "words"
    tokenizer(name)
    return name


def tokenizer(name: str) -> Callable[[str], list[str]]:
    """Return a tokenizer by name.

    Raises:
        UsageError: Unknown name; the message gives the nearest ones.
    """
    if name not in TOKENIZERS:
        known = [*TOKENIZERS, "auto"]
        raise UsageError(f"unknown tokenizer '{name}': {nearest(name, known)}")
    return TOKENIZERS[name]
