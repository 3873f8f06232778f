"""A task of three questions with a corpus to search, for the tests of live retrieval."""

from __future__ import annotations

import datasets

from harness.retrieval import Corpus
from harness.schema import Doc, Passage
from harness.scoring.process import doc_to_row
from harness.scoring.process import process_results as make_process_results

PASSAGES = [
    Passage("p1", "The bridge at Ironford was built by Ann Bell.", title="Bridge"),
    Passage("p2", "The tower of Brenn was built by Cal Dorn.", title="Tower"),
    Passage("p3", "Ann Bell was born in Denmark.", title="Ann Bell"),
]
YAML = """
task: searchable
custom_dataset: !function tests.searchable.build
output_type: generate_until
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{targets[0]}}"
process_results: !function tests.searchable.process_results
generation_kwargs: {do_sample: false, max_gen_toks: 512, until: []}
metric_list:
  - {metric: joint_accuracy, aggregation: mean, higher_is_better: true}
metadata: {version: 1, policy: search, scorer: rag, retriever: bm25, corpus: small}
"""

opened: list[str] = []


def build(**_: object) -> dict[str, datasets.Dataset]:
    docs = [Doc(f"d{n}", f"question {n}", ("Ann",)) for n in range(3)]
    return {"test": datasets.Dataset.from_list([doc_to_row(doc) for doc in docs])}


def corpus(corpus: str, **_: object) -> Corpus:
    opened.append(corpus)
    return Corpus.of(PASSAGES)


process_results = make_process_results("rag")
