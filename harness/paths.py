"""Where things are: the folders of this checkout, each of which a command can replace.

Installed as a package there is no checkout: tasks and baselines are the package's own, runs and
leaderboards go to the folder that a command is called in.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TASKS = ROOT / "tasks"
BASELINES = ROOT / "baselines"
IS_CHECKOUT = (ROOT / "pyproject.toml").is_file()
_WRITTEN = ROOT if IS_CHECKOUT else Path.cwd()
LEADERBOARDS = _WRITTEN / "leaderboards"
RUNS = _WRITTEN / "runs"

DATA_VARIABLE = "CHECKRAIL_DATA"


def data_root() -> Path | None:
    """Folder of outside data sets: the environment variable CHECKRAIL_DATA, or None."""
    value = os.environ.get(DATA_VARIABLE)
    return Path(value).expanduser() if value else None


def cache() -> Path:
    """Folder of what can be made again: CHECKRAIL_CACHE, or ~/.cache/checkrail."""
    value = os.environ.get("CHECKRAIL_CACHE")
    return Path(value).expanduser() if value else Path.home() / ".cache" / "checkrail"
