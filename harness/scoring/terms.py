"""Terms that rewards are made of, and what none of them may be given."""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import IncompleteError
from harness.schema import Rollout


@dataclass(frozen=True, slots=True)
class Overlong:
    """The soft punishment of long outputs: 0 up to `free` tokens, then falling to -1 at `limit`.

    With Lmax = limit and c = limit - free it is DAPO's equation 13 (arXiv 2503.14476), as
    open-r1's soft_overlong_punishment has it.

    Attributes:
        free: Tokens that cost nothing.
        limit: Tokens from which the whole of it is due; above `free`.
    """

    free: int = 8_192
    limit: int = 32_768

    def __post_init__(self) -> None:
        """Refuse limits that leave no slope."""
        if not 0 <= self.free < self.limit:
            raise ValueError(f"overlong: expected 0 <= free < limit, got {self.free}, {self.limit}")

    def term(self, tokens: float) -> float:
        """In [-1, 0], never rising with length."""
        return -min(1.0, max(0.0, (tokens - self.free) / (self.limit - self.free)))


def refuse_failure(rollout: Rollout) -> None:
    """An infrastructure failure has no reward.

    Raises:
        IncompleteError: The rollout failed.
    """
    if rollout.error is not None or rollout.finish == "error":
        raise IncompleteError(
            f"doc '{rollout.doc_id}': the rollout failed ({rollout.error}), so it has no reward"
        )
