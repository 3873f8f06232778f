"""How should BM25 cut Chinese? Recall of the gold passage by tokenizer, on two data sets.

    CHECKRAIL_DATA=DIR python benchmarks/chinese_bm25.py

Railway: 225 test questions over the 48 pages of an emergency plan (line breaks of a PDF inside
sentences). CMRC 2018 dev: 3,219 questions over its 848 paragraphs. BM25 is the harness's own
with its default parameters; only the tokenizer differs. jieba is compared where it is installed
(`pip install jieba`); nothing in the harness needs it. The table of benchmarks/README.md comes
from here.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from tabulate import tabulate

from harness.data import locate
from harness.errors import CheckrailError
from harness.retrieval import Corpus, open_retriever
from harness.retrieval.tokenize import TOKENIZERS, cjk_bigram
from harness.schema import Passage, RetrievalError
from harness.scoring.text import fold, units
from harness.stats.paired import paired
from tasks.railway_rag import rows as railway

K = (1, 3, 5)
GAP = re.compile(r"(?<=[\u2e80-\uffff])\s+(?=[\u2e80-\uffff])")  # a PDF's line break
REFERENCE = "character bigrams"
Questions = Sequence[tuple[str, str, str]]  # question, gold passage, cluster


def characters_and_bigrams(text: str) -> list[str]:
    return [*cjk_bigram(text), *(u for u in units(text) if len(u) == 1 and u > "\u2e80")]


def jieba_cuts() -> dict[str, Callable[[str], list[str]]]:
    """Words by jieba, plain and in search mode (long words also as their parts)."""
    try:
        jieba: Any = importlib.import_module("jieba")
    except ImportError:
        return {}
    jieba.setLogLevel(60)
    jieba.initialize()

    def words(cut: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
        return lambda text: [t for t in cut(GAP.sub("", fold(text))) if any(map(str.isalnum, t))]

    return {"jieba words": words(jieba.lcut), "jieba, search mode": words(jieba.lcut_for_search)}


def railway_set() -> tuple[Corpus, Questions, dict[str, list[str]]]:
    docs, _ = railway.build_docs(railway.DEPTH, "published")
    corpus = railway.load_jsonl(locate(railway.DATASET, railway.PAGES))
    by_page = {p.page: p.doc_id for p in corpus.passages}
    questions = [(d.question, by_page[d.meta["gold_page"]], d.cluster or "") for d in docs]
    published = {d.question: [p.doc_id for p in d.passages] for d in docs}
    return corpus, questions, published


def cmrc_set() -> tuple[Corpus, Questions]:
    data = json.loads(locate("cmrc2018", "cmrc2018_dev.json").read_text(encoding="utf-8"))
    passages: list[Passage] = []
    questions: list[tuple[str, str, str]] = []
    for article in data["data"]:
        for paragraph in article["paragraphs"]:
            passages.append(Passage(paragraph["id"], paragraph["context"]))
            questions += [(q["question"], paragraph["id"], paragraph["id"])
                          for q in paragraph["qas"]]  # fmt: skip
    return Corpus.of(passages), questions


def ranks(found: Sequence[Sequence[str]], questions: Questions) -> list[int]:
    """Rank of each question's gold passage from 1; a large number where it is not there."""
    return [
        list(ids).index(gold) + 1 if gold in ids else 10**6
        for ids, (_, gold, _) in zip(found, questions, strict=True)
    ]


def search(name: str, corpus: Corpus, questions: Questions, **options: Any) -> list[list[str]]:
    results = open_retriever(name, corpus, **options).retrieve([q for q, _, _ in questions], max(K))
    return [[] if isinstance(r, RetrievalError) else [p.doc_id for p in r] for r in results]


def line(
    label: str, position: list[int], reference: list[int], questions: Questions, seconds: float
) -> list[str]:
    """One row: recall at each k, difference at k = 1 with its interval over clusters, time."""
    recall = [f"{sum(p <= k for p in position) / len(position):.4f}" for k in K]
    difference = ""
    if position is not reference:
        result = paired(
            [float(p <= 1) for p in reference],
            [float(p <= 1) for p in position],
            [c for _, _, c in questions],
        )
        difference = f"{result.delta:+.4f}"
        if result.low is not None and result.high is not None:
            difference += f" [{result.low:+.4f}, {result.high:+.4f}]"
    return [label, *recall, difference, f"{seconds:.2f}" if seconds else ""]


def table(corpus: Corpus, questions: Questions, published: dict[str, list[str]] | None) -> str:
    found: dict[str, tuple[list[int], float]] = {}
    for label, name in NAMES.items():
        began = time.perf_counter()
        position = ranks(search("bm25", corpus, questions, tokenizer=name), questions)
        found[label] = position, time.perf_counter() - began
    began = time.perf_counter()
    reference = ranks(search("rank_bm25", corpus, questions, tokenizer="cjk_bigram"), questions)
    found["character bigrams, rank_bm25"] = reference, time.perf_counter() - began
    if published:
        found["published ranking (dense)"] = ranks([published[q] for q, _, _ in questions],
                                                   questions), 0.0  # fmt: skip
    base = found[REFERENCE][0]
    return tabulate(
        [line(label, position, base, questions, s) for label, (position, s) in found.items()],
        ["tokens", *(f"recall@{k}" for k in K), "recall@1 against bigrams", "seconds"],
        tablefmt="pipe",
        disable_numparse=True,
    )


NAMES = {
    "characters": "cjk_unigram",
    REFERENCE: "cjk_bigram",
    "characters and bigrams": "cjk_unigram_bigram",
}


def main() -> None:
    TOKENIZERS["cjk_unigram"] = units
    TOKENIZERS["cjk_unigram_bigram"] = characters_and_bigrams
    for label, cut in jieba_cuts().items():
        NAMES[label] = label
        TOKENIZERS[label] = cut
    try:
        corpus, questions, published = railway_set()
        print(f"Railway: {len(questions)} questions, {len(corpus)} pages\n")
        print(table(corpus, questions, published))
        corpus, questions = cmrc_set()
        print(f"\nCMRC 2018 dev: {len(questions)} questions, {len(corpus)} paragraphs\n")
        print(table(corpus, questions, None))
    except CheckrailError as error:
        raise SystemExit(str(error)) from None
    versions = {n: importlib.metadata.version(n) for n in ("bm25s", "rank-bm25")}
    if "jieba words" in NAMES:
        versions["jieba"] = importlib.metadata.version("jieba")
    print("\n" + ", ".join(f"{name} {number}" for name, number in versions.items()))


if __name__ == "__main__":
    main()
