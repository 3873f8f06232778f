"""Errors a user can act on. Each message says what is wrong, where, and what to do next.

    CheckrailError                exit code
    ├── UsageError                2    unknown key, model, task; bad value
    │   └── ConfigError           2    a card, task or gate file with a mistake: names file and key
    ├── DataError                 2    a data set or corpus that is missing, truncated, malformed
    ├── StoreError                2    a run folder that cannot be read or written
    ├── EngineError               3    weights or a server that failed; the same command resumes
    ├── RetrieverError            3    a retriever that failed
    ├── IncompleteError           3    samples are missing
    ├── NotComparableError       12    a held field differs
    └── NoBaselineError          13    nothing to compare with

Failures of a single sample are data (`Rollout.error`, `RetrievalError`), not exceptions.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CheckrailError(Exception):
    """Base class: printed as one line, never as a stack trace."""

    exit_code = 1


class UsageError(CheckrailError):
    """The command asks for something that does not exist."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file has a mistake; the message names the file and the key."""


class DataError(CheckrailError):
    """A data file is missing, truncated or malformed; the message names file and line."""

    exit_code = 2


class StoreError(CheckrailError):
    """A run folder cannot be read or written."""

    exit_code = 2


class EngineError(CheckrailError):
    """Weights or a model server failed."""

    exit_code = 3


class RetrieverError(CheckrailError):
    """A retriever failed as a whole."""

    exit_code = 3


class IncompleteError(CheckrailError):
    """Samples are missing; the same command resumes."""

    exit_code = 3


class NotComparableError(CheckrailError):
    """Two runs differ in a field that has to be held."""

    exit_code = 12


class NoBaselineError(CheckrailError):
    """No stored baseline where one is needed."""

    exit_code = 13


def nearest(name: str, known: Iterable[str], n: int = 3) -> str:
    """Return a "did you mean" hint for an unknown name, or the list of known ones.

    Args:
        name: What the user wrote.
        known: Valid names.
        n: Number of suggestions at most.
    """
    names = sorted(set(known))
    close = difflib.get_close_matches(name.lower(), [k.lower() for k in names], n=n, cutoff=0.5)
    hits = [k for k in names if k.lower() in close]
    if hits:
        return f"did you mean {', '.join(hits)}?"
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"known: {shown}" if names else "none are known"


def missing_dependency(package: str, extra: str, error: ImportError) -> UsageError:
    """Build the error for an optional package that is not installed.

    Args:
        package: Import name.
        extra: The extra of this project that brings it; "" for a package it always needs.
        error: The original import error.
    """
    wanted = f"checkrail[{extra}]" if extra else "checkrail"
    return UsageError(f"{package} is not installed ({error}): pip install '{wanted}'")
