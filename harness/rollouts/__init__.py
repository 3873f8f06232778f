"""Policies (plain generators) and the driver that plays them.

Adding a policy: one function of type `harness.schema.Policy` and one line in `POLICIES`.
"""

from __future__ import annotations

import importlib

from harness.errors import UsageError, nearest
from harness.schema import Policy

POLICIES = {
    "single_turn": "harness.rollouts.single_turn:single_turn",
    "extractive": "harness.rollouts.extractive:extractive",
    "choice": "harness.rollouts.choice:choice",
}
"""Policy name -> "module:function", imported when used."""

MODEL_FREE = frozenset({"extractive"})
"""Policies that never generate: they need no engine."""

BY_LIKELIHOOD = frozenset({"choice"})
"""Policies for tasks that ask for log-likelihoods, and for no others."""


def policy(name: str) -> Policy:
    """Return a policy by name.

    Raises:
        UsageError: Unknown name; the message gives the nearest ones.
    """
    if name not in POLICIES:
        raise UsageError(f"unknown policy '{name}': {nearest(name, POLICIES)}")
    module, _, function = POLICIES[name].partition(":")
    return getattr(importlib.import_module(module), function)
