"""baselines/gates.toml -> rules of a comparison."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.errors import ConfigError, UsageError, nearest
from harness.models import check_keys
from harness.stats.gate import GateRule

FILE = "gates.toml"

_GATE: dict[str, type | tuple[type, ...]] = {
    "task": str,
    "metric": str,
    "margin": (int, float),
    "alpha": (int, float),
    "reference": str,
    "blocking": bool,
    "on_inconclusive": str,
    "on_no_baseline": str,
    "higher_is_better": bool,
}
_DEFAULTS: dict[str, Any] = {
    "margin": 0.05,
    "alpha": 0.05,
    "reference": "parent",
    "blocking": True,
    "higher_is_better": True,
}
_ACTIONS = ("warn", "fail")


@dataclass(frozen=True, slots=True)
class Gates:
    """All rules under one profile.

    Attributes:
        rules: (task or board, rule) in the order of the file.
        reference: What a checkpoint is compared with: "parent", "self", or a name.
        fallback: Rule for a task that no gate names; its metric is the task's main one.
    """

    profile: str
    rules: tuple[tuple[str, GateRule], ...]
    fallback: GateRule
    reference: str

    def of(self, task: str, board: str, metric: str) -> list[GateRule]:
        """Rules of a task: those that name it, else those of its board, else the fallback."""
        for name in (task, board):
            found = [rule for wanted, rule in self.rules if wanted == name]
            if found:
                return found
        return [replace(self.fallback, metric=metric)] if metric else []


def load_gates(folder: Path, profile: str) -> Gates:
    """Read baselines/gates.toml.

    Raises:
        ConfigError: A mistake in the file, naming the key.
        UsageError: The file has no such profile.
    """
    path = folder / FILE
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    check_keys(data, {"profiles": dict, "default": dict, "gate": list}, str(path))
    profiles: Mapping[str, Any] = data.get("profiles", {})
    if profile not in profiles:
        raise UsageError(f"unknown profile '{profile}': {nearest(profile, profiles)} ({path})")
    where = f"{path}: [profiles.{profile}]"
    check_keys(profiles[profile], {"on_inconclusive": str, "on_no_baseline": str}, where)
    default = {**_DEFAULTS, **data.get("default", {}), **profiles[profile]}
    where = f"{path}: [default]"
    check_keys(default, {k: v for k, v in _GATE.items() if k not in ("task", "metric")}, where)
    fallback = _rule({**default, "metric": ""}, where)
    rules: list[tuple[str, GateRule]] = []
    for number, gate in enumerate(data.get("gate", []), start=1):
        where = f"{path}: gate {number}"
        check_keys(gate, {k: v for k, v in _GATE.items() if k != "reference"}, where)
        for key in ("task", "metric"):
            if key not in gate:
                raise ConfigError(f"{where}: key '{key}' is missing")
        merged = {**default, **gate}
        rules.append((gate["task"], _rule(merged, where)))
    return Gates(profile, tuple(rules), fallback, str(default["reference"]))


def _rule(data: Mapping[str, Any], where: str) -> GateRule:
    if not 0 <= data["margin"] <= 1e6:
        raise ConfigError(f"{where}: 'margin' is {data['margin']}, must be 0 or more")
    if not 0 < data["alpha"] < 0.5:
        raise ConfigError(f"{where}: 'alpha' is {data['alpha']}, must be in (0, 0.5)")
    for key in ("on_inconclusive", "on_no_baseline"):
        if data.get(key, "warn") not in _ACTIONS:
            raise ConfigError(f"{where}: '{key}' must be one of {', '.join(_ACTIONS)}")
    return GateRule(
        metric=data["metric"],
        margin=float(data["margin"]),
        alpha=float(data["alpha"]),
        blocking=data["blocking"],
        on_inconclusive=data.get("on_inconclusive", "warn"),
        on_no_baseline=data.get("on_no_baseline", "warn"),
        higher_is_better=data["higher_is_better"],
    )
