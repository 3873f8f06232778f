"""What index builders share: the folder, its description, one builder at a time, progress.

An index folder describes itself in a JSON file: of which corpus and encoder it was made, how many
rows are done. What it was made of is compared before it is used; nothing stale is searched.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from harness.errors import DataError, StoreError
from harness.progress import EVERY_SECONDS, Progress, clock


def short_hash(*parts: object) -> str:
    """128 bits that name settings, as 32 hexadecimal digits."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def read_description(path: Path) -> dict[str, Any]:
    """What an index says about itself; {} where there is none.

    Raises:
        DataError: It cannot be read.
    """
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); delete its folder") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: expected a JSON object; delete its folder")
    return cast("dict[str, Any]", found)


def write_description(path: Path, description: Mapping[str, Any]) -> None:
    """Write it whole or not at all."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    scratch.replace(path)


def refuse_stale(where: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Compare what an index was made of with what it should be of.

    Raises:
        DataError: They differ; names both.
    """
    for key, value in wanted.items():
        if found.get(key) != value:
            raise DataError(
                f"index {where} was built for {key} {found.get(key)}, but this is {key} {value}: "
                f"give another folder, or delete it to build it again"
            )


@contextmanager
def building(folder: Path) -> Generator[None]:
    """Make a folder and hold it: another process that builds there waits.

    Raises:
        StoreError: The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / "lock").open("w")
    except OSError as error:
        raise StoreError(f"cannot write {folder}: {error.strerror}; give index=FOLDER") from None
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class Counter:
    """Says every few seconds how far a long build is.

    Args:
        what: "encoded", say.
        total: Passages; 0 where nobody knows.
        done: Passages that an earlier build left.
    """

    def __init__(self, what: str, total: int, done: int = 0) -> None:
        self._say = Progress().say
        self._what = what
        self._total = total
        self._first = self._done = done
        self._started = self._last = time.perf_counter()
        if done:
            self._say(f"  {done:,} of {total:,} passages were {what} before")

    def add(self, n: int) -> None:
        """Count n more passages."""
        self._done += n
        now = time.perf_counter()
        if now - self._last < EVERY_SECONDS:
            return
        self._last = now
        text = f"  {self._what} {self._done:,}"
        if self._total:
            pace = (now - self._started) / max(self._done - self._first, 1)
            left = clock((self._total - self._done) * pace)
            text += f" of {self._total:,} passages, about {left} left"
        self._say(text)
