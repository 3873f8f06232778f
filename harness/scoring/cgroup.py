"""A control group around a sandbox: memory and processes of all its processes together.

Needs a group that this process may divide (root, or a delegated group); elsewhere there is none
and the limits of each process stand alone.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path

_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Group:
    """Folders of one group: one in version 2, one a controller in version 1."""

    folders: tuple[Path, ...]

    def add(self, root: int) -> None:
        """Take in a process and all its descendants.

        Raises:
            OSError: The kernel refuses.
        """
        for pid in (root, *descendants(root)):
            for folder in self.folders:
                with contextlib.suppress(ProcessLookupError):
                    (folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove the group once its processes are gone (a few milliseconds at most)."""
        for folder in self.folders:
            for _ in range(50):
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.005)


def create(memory: int, processes: int) -> Group:
    """Make a group.

    Args:
        memory: Bytes, file pages of a tmpfs included.
        processes: Processes and threads.

    Raises:
        OSError: That is not allowed here, or there is no control group to divide.
    """
    name = f"checkrail-{os.getpid()}-{next(_NUMBERS)}"
    made: list[Path] = []
    try:
        for parent, values in _places(memory, processes):
            folder = parent / name
            folder.mkdir()
            made.append(folder)
            for file, value in values.items():
                (folder / file).write_text(value)
    except OSError:
        Group(tuple(made)).remove()
        raise
    if not made:
        raise OSError("no control group of this process limits memory or processes")
    return Group(tuple(made))


def _places(memory: int, processes: int) -> list[tuple[Path, dict[str, str]]]:
    """Parent folders with what to write, for whichever version is mounted."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    own = {c: path for line in lines for _, names, path in [line.split(":", 2)]
           for c in names.split(",")}  # fmt: skip
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists() and "" in own:
        parent = root / own[""].lstrip("/")
        enabled = (parent / "cgroup.subtree_control").read_text(encoding="ascii").split()
        if "memory" not in enabled:
            return []
        values = {"memory.max": str(memory)}
        if (parent / "memory.swap.max").exists():
            values["memory.swap.max"] = "0"
        if "pids" in enabled:
            values["pids.max"] = str(processes)
        return [(parent, values)]
    places: list[tuple[Path, dict[str, str]]] = []
    if "memory" in own:
        places.append(
            (root / "memory" / own["memory"].lstrip("/"), {"memory.limit_in_bytes": str(memory)})
        )
    if "pids" in own:
        places.append((root / "pids" / own["pids"].lstrip("/"), {"pids.max": str(processes)}))
    return places


def descendants(pid: int) -> list[int]:
    """Children of a process, their children, and so on."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(c) for c in file.read_text(encoding="ascii").split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found
