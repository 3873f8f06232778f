"""What tasks there are, read from their YAML without importing lm-eval.

Used by the listings and to refuse an unknown name before anything heavy is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.errors import ConfigError, UsageError, nearest


@dataclass(frozen=True, slots=True)
class Entry:
    """A task or a group as its YAML declares it.

    Attributes:
        members: Tasks (or groups) of a group; empty for a task.
        metadata: The YAML's metadata block.
    """

    name: str
    path: Path
    members: tuple[str, ...]
    metadata: dict[str, Any]


class _Loader(yaml.SafeLoader):
    """Reads `!function` as plain text."""


_Loader.add_constructor("!function", lambda loader, node: str(node.value))


def catalog(folder: Path) -> dict[str, Entry]:
    """Every task and group under a folder, by name.

    Files whose name starts with an underscore are shared parts, not tasks.

    Raises:
        ConfigError: A YAML that cannot be parsed, names nothing, or a name given twice. (lm-eval
            itself skips such a file without a word.)
    """
    found: dict[str, Entry] = {}
    for path in sorted(folder.rglob("*.yaml")):
        if path.name.startswith("_"):
            continue
        try:
            data: Any = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            first = str(error).replace("\n", " ")
            raise ConfigError(f"{path}: {first}") from None
        entry = _entry(path, data)
        if entry.name in found:
            raise ConfigError(f"{path}: '{entry.name}' is also defined in {found[entry.name].path}")
        found[entry.name] = entry
    return found


def _entry(path: Path, data: Any) -> Entry:
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: not a mapping")
    name = data.get("group") or data.get("task")
    if not isinstance(name, str):
        raise ConfigError(f"{path}: neither 'task' nor 'group' is given")
    members: Sequence[str] = data.get("task", ()) if "group" in data else ()
    return Entry(name, path, tuple(members), dict(data.get("metadata") or {}))


def expand(names: Iterable[str], entries: dict[str, Entry]) -> list[str]:
    """Tasks of the named tasks and groups, in order, each once.

    Raises:
        UsageError: Unknown name, with the nearest ones.
    """
    tasks: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in entries:
            raise UsageError(f"unknown task '{name}': {nearest(name, entries)}")
        entry = entries[name]
        if entry.members:
            for member in entry.members:
                visit(member)
        else:
            tasks[name] = None

    for name in names:
        visit(name)
    return list(tasks)


def check_options(options: Mapping[str, Any], entries: Iterable[Entry]) -> None:
    """Refuse an option that none of the tasks has.

    Raises:
        UsageError: With the nearest ones.
    """
    known = {str(o) for entry in entries for o in entry.metadata.get("options", ())}
    for name in options:
        if name not in known:
            raise UsageError(f"no task here has the option '{name}': {nearest(name, known)}")
