"""Rows of GPQA-Diamond: the options of each question in an order that its id alone decides."""

from __future__ import annotations

import csv
import hashlib
import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import paths
from harness.data import dataset, find
from harness.errors import DataError
from tasks.multiple_choice import Question, listed, rows

if TYPE_CHECKING:
    import datasets

DATASET, FILE, ARCHIVE = "gpqa", "gpqa_diamond.csv", "dataset.zip"
PASSWORD = b"deserted-untie-orchid"
"""As the authors publish it beside the archive: it keeps crawlers out, not readers."""

INSTRUCTION = (
    "Choose the right option. You may reason first; close with one line of the form "
    "'Answer: X', where X is A, B, C or D."
)

_RIGHT = "Correct Answer"
_OPTIONS = (_RIGHT, "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_COLUMNS = ("Record ID", "Question", "High-level domain", *_OPTIONS)


def text(data: str | Path | None = None) -> tuple[str, str]:
    """The CSV and where it was found: the archive or the file under the data root, or the hub.

    Raises:
        DataError: It is nowhere, or the archive cannot be read.
    """
    base = Path(data).expanduser() if data else paths.data_root()
    archive = base / dataset(DATASET).folder / ARCHIVE if base else None
    if archive is None or not archive.is_file() or archive.with_name(FILE).is_file():
        path = find(DATASET, FILE, data)
        return path.read_text(encoding="utf-8-sig"), str(path)
    try:
        with zipfile.ZipFile(archive) as opened:
            name = next((n for n in opened.namelist() if n.endswith(f"/{FILE}")), FILE)
            return opened.read(name, pwd=PASSWORD).decode("utf-8-sig"), f"{archive}: {name}"
    except (OSError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
        raise DataError(f"{archive}: cannot be read ({error})") from None


def questions(data: str | Path | None = None) -> list[Question]:
    """The questions with their options in the order of `order`.

    Raises:
        DataError: The file is missing or malformed; names it and the column or line.
    """
    content, where = text(data)
    reader = csv.DictReader(io.StringIO(content, newline=""))
    missing = [c for c in _COLUMNS if c not in (reader.fieldnames or ())]
    if missing:
        raise DataError(f"{where}: column '{missing[0]}' is missing")
    made: list[Question] = []
    for row in reader:
        options = [(row[c] or "").strip() for c in _OPTIONS]
        if not row["Record ID"] or not all(options):
            raise DataError(f"{where}, line {reader.line_num}: no id, or an empty option")
        placed = order(row["Record ID"])
        made.append(
            Question(
                row["High-level domain"], row["Question"], tuple(options[i] for i in placed),
                placed.index(0), row["Record ID"],
            )
        )  # fmt: skip
    return made


def order(record_id: str) -> list[int]:
    """A permutation of the four options, the same for ever; 0 is the right one."""

    def key(option: int) -> bytes:
        return hashlib.sha256(f"gpqa-options\0{record_id}\0{option}".encode()).digest()

    return sorted(range(4), key=key)


def build(data: str | Path | None = None, **_: Any) -> dict[str, datasets.Dataset]:
    """lm-eval's `custom_dataset` of `gpqa_diamond`: zero-shot, the answer stated.

    Args:
        data: The data root; None takes CHECKRAIL_DATA.
    """
    return rows(questions(data), lambda q: f"{INSTRUCTION}\n\n{listed(q, ') ')}")
