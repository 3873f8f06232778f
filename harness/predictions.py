"""Files of outside predictions, read line by line: plain JSONL, and lm-eval's samples files.

    {"id": "q1", "prediction": "..."}       plain; a list of texts is one repeat each
    samples_TASK_DATE.jsonl                 what `lm-eval run --log_samples` writes

A file is read whole or not at all: the first mistake is an error that names file and line.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from harness.errors import DataError

PLAIN = "JSONL"
LM_EVAL = "lm-eval samples"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a file says of one doc.

    Attributes:
        line: 1-based.
        id: The doc's id; "" where the file has none.
        texts: One a repeat; empty for log-likelihoods.
        choices: Log-likelihood of each choice, or None.
        question: Of the doc as the file has it; None where unknown.
        prompt: As the model was given it, template included; None where unknown.
        doc_hash: lm-eval's hash of the doc's row; "" where unknown.
    """

    line: int
    id: str
    texts: tuple[str, ...] = ()
    choices: tuple[float, ...] | None = None
    question: str | None = None
    prompt: str | None = None
    doc_hash: str = ""


@dataclass(frozen=True, slots=True)
class Predictions:
    """A file of predictions.

    Attributes:
        form: `PLAIN` or `LM_EVAL`.
        sha256: Of the file, hex.
        repeats: Texts a doc.
    """

    path: Path
    form: str
    sha256: str
    items: tuple[Prediction, ...]
    repeats: int


def read_predictions(path: Path, id_field: str = "id", answer: str = "prediction") -> Predictions:
    """Read a file; its form is told from its first line.

    Args:
        path: UTF-8, one JSON object a line.
        id_field: Field of the id; in an lm-eval file, of the doc's row.
        answer: Field of the text in a plain file.

    Raises:
        DataError: The file cannot be read, or a line is not what it should be.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    rows = list(_rows(path, raw))
    if not rows:
        raise DataError(f"{path}: no predictions in it")
    samples = "resps" in rows[0][1] and "doc" in rows[0][1]
    if samples:
        items = tuple(_samples(path, rows, id_field))
    else:
        items = tuple(_plain(path, number, row, id_field, answer) for number, row in rows)
    first = items[0]
    for item in items:
        if len(item.texts) != len(first.texts) or (item.choices is None) != (first.choices is None):
            raise DataError(
                f"{path}, line {item.line}: {len(item.texts)} texts, line {first.line} has "
                f"{len(first.texts)}; every doc needs as many"
            )
    return Predictions(
        path,
        LM_EVAL if samples else PLAIN,
        hashlib.sha256(raw).hexdigest(),
        items,
        max(len(first.texts), 1),
    )


def _rows(path: Path, raw: bytes) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        where = f"{path}, line {number}"
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{where}: not UTF-8 (byte {error.start} of the line); convert the file"
            ) from None
        if not text.strip():
            continue
        try:
            row = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not JSON ({error}); is the file cut short?") from None
        if not isinstance(row, dict):
            raise DataError(f"{where}: not a JSON object")
        yield number, cast("Mapping[str, Any]", row)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _plain(
    path: Path, number: int, row: Mapping[str, Any], id_field: str, answer: str
) -> Prediction:
    where = f"{path}, line {number}"
    for key, name in ((id_field, "id"), (answer, "answer")):
        if key not in row:
            fields = ", ".join(row) or "none"
            raise DataError(f"{where}: no field '{key}', it has {fields} (say {name}=FIELD)")
    texts = row[answer] if isinstance(row[answer], list) else [row[answer]]
    return Prediction(number, _id(row[id_field], where), _texts(texts, where, answer))


def _id(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        raise DataError(f"{where}: the id must be text or a whole number, is {json.dumps(value)}")
    return str(value)


def _texts(values: list[Any], where: str, field: str) -> tuple[str, ...]:
    for value in values:
        if not isinstance(value, str):
            kind = "null" if value is None else type(value).__name__
            raise DataError(f"{where}: '{field}' must be text, is {kind}")
    if not values:
        raise DataError(f"{where}: '{field}' is an empty list")
    return tuple(values)


def _samples(
    path: Path, rows: list[tuple[int, Mapping[str, Any]]], id_field: str
) -> Iterator[Prediction]:
    """lm-eval's samples; the lines of further filters repeat a doc and are passed over."""
    filters: dict[str, str] = {}
    for number, row in rows:
        where = f"{path}, line {number}"
        key, chosen = json.dumps(row.get("doc_id")), str(row.get("filter", "none"))
        if filters.setdefault(key, chosen) != chosen:
            continue
        try:
            yield _sample(number, row, id_field, where)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise DataError(
                f"{where}: not a sample as lm-eval writes it ({type(error).__name__}: {error})"
            ) from None


def _sample(number: int, row: Mapping[str, Any], id_field: str, where: str) -> Prediction:
    doc: Mapping[str, Any] = row["doc"]
    responses: list[Any] = row["resps"]
    question = doc.get("question")
    prompt = next(iter((row.get("arguments") or {"": {}}).values())).get("arg_0")
    texts: tuple[str, ...] = ()
    choices = None
    if isinstance(responses[0][0], list):  # (log-likelihood, greedy) of each choice, as text
        choices = tuple(float(response[0][0]) for response in responses)
        if not all(map(math.isfinite, choices)):
            raise DataError(f"{where}: a log-likelihood is no finite number: {list(choices)}")
    else:
        if len(responses) != 1:
            raise ValueError(f"{len(responses)} requests for one doc")
        texts = _texts(responses[0], where, "resps")
    return Prediction(
        number,
        _id(doc[id_field], where) if id_field in doc else "",
        texts,
        choices,
        question if isinstance(question, str) else None,
        prompt if isinstance(prompt, str) else None,
        str(row.get("doc_hash") or ""),
    )
