"""Rows of GSM8K: asked in a chat, or behind worked examples of the training set."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.data import locate
from harness.schema import Doc
from tasks.mathematics import instructed, read_docs, rows

if TYPE_CHECKING:
    import datasets

FILES = {"test": ("gsm8k", "test.jsonl"), "train": ("gsm8k_train", "train.jsonl")}
"""Split -> data set and file."""


def to_doc(_: int, line: Mapping[str, Any]) -> Doc:
    """One problem; its id is made of the question, so it depends on no order."""
    solution, mark, answer = str(line["answer"]).rpartition("####")
    if not mark:
        raise ValueError("the answer has no '####'")
    question = str(line["question"])
    digest = hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    meta = {"kind": "number", "solution": f"{solution}#### {answer.strip()}"}
    return Doc(digest, question, (answer.strip(),), meta=meta)


def problems(split: str = "test", data: str | Path | None = None) -> list[Doc]:
    """The problems of a split ("test" or "train"), in the order of the file.

    Raises:
        DataError: The file is missing, changed, or a line of it malformed.
    """
    return read_docs(locate(*FILES[split], data), to_doc)


def build(data: str | Path | None = None, **_: Any) -> dict[str, datasets.Dataset]:
    """lm-eval's `custom_dataset` of `gsm8k`: zero-shot, the answer boxed."""
    return rows(problems("test", data), instructed)


def build_shots(
    shots: int = 5, data: str | Path | None = None, **_: Any
) -> dict[str, datasets.Dataset]:
    """lm-eval's `custom_dataset` of `gsm8k_5shot`: the first `shots` training problems solved."""
    examples = problems("train", data)[:shots] if shots else []
    return rows(problems("test", data), lambda doc: with_examples(doc, examples))


def with_examples(doc: Doc, examples: Sequence[Doc]) -> str:
    """Questions with their published solutions, then the question: what a base model continues."""
    worked = "".join(f"Question: {e.question}\nAnswer: {e.meta['solution']}\n\n" for e in examples)
    return f"{worked}Question: {doc.question}\nAnswer:"
