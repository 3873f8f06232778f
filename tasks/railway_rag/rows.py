"""Rows of railway RAG: the published questions with the passages that a retriever found.

Called by lm-eval once a task; the three tasks share one ranking, cached in the process.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.data import locate
from harness.errors import DataError
from harness.retrieval import load_jsonl, ranking
from harness.schema import Doc
from harness.scoring.process import doc_from_row, doc_to_row
from harness.scoring.process import process_results as make_process_results
from harness.scoring.text import FINAL_PUNCTUATION, squeeze

if TYPE_CHECKING:
    import datasets

HERE = Path(__file__).parent
DATASET = "bjtu_railway"
TEST = "dataset/sft_data/test.csv"
PAGES = "dataset/indices/meta.jsonl"
DEPTH = 5
"""Length of the published ranking."""

_RANKED = tuple(f"chunk_page_{rank}" for rank in range(1, DEPTH + 1))
_COLUMNS = ("id", "page", "chunk_id", "question", "answer", *_RANKED)


@cache
def prompt() -> str:
    """The prompt, with {question} and {documents} to be replaced; line ends belong to it."""
    return (HERE / "prompt.txt").read_text(encoding="utf-8")


def questions(data: str | Path | None = None) -> list[dict[str, str]]:
    """The published test questions with the pages of their ranking, in the published order."""
    path = locate(DATASET, TEST, data)
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        missing = [c for c in _COLUMNS if c not in (reader.fieldnames or ())]
        if missing:
            raise DataError(f"{path}: column '{missing[0]}' is missing")
        return [{name: row[name] for name in _COLUMNS} for row in reader]


def build_docs(
    top_k: int,
    retriever: str = "published",
    data: str | Path | None = None,
    retriever_options: Mapping[str, Any] | None = None,
) -> tuple[list[Doc], str]:
    """Docs with the first `top_k` passages of the retriever's ranking, and its fingerprint.

    The oracle fills up with the published ranking, so that it differs from it by the gold page
    alone.
    """
    rows = questions(data)
    corpus = load_jsonl(locate(DATASET, PAGES, data))
    chunks = {str(p.page): p.doc_id for p in corpus.passages}  # one chunk a page
    gold = {row["question"]: row["chunk_id"] for row in rows}
    options = dict(retriever_options or {})
    if retriever == "oracle":
        options.setdefault("base", "published")
    if "published" in (retriever, options.get("base")):
        options["rankings"] = {
            row["question"]: [chunks[row[column]] for column in _RANKED] for row in rows
        }
    ranked = ranking(retriever, corpus, [r["question"] for r in rows], top_k, gold=gold, **options)
    pages = {p.page: squeeze(p.text) for p in corpus.passages}
    docs = [
        Doc(
            id=row["id"],
            question=row["question"],
            targets=(row["answer"],),
            passages=tuple(passages),
            cluster=f"p{int(row['page']):02d}",
            meta={
                "gold_page": int(row["page"]),
                "supporting_pages": supporting_pages(row["answer"], pages),
                "in_prompt": squeeze(row["question"]) in squeeze(prompt()),
            },
        )
        for row, passages in zip(rows, ranked, strict=True)
    ]
    return docs, ranked.fingerprint


def supporting_pages(answer: str, pages: Mapping[int | None, str]) -> list[int]:
    """Pages that hold the answer, white space and its final punctuation removed."""
    bare = squeeze(answer).rstrip(FINAL_PUNCTUATION)
    return [page for page, text in pages.items() if page is not None and bare and bare in text]


def build(
    top_k: int = DEPTH,
    retriever: str = "published",
    data: str | Path | None = None,
    retriever_options: Mapping[str, Any] | None = None,
    **_: Any,
) -> dict[str, datasets.Dataset]:
    """lm-eval's `custom_dataset`: the test set with its passages in the rows.

    Args:
        top_k: Passages a question.
        retriever: Any of `harness.retrieval.RETRIEVERS`.
        data: The data root; None takes CHECKRAIL_DATA.
        retriever_options: The retriever's own settings.
    """
    import datasets

    docs, fingerprint = build_docs(top_k, retriever, data, retriever_options)
    rows = [doc_to_row(doc) | {"retriever": fingerprint} for doc in docs]
    return {"test": datasets.Dataset.from_list(rows)}


def doc_to_text(row: Mapping[str, Any]) -> str:
    """Render the prompt; placeholders are replaced in one pass, so data cannot inject them."""
    documents = "\n\n".join(
        f"参考文档 {number}，所处页码数为 {passage['page']}：\n{passage['text']}"
        for number, passage in enumerate(row["passages"], start=1)
    )
    before, _, rest = prompt().partition("{question}")
    between, _, after = rest.partition("{documents}")
    return before + str(row["question"]) + between + documents + after


def doc_to_target(row: Mapping[str, Any]) -> str:
    """The gold output, in the very form of the published training data."""
    doc = doc_from_row(row)
    return f"<answer> {doc.targets[0]} </answer>\n<page> {doc.meta['gold_page']} </page>"


process_results = make_process_results("rag")
