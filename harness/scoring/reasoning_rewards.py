"""Rewards of the reasoning systems: thinking in Korean, and Bookmark.

                      terms                                                        range
    korean            accuracy + 0.2 format + 0.2 language + 0.2 overlong          -0.2 .. 1.4
    korean_oracle     the same, the accuracy calibrated by the oracle judge        -0.2 .. 1.4
    bookmark          1.0 accuracy + 0.1 tags                                       0   .. 1.1

The first two are "Making Qwen3 Think in Korean" (arXiv 2508.10355, section 2.2): without the
oracle training collapsed at about step 220. The third is the Bookmark framework's (blog post,
2025-12-26), whose text gives its second weight as 0.5 and whose table as 0.1: the table is the
default. Every weight and limit is a setting (`korean_reward`, `bookmark_reward`).

Accuracy is that of the task's own scorer, `harness.scoring.numeric`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.errors import IncompleteError
from harness.schema import Doc, Reward, Rollout, Verdict
from harness.scoring import language, numeric, oracle
from harness.scoring.bookmark import format_reward
from harness.scoring.terms import Overlong, refuse_failure
from harness.scoring.text import THINK_TAGS, split_thinking


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the Korean reward."""

    accuracy: float = 1.0
    format: float = 0.2
    language: float = 0.2
    overlong: float = 0.2


@dataclass(frozen=True, slots=True)
class KoreanSettings:
    """Settings of the Korean reward.

    Attributes:
        language: Language to think and answer in (`harness.scoring.language`).
        oracle: Whether the oracle's verdict calibrates the accuracy; then it must be there.
    """

    weights: Weights = field(default_factory=Weights)
    overlong: Overlong = field(default_factory=Overlong)
    thresholds: oracle.Thresholds = field(default_factory=oracle.Thresholds)
    language: str = "ko"
    oracle: bool = False


def korean_terms(
    doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict], settings: KoreanSettings | None = None
) -> dict[str, float]:
    """The four terms before they are weighted, for the diagnostics of training.

    Returns:
        accuracy, format and language in {0, 1}, overlong in [-1, 0]. A rollout without any word
        is in no language: 0.

    Raises:
        IncompleteError: The rollout failed, its length is unknown, or the oracle said nothing
            usable.
    """
    rule = settings or KoreanSettings()
    refuse_failure(rollout)
    metrics = numeric.score(doc, rollout, verdicts).metrics
    if "output_tokens" not in metrics:
        raise IncompleteError(f"doc '{doc.id}': no output_tokens, so no overlong term")
    accuracy = metrics["accuracy"]
    if rule.oracle:
        accuracy = oracle.calibrate(accuracy, _oracle_value(doc, verdicts), rule.thresholds)
    said = language.metrics(doc, rollout, rule.language)
    return {
        "accuracy": accuracy,
        "format": float(metrics["format"] == 1 and thought_first(rollout.answer)),
        "language": said.get("language_consistent", 0.0),
        "overlong": rule.overlong.term(metrics["output_tokens"]),
    }


def korean_reward(settings: KoreanSettings | None = None) -> Reward:
    """The Korean reward with other settings."""
    rule = settings or KoreanSettings()

    def reward(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> float:
        terms = korean_terms(doc, rollout, verdicts, rule)
        return sum(getattr(rule.weights, name) * value for name, value in terms.items())

    return reward


def thought_first(text: str) -> bool:
    """Whether one closed block of reasoning, not empty, stands before everything else.

    Its opening tag may be in the prompt.
    """
    before, opened, _ = text.partition(THINK_TAGS[0])
    thinking, rest, closed = split_thinking(text, THINK_TAGS)
    return (
        closed
        and text.count(THINK_TAGS[1]) == 1
        and text.count(THINK_TAGS[0]) <= 1
        and not (opened and before.strip())
        and bool(thinking)
        and bool(rest.strip())
    )


def bookmark_reward(answer: float = 1.0, tags: float = 0.1) -> Reward:
    """Bookmark's reward: `answer` x accuracy + `tags` x `bookmark.format_reward`."""

    def reward(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> float:
        refuse_failure(rollout)
        accuracy = numeric.score(doc, rollout, verdicts).metrics["accuracy"]
        return answer * accuracy + tags * format_reward(rollout)

    return reward


def _oracle_value(doc: Doc, verdicts: Sequence[Verdict]) -> float:
    for verdict in verdicts:
        if verdict.values is not None and oracle.VALUE in verdict.values:
            return float(verdict.values[oracle.VALUE])
    raise IncompleteError(f"doc '{doc.id}': no verdict of the oracle, so no reward")


REWARDS: Mapping[str, Reward] = {
    "korean": korean_reward(),
    "korean_oracle": korean_reward(KoreanSettings(oracle=True)),
    "bookmark": bookmark_reward(),
}
"""Part of the table in harness/scoring/rewards.py."""
