"""Rows of MMLU: 57 subjects from the archive, one task, the subject as stratum."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.data import locate
from harness.errors import DataError
from tasks.multiple_choice import Question, chosen, listed, rows, with_examples

if TYPE_CHECKING:
    import datasets

DATASET, FILE = "mmlu", "mmlu.zip"
LABEL = "Answer:"
INTRO = "The following are multiple choice questions (with answers) about {subject}.\n\n"
INSTRUCTION = (
    "Choose the right option. You may reason first; close with one line of the form "
    "'Answer: X', where X is A, B, C or D."
)


def read(path: Path, split: str) -> dict[str, list[Question]]:
    """The questions of a split by subject, in the order of the files.

    Raises:
        DataError: The archive cannot be read, or a row is not a question, four options and a
            letter; names archive, file and line.
    """
    made: dict[str, list[Question]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            end = f"_{split}.csv"
            for name in sorted(archive.namelist()):
                if name.startswith(f"data/{split}/") and name.endswith(end):
                    subject = Path(name).name.removesuffix(end)
                    text = archive.read(name).decode("utf-8")
                    made[subject] = _questions(subject, text, f"{path}: {name}")
    except (OSError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    if not made:
        raise DataError(f"{path}: holds no data/{split}/*_{split}.csv")
    return made


def _questions(subject: str, text: str, where: str) -> list[Question]:
    made: list[Question] = []
    reader = csv.reader(io.StringIO(text, newline=""))
    for row in reader:
        if len(row) != 6 or row[5] not in ("A", "B", "C", "D"):
            raise DataError(f"{where}, line {reader.line_num}: not question, 4 options, letter")
        made.append(Question(subject, row[0], tuple(row[1:5]), "ABCD".index(row[5])))
    return made


def test_set(subjects: str | Sequence[str], path: Path) -> list[Question]:
    """The test questions of the chosen subjects."""
    every = read(path, "test")
    return [q for subject in chosen(subjects, sorted(every)) for q in every[subject]]


def build(
    subjects: str | Sequence[str] = "", data: str | Path | None = None, **_: Any
) -> dict[str, datasets.Dataset]:
    """lm-eval's `custom_dataset` of `mmlu`: zero-shot, the answer stated.

    Args:
        subjects: Names with commas, such as "anatomy,virology"; "" takes all 57.
        data: The data root; None takes CHECKRAIL_DATA.
    """
    found = test_set(subjects, locate(DATASET, FILE, data))
    return rows(found, lambda q: f"{INSTRUCTION}\n\n{listed(q, ') ')}")


def build_likelihood(
    subjects: str | Sequence[str] = "", shots: int = 5, data: str | Path | None = None, **_: Any
) -> dict[str, datasets.Dataset]:
    """lm-eval's `custom_dataset` of `mmlu_ll`: the first `shots` dev questions as examples.

    Args:
        subjects: As for `build`.
        shots: Worked examples, 0 to 5.
        data: The data root; None takes CHECKRAIL_DATA.
    """
    path = locate(DATASET, FILE, data)
    examples = read(path, "dev")

    def prompt(q: Question) -> str:
        intro = INTRO.format(subject=q.subject.replace("_", " "))
        return with_examples(q, examples[q.subject][:shots], LABEL, intro)

    return rows(test_set(subjects, path), prompt)
