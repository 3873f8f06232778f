"""Which retriever finds the gold passage? bm25, rank_bm25, dense and hybrid on two Chinese sets.

    CHECKRAIL_DATA=DIR python benchmarks/retrieval.py [encoders=ngram,use,e5]

The sets are those of chinese_bm25.py: 225 railway questions on 48 pages, CMRC 2018 dev with 3,219
questions on its 848 paragraphs. Passages are embedded and indexes built before the clock runs; a
query's time has its encoding in it. Vectors go to a scratch folder, so each run embeds anew. The
table of benchmarks/README.md comes from here.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

from chinese_bm25 import Questions, cmrc_set, railway_set, ranks
from tabulate import tabulate

from harness.errors import CheckrailError
from harness.retrieval import Corpus, open_retriever
from harness.schema import RetrievalError

K = (1, 5, 10)


def rows(corpus: Corpus, questions: Questions, encoders: list[str]) -> list[list[str]]:
    retrievers: dict[str, tuple[str, dict[str, Any]]] = {
        "bm25": ("bm25", {}),
        "rank_bm25": ("rank_bm25", {}),
    }
    for encoder in encoders:
        retrievers[f"dense, {encoder}"] = "dense", {"encoder": encoder}
        retrievers[f"hybrid, bm25 and {encoder}"] = "hybrid", {"dense.encoder": encoder}
    asked = [question for question, _, _ in questions]
    found: list[list[str]] = []
    for label, (name, options) in retrievers.items():
        retriever = open_retriever(name, corpus, **options)
        began = time.perf_counter()
        retriever.retrieve(asked[:1], 1)
        build = time.perf_counter() - began
        began = time.perf_counter()
        results = retriever.retrieve(asked, max(K))
        seconds = time.perf_counter() - began
        ids = [[] if isinstance(r, RetrievalError) else [p.doc_id for p in r] for r in results]
        position = ranks(ids, questions)
        recall = [f"{sum(p <= k for p in position) / len(position):.4f}" for k in K]
        found.append([label, *recall, f"{len(asked) / seconds:.0f}", f"{build:.1f}"])
        print("  ".join(found[-1]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("options", nargs="*", default=[])
    given = dict(option.partition("=")[::2] for option in parser.parse_args().options)
    encoders = given.get("encoders", "ngram,use,e5").split(",")
    head = ["retriever", *(f"recall@{k}" for k in K), "queries/s", "index s"]
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["CHECKRAIL_CACHE"] = scratch
        try:
            railway, asked, _ = railway_set()
            tables = {f"Railway: {len(asked)} questions, {len(railway)} pages":
                      rows(railway, asked, encoders)}  # fmt: skip
            cmrc, asked = cmrc_set()
            tables[f"CMRC 2018 dev: {len(asked)} questions, {len(cmrc)} paragraphs"] = rows(
                cmrc, asked, encoders
            )
        except CheckrailError as error:
            raise SystemExit(str(error)) from None
    for title, table in tables.items():
        print(f"\n{title}\n")
        print(tabulate(table, head, tablefmt="pipe", disable_numparse=True))


if __name__ == "__main__":
    main()
