"""Twelve invented questions whose choices have different lengths."""

import datasets

from harness.schema import Doc
from harness.scoring.process import doc_to_row
from harness.scoring.process import process_results as make_process_results

WORDS = ("red", "yellow", "ultramarine")


def docs():
    return [
        Doc(
            f"colour-{i}",
            f"Which colour has flag {i}?",
            (WORDS[i % 3],),
            stratum=f"group {i % 4}",
            meta={"choices": list(WORDS), "gold": i % 3},
        )
        for i in range(12)
    ]


def build(**_):
    return {"test": datasets.Dataset.from_list([doc_to_row(doc) for doc in docs()])}


def doc_to_text(row):
    return f"Question: {row['question']}\nAnswer:"


def doc_to_target(row):
    return WORDS.index(row["targets"][0])


def doc_to_choice(row):
    return list(WORDS)


process_results = make_process_results("choice")
