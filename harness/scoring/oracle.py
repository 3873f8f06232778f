"""The oracle judge of "Making Qwen3 Think in Korean" (arXiv 2508.10355, appendix C).

A strong model is sent problem and response with the paper's strict-deduction prompt
(`oracle.txt`, its printed line breaks joined; the example of a valid output is lost in the copy
at hand) and answers with one number. It reads text of the model that is trained, so nothing but
one number in [0, 1] is taken from it: anything else is no verdict, which is never zero.

`calibrate` overrules the parser where the oracle is sure: the prompt caps a wrong answer at 0.4,
and calls 0.6 and more correct.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.schema import Doc, Rollout, Verdict
from harness.scoring.text import THINK_TAGS, split_thinking

VALUE = "oracle"
"""Name of the oracle's number in a verdict."""

_NUMBER = re.compile(r"[01](?:\.\d{0,6})?|\.\d{1,6}")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When the oracle overrules the parser.

    Attributes:
        wrong: At or below it the answer is wrong.
        right: At or above it the answer is right.
    """

    wrong: float = 0.4
    right: float = 0.6

    def __post_init__(self) -> None:
        """Refuse thresholds in the wrong order."""
        if not 0 <= self.wrong < self.right <= 1:
            raise ValueError(
                f"oracle: expected 0 <= wrong < right <= 1, got {self.wrong}, {self.right}"
            )


def prompt(doc: Doc, rollout: Rollout) -> str:
    """What the oracle is sent: the problem, and the whole response with its thinking."""
    before, _, rest = _template().partition("{question}")
    between, _, after = rest.partition("{answer}")
    return before + doc.question + between + rollout.answer + after


def parse(reply: str) -> float | None:
    """The oracle's number; None unless the reply is one number in [0, 1] and nothing else.

    Thinking of the oracle itself is taken off first, as are back-ticks around the number.
    """
    said = split_thinking(reply, THINK_TAGS)[1].strip().strip("`").strip()
    if not _NUMBER.fullmatch(said):
        return None
    value = float(said)
    return value if 0 <= value <= 1 else None


def verdict(judge: str, reply: str) -> Verdict:
    """The verdict behind a reply; without a number it holds no values."""
    value = parse(reply)
    return Verdict(judge, None if value is None else {VALUE: value}, reply)


def calibrate(accuracy: float, value: float, thresholds: Thresholds | None = None) -> float:
    """The accuracy that a reward takes: the oracle's where it is sure, else the parser's.

    Args:
        accuracy: The parser's, 0 or 1.
        value: The oracle's number.
        thresholds: When the oracle is sure.

    Raises:
        ValueError: The number is outside [0, 1].
    """
    if not 0 <= value <= 1:
        raise ValueError(f"oracle: {value} is outside [0, 1]")
    rule = thresholds or Thresholds()
    return 0.0 if value <= rule.wrong else 1.0 if value >= rule.right else accuracy


@cache
def _template() -> str:
    return (Path(__file__).parent / "oracle.txt").read_text(encoding="utf-8")
