"""What a Bookmark rollout did, read from its turns.

Pure functions over stored turns (see harness/rollouts/bookmark.py): model turns are what the
model wrote, a summary turn is a bookmark, an environment turn is a context that replaced another.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from harness.schema import Rollout, Turn

VERSION = 1

METRICS = {
    "compressions": True,
    "archive_size": True,
    "peak_context_tokens": False,
    "total_context_tokens": False,
    "tag_format": True,
}
"""Metric -> whether higher is better; of the counts neither, they are for the board."""

REASONS = ("unpaired_tags", "empty_substep", "reflection_without_archive")
"""The vocabulary, in the order in which reasons are given.

unpaired_tags: a tag that opens or closes nothing, or stands within another pair.
empty_substep: a closed substep without text.
reflection_without_archive: a reflection before the first substep was finished.
"""

_TAGS = re.compile(r"<(/?)(substep|reflection)>")


def metrics(rollout: Rollout) -> dict[str, float]:
    """Compressions, archive and context lengths.

    compressions: times that the context was replaced. archive_size: bookmarks made.
    peak_context_tokens: longest prompt with its completion. total_context_tokens: final length of
    each context and of each summary's, added up: what a server with a prefix cache reads and
    writes. The two are absent where the engine tells no token ids. tag_format: `format_score`.
    """
    found: dict[str, float] = {
        "compressions": sum(_refreshes(turn) for turn in rollout.turns),
        "archive_size": sum(turn.kind == "summary" for turn in rollout.turns),
        "tag_format": format_score(rollout),
    }
    said = [turn for turn in rollout.turns if turn.kind != "environment"]
    if said and all(t.prompt_ids is not None and t.token_ids is not None for t in said):
        found["peak_context_tokens"] = max(_length(turn) for turn in said)
        found["total_context_tokens"] = sum(_contexts(rollout))
    return found


def _contexts(rollout: Rollout) -> Iterator[int]:
    """Final length in tokens of each context, the summaries' among them."""
    last = 0
    for turn in rollout.turns:
        if turn.kind == "summary":
            yield _length(turn)
        elif turn.kind == "model":
            last = _length(turn)
        elif _refreshes(turn):
            yield last
            last = 0
    yield last


def _refreshes(turn: Turn) -> bool:
    """A context that shows what was fetched; one that shows nothing opens the first turn."""
    return turn.kind == "environment" and bool(turn.passages)


def _length(turn: Turn) -> int:
    return len(turn.prompt_ids or ()) + len(turn.token_ids or ())


def reasons(rollout: Rollout) -> tuple[str, ...]:
    """What is wrong with the tags, a subset of `REASONS`."""
    text = written(rollout)
    pairs, tags = _pairs(text)
    first = min((end for kind, _, end in pairs if kind == "substep"), default=len(text))
    holds = {
        "unpaired_tags": 2 * len(pairs) < tags,
        "empty_substep": any(
            kind == "substep" and not text[start:end].strip() for kind, start, end in pairs
        ),
        "reflection_without_archive": any(
            kind == "reflection" and start < first for kind, start, _ in pairs
        ),
    }
    return tuple(reason for reason in REASONS if holds[reason])


def tag_score(text: str, *, ordered: bool) -> float:
    """How well the tags are used, in [0, 1]: the share of them that belong to a good pair.

    A good pair is closed, has text in it and lies in no other one. Without a good substep the
    score is 0. The Bookmark report names the score, section 2, and leaves its form open: this one
    is ours.

    Args:
        text: What the model wrote: for the metric with what its prompt made it begin with
            (`written`), for the reward without (`own`).
        ordered: Whether a reflection is good only behind the first finished substep: with nothing
            archived it finds nothing. The metric asks for that, the reward does not.
    """
    pairs, tags = _pairs(text)
    full = [(kind, start, end) for kind, start, end in pairs if text[start:end].strip()]
    first = min((end for kind, _, end in full if kind == "substep"), default=None)
    if first is None:
        return 0.0
    good = sum(not ordered or kind == "substep" or start > first for kind, start, _ in full)
    return 2 * good / tags


def format_score(rollout: Rollout) -> float:
    """The metric `tag_format`: `tag_score` in order, of all that the model wrote."""
    return tag_score(written(rollout), ordered=True)


def format_reward(rollout: Rollout) -> float:
    """The reward's term: `tag_score` in any order, of the model's own turns."""
    return tag_score(own(rollout), ordered=False)


def written(rollout: Rollout) -> str:
    """What the model wrote, over all contexts, behind what its prompt made it begin with."""
    turns = [turn for turn in rollout.turns if turn.kind != "summary" and not _refreshes(turn)]
    return "".join(turn.text for turn in turns) or rollout.answer


def own(rollout: Rollout) -> str:
    """What the model itself wrote, turn by turn; summaries and inserted text left out."""
    return "".join(turn.text for turn in rollout.turns if turn.kind == "model") or rollout.answer


def _pairs(text: str) -> tuple[list[tuple[str, int, int]], int]:
    """Closed pairs without another tag in them (kind, start and end of the text), and all tags."""
    tags = list(_TAGS.finditer(text))
    pairs = [
        (first[2], first.end(), second.start())
        for first, second in itertools.pairwise(tags)
        if not first[1] and second[1] and first[2] == second[2]
    ]
    return pairs, len(tags)
