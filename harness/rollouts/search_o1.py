"""Search-o1: agentic search with a model that reads the documents apart.

Li et al., arXiv 2501.05366, Section 3: the loop of the policy `search` in the dialect `search_o1`,
with Reason-in-Documents switched on. Options are those of `search`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.dialects import Dialect
from harness.rollouts.options import read, takes
from harness.rollouts.search import SearchOptions, Steps, play, prompts_of, search_options
from harness.schema import Doc, PolicyConfig

DEFAULTS: dict[str, Any] = {"dialect": "search_o1", "summarise": True}


def _options(policy: str, given: Mapping[str, Any]) -> tuple[Dialect, SearchOptions]:
    return search_options(policy, {**DEFAULTS, **given})


def _prompts(given: Mapping[str, Any]) -> list[str]:
    return prompts_of({**DEFAULTS, **given})


@takes(_options, _prompts, (SearchOptions, Dialect))
def search_o1(doc: Doc, config: PolicyConfig) -> Steps:
    """Search inside the reasoning, documents read apart (Search-o1, arXiv 2501.05366)."""
    dialect, options = read(search_o1, config.options)
    return (yield from play(doc, config, dialect, summarise=options.summarise))
