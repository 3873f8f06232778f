"""Retrievers: queries in, ranked passages out."""

from harness.retrieval.corpus import Corpus, load_jsonl, load_passages
from harness.retrieval.table import RETRIEVERS, Ranking, open_retriever, ranking

__all__ = [
    "RETRIEVERS",
    "Corpus",
    "Ranking",
    "load_jsonl",
    "load_passages",
    "open_retriever",
    "ranking",
]
