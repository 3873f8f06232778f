"""Rows of HumanEval: the published problems; both variants share them and differ in the prompt."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.data import locate
from harness.errors import DataError
from harness.schema import Doc
from harness.scoring.process import doc_from_row, doc_to_row
from harness.scoring.process import process_results as make_process_results

if TYPE_CHECKING:
    import datasets

HERE = Path(__file__).parent
DATASET = "humaneval"
FILE = "HumanEval.jsonl.gz"
VARIANTS = ("chat", "completion")


@cache
def prompt() -> str:
    """The prompt of the chat variant, with {prompt} to be replaced."""
    return (HERE / "prompt.txt").read_text(encoding="utf-8").strip()


def problems(data: str | Path | None = None, variant: str = "chat") -> list[Doc]:
    """The published problems, in the published order.

    Args:
        data: The data root; None takes CHECKRAIL_DATA.
        variant: One of `VARIANTS`.

    Raises:
        DataError: The file is missing, changed, or a line of it malformed.
    """
    path = locate(DATASET, FILE, data)
    docs: list[Doc] = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                docs.append(
                    Doc(
                        id=row["task_id"],
                        question=row["prompt"],
                        targets=(row["canonical_solution"],),
                        meta={"entry_point": row["entry_point"], "test": row["test"],
                              "variant": variant},
                    )
                )  # fmt: skip
            except (ValueError, KeyError) as error:
                raise DataError(f"{path}, line {number}: {type(error).__name__} {error}") from None
    return docs


def build(
    variant: str = "chat", data: str | Path | None = None, **_: Any
) -> dict[str, datasets.Dataset]:
    """lm-eval's `custom_dataset`."""
    import datasets

    rows = [doc_to_row(doc) for doc in problems(data, variant)]
    return {"test": datasets.Dataset.from_list(rows)}


def doc_to_text(row: Mapping[str, Any]) -> str:
    """The problem as published, or asked in a chat."""
    doc = doc_from_row(row)
    if doc.meta["variant"] == "completion":
        return doc.question
    before, _, after = prompt().partition("{prompt}")
    return before + doc.question.strip("\n") + after


def doc_to_target(row: Mapping[str, Any]) -> str:
    """The published solution, in the form the variant asks for."""
    doc = doc_from_row(row)
    if doc.meta["variant"] == "completion":
        return doc.targets[0]
    return f"```python\n{doc.question}{doc.targets[0]}```"


process_results = make_process_results("code")
