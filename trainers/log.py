"""The log of a run: rollouts.jsonl (one line a rollout) and curve.jsonl (one line a step)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from harness.errors import DataError
from harness.jsonl import read_rows
from trainers.diagnostics import Played, collapse, step_row

CURVE, ROLLOUTS = "curve.jsonl", "rollouts.jsonl"

_KEPT = {
    "loss": "loss",
    "kl": "kl",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "mean_token_accuracy": "token_accuracy",
}
"""Figures of the back end that are kept, and under which name."""


class Log:
    """Appends to the log in a folder.

    Attributes:
        curve: Rows so far.
        alarms: What `collapse` says of them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pending: list[Played] = []
        self.curve = read_curve(folder)
        self.alarms: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)

    def rewind(self, step: int) -> None:
        """Drop what was logged behind a saved step: it will be done again."""
        self.curve = [row for row in self.curve if int(row["step"]) < step]
        kept = [asdict(r) for r in read_rollouts(self._folder) if r.step < step]
        for name, rows in ((CURVE, self.curve), (ROLLOUTS, kept)):
            path = self._folder / name
            if path.exists():
                path.write_text("".join(_line(row) for row in rows), encoding="utf-8")

    def rollout(self, played: Played) -> None:
        """Keep one rollout of the coming step."""
        self._pending.append(played)
        self._append(ROLLOUTS, asdict(played))

    def step(self, step: int, figures: Mapping[str, Any]) -> None:
        """Close a step with the figures of the back end.

        Args:
            step: Optimisation steps before it.
            figures: As the back end calls them; others than `_KEPT` are left out.
        """
        more = {
            ours: float(figures[theirs])
            for theirs, ours in _KEPT.items()
            if isinstance(figures.get(theirs), (int, float))
        }
        row = step_row(self._pending, **more) if self._pending else {"step": step, **more}
        self._pending = []
        self.curve.append(row)
        self._append(CURVE, row)
        if "reward" in row:
            self.alarms = collapse([r for r in self.curve if "reward" in r])

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        with (self._folder / name).open("a", encoding="utf-8") as stream:
            stream.write(_line(row))


def read_curve(folder: Path) -> list[dict[str, Any]]:
    """The steps of a run so far; none where nothing was logged."""
    path = folder / CURVE
    return [row for _, row in read_rows(path)] if path.is_file() else []


def read_rollouts(folder: Path) -> list[Played]:
    """The rollouts of a run so far.

    Raises:
        DataError: A line is not what `Log` writes.
    """
    path = folder / ROLLOUTS
    if not path.is_file():
        return []
    found: list[Played] = []
    for where, row in read_rows(path):
        try:
            reasons = tuple(cast("list[str]", row.pop("reasons")))
            found.append(Played(**row, reasons=reasons))
        except (KeyError, TypeError) as error:
            raise DataError(f"{where}: no rollout of training ({error})") from None
    return found


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"
