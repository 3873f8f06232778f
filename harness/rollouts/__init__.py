"""Policies (plain generators) and the driver that plays them.

Adding a policy: one function of type `harness.schema.Policy` and one line in `POLICIES`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from harness.errors import UsageError, nearest
from harness.rollouts.options import prompts_of, read
from harness.rollouts.prompts import prompt_sha
from harness.schema import Policy

POLICIES = {
    "single_turn": "harness.rollouts.single_turn:single_turn",
    "extractive": "harness.rollouts.extractive:extractive",
    "choice": "harness.rollouts.choice:choice",
    "search": "harness.rollouts.search:search",
    "search_o1": "harness.rollouts.search_o1:search_o1",
    "naive": "harness.rollouts.baselines:naive",
    "cot": "harness.rollouts.baselines:cot",
    "rag": "harness.rollouts.baselines:rag",
    "iter_retgen": "harness.rollouts.baselines:iter_retgen",
    "self_ask": "harness.rollouts.self_ask:self_ask",
    "bookmark": "harness.rollouts.bookmark:bookmark",
    "ircot": "harness.rollouts.ircot:ircot",
}
"""Policy name -> "module:function", imported when used."""

MODEL_FREE = frozenset({"extractive"})
"""Policies that never generate: they need no engine."""

BY_LIKELIHOOD = frozenset({"choice"})
"""Policies for tasks that ask for log-likelihoods, and for no others."""

SEARCHING = frozenset({"search", "search_o1", "rag", "iter_retgen", "self_ask", "ircot"})
"""Policies that search while they play: they need a live retriever."""

EMBEDDING = frozenset({"bookmark"})
"""Policies that embed while they play: their option `encoder` names what with."""

CONTINUING = frozenset({"search", "search_o1", "self_ask", "ircot", "bookmark"})
"""Policies that go on in the middle of what the model says: the engine must be able to."""


def policy(name: str) -> Policy:
    """Return a policy by name.

    Raises:
        UsageError: Unknown name; the message gives the nearest ones.
    """
    if name not in POLICIES:
        raise UsageError(f"unknown policy '{name}': {nearest(name, POLICIES)}")
    module, _, function = POLICIES[name].partition(":")
    return getattr(importlib.import_module(module), function)


def identity(name: str, options: Mapping[str, Any]) -> list[Any]:
    """What makes a policy that policy: name, options, and a hash of the prompts of its own.

    Raises:
        UsageError: Unknown policy or option, or a bad value.
    """
    chosen = policy(name)
    read(chosen, options)
    prompts = prompts_of(chosen, options)
    return [name, dict(options), *([prompt_sha(prompts)] if prompts else [])]


def summaries(name: str, options: Mapping[str, Any], max_tokens: int) -> tuple[int, int]:
    """Summaries that a policy asks for beside what it says: most a rollout, tokens of one at most.

    Args:
        name: Of the policy.
        options: Its own.
        max_tokens: What the model may say in its own turns: a summary is of at least one of them.

    Raises:
        UsageError: Unknown policy or option, or a bad value.
    """
    if name != "bookmark":
        return 0, 0
    known = read(policy(name), options)
    if not known.compress:
        return 0, 0
    return min(known.max_archive, max_tokens), known.summary_tokens


def encoder_name(name: str, options: Mapping[str, Any]) -> str:
    """The encoder that a policy embeds with; "" where it needs none.

    Raises:
        UsageError: Unknown policy or option, or a bad value.
    """
    if name not in EMBEDDING:
        return ""
    return str(read(policy(name), options).encoder)
