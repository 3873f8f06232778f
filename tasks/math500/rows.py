"""Rows of MATH-500: problems whose answers are expressions; the subject is a stratum."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.data import locate
from harness.schema import Doc
from tasks.mathematics import instructed, read_docs, rows

if TYPE_CHECKING:
    import datasets


def to_doc(_: int, line: Mapping[str, Any]) -> Doc:
    """One problem; its id is that of MATH (test/algebra/2584)."""
    return Doc(
        str(line["unique_id"]).removesuffix(".json"),
        line["problem"],
        (line["answer"],),
        stratum=line["subject"],
        meta={"kind": "expression", "level": int(line["level"])},
    )


def problems(data: str | Path | None = None) -> list[Doc]:
    """The 500 problems, in the order of the file.

    Raises:
        DataError: The file is missing, changed, or a line of it malformed.
    """
    return read_docs(locate("math500", "test.jsonl", data), to_doc)


def build(data: str | Path | None = None, **_: Any) -> dict[str, datasets.Dataset]:
    """lm-eval's `custom_dataset`."""
    return rows(problems(data), instructed)
