"""Rows of KMMLU: 45 subjects from the hub's CSV files, one task, the subject as stratum."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.data import find, locate
from harness.errors import DataError
from tasks.multiple_choice import Question, chosen, listed, rows, with_examples

if TYPE_CHECKING:
    import datasets

DATASET = "kmmlu_hub"
LOOSE = {("Criminal-Law", "test"): ("kmmlu", "criminal_law_test.csv")}
"""Files that lie elsewhere under the data root, with a checksum."""

SUBJECTS = (
    "Accounting", "Agricultural-Sciences", "Aviation-Engineering-and-Maintenance", "Biology",
    "Chemical-Engineering", "Chemistry", "Civil-Engineering", "Computer-Science", "Construction",
    "Criminal-Law", "Ecology", "Economics", "Education", "Electrical-Engineering",
    "Electronics-Engineering", "Energy-Management", "Environmental-Science", "Fashion",
    "Food-Processing", "Gas-Technology-and-Engineering", "Geomatics", "Health",
    "Industrial-Engineer", "Information-Technology", "Interior-Architecture-and-Design",
    "Korean-History", "Law", "Machine-Design-and-Manufacturing", "Management",
    "Maritime-Engineering", "Marketing", "Materials-Engineering", "Math",
    "Mechanical-Engineering", "Nondestructive-Testing", "Patent",
    "Political-Science-and-Sociology", "Psychology", "Public-Safety",
    "Railway-and-Automotive-Engineering", "Real-Estate", "Refrigerating-Machinery",
    "Social-Welfare", "Taxation", "Telecommunications-and-Wireless-Technology",
)  # fmt: skip

LABEL = "정답："
INSTRUCTION = (
    "다음 객관식 문제의 답을 고르세요. 풀이를 먼저 써도 됩니다. "
    "마지막 줄에는 '정답: X'만 쓰되, X는 A, B, C, D 가운데 하나여야 합니다."
)

_COLUMNS = ("question", "A", "B", "C", "D", "answer")


def path_of(
    subject: str, split: str, data: str | Path | None = None, *, download: bool = True
) -> Path:
    """The CSV of one subject: as the hub lays it out, in its loose place, or from the hub.

    Raises:
        DataError: It is nowhere; one line that says how to get it.
    """
    file = f"data/{subject}-{split}.csv"
    loose = LOOSE.get((subject, split))
    with contextlib.suppress(DataError):
        return find(DATASET, file, data, download=False)
    with contextlib.suppress(DataError):
        if loose:
            return locate(*loose, data)
    return find(DATASET, file, data, download=download)


def questions(subject: str, split: str, data: str | Path | None = None) -> list[Question]:
    """The questions of one subject and split, in the order of the file.

    Raises:
        DataError: The file is missing or malformed; names it and the line.
    """
    path = path_of(subject, split, data)
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream)
        missing = [c for c in _COLUMNS if c not in (reader.fieldnames or ())]
        if missing:
            raise DataError(f"{path}: column '{missing[0]}' is missing")
        made: list[Question] = []
        for row in reader:
            if row["answer"] not in ("1", "2", "3", "4"):
                raise DataError(
                    f"{path}, line {reader.line_num}: answer is {row['answer']!r}, not 1 to 4"
                )
            options = tuple(row[c] or "" for c in "ABCD")
            made.append(Question(subject, row["question"], options, int(row["answer"]) - 1))
    return made


def test_set(subjects: str | Sequence[str], data: str | Path | None) -> list[Question]:
    """The test questions of the chosen subjects.

    Raises:
        DataError: A subject is missing; the message also says which ones are at hand.
    """
    made: list[Question] = []
    for subject in chosen(subjects, SUBJECTS):
        try:
            made += questions(subject, "test", data)
        except DataError as error:
            here = [s for s in SUBJECTS if _at_hand(s, data)]
            hint = f"; at hand: task_options.subjects={','.join(here)}" if here else ""
            raise DataError(f"{error}{hint}") from None
    return made


def _at_hand(subject: str, data: str | Path | None) -> bool:
    """Whether the test questions of a subject are there without a download."""
    try:
        return path_of(subject, "test", data, download=False).is_file()
    except DataError:
        return False


def build(
    subjects: str | Sequence[str] = "", data: str | Path | None = None, **_: Any
) -> dict[str, datasets.Dataset]:
    """lm-eval's `custom_dataset` of `kmmlu`: zero-shot, the answer stated.

    Args:
        subjects: Some of `SUBJECTS`, with commas; "" takes all 45.
        data: The data root; None takes CHECKRAIL_DATA.
    """
    return rows(test_set(subjects, data), lambda q: f"{INSTRUCTION}\n\n{listed(q)}")


def build_likelihood(
    subjects: str | Sequence[str] = "", shots: int = 5, data: str | Path | None = None, **_: Any
) -> dict[str, datasets.Dataset]:
    """lm-eval's `custom_dataset` of `kmmlu_ll`: the first `shots` dev questions as examples.

    Args:
        subjects: As for `build`.
        shots: Worked examples, 0 to 5.
        data: The data root; None takes CHECKRAIL_DATA.
    """
    found = test_set(subjects, data)
    names = {q.subject for q in found} if shots else set[str]()
    examples = {s: questions(s, "dev", data)[:shots] for s in sorted(names)}
    return rows(found, lambda q: with_examples(q, examples.get(q.subject, ()), LABEL))
