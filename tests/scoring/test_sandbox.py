"""Hostile programs and the sandbox that holds them; every test starts real processes."""

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from harness.scoring import bubblewrap, cgroup, code, sandbox
from harness.scoring.bubblewrap import SandboxError
from harness.scoring.sandbox import check, run
from harness.scoring.sandbox_process import LIMITS, MIB, Limits

pytestmark = pytest.mark.skipif(
    bool(sandbox.unavailable()), reason=f"no sandbox here: {sandbox.unavailable()}"
)

SHORT = Limits(wall=5.0, cpu=1)
SQUARE = {
    "entry": "square",
    "setup": "def square(x):\n    '''The square.'''\n",
    "test": "def check(candidate):\n    assert candidate(3) == 9\n    assert candidate(-4) == 16\n",
}


def verdict(program, limits=SHORT):
    return check(program, limits=limits, **SQUARE)


def processes_named(mark):
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "cmdline").read_bytes().decode("utf-8", "replace"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


# --- what works ---


def test_a_right_function_passes():
    assert verdict("def square(x):\n    return x * x").passed


def test_a_wrong_function_fails_with_its_reason():
    found = verdict("def square(x):\n    return x + x + 3 * (x == 3)")
    assert (found.passed, found.reason) == (False, "wrong_answer")


def test_what_a_program_prints_and_how_it_ends_is_reported():
    done = run("import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(7)")
    assert done.exit_code == 7
    assert set(done.output.split()) == {"out", "err"}
    assert not done.timed_out


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def square(x) return x", "syntax_error"),
        ("def cube(x):\n    return x", "missing_function"),
        ("square = 4", "missing_function"),
        ("def square(x):\n    return x / 0", "runtime_error"),
        ("raise ValueError('at import')", "runtime_error"),
        ("def square(x):\n    return [0] * 10**10", "memory"),
        ("def square(x):\n    import os, signal\n    os.kill(os.getpid(), 11)", "runtime_error"),
        ("", "missing_function"),
        ("def square(x):\n    raise AssertionError", "runtime_error"),
    ],
)
def test_a_failure_has_its_own_reason(program, reason):
    assert verdict(program).reason == reason


# --- hostile: time, memory, processes, files, output ---


def test_an_endless_loop_is_stopped_by_its_processor_time():
    found = verdict("def square(x):\n    while True:\n        pass")
    assert (found.passed, found.reason) == (False, "timeout")


def test_a_program_that_sleeps_is_stopped_by_the_wall_time():
    found = verdict("import time\ndef square(x):\n    time.sleep(1000)", Limits(wall=1.0))
    assert (found.passed, found.reason) == (False, "timeout")


def test_a_program_that_ignores_signals_is_killed_all_the_same():
    found = verdict(
        "import signal\n"
        "for s in range(1, 65):\n"
        "    try:\n        signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError):\n        pass\n"
        "def square(x):\n"
        "    while True:\n"
        "        try:\n            while True:\n                pass\n"
        "        except BaseException:\n            pass\n"
    )
    assert (found.passed, found.reason) == (False, "timeout")


def test_a_fork_bomb_stays_below_the_limit_of_processes():
    done = run(
        "import os, time\n"
        "made = 0\n"
        "while True:\n"
        "    try:\n        child = os.fork()\n"
        "    except OSError:\n        break\n"
        "    if child == 0:\n        time.sleep(60)\n"
        "    made += 1\n"
        "print(made)\n",
        SHORT,
    )
    assert 0 < int(done.output) < SHORT.processes


def test_a_fork_bomb_that_never_gives_up_ends_with_the_wall_time():
    program = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    done = run(program, Limits(wall=1.5, cpu=1))
    assert done.exit_code != 0
    assert run("print('the next one starts')").output == "the next one starts\n"


def test_a_thread_bomb_stays_below_the_limit_of_processes():
    done = run(
        "import threading, time\n"
        "made = 0\n"
        "try:\n"
        "    while True:\n"
        "        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "        made += 1\n"
        "except RuntimeError:\n"
        "    print(made, flush=True)\n"
        "    import os\n    os._exit(0)\n",
        SHORT,
    )
    assert 0 < int(done.output) < SHORT.processes


def test_memory_beyond_the_limit_is_refused():
    done = run("x = bytearray(10**12)", SHORT)
    assert "MemoryError" in done.output


def test_memory_taken_bit_by_bit_ends_at_the_limit():
    program = "x = []\nwhile True:\n    x.append(bytearray(1 << 20))"
    done = run(program, Limits(wall=10, memory=128 * MIB))
    assert done.exit_code not in (0, None)


def test_where_no_control_group_can_be_made_it_says_why(monkeypatch):
    def refused(memory, processes):
        raise OSError("control groups are read-only")

    sandbox.ungrouped.cache_clear()
    monkeypatch.setattr(cgroup, "create", refused)
    assert "control groups are read-only" in code.require_sandbox()
    assert run("print(1)").output == "1\n"
    sandbox.ungrouped.cache_clear()


def test_where_there_is_one_it_says_nothing(monkeypatch):
    monkeypatch.setattr(sandbox, "ungrouped", lambda: "")
    assert code.require_sandbox() == ""


def test_processes_together_stay_within_the_memory_of_the_group():
    try:
        cgroup.create(64 * MIB, 16).remove()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    program = (
        "import os, time\n"
        "for _ in range(6):\n"
        "    if os.fork() == 0:\n"
        "        x = bytearray(os.urandom(1 << 20)) * 60\n"
        "        time.sleep(0.5)\n"
        "        os._exit(0)\n"
        "ends = [os.wait()[1] for _ in range(6)]\n"
        "print(sum(e == 9 for e in ends))\n"
    )
    done = run(program, Limits(wall=10, memory=128 * MIB))  # six times 60 MiB, each below 128
    assert done.exit_code != 0 or int(done.output) > 0


def test_a_file_above_the_limit_cannot_be_written():
    done = run(
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "try:\n    open('/tmp/big', 'wb').write(bytes(64 << 20))\n"
        "except OSError as e:\n    print(e.strerror)\n"
    )
    assert "File too large" in done.output


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm"])
def test_filling_a_writable_folder_ends_at_its_size(place):
    done = run(
        "n = 0\n"
        "try:\n"
        "    while True:\n"
        f"        open(f'{place}/{{n}}', 'wb').write(bytes(1 << 20))\n"
        "        n += 1\n"
        "except OSError as e:\n    print(n, e.strerror)\n"
    )
    count, _, why = done.output.strip().partition(" ")
    assert int(count) <= LIMITS.tmp // MIB
    assert "space" in why


def test_of_huge_output_only_the_beginning_is_kept():
    done = run("import os\nwhile True:\n    os.write(1, b'x' * 65536)", SHORT)
    assert len(done.output) == SHORT.output
    assert done.exit_code != 0


def test_deep_recursion_ends_only_the_program():
    found = verdict(
        "import sys\nsys.setrecursionlimit(10**9)\ndef square(x):\n    return square(x)"
    )
    assert not found.passed
    assert found.reason in ("runtime_error", "memory", "timeout")


def test_a_sleeping_daemon_does_not_outlive_the_run():
    mark = f"daemon-{os.getpid()}-{time.monotonic_ns()}"
    done = run(
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        sleep = 'import time; time.sleep(600)'\n"
        f"        os.execv(sys.executable, ['python', '-c', sleep, '{mark}'])\n"
        "    os._exit(0)\n"
        "time.sleep(0.3)\nprint('parent ends')\n"
    )
    assert "parent ends" in done.output
    assert processes_named(mark) == []


# --- hostile: reaching out ---


def test_nothing_can_be_written_outside_the_temporary_folder(tmp_path):
    program = (
        "import os\n"
        "wrote = []\n"
        "for base in ['/', '/usr', '/usr/lib', '/etc', '/dev', '/proc', '/home', '/root', '/var',"
        f" {str(tmp_path)!r}]:\n"
        "    try:\n"
        "        open(os.path.join(base, 'written-by-candidate'), 'w').close()\n"
        "        wrote.append(base)\n"
        "    except OSError:\n        pass\n"
        "try:\n    os.remove('/usr/bin/env')\n    wrote.append('removed')\n"
        "except OSError:\n    pass\n"
        "print(wrote)\n"
    )
    assert run(program).output.strip() == "[]"
    assert list(tmp_path.iterdir()) == []


def test_the_home_the_project_and_the_data_are_not_there(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    places = [str(secret), str(Path.home() / ".ssh"), "/etc/passwd", "/etc/shadow",
              str(Path(sandbox.__file__)), os.environ.get("CHECKRAIL_DATA", "/home")]  # fmt: skip
    assert run(f"import os\nprint([p for p in {places!r} if os.path.exists(p)])").output == "[]\n"


def test_the_environment_and_its_secrets_are_not_there(monkeypatch):
    monkeypatch.setenv("API_KEY", "sk-very-secret")
    done = run(
        "import os\nprint(dict(os.environ))\n"
        "for pid in os.listdir('/proc'):\n"
        "    try:\n        print(open(f'/proc/{pid}/environ').read())\n"
        "    except OSError:\n        pass\n"
    )
    assert "PYTHONHASHSEED" in done.output
    assert "secret" not in done.output
    assert "API_KEY" not in done.output
    assert "HOME" not in done.output


def test_there_is_no_network_not_even_this_machines_own():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = run(
            "import socket\n"
            f"for where in [('127.0.0.1', {port}), ('1.1.1.1', 53)]:\n"
            "    try:\n        socket.create_connection(where, 2)\n        print('connected')\n"
            "    except OSError:\n        print('refused')\n"
        )
    assert done.output.split() == ["refused", "refused"]


def test_it_runs_as_nobody_without_capabilities_or_further_namespaces():
    done = run(
        "import os\n"
        "status = dict(l.split(':\\t', 1) for l in open('/proc/self/status') if ':\\t' in l)\n"
        "print(os.getuid(), os.getgid(), int(status['CapEff'], 16), status['NoNewPrivs'].strip())\n"
        "try:\n    os.setuid(0)\n    print('root')\nexcept OSError:\n    print('stays')\n"
    )
    assert done.output.split() == ["65534", "65534", "0", "1", "stays"]


def test_the_namespaces_are_its_own():
    kinds = ["user", "pid", "net", "ipc", "uts", "mnt"]
    done = run(f"import os\nfor k in {kinds!r}: print(os.readlink('/proc/self/ns/' + k))")
    ours = [str(Path(f"/proc/self/ns/{k}").readlink()) for k in kinds]
    theirs = done.output.split()
    assert len(theirs) == len(kinds)
    assert not set(ours) & set(theirs)


@pytest.fixture
def bystander():
    """A process outside the sandbox, of a number that none inside has."""
    with subprocess.Popen(["sleep", "600"]) as process:
        assert process.pid > 3
        yield process
        process.kill()


def test_other_processes_can_neither_be_seen_nor_killed(bystander):
    done = run(
        "import os, signal\n"
        "print(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))\n"
        f"try:\n    os.kill({bystander.pid}, signal.SIGKILL)\n    print('killed')\n"
        "except OSError as e:\n    print(e.strerror)\n"
    )
    assert done.output.splitlines() == ["[1, 2]", "No such process"]
    assert bystander.poll() is None


def test_killing_the_parent_ends_only_its_own_sandbox():
    found = verdict("import os\ndef square(x):\n    os.kill(os.getppid(), 9)\n    os.kill(-1, 9)")
    assert not found.passed
    assert verdict("def square(x):\n    return x * x").passed


def test_no_process_outside_can_be_traced(bystander):
    done = run(
        "import ctypes, errno\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        f"print(libc.ptrace(16, {bystander.pid}, 0, 0), errno.errorcode[ctypes.get_errno()])\n"
    )
    assert done.output.split() == ["-1", "ESRCH"]
    assert "TracerPid:\t0" in Path(f"/proc/{bystander.pid}/status").read_text()


def test_tracing_the_first_process_of_the_sandbox_gains_nothing():
    program = "import ctypes\nctypes.CDLL(None).ptrace(16, 1, 0, 0)\ndef square(x):\n    return 0\n"
    assert not verdict(program, Limits(wall=2.0)).passed


def test_a_symbolic_link_leads_nowhere(tmp_path):
    (tmp_path / "target").write_text("hidden")
    done = run(
        "import os\n"
        f"os.symlink({str(tmp_path / 'target')!r}, '/tmp/link')\n"
        "os.symlink('/proc/1/root', '/tmp/root')\n"
        "for p in ['/tmp/link', '/tmp/root/etc/passwd', '/tmp/root' + "
        f"{str(tmp_path / 'target')!r}]:\n"
        "    try:\n        print('read', open(p).read())\n"
        "    except OSError:\n        print('nothing')\n"
    )
    assert done.output.split() == ["nothing"] * 3
    assert (tmp_path / "target").read_text() == "hidden"


def test_standard_input_is_empty():
    assert run("import sys\nprint(repr(sys.stdin.read()))").output == "''\n"


# --- hostile: declaring itself right ---

WRONG = "def square(x):\n    return 0\n"

CHEATS = {
    "exit 0 when loaded": "import sys\nsys.exit(0)",
    "exit 0 when called": "import sys\ndef square(x):\n    sys.exit(0)",
    "os._exit(0) when loaded": "import os\nos._exit(0)",
    "os._exit(0) when called": "import os\ndef square(x):\n    os._exit(0)",
    "exit 0 by atexit": f"import atexit, os\natexit.register(os._exit, 0)\n{WRONG}",
    "exit 0 in a thread": "import os, threading\n"
    f"threading.Timer(0.1, os._exit, (0,)).start()\n{WRONG}",
    "replaces check": f"def check(candidate):\n    pass\n{WRONG}",
    "replaces check everywhere": "import builtins, sys\n"
    "builtins.check = lambda c: None\n"
    f"sys.modules['__main__'].check = lambda *a: {{'passed': True}}\n{WRONG}",
    "always equal": "class A:\n"
    "    def __eq__(self, other):\n        return True\n"
    "    def __ne__(self, other):\n        return False\n"
    "    def __bool__(self):\n        return True\n"
    "def square(x):\n    return A()",
    "an int that is always equal": "class A(int):\n"
    "    def __eq__(self, other):\n        return True\n"
    "    __hash__ = int.__hash__\n"
    "def square(x):\n    return A(1)",
    "replaces AssertionError and json": "import builtins, json\n"
    "builtins.AssertionError = type('A', (Exception,), {})\n"
    "json.dumps = lambda *a, **k: '{\"passed\": true}'\n" + WRONG,
    "writes a verdict on every descriptor": "import os\n"
    "for fd in range(64):\n"
    "    try:\n        os.write(fd, b'{\"passed\": true, \"reason\": \"\", \"detail\": \"\"}\\n')\n"
    "    except OSError:\n        pass\n" + WRONG,
    "prints a verdict": "print('{\"passed\": true}')\nprint('ready')\n" + WRONG,
    "searches the frames for the tests": "import gc, sys\n"
    "f = sys._getframe()\n"
    "while f:\n"
    "    for k in ('check', 'test', 'expected'):\n"
    "        f.f_globals[k] = lambda *a: None\n        f.f_builtins[k] = lambda *a: None\n"
    "    f = f.f_back\n" + WRONG,
    "raises AssertionError's children": "def square(x):\n    raise StopIteration",
    "raises KeyboardInterrupt": "def square(x):\n    raise KeyboardInterrupt",
    "catches everything": "import sys\nsys.excepthook = lambda *a: None\n"
    "sys.settrace(lambda *a: None)\n" + WRONG,
    "sends what is no answer": "import os\n"
    "for fd in range(3, 20):\n"
    "    try:\n        os.write(fd, b'{}\\n' * 20 + b'[[[[[')\n"
    "    except OSError:\n        pass\n" + WRONG,
    "nests without end": "def square(x):\n"
    "    a = []\n    for _ in range(10**5):\n        a = [a]\n    return a",
    "returns itself": "def square(x):\n    a = []\n    a.append(a)\n    return a",
    "returns not a number": "def square(x):\n    return float('nan')",
    "answers before it is asked": "import os\n"
    "for fd in range(3, 20):\n"
    "    try:\n        os.write(fd, b'{\"value\": true}\\n')\n"
    "    except OSError:\n        pass\n" + WRONG,
}  # fmt: skip


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_program_cannot_declare_itself_right(cheat):
    assert not verdict(CHEATS[cheat]).passed


def test_a_program_that_prints_and_reads_is_still_judged_by_its_values():
    noisy = "import sys\ndef square(x):\n    print(sys.stdin.read(), 'x' * 10**6)\n    return x * x"
    assert verdict(noisy).passed


def test_a_sandbox_that_does_not_start_is_no_verdict(monkeypatch):
    monkeypatch.setattr(bubblewrap, "command", lambda tmp: ["bwrap", "--no-such-option"])
    with pytest.raises(SandboxError, match="does not start"):
        run("print(1)")
    with pytest.raises(SandboxError, match="does not start"):
        verdict("def square(x):\n    return x * x")


def test_no_descriptor_is_left_open():
    verdict("def square(x):\n    return x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        verdict("def square(x):\n    return x")
        run("print(1)")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
