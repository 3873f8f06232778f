"""One Python in a sandbox: started, limited, fed its job, listened to, killed.

What it may use is limited for each process (`setrlimit`, inside), and by a control group for all
of them together where one can be made; `Process.ungrouped` says why there is none.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.scoring import bubblewrap, cgroup
from harness.scoring.bubblewrap import NOBODY, SandboxError

MIB = 1024 * 1024

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


class Process:
    """One Python in a sandbox, waiting for its job; killed when the `with` block ends.

    Args:
        limits: What it may use.
        keep: File descriptors that it inherits.
        unsafe: Without bubblewrap: only the limits of each process hold.

    Attributes:
        popen: The process that was started: bubblewrap, or with `unsafe` Python itself.
        output: What was printed so far, cut.
        status: Where it says that it stands, and what the tests said.
        ungrouped: Once it has its job: why no control group holds it; "" if one does.

    Raises:
        SandboxError: It could not be started.
    """

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
                folder, command = "/", [*bubblewrap.command(limits.tmp), bubblewrap.python()[0]]
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
        self.ungrouped = "there is no sandbox around it" if unsafe else ""

    def __enter__(self) -> Process:
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
            try:
                self._group = cgroup.create(limits.memory, limits.processes)
                self._group.add(self.popen.pid)
            except OSError as error:
                self.ungrouped = str(error)
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

    def wait(self, processes: Sequence[Process], deadline: float) -> bool:
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
