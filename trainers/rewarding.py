"""One reward, two entry points: what TRL calls, and what lm-eval calls.

    rule = rule_of(recipe)                  # reward, judge and scorer by name
    trl_reward(rule)                        # reward_func(prompts, completions, rollout=..., ...)
    process_results(as_scorer(rule.reward), judge)  # the same value as a metric of a task

The value is `harness.scoring.rewards.REWARDS[name](doc, rollout, verdicts)` in both. A rollout
that failed, or whose judge said nothing, has no reward: it raises, and is never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import IncompleteError
from harness.schema import Doc, Reward, Rollout, Score, Scorer, Verdict
from harness.scoring import TaskScorer, task_scorer
from harness.scoring.bookmark import format_reward
from harness.scoring.reasoning_rewards import KoreanSettings, korean_terms
from harness.scoring.rewards import reward
from harness.scoring.text import normalise
from trainers.diagnostics import Played

Judge = Callable[[Doc, Rollout], Verdict]
Terms = Callable[[Doc, Rollout, Sequence[Verdict]], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A reward with what it asks.

    Attributes:
        scorer: Gives verdicts, metrics and reasons; None for rewards that need none.
        judge: An outside judge, asked beside the scorer's own.
    """

    name: str
    reward: Reward
    scorer: TaskScorer | None = None
    judge: Judge | None = None

    def verdicts(self, doc: Doc, rollout: Rollout) -> tuple[Verdict, ...]:
        """Ask the judges about a rollout."""
        own = self.scorer.judge if self.scorer else None
        return tuple(judge(doc, rollout) for judge in (own, self.judge) if judge)


def rule_of(name: str, scorer: str = "", judge: Judge | None = None) -> Rule:
    """The rule of a reward's and a scorer's name.

    Raises:
        UsageError: Either is unknown.
    """
    return Rule(name, reward(name), task_scorer(scorer) if scorer else None, judge)


def as_scorer(function: Reward) -> Scorer:
    """A reward as a scorer with the one metric "reward": lm-eval's entry point."""

    def score(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> Score:
        try:
            return Score({"reward": function(doc, rollout, verdicts)})
        except IncompleteError:  # unscored, as every other metric is then
            return Score({})

    return score


def trl_reward(
    rule: Rule, seen: Callable[[Doc, Rollout, Sequence[Verdict], float], None] | None = None
) -> Callable[..., list[float]]:
    """A TRL reward function over the columns `doc` and `rollout` that the rollout hook adds.

    Args:
        rule: The reward.
        seen: Told of every rollout, for the logs.

    Returns:
        reward_func(prompts, completions, **columns) -> one float a completion. It raises
        IncompleteError where a rollout has no reward.
    """

    def reward_func(
        prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float]:
        del prompts, completions  # ids and decoded text: the rollout knows better
        values: list[float] = []
        docs: list[Doc] = columns["doc"]
        rollouts: list[Rollout] = columns["rollout"]
        for doc, rollout in zip(docs, rollouts, strict=True):
            verdicts = rule.verdicts(doc, rollout)
            value = rule.reward(doc, rollout, verdicts)
            if seen is not None:
                seen(doc, rollout, verdicts, value)
            values.append(value)
        return values

    reward_func.__name__ = rule.name
    return reward_func


# --- what is logged -------------------------------------------------------------------------


def _korean(oracle: bool) -> Terms:
    settings = KoreanSettings(oracle=oracle)
    return lambda doc, rollout, verdicts: korean_terms(doc, rollout, verdicts, settings)


def _bookmark(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> Mapping[str, float]:
    del doc, verdicts
    return {"tags": format_reward(rollout)}


TERMS: Mapping[str, Terms] = {
    "korean": _korean(False),
    "korean_oracle": _korean(True),
    "bookmark": _bookmark,
}
"""Terms that a scorer's metrics do not show, by reward."""


def played(
    rule: Rule, doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict], value: float, step: int
) -> Played:
    """What is kept of a rollout: reward, terms, reasons, length, searches, text."""
    score = rule.scorer.rescore(doc, rollout, verdicts) if rule.scorer else None
    terms = dict(score.metrics) if score else {}
    terms.pop("vote", None)
    if rule.name in TERMS:
        terms |= TERMS[rule.name](doc, rollout, verdicts)
    said = normalise(rollout.answer)
    calls = [v.values["answer_correct"] for v in verdicts
             if v.values is not None and "answer_correct" in v.values]  # fmt: skip
    return Played(
        step=step,
        doc_id=doc.id,
        repeat=rollout.repeat,
        reward=value,
        terms=terms,
        reasons=score.reasons if score else (),
        tokens=rollout.completion_tokens or 0,
        searches=rollout.searches,
        finish=rollout.finish,
        text=rollout.answer,
        judged=bool(calls[0]) if calls else None,
        contained=any(normalise(t) in said for t in doc.targets if normalise(t)),
    )
