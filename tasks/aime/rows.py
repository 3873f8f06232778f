"""Rows of AIME: 30 problems a year from two exams, answers from 0 to 999."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.data import locate
from harness.schema import Doc
from tasks.mathematics import instructed, read_docs, rows

if TYPE_CHECKING:
    import datasets

_PAGE = re.compile(r"(\d{4})_AIME_(I{1,2})_Problems/Problem_(\d+)$")


def to_doc(_: int, line: Mapping[str, Any]) -> Doc:
    """One problem; its id is the exam's: 2024-II-7."""
    page = _PAGE.search(line["url"])
    if page is None:
        raise ValueError(f"url {line['url']!r} names no problem")
    answer = str(int(line["answer"]))
    return Doc("-".join(page.groups()), line["problem"], (answer,), meta={"kind": "integer"})


def problems(year: int, data: str | Path | None = None) -> list[Doc]:
    """The problems of 2024 or 2025, in the order of the file.

    Raises:
        DataError: The file is missing, changed, or a line of it malformed.
    """
    name = f"aime{year % 100}"
    return read_docs(locate(name, f"{name}.jsonl", data), to_doc)


def build(year: int, data: str | Path | None = None, **_: Any) -> dict[str, datasets.Dataset]:
    """lm-eval's `custom_dataset`."""
    return rows(problems(year, data), instructed)
