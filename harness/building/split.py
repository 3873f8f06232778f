"""Accepted questions into a test set and training sets, by seeded hashes.

The split does not depend on the order of the questions. By chunk (the default), test pages are
never trained on; by question, train and test share pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.building.checks import Question
from harness.errors import DataError

TEST_SHARE = 0.3
SFT_SHARE = 100 / 490
"""Of the published training set; taken where there are not more than `sft` training questions."""

How = Literal["chunk", "question"]
HOWS = ("chunk", "question")


@dataclass(frozen=True, slots=True)
class Split:
    """`zero` is the whole training set; `sft` and `rl` are its two parts."""

    test: tuple[Question, ...]
    zero: tuple[Question, ...]
    sft: tuple[Question, ...]
    rl: tuple[Question, ...]


def split(questions: Sequence[Question], how: How, sft: int = 100, seed: int = 0) -> Split:
    """Split 7:3, then the training part into SFT and RL.

    By chunk, pages go to the test set in a seeded order until it has 30% of the questions.

    Args:
        questions: In the order in which each set lists them.
        how: "chunk" or "question".
        sft: Questions for SFT; where training has no more than that, a fifth of it.
        seed: Of both draws.

    Raises:
        DataError: There are too few questions (or pages) for two sets.
    """
    units = {q.id: q.chunk_id if how == "chunk" else q.id for q in questions}
    order = _shuffled(sorted(set(units.values())), seed, "test")
    if len(order) < 2:
        raise DataError(
            f"{len(questions)} accepted questions on {len(order)} page(s): too few to split "
            f"{'by page (split=question splits by question)' if how == 'chunk' else ''}".rstrip()
        )
    chosen: set[str] = set()
    wanted = TEST_SHARE * len(questions)
    for unit in order[:-1]:
        if sum(u in chosen for u in units.values()) >= wanted:
            break
        chosen.add(unit)
    test = [q for q in questions if units[q.id] in chosen]
    train = [q for q in questions if units[q.id] not in chosen]
    count = sft if len(train) > sft else round(len(train) * SFT_SHARE)
    first = set(_shuffled(sorted(q.id for q in train), seed, "sft")[:count])
    return Split(
        tuple(test),
        tuple(train),
        tuple(q for q in train if q.id in first),
        tuple(q for q in train if q.id not in first),
    )


def _shuffled(names: Sequence[str], seed: int, purpose: str) -> list[str]:
    def key(name: str) -> bytes:
        return hashlib.sha256(f"{purpose}\0{seed}\0{name}".encode()).digest()

    return sorted(names, key=key)
