"""Processes that a library starts for us: where they print, why they failed, when they end."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Generator, Iterable
from pathlib import Path

_ERROR = re.compile(r"(?:^|[\s\]])((?:\w+\.)*\w*(?:Error|Exception)): (.+)")
_CONSEQUENCES = ("root cause", "nitialization failed", "stack trace", "Worker failed")
_GUARD = """
import os, signal, sys
handles = []
for pid in sys.argv[1:]:
    try:
        handles.append(os.pidfd_open(int(pid)))
    except ProcessLookupError:
        pass  # it has ended already
sys.stdin.read()  # ends when the other process does, however it does
for handle in handles:
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


@contextlib.contextmanager
def output_to(log: Path) -> Generator[None]:
    """Send what this process prints to a file; processes that start meanwhile keep it so.

    Works on the file descriptors, so that libraries and child processes are covered.
    """
    _flush()
    saved = {fd: os.dup(fd) for fd in (1, 2)}
    try:
        with log.open("ab") as stream:
            for fd in saved:
                os.dup2(stream.fileno(), fd)
        yield
    finally:
        _flush()
        for fd, copy in saved.items():
            os.dup2(copy, fd)
            os.close(copy)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def root_cause(log: Path) -> str:
    """The last error in a log that is not the mere consequence of another; "" if there is none."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        found = _ERROR.search(line)
        if found and not any(text in line for text in _CONSEQUENCES):
            name = found[1].rpartition(".")[2]
            return f"{name}: {found[2].strip()[:300]}"
    return ""


def reason(error: Exception, log: Path) -> str:
    """What went wrong, in one line: from the log where the exception only points there."""
    told = error.__cause__ if not str(error) and isinstance(error.__cause__, Exception) else error
    own = f"{type(told).__name__}: {str(told).strip().partition(chr(10))[0][:300]}"
    pointing = any(text in str(told) for text in _CONSEQUENCES)
    return (root_cause(log) if pointing else "") or own


class Guard:
    """Ends processes if this one is killed before `dismiss`: they would hold their GPU for ever.

    A process of its own waits for the end of a pipe that only this process holds open. It kills
    by handle (pidfd), never by a number that may have been given to another process since.
    """

    def __init__(self, pids: Iterable[int | None]) -> None:
        known = [str(pid) for pid in pids if pid]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _GUARD, *known],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us, not for the guard
        )

    def dismiss(self) -> None:
        """Leave the processes alone; idempotent."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()
