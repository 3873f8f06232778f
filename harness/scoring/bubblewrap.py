"""The bubblewrap command line of a sandbox, and the interpreter in it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

NOBODY = 65534
"""User and group of the sandbox."""


class SandboxError(Exception):
    """The sandbox could not be started: infrastructure, no verdict."""


def command(tmp: int) -> list[str]:
    """The command up to the program.

    Args:
        tmp: Bytes of all files in each of its folders that can be written.
    """
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
        "--size", str(tmp), "--tmpfs", "/dev/shm",
        "--size", str(tmp), "--tmpfs", "/tmp",
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
