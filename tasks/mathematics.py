r"""What the mathematics tasks share: problems to docs, prompts and rows.

A row carries its whole prompt, few-shot examples included, so that rendering is a look-up and
the data fingerprint covers every word of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import DataError
from harness.schema import Doc
from harness.scoring.process import doc_from_row, doc_to_row
from harness.scoring.process import process_results as make_process_results

if TYPE_CHECKING:
    import datasets

BOXED = r"Please reason step by step, and put your final answer within \boxed{}."
"""The instruction that Qwen's model cards recommend for mathematics, behind the problem."""


def read_docs(path: Path, to_doc: Callable[[int, Mapping[str, Any]], Doc]) -> list[Doc]:
    """Docs from a JSON Lines file, in its order.

    Args:
        path: The file.
        to_doc: From the 1-based line number and the line.

    Raises:
        DataError: A line is malformed; names file and line.
    """
    docs: list[Doc] = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                docs.append(to_doc(number, json.loads(line)))
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path}, line {number}: {type(error).__name__} {error}") from None
    return docs


def instructed(doc: Doc) -> str:
    """The problem with the instruction to box the answer behind it."""
    return f"{doc.question.strip()}\n\n{BOXED}"


def rows(docs: Iterable[Doc], prompt: Callable[[Doc], str]) -> dict[str, datasets.Dataset]:
    """The data set that lm-eval's `custom_dataset` returns; `prompt` renders a whole prompt."""
    import datasets

    made = [doc_to_row(doc) | {"prompt": prompt(doc)} for doc in docs]
    return {"test": datasets.Dataset.from_list(made)}


def doc_to_text(row: Mapping[str, Any]) -> str:
    """The prompt."""
    return str(row["prompt"])


def doc_to_target(row: Mapping[str, Any]) -> str:
    """The right answer."""
    return doc_from_row(row).targets[0]


process_results = make_process_results("numeric")
