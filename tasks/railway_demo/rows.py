"""Rows of the railway demo: questions with the passages that a retriever found.

Called by lm-eval once a task; the three tasks share one ranking, cached in the process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import DataError
from harness.retrieval import load_jsonl, ranking
from harness.schema import Doc
from harness.scoring.process import doc_to_row
from harness.scoring.process import process_results as make_process_results

if TYPE_CHECKING:
    import datasets

HERE = Path(__file__).parent
PAGES = HERE / "pages.jsonl"


@cache
def prompt() -> str:
    """The prompt, with {question} and {documents} to be replaced."""
    return (HERE / "prompt.txt").read_text(encoding="utf-8").rstrip("\n")


def questions(split: str) -> list[dict[str, Any]]:
    """Questions of "train" or "test": id, question, answer, page, chunk_id."""
    path = HERE / f"{split}.jsonl"
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}") from None
    return rows


def build_docs(
    split: str,
    top_k: int,
    retriever: str = "bm25",
    retriever_options: Mapping[str, Any] | None = None,
) -> tuple[list[Doc], str]:
    """Docs with the first `top_k` passages of the retriever's ranking, and its fingerprint."""
    corpus = load_jsonl(PAGES)
    rows = questions(split)
    gold = {row["question"]: row["chunk_id"] for row in rows}
    asked = [row["question"] for row in rows]
    ranked = ranking(retriever, corpus, asked, top_k, gold=gold, **(retriever_options or {}))
    pages = {p.page: " ".join(p.text.split()) for p in corpus.passages}
    docs = [
        Doc(
            id=row["id"],
            question=row["question"],
            targets=(row["answer"],),
            passages=tuple(passages),
            cluster=f"p{row['page']:02d}",
            meta={
                "gold_page": row["page"],
                "supporting_pages": [n for n, text in pages.items() if row["answer"] in text],
            },
        )
        for row, passages in zip(rows, ranked, strict=True)
    ]
    return docs, ranked.fingerprint


def build(
    top_k: int = 5,
    retriever: str = "bm25",
    retriever_options: Mapping[str, Any] | None = None,
    **_: Any,
) -> dict[str, datasets.Dataset]:
    """lm-eval's `custom_dataset`: the test set with its passages in the rows."""
    import datasets

    docs, fingerprint = build_docs("test", top_k, retriever, retriever_options)
    rows = [doc_to_row(doc) | {"retriever": fingerprint} for doc in docs]
    return {"test": datasets.Dataset.from_list(rows)}


def doc_to_text(row: dict[str, Any]) -> str:
    """Render the prompt; placeholders are replaced in one pass, so data cannot inject them."""
    documents = "\n\n".join(
        f"Reference document {number}, on page {passage['page']}:\n{passage['text']}"
        for number, passage in enumerate(row["passages"], start=1)
    )
    before, _, rest = prompt().partition("{question}")
    between, _, after = rest.partition("{documents}")
    return before + str(row["question"]) + between + documents + after


def doc_to_target(row: dict[str, Any]) -> str:
    """The gold output: what a perfect model would write."""
    page = json.loads(row["meta"])["gold_page"]
    return f"<answer> {row['targets'][0]} </answer>\n<page> {page} </page>"


process_results = make_process_results("rag")
