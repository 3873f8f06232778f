"""A sandbox for programs that a model wrote: bubblewrap, with limits on everything.

Inside there are new user, pid, network, ipc, uts and cgroup namespaces, another user id, a
read-only root that holds the Python installation and the system's libraries, a small /tmp of its
own, no environment, no network. Memory, processor time, processes, file size, output and wall
time are limited; nothing outlives the run. Where a control group can be made it also limits all
processes together.

    unavailable()          "" or why there is no sandbox here, in one line
    run(program)           run a program and see what it printed and how it ended
    check(program, ...)    run the tests of a data set against a function of the program

Every failure of the sandbox itself is a `SandboxError`, never a verdict about the program.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.scoring import cgroup

MIB = 1024 * 1024
NOBODY = 65534
INSTALL = (
    "install bubblewrap (apt-get install bubblewrap, dnf install bubblewrap), or give "
    "unsafe_code=true to run the programs without a sandbox"
)

_INSIDE = Path(__file__).with_name("inside.py")
_START = 20.0  # seconds a sandbox may take to stand


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use.

    Attributes:
        wall: Seconds from start to end.
        cpu: Seconds of processor time, each process.
        memory: Bytes of address space, each process; of all together with a control group.
        processes: Processes and threads.
        file: Bytes of one file; `tmp` of all files together.
        output: Bytes kept of what is printed; the rest is read and dropped.
    """

    wall: float = 15.0
    cpu: int = 5
    memory: int = 512 * MIB
    processes: int = 16
    file: int = 16 * MIB
    tmp: int = 32 * MIB
    output: int = 65_536


LIMITS = Limits()


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


class SandboxError(Exception):
    """The sandbox could not be started: infrastructure, no verdict."""


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
def python() -> tuple[str, str]:
    """The interpreter of the sandbox, and the folder it needs there.

    This process's own installation if the sandbox's user can reach it, else the system's.

    Raises:
        SandboxError: Neither can be reached.
    """
    own = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    for path, prefix in ((own, sys.base_prefix), (Path("/usr/bin/python3"), "/usr")):
        if path.exists() and (os.getuid() != 0 or _open_to_all(path.resolve())):
            return str(path), prefix
    raise SandboxError(f"user {NOBODY} can read neither {own} nor /usr/bin/python3")


def _open_to_all(path: Path) -> bool:
    return all(p.stat().st_mode & stat.S_IXOTH for p in (path, *path.parents))


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
    with _Process(limits, (), unsafe) as process:
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
            _Process(limits, (to_candidate[0], to_checker[1]), unsafe) as candidate,
            _Process(limits, (to_checker[0], to_candidate[1]), unsafe) as checker,
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


class _Process:
    """One Python in a sandbox, waiting for its job; killed when the `with` block ends."""

    def __init__(self, limits: Limits, keep: Sequence[int], unsafe: bool) -> None:
        self._limits = limits
        self._unsafe = unsafe
        self._closing = contextlib.ExitStack()
        self.output = bytearray()
        self._said = bytearray()
        root = os.getuid() == 0 and not unsafe
        status, told = os.pipe()
        self._closing.callback(os.close, status)
        self.status = status
        try:
            if unsafe:
                folder = self._closing.enter_context(tempfile.TemporaryDirectory())
                command = [sys.executable]
            else:
                folder, command = "/", [*_bwrap(limits), python()[0]]
            self.popen = subprocess.Popen(
                [*command, "-S", "-s", "-B", "-c",
                 f"{_inside()}\nmain({told})"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                pass_fds=(*keep, told), cwd=folder, start_new_session=True,
                env={"PYTHONHASHSEED": "0"} if unsafe else {},
                user=NOBODY if root else None, group=NOBODY if root else None,
                extra_groups=[] if root else None,
            )  # fmt: skip
        except OSError as error:
            self._closing.close()
            raise SandboxError(f"cannot start the sandbox: {error}") from None
        finally:
            os.close(told)
        self._group: cgroup.Group | None = None

    def __enter__(self) -> _Process:
        """Wait until the sandbox stands."""
        try:
            deadline = time.monotonic() + _START
            while not self._said.startswith(b"ready\n"):
                if not self._read(deadline, (self.status,)):
                    self.kill()
                    rest = self.popen.communicate()[0] or b""
                    text = " ".join(bytes(self.output + rest).decode("utf-8", "replace").split())
                    raise SandboxError(f"the sandbox does not start: {text[:300] or 'no answer'}")
            del self._said[:6]
            return self
        except BaseException:
            self.__exit__()
            raise

    def send(self, job: Mapping[str, Any]) -> None:
        """Put the process into its control group and hand it its job."""
        limits = self._limits
        values = {"AS": limits.memory, "CPU": limits.cpu, "FSIZE": limits.file}
        if not self._unsafe:  # without a user namespace it would count all of the user's processes
            values["NPROC"] = limits.processes
            self._group = cgroup.create(limits.memory, limits.processes)
            if self._group is not None:
                with contextlib.suppress(OSError):
                    self._group.add(self.popen.pid)
        which = 0 if job["role"] == "answer" else 1
        ends = {
            "requests": job["requests"][which],
            "answers": job["answers"][1 - which],
        } if "requests" in job else {}  # fmt: skip
        body = json.dumps({**job, **ends, "limits": values}).encode()
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(body)
            self.popen.stdin.close()
        except OSError as error:
            raise SandboxError(f"the sandbox took no job: {error}") from None

    def wait(self, processes: Sequence[_Process], deadline: float) -> bool:
        """Read what all print until this one ends; False if the time ran out first."""
        handle = os.pidfd_open(self.popen.pid)
        try:
            with selectors.DefaultSelector() as ready:
                ready.register(handle, selectors.EVENT_READ)
                for process in processes:
                    process._register(ready)
                while (left := deadline - time.monotonic()) > 0:
                    for key, _ in ready.select(left):
                        if key.fd == handle:
                            for process in processes:
                                process._drain()
                            return True
                        if not key.data():
                            ready.unregister(key.fileobj)
            return False
        finally:
            os.close(handle)

    def verdict(self) -> Mapping[str, Any] | None:
        """What the checker said, if it said anything."""
        if not self._said.endswith(b"\n"):
            return None
        return json.loads(self._said)

    def reap(self) -> int | None:
        """Exit code once the process has ended by itself; None if it goes on."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.popen.wait(0.5)
        return None

    def kill(self) -> None:
        """End everything in the sandbox: the namespace dies with its first process."""
        with contextlib.suppress(OSError):
            os.killpg(self.popen.pid, signal.SIGKILL)

    def __exit__(self, *_: object) -> None:
        """Kill, reap, clean up."""
        self.kill()
        self.popen.wait()
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if self._group is not None:
            self._group.remove()
        self._closing.close()

    # reading

    def _register(self, ready: selectors.BaseSelector) -> None:
        assert self.popen.stdout is not None
        for fd, take in ((self.popen.stdout.fileno(), self._take_output),
                         (self.status, self._take_status)):  # fmt: skip
            os.set_blocking(fd, False)
            ready.register(fd, selectors.EVENT_READ, take)

    def _take_output(self) -> bool:
        assert self.popen.stdout is not None
        return _take(self.popen.stdout.fileno(), self.output, self._limits.output)

    def _take_status(self) -> bool:
        return _take(self.status, self._said, 65_536)

    def _drain(self) -> None:
        """What is in the pipes at the end; a pipe holds little, so this ends."""
        for take in (self._take_output, self._take_status):
            for _ in range(64):
                if not take():
                    break

    def _read(self, deadline: float, fds: Sequence[int]) -> bool:
        with selectors.DefaultSelector() as ready:
            for fd in fds:
                ready.register(fd, selectors.EVENT_READ)
            if not ready.select(max(0.0, deadline - time.monotonic())):
                return False
        data = os.read(fds[0], 4096)
        self._said += data
        return bool(data)


def _take(fd: int, into: bytearray, cap: int) -> bool:
    """Read once; False at the end (or when there is nothing now)."""
    try:
        data = os.read(fd, 65_536)
    except BlockingIOError:
        return False
    into += data[: max(0, cap - len(into))]
    return bool(data)


@cache
def _inside() -> str:
    return _INSIDE.read_text(encoding="utf-8")


def _bwrap(limits: Limits) -> list[str]:
    """The bubblewrap command up to the program."""
    return [
        "bwrap",
        "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
        "--unshare-cgroup-try",
        *_no_more_namespaces(),
        "--uid", str(NOBODY), "--gid", str(NOBODY), "--cap-drop", "ALL",
        "--die-with-parent", "--new-session", "--hostname", "sandbox",
        "--clearenv", "--setenv", "PYTHONHASHSEED", "0",
        *_binds(),
        "--proc", "/proc", "--dev", "/dev",
        "--size", str(limits.tmp), "--tmpfs", "/dev/shm",
        "--size", str(limits.tmp), "--tmpfs", "/tmp",
        "--remount-ro", "/dev", "--remount-ro", "/",
        "--chdir", "/tmp",
        "--",
    ]  # fmt: skip


@cache
def _no_more_namespaces() -> tuple[str, ...]:
    """--disable-userns, where bubblewrap (0.8) knows it."""
    done = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, check=False)
    return ("--disable-userns",) if "--disable-userns" in done.stdout + done.stderr else ()


@cache
def _binds() -> tuple[str, ...]:
    """Read-only places: the system's libraries and the Python installation, nothing else."""
    return tuple(_bind_arguments())


def _bind_arguments() -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in ("/lib", "/lib64", "/bin"):
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), name)
        elif path.exists():
            yield from ("--ro-bind", name, name)
    yield from ("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache")
    prefix = python()[1]
    if not Path(prefix).is_relative_to("/usr"):
        yield from ("--ro-bind", prefix, prefix)
