"""Whether two mathematical expressions are equal, by math-verify, in a process of its own.

What a model writes may keep a computer algebra system busy for ever (9^9^9^9), and the time-outs
of math-verify are signals, which exist in the main thread only and interrupt no big
multiplication. So one child process compares, under limits of the operating system: CPU time a
comparison (`SECONDS`) and memory. Where it dies of them the answer is None and the next question
gets a new child. Callable from any thread; the child ends with its parent.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from importlib.util import find_spec
from typing import Any

from harness.errors import missing_dependency

SECONDS = 5.0
"""CPU seconds of one comparison."""

MEMORY = 4 << 30
"""Bytes of address space of the child."""

LONGEST = 2_000
"""Characters of an expression above which nothing is compared."""

_lock = threading.Lock()
_child: list[subprocess.Popen[str]] = []


def equal(target: str, answer: str) -> bool | None:
    """Whether an answer equals the target; None where the comparison was given up.

    Args:
        target: LaTeX without dollar signs.
        answer: Likewise; text by a model, so anything.

    Raises:
        UsageError: math-verify is not installed.
    """
    if max(len(target), len(answer)) > LONGEST:
        return None
    with _lock:
        child = _start()
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(json.dumps([target, answer]) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
        if not line:  # it died of its limits
            child.wait()
            return None
        return json.loads(line)


def _start() -> subprocess.Popen[str]:
    """The running child, or a new one where the last one died."""
    if _child and _child[0].poll() is not None:
        _child.pop().communicate()
    if not _child:
        if find_spec("math_verify") is None:  # the parent never imports it
            raise missing_dependency("math-verify", "", ImportError("no module math_verify"))
        _child.append(
            subprocess.Popen(
                [sys.executable, "-m", "harness.scoring.equality"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
            )
        )
    return _child[0]


def _serve() -> None:
    """The child: one line [target, answer] in, one line true, false or null out."""
    import resource
    import signal

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import math_verify

    compare: Any = math_verify
    config = compare.LatexExtractionConfig(boxed_match_priority=0)

    def parsed(text: str) -> Any:
        return compare.parse(f"\\boxed{{{text}}}", [config], parsing_timeout=None)

    for line in sys.stdin:
        target, answer = json.loads(line)
        # No handler: the system ends the process, whatever it is computing.
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            same = bool(compare.verify(parsed(target), parsed(answer), timeout_seconds=None))
        except (Exception, RecursionError):
            same = None
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(same), flush=True)


if __name__ == "__main__":
    _serve()
