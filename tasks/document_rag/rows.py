"""Rows of a benchmark that `build` made: a folder with pages.jsonl and test.jsonl, as data=DIR.

The prompt is railway RAG's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import DataError, UsageError
from harness.jsonl import read_rows, text
from harness.retrieval import load_jsonl, ranking
from harness.schema import Doc
from harness.scoring.process import doc_to_row
from harness.scoring.process import process_results as make_process_results
from harness.scoring.text import squeeze
from tasks.railway_rag.rows import doc_to_target, doc_to_text, prompt, supporting_pages

if TYPE_CHECKING:
    import datasets

__all__ = ["build", "build_docs", "doc_to_target", "doc_to_text", "process_results"]

DEPTH = 5
PAGES, TEST = "pages.jsonl", "test.jsonl"


def questions(path: Path) -> list[dict[str, Any]]:
    """Questions of a file: id, page, chunk_id, question, answer.

    Raises:
        DataError: The file is missing, or a line lacks a key; names file, line and key.
    """
    rows: list[dict[str, Any]] = []
    for where, row in read_rows(path):
        found = {key: text(where, row, key) for key in ("id", "chunk_id", "question", "answer")}
        page = row.get("page")
        if not isinstance(page, int) or isinstance(page, bool):
            raise DataError(f"{where}: key 'page' must be a whole number, got {page!r:.40}")
        rows.append({**found, "page": page})
    return rows


def build_docs(
    folder: Path, rows: Sequence[Mapping[str, Any]], top_k: int, retriever: str = "bm25"
) -> tuple[list[Doc], str]:
    """Docs with the first `top_k` passages of the retriever's ranking, and its fingerprint.

    Args:
        folder: Holds pages.jsonl.
        rows: Questions as in `questions`.
        top_k: Passages a question.
        retriever: Any of `harness.retrieval.RETRIEVERS`.
    """
    corpus = load_jsonl(folder / PAGES)
    gold = {str(row["question"]): str(row["chunk_id"]) for row in rows}
    ranked = ranking(retriever, corpus, [str(r["question"]) for r in rows], top_k, gold=gold)
    pages = {p.page: squeeze(p.text) for p in corpus.passages}
    docs = [
        Doc(
            id=str(row["id"]),
            question=str(row["question"]),
            targets=(str(row["answer"]),),
            passages=tuple(passages),
            cluster=str(row["chunk_id"]),
            meta={
                "gold_page": row["page"],
                "supporting_pages": supporting_pages(str(row["answer"]), pages),
                "in_prompt": squeeze(str(row["question"])) in squeeze(prompt()),
            },
        )
        for row, passages in zip(rows, ranked, strict=True)
    ]
    return docs, ranked.fingerprint


def build(
    top_k: int = DEPTH, retriever: str = "bm25", data: str | Path | None = None, **_: Any
) -> dict[str, datasets.Dataset]:
    """lm-eval's `custom_dataset`: the test set of a built folder.

    Raises:
        UsageError: No folder is given, or it holds no benchmark.
    """
    import datasets

    folder = Path(data) if data else None
    if folder is None or not (folder / TEST).is_file():
        raise UsageError(
            f"document_rag: {folder or 'no folder'} holds no {TEST}: give data=DIR, a folder that "
            f"`build` has written"
        )
    docs, fingerprint = build_docs(folder, questions(folder / TEST), top_k, retriever)
    rows = [doc_to_row(doc) | {"retriever": fingerprint} for doc in docs]
    return {"test": datasets.Dataset.from_list(rows)}


def training_rows(
    folder: Path, rows: Sequence[Mapping[str, Any]], retriever: str = "bm25"
) -> list[dict[str, Any]]:
    """Training rows: the question with its prompt over the top-5 passages and the gold output.

    Args:
        folder: Holds pages.jsonl.
        rows: Questions as in `questions`.
        retriever: Whose passages the prompt shows. The gold page is not put among them, as in
            the published training data.
    """
    docs, fingerprint = build_docs(folder, rows, DEPTH, retriever)
    return [
        {
            **row,
            "retriever": fingerprint,
            "passages": [p.doc_id for p in doc.passages],
            "prompt": doc_to_text(doc_to_row(doc)),
            "completion": doc_to_target(doc_to_row(doc)),
        }
        for row, doc in zip(rows, docs, strict=True)
    ]


process_results = make_process_results("rag")
