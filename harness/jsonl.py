"""JSON lines from outside, read with care: every mistake is named by file, line and key.

    for where, row in read_rows(path):      # where: "FILE:LINE", for messages
        question = text(where, row, "question")

Blank lines are skipped, and so is a byte order mark; a name that ends in .gz is unpacked.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.errors import DataError


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object of a file with the place where it stands.

    Raises:
        DataError: The file cannot be read, or a line is no UTF-8 or no JSON object.
    """
    for number, line in enumerate(_bytes(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            where = f"{path}:{number}"
            yield where, row_of(where, line)


def text(where: str, row: Mapping[str, Any], key: str) -> str:
    """A string that is not blank.

    Raises:
        DataError: It is missing, blank, no string, or cannot be written as UTF-8.
    """
    value = row.get(key)
    if not isinstance(value, str):
        problem = "is missing" if key not in row else f"must be a string, got {value!r:.40}"
        raise DataError(f"{where}: key '{key}' {problem}")
    if not value.strip():
        raise DataError(f"{where}: key '{key}' is empty")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: key '{key}' holds a broken character (\\ud800-like)") from error
    return value


def _bytes(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: cannot be unpacked ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def row_of(where: str, line: bytes) -> dict[str, Any]:
    """One line as a JSON object.

    Raises:
        DataError: It is no UTF-8 or no JSON object.
    """
    try:
        decoded = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8 (byte {error.start + 1}); convert the file") from error
    try:
        row: Any = json.loads(decoded)
    except (ValueError, RecursionError) as error:
        said = " ".join(str(error).split())[:80]
        raise DataError(f"{where}: not valid JSON ({said})") from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected a JSON object, got {type(row).__name__}")
    return row
