"""Checkrail runs an evaluation; it knows nothing of any one benchmark.

    from harness import compare, evaluate, load_model, load_run, rescore

Each is imported when it is first used: `import harness` alone loads nothing else.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.compare import compare
    from harness.evaluate import evaluate
    from harness.models import load_model
    from harness.rescore import rescore
    from harness.runs import load_run

__all__ = ["compare", "evaluate", "load_model", "load_run", "rescore"]

_HOME = {
    "compare": "harness.compare",
    "evaluate": "harness.evaluate",
    "load_model": "harness.models",
    "load_run": "harness.runs",
    "rescore": "harness.rescore",
}


def __getattr__(name: str) -> Any:
    """The functions above, on first use (PEP 562)."""
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'harness' has no attribute '{name}'")


class _Package(ModuleType):
    """`harness.evaluate` is the function, whether or not its module was imported before.

    The import system would bind the modules evaluate, compare and rescore over the functions
    of the same names; `from harness.evaluate import ...` does not need that binding.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
