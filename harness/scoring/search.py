"""What went wrong while searching, read from the turns of a rollout.

Pure functions over stored turns: no dialect needs to be known, the tags of all of them are
looked for. A model turn is what the model wrote; an environment turn names the passages it shows.
"""

from __future__ import annotations

from harness.dialects import DIALECTS
from harness.schema import Rollout

REASONS = ("own_documents", "repeated_query", "empty_query", "search_budget")
"""The vocabulary, in the order in which reasons are given.

own_documents: the model wrote documents by itself, with the environment's tags.
repeated_query: it asked again what it had asked (case and white space aside).
empty_query: it closed a query that is empty or was never opened.
search_budget: it asked once more than it may, and was refused or stopped.
"""

_QUERY_TAGS = tuple(dict.fromkeys(d.query for d in DIALECTS.values()))
_DOCUMENT_TAGS = tuple(dict.fromkeys(d.documents for d in DIALECTS.values()))
_REFUSALS = tuple(d.over_budget for d in DIALECTS.values() if d.over_budget)


def queries(rollout: Rollout) -> list[str]:
    """Every query that the model closed a turn with, in order; "" for an empty one."""
    found: list[str] = []
    for turn in rollout.turns:
        if turn.kind != "model":
            continue
        for start, end in _QUERY_TAGS:
            if turn.text.endswith(end):
                said = turn.text.removesuffix(end)
                opened = said.rfind(start) > said.rfind(end)
                found.append(said.rpartition(start)[2].strip() if opened else "")
    return found


def search_reasons(rollout: Rollout) -> tuple[str, ...]:
    """Reasons of a rollout, a subset of `REASONS`, each once."""
    model = [turn.text for turn in rollout.turns if turn.kind == "model"]
    shown = [turn.text for turn in rollout.turns if turn.kind == "environment"]
    asked = [" ".join(query.casefold().split()) for query in queries(rollout)]
    real = [query for query in asked if query]
    last = rollout.turns[-1] if rollout.turns else None
    unanswered = (
        last is not None
        and last.kind == "model"
        and any(last.text.endswith(end) for _, end in _QUERY_TAGS)
        and bool(asked and asked[-1])
    )
    holds = {
        "own_documents": any(
            tag in text for text in model for tags in _DOCUMENT_TAGS for tag in tags
        ),
        "repeated_query": len(set(real)) < len(real),
        "empty_query": len(real) < len(asked),
        "search_budget": unanswered
        or any(refusal in text for text in shown for refusal in _REFUSALS),
    }
    return tuple(reason for reason in REASONS if holds[reason])
