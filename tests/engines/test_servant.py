"""Processes of a library: what they print, why they failed, and that they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.engines.servant import output_to, reason, root_cause
from tests.conftest import ROOT

LOG = """\
INFO 11-21 07:04:31 [core.py:133] Initializing
(Worker pid=7) ERROR 11-21 [worker.py:1] Traceback (most recent call last):
(Worker pid=7) ERROR 11-21 [worker.py:1]   raise torch.OutOfMemoryError("...")
(Worker pid=7) ERROR 11-21 [worker.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB.
(EngineCore pid=3) ERROR Exception: WorkerProc initialization failed due to an exception in a \
background process. See stack trace for root cause.
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""


def test_the_cause_is_the_last_error_that_does_not_point_at_another(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(LOG)
    assert root_cause(log) == "OutOfMemoryError: CUDA out of memory. Tried 2 GiB."


@pytest.mark.parametrize("text", ["", "all is well\n", "\xff\x00 Error\n"])
def test_a_log_without_an_error_names_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_text(text, encoding="latin-1")
    assert root_cause(tmp_path / "log") == ""
    assert root_cause(tmp_path / "missing") == ""


def test_the_log_is_asked_only_where_the_exception_points_to_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(LOG)
    pointing = RuntimeError("EngineCore encountered an issue. See stack trace for the root cause.")
    assert reason(pointing, log) == root_cause(log)
    assert reason(pointing, tmp_path / "missing").startswith("RuntimeError: EngineCore encount")
    assert reason(ValueError("first line\nmore"), log) == "ValueError: first line"
    wrapper = RuntimeError()
    wrapper.__cause__ = KeyError("x")
    assert reason(wrapper, log) == "KeyError: 'x'"


def test_output_goes_to_the_file_with_that_of_children_and_comes_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    print("before")
    with output_to(log):
        os.write(1, b"ours\n")  # past Python's own stream, as a library does
        slow = "import sys, time; time.sleep(0.3); print('late', file=sys.stderr)"
        child = subprocess.Popen([sys.executable, "-c", slow])
    print("after")
    child.wait()
    assert capfd.readouterr() == ("before\nafter\n", "")
    assert sorted(log.read_text().split()) == ["late", "ours"]


def test_output_comes_back_after_a_failure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyError), output_to(tmp_path / "log"):
        raise KeyError
    print("after")
    assert capfd.readouterr().out == "after\n"


KEEPER = """
import os, signal, subprocess, sys
from harness.engines.servant import Guard
quiet = {{"stdout": subprocess.DEVNULL}}  # or our pipe would stay open as long as it lives
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], **quiet)
gone = subprocess.Popen([sys.executable, "-c", ""])
gone.wait()
guard = Guard([gone.pid, None, child.pid])
print(child.pid, guard._process.pid, flush=True)
{}
os.kill(os.getpid(), signal.SIGKILL)
"""


def play(last: str) -> tuple[int, int]:
    done = subprocess.run(
        [sys.executable, "-c", KEEPER.format(last)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    child, guard = done.stdout.split()
    return int(child), int(guard)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"  # whoever adopted it may not have collected it yet


def ends(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def test_a_killed_process_takes_what_it_guards_with_it() -> None:
    child, guard = play("")
    assert ends(child) and ends(guard)


def test_a_dismissed_guard_leaves_its_process_alone() -> None:
    child, guard = play("guard.dismiss(); guard.dismiss()")
    assert ends(guard) and alive(child)
    os.kill(child, signal.SIGKILL)
