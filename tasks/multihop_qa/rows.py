"""Rows of multi-hop question answering, the corpora that are searched, and the gold passages.

    build(questions=NAME)    lm-eval's builder: one row a question, without passages
    corpus(corpus=NAME)      what a policy searches while it plays
    gold(questions=NAME)     question -> ids of its supporting passages, for the oracle

All three get the task's metadata and the settings of the run as keywords, and ignore the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.data import locate
from harness.errors import DataError, UsageError, nearest
from harness.jsonl import read_rows
from harness.retrieval import Corpus, load_passages
from harness.schema import Doc
from harness.scoring.process import doc_to_row
from harness.scoring.process import process_results as make_process_results
from tasks.multihop_qa import layouts

if TYPE_CHECKING:
    import datasets

HERE = Path(__file__).parent
OWN = "own"
"""Name of a user's own questions and corpus: `data=FILE.jsonl`, or a folder with both."""
OWN_QUESTIONS, OWN_CORPUS = "questions.jsonl", "corpus.jsonl"


@dataclass(frozen=True, slots=True)
class Source:
    """Where questions come from.

    Attributes:
        dataset, file: As `tasks/datasets.toml` names them.
        layout: Reads one row; None for a row that cannot be asked.
        pool: Corpus that holds the supporting passages; "" where none are published.
    """

    dataset: str
    file: str
    layout: Callable[[str, Mapping[str, Any]], layouts.Question | None]
    pool: str = ""


QUESTIONS = {
    "hotpotqa": Source("r1_searcher", "eval_set/hotpotqa_500.jsonl", layouts.r1_searcher),
    "2wikimultihopqa": Source("r1_searcher", "eval_set/2wiki_500.jsonl", layouts.r1_searcher),
    "musique": Source("r1_searcher", "eval_set/musique_500.jsonl", layouts.r1_searcher),
    "bamboogle": Source("r1_searcher", "eval_set/bamboogle.jsonl", layouts.r1_searcher),
    "hotpotqa_ctx": Source(
        "multihop_with_context", "hotpot.json", layouts.hotpotqa, "pooled_hotpotqa"
    ),
    "2wikimultihopqa_ctx": Source(
        "multihop_with_context", "wikihop.json", layouts.hotpotqa, "pooled_2wikimultihopqa"
    ),
    "musique_ctx": Source(
        "multihop_with_context", "musique.json", layouts.musique, "pooled_musique"
    ),
}
"""Published sets of questions by name."""

CORPORA = {
    "r1_passages_hotpotqa": ("r1_passages", "r1_passages_hotpotqa.jsonl"),
    "r1_passages_2wikimultihopqa": ("r1_passages", "r1_passages_2wiki.jsonl"),
    "r1_passages_bamboogle": ("r1_passages", "r1_passages_bamboogle.jsonl"),
    "pooled_hotpotqa": ("pooled_corpus", "pooled_corpus_hotpot.jsonl"),
    "pooled_2wikimultihopqa": ("pooled_corpus", "pooled_corpus_wikihop.jsonl"),
    "pooled_musique": ("pooled_corpus", "pooled_corpus_musique.jsonl"),
}
"""Name -> data set and file."""


def build(questions: str, data: str | None = None, **_: Any) -> dict[str, datasets.Dataset]:
    """lm-eval's `custom_dataset`: the questions, in the published order.

    Args:
        questions: One of `QUESTIONS`, or "own".
        data: The data root, or the user's own questions; None takes CHECKRAIL_DATA.
    """
    import datasets

    docs = build_docs(questions, data)
    return {"test": datasets.Dataset.from_list([doc_to_row(doc) for doc in docs])}


def build_docs(questions: str, data: str | Path | None = None) -> list[Doc]:
    """Docs of a set. Nothing published groups them: each question is its own cluster.

    Raises:
        UsageError: Unknown set, or "own" without `data`.
        DataError: A file is missing or malformed.
    """
    source, path = _source(questions, data)
    ids = _passage_ids(source.pool, data) if source.pool else {}
    found = (source.layout(where, row) for where, row in read_rows(path))
    return [_doc(questions, path, q, ids) for q in found if q is not None]


def corpus(corpus: str = "", data: str | None = None, **_: Any) -> Corpus:
    """What is searched, by the name in a task's metadata.

    Raises:
        UsageError: Unknown name.
        DataError: The file is missing or malformed.
    """
    if corpus == OWN:
        return _load(_own(data, OWN_CORPUS))
    if corpus not in CORPORA:
        raise UsageError(f"unknown corpus '{corpus}': {nearest(corpus, [*CORPORA, OWN])}")
    return _load(locate(*CORPORA[corpus], data))


def gold(questions: str, data: str | None = None, **_: Any) -> dict[str, list[str]] | None:
    """Ids of the supporting passages of each question; None where none are published."""
    if questions == OWN or not QUESTIONS[questions].pool:
        return None
    return {doc.question: list(doc.meta["support"]) for doc in build_docs(questions, data)}


def _source(questions: str, data: str | Path | None) -> tuple[Source, Path]:
    if questions == OWN:
        return Source("", "", layouts.flashrag), _own(data, OWN_QUESTIONS)
    if questions not in QUESTIONS:
        raise UsageError(f"unknown questions '{questions}': {nearest(questions, QUESTIONS)}")
    source = QUESTIONS[questions]
    return source, locate(source.dataset, source.file, data)


def _own(data: str | Path | None, name: str) -> Path:
    """A user's own file: data=FILE gives the questions, data=DIR both."""
    path = Path(data).expanduser() if data else None
    if path is not None and path.is_dir():
        path = path / name
    elif path is not None and name == OWN_CORPUS:
        path = path.with_name(OWN_CORPUS)
    if path is None or not path.is_file():
        said = f"{path} does not exist" if path else "no data= is given"
        raise DataError(
            f"{said}: give data=FILE.jsonl (id, question, golden_answers), or a folder with "
            f"{OWN_QUESTIONS} and, to search, {OWN_CORPUS} (id, title, text)"
        )
    return path


@cache
def _load(path: Path) -> Corpus:
    return load_passages(path)


def _passage_ids(pool: str, data: str | Path | None) -> dict[tuple[str, str], str]:
    passages = corpus(pool, None if data is None else str(data)).passages
    return {(p.title, p.text): p.doc_id for p in passages}


def _doc(
    questions: str, path: Path, question: layouts.Question, ids: Mapping[tuple[str, str], str]
) -> Doc:
    meta: dict[str, Any] = dict(question.meta)
    if question.support:
        missing = [title for title, text in question.support if (title, text) not in ids]
        if missing:
            raise DataError(f"{path}: paragraph '{missing[0]}' is not in the pooled corpus")
        meta["support"] = [ids[pair] for pair in question.support]
        meta["support_titles"] = list(dict.fromkeys(title for title, _ in question.support))
    name = question.id if questions == OWN else f"{questions}-{question.id}"
    return Doc(name, question.text, question.targets, meta=meta)


# --- prompt and target ----------------------------------------------------------------------


@cache
def prompt(name: str) -> str:
    """A prompt of this task, with {question} and {documents} to be replaced."""
    return (HERE / "prompts" / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n")


def doc_to_text(row: Mapping[str, Any]) -> str:
    """What a policy without a prompt of its own is asked; documents only where there are some."""
    documents = "\n".join(
        f"({rank}) {' '.join(filter(None, (passage['title'], passage['text'])))}"
        for rank, passage in enumerate(row["passages"], start=1)
    )
    before, _, rest = prompt("reader_documents" if documents else "reader").partition("{question}")
    start, _, end = before.partition("{documents}")
    return start + documents + end + str(row["question"]) + rest


def doc_to_target(row: Mapping[str, Any]) -> str:
    """The gold output."""
    return f"<answer> {row['targets'][0]} </answer>"


process_results = make_process_results("qa")
