"""Rollouts as training sees them: token ids, and which of them the model chose.

A rollout in one context is one sequence: the first prompt, then the model's tokens (weight 1) and
the environment's (weight 0) in turn. A policy that refreshes its context (Bookmark) begins a new
sequence there: one a turn, each with its own prompt. Summary turns are not trained.

What continues and what begins anew is read off the ids: a turn continues if its prompt is the
last one's followed by what the model said then. Of that the driver may cut the end (an
end-of-turn token, or a last token that says more than the stop string, see
harness/rollouts/continuation.py): such tokens were taken back, so they are left out, and what
was encoded in their place counts as the environment's.

Pure functions; no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import EngineError
from harness.schema import Rollout, Turn

CUT = 4
"""Tokens at most that a driver takes back from the end of a turn."""


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """One sequence to train.

    Attributes:
        prompt_ids: Never in the loss.
        completion_ids: What follows.
        mask: 1 for the model's own tokens, 0 for the environment's; as long as completion_ids.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[int, ...]


def sequences(rollout: Rollout) -> list[TokenSequence]:
    """The sequences of a rollout, in order.

    Raises:
        EngineError: The rollout failed, or a model turn has no token ids.
    """
    if rollout.error is not None or rollout.finish == "error":
        raise EngineError(f"doc '{rollout.doc_id}': the rollout failed ({rollout.error})")
    found: list[TokenSequence] = []
    prompt: tuple[int, ...] = ()
    ids: list[int] = []
    mask: list[int] = []
    last: tuple[int, tuple[int, ...]] | None = None  # length of the last prompt, ids said then
    for turn in rollout.turns:
        if turn.kind != "model":
            continue
        asked, said = _ids(rollout, turn)
        kept = _kept(prompt, ids, last, asked) if last else None
        if kept is None:
            if last:
                found.append(TokenSequence(prompt, tuple(ids), tuple(mask)))
            prompt, ids, mask = asked, [], []
        else:
            del ids[kept:], mask[kept:]
            shown = asked[len(prompt) + kept :]
            ids += shown
            mask += [0] * len(shown)
        ids += said
        mask += [1] * len(said)
        last = (len(asked), said)
    if last:
        found.append(TokenSequence(prompt, tuple(ids), tuple(mask)))
    return found


def _kept(
    prompt: Sequence[int],
    ids: Sequence[int],
    last: tuple[int, tuple[int, ...]],
    asked: Sequence[int],
) -> int | None:
    """How many ids of the sequence the next prompt goes on from; None where it begins anew."""
    asked_before, said = last
    whole = [*prompt, *ids]
    if list(asked[:asked_before]) != whole[:asked_before]:
        return None
    common = 0
    for mine, theirs in zip(said, asked[asked_before:], strict=False):
        if mine != theirs:
            break
        common += 1
    if said and (common == 0 or len(said) - common > CUT):
        return None
    return asked_before + common - len(prompt)


def _ids(rollout: Rollout, turn: Turn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if turn.prompt_ids is None or turn.token_ids is None:
        raise EngineError(
            f"doc '{rollout.doc_id}': the engine gave no token ids, which training needs"
        )
    return turn.prompt_ids, turn.token_ids
