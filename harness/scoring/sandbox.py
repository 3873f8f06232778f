"""A sandbox for programs that a model wrote: bubblewrap, with limits on everything.

Inside there are new user, pid, network, ipc, uts and cgroup namespaces, another user id, a
read-only root that holds the Python installation and the system's libraries, a small /tmp of its
own, no environment, no network. Memory, processor time, processes, file size, output and wall
time are limited; nothing outlives the run. Where a control group can be made it also limits all
processes together.

    unavailable()          "" or why there is no sandbox here, in one line
    ungrouped()            "" or why there is no control group here
    run(program)           run a program and see what it printed and how it ended
    check(program, ...)    run the tests of a data set against a function of the program

Every failure of the sandbox itself is a `SandboxError`, never a verdict about the program.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from harness.scoring.bubblewrap import SandboxError, python
from harness.scoring.sandbox_process import LIMITS, Limits, Process

INSTALL = (
    "install bubblewrap (apt-get install bubblewrap, dnf install bubblewrap), or give "
    "unsafe_code=true to run the programs without a sandbox"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended.

    Attributes:
        exit_code: Of the program; minus the signal, or None if it had to be killed.
        output: What it printed, standard output and error together, cut.
        timed_out: It was killed at the wall time.
    """

    exit_code: int | None
    output: str
    timed_out: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Checked:
    """What the tests of a data set said.

    Attributes:
        passed: The checker's word; nothing else makes it true.
        reason: "" or one of `harness.scoring.code.REASONS`.
        detail: Name of the exception, or how the process ended; written by the program.
    """

    passed: bool
    reason: str
    detail: str
    seconds: float


# --- is there one? --------------------------------------------------------------------------


@cache
def unavailable() -> str:
    """Why programs cannot be run in a sandbox on this machine, in one line; "" if they can."""
    if sys.platform != "linux":
        return f"there is no sandbox for {sys.platform}"
    if shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    try:
        python()
        done = run("print(6 * 7)")
    except SandboxError as error:
        return str(error)
    return "" if done.output == "42\n" else f"the sandbox does not work: {done.output[:200]!r}"


@cache
def ungrouped() -> str:
    """Why a program's processes are limited one by one only; "" if a control group holds them all.

    Raises:
        SandboxError: The sandbox could not be started.
    """
    with Process(LIMITS, (), unsafe=False) as process:
        process.send({"role": "run", "source": ""})
        return process.ungrouped


# --- running --------------------------------------------------------------------------------


def run(program: str, limits: Limits = LIMITS, *, unsafe: bool = False) -> Outcome:
    """Run a program to its end.

    Args:
        program: Python source.
        limits: What it may use.
        unsafe: Without bubblewrap: only the limits of each process hold.

    Raises:
        SandboxError: The sandbox could not be started.
    """
    started = time.monotonic()
    with Process(limits, (), unsafe) as process:
        process.send({"role": "run", "source": program})
        ended = process.wait([process], started + limits.wall)
        process.kill()
        code = process.popen.wait() if ended else None
        if code is not None and code > 128 and not unsafe:
            code = 128 - code  # bwrap reports signals as a shell does
        text = bytes(process.output).decode("utf-8", "replace")
        return Outcome(code, text, not ended, time.monotonic() - started)


def check(
    program: str,
    *,
    entry: str,
    setup: str,
    test: str,
    call: str = "check",
    limits: Limits = LIMITS,
    unsafe: bool = False,
) -> Checked:
    """Run the tests of a data set against one function of a program.

    Tests and program run in two sandboxes joined by pipes (see `harness.scoring.inside`), so a
    program can neither reach the tests nor give the verdict.

    Args:
        program: Python source that defines `entry`.
        entry: Name of the function under test.
        setup: Trusted source that the tests need (helpers of the prompt).
        test: Trusted source of the tests.
        call: Function of `test` that is called with the candidate; "" if running it is enough.
        limits: Of each of the two.
        unsafe: Without bubblewrap.

    Raises:
        SandboxError: A sandbox could not be started.
    """
    started = time.monotonic()
    to_candidate, to_checker = os.pipe(), os.pipe()
    fds = {*to_candidate, *to_checker}
    try:
        # The candidate holds no end of a pipe that the verdict travels on.
        with (
            Process(limits, (to_candidate[0], to_checker[1]), unsafe) as candidate,
            Process(limits, (to_checker[0], to_candidate[1]), unsafe) as checker,
        ):
            for fd in fds:
                os.close(fd)
            fds = set[int]()
            pipes = {"entry": entry, "requests": to_candidate, "answers": to_checker}
            checker.send({"role": "check", "setup": setup, "test": test, "call": call, **pipes})
            candidate.send({"role": "answer", "source": program, **pipes})
            ended = checker.wait([checker, candidate], started + limits.wall)
            verdict = checker.verdict()
            gone = checker.popen.poll() if verdict is None else candidate.reap()
        return _checked(verdict, ended, gone, limits, time.monotonic() - started)
    finally:
        for fd in fds:
            os.close(fd)


def _checked(
    verdict: Mapping[str, Any] | None,
    ended: bool,
    gone: int | None,
    limits: Limits,
    seconds: float,
) -> Checked:
    """The verdict, with how the process ended that decided it, where that says more.

    Args:
        verdict: None if the checker gave none: what it was sent was too much for it.
        ended: Whether it ended by itself.
        gone: Exit code of the candidate, or of the checker if that gave no verdict.
        limits: Of both.
        seconds: Wall time.
    """
    if verdict is None and not ended:
        return Checked(False, "timeout", "wall time", seconds)
    verdict = verdict or {"reason": "exited_early", "detail": "the tests gave no verdict"}
    if verdict.get("passed") is True:
        return Checked(True, "", "", seconds)
    reason, detail = str(verdict["reason"]), str(verdict["detail"])
    if reason == "exited_early" and gone is not None and gone != 0:
        number = gone - 128 if gone > 128 else -gone if gone < 0 else 0
        if number == signal.SIGXCPU:
            reason, detail = "timeout", "processor time"
        elif number == signal.SIGKILL:  # SIGXCPU was caught, or the control group was full
            reason, detail = ("timeout" if seconds > limits.cpu else "memory"), "killed"
        elif number:
            reason, detail = "runtime_error", f"signal {number}"
    return Checked(False, reason, detail, seconds)
