"""Scorers by name. Adding one: a module with `score` (and a judge) and a line in `SCORERS`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from harness.errors import UsageError, nearest
from harness.schema import Doc, Rollout, Score, Scorer, Verdict
from harness.scoring.llm_judge import Fields, answered, is_llm
from harness.scoring.text import THINK_TAGS

Judge = Callable[[Doc, Rollout], Verdict]


class OutsideJudge(Protocol):
    """A judge that is no code of the scorer's (`harness.scoring.llm_judge`)."""

    @property
    def name(self) -> str:
        """Stands in its verdicts."""
        ...

    @property
    def workers(self) -> int:
        """Verdicts to ask for at a time."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether to ask again where its verdict is stored."""
        ...

    def __call__(self, doc: Doc, rollout: Rollout) -> Verdict:
        """Judge a rollout; waits."""
        ...


SCORERS = {
    "choice": ("harness.scoring.choice:score", ""),
    "code": ("harness.scoring.code:score", "harness.scoring.code:judge"),
    "numeric": ("harness.scoring.numeric:score", ""),
    "rag": ("harness.scoring.rag:score", "harness.scoring.rag:judge"),
    "qa": ("harness.scoring.qa:score", ""),
}
"""Name -> scorer and deterministic judge ("" without one), as "module:function"."""


@dataclass(frozen=True, slots=True)
class TaskScorer:
    """A scorer with the judge it asks.

    Attributes:
        fingerprint: Name and version of scorer and judge; a stored score with another one is
            stale.
        metrics: Metric -> whether higher is better.
        doc_metrics: Those of the metrics that no checkpoint can change.
        slow: The judge takes long and is to be asked from a thread of its own.
        prepare: Called before anything is generated; raises UsageError where the judge cannot
            work here, gives what is to be told of how it works here ("" for nothing).
        outside: Another judge beside the scorer's own, or in its place where it has none.
        outside_decides: Whether the outside judge's verdict makes the metrics; the other one is
            kept beside it, for the audit.
    """

    name: str
    score: Scorer
    judge: Judge | None
    fingerprint: str
    metrics: Mapping[str, bool] = field(default_factory=dict[str, bool])
    doc_metrics: frozenset[str] = frozenset()
    slow: bool = False
    prepare: Callable[[], str] | None = None
    outside: OutsideJudge | None = None
    outside_decides: bool = True

    @property
    def waits(self) -> bool:
        """Whether any judge is to be asked from a thread of its own."""
        return self.slow or self.outside is not None

    def judge_and_score(
        self, doc: Doc, rollout: Rollout, stored: Sequence[Verdict] = ()
    ) -> tuple[tuple[Verdict, ...], Score | None]:
        """Verdicts, the deciding one first, and score of a rollout.

        Args:
            doc: The doc.
            rollout: Its rollout.
            stored: Verdicts that it has already. Those of LLMs are kept: they cost something,
                and a model may not say the same again. The outside judge is asked only if its
                own is not among them.

        Returns:
            The score is None where nothing could be scored.
        """
        if rollout.error is not None or rollout.finish == "error":
            return tuple(v for v in stored if is_llm(v)), None
        verdicts = [self.judge(doc, rollout)] if self.judge else []
        if self.outside is not None:
            known = [v for v in stored if v.judge == self.outside.name and answered(v)]
            verdict = known[0] if known and not self.outside.fresh else self.outside(doc, rollout)
            verdicts.insert(0 if self.outside_decides else len(verdicts), verdict)
        score = self.rescore(doc, rollout, verdicts[:1])
        names = {v.judge for v in verdicts}
        verdicts += [v for v in stored if is_llm(v) and v.judge not in names]
        return tuple(verdicts), score

    def settled(self, verdicts: Sequence[Verdict]) -> bool:
        """Whether all slow judges answered; those that failed (infrastructure) are asked again."""
        outside = self.outside.name if self.outside else ""
        return all(
            answered(v)
            if v.judge == outside
            else is_llm(v) or v.values is not None or not self.slow
            for v in verdicts
        )

    def rescore(self, doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> Score | None:
        """Score with the verdicts that decide."""
        score = self.score(doc, rollout, verdicts)
        metrics = dict(score.metrics)
        if rollout.finish == "unknown":  # nobody can tell whether the text was cut off
            metrics.pop("degenerate", None)
        return Score(metrics, score.reasons) if metrics else None


def task_scorer(name: str, *, unsafe_code: bool = False) -> TaskScorer:
    """Return a scorer by name.

    Args:
        name: One of `SCORERS`.
        unsafe_code: Let a scorer that runs programs do so without a sandbox.

    Raises:
        UsageError: Unknown name; the message gives the nearest ones.
    """
    if name not in SCORERS:
        raise UsageError(f"unknown scorer '{name}': {nearest(name, SCORERS)}")
    score_path, judge_path = SCORERS[name]
    module: Any = importlib.import_module(score_path.partition(":")[0])
    fingerprint = f"{name}@{module.VERSION}"
    judge: Judge | None = None
    unsafe = unsafe_code and hasattr(module, "unsafe_judge")
    if judge_path:
        judge = module.unsafe_judge if unsafe else _load(judge_path)
        fingerprint += f"+{module.UNSAFE_JUDGE if unsafe else _judge_name(judge_path)}"
    return TaskScorer(
        name,
        _load(score_path),
        judge,
        fingerprint,
        dict(getattr(module, "METRICS", {})),
        frozenset(getattr(module, "DOC_METRICS", ())),
        bool(getattr(module, "SLOW", False)),
        None if unsafe else getattr(module, "require_sandbox", None),
    )


def judged_by_llm(name: str) -> tuple[str, Fields] | None:
    """The judge prompt of a scorer, and what fills it; None where no LLM judges.

    Raises:
        UsageError: Unknown scorer.
    """
    if name not in SCORERS:
        raise UsageError(f"unknown scorer '{name}': {nearest(name, SCORERS)}")
    module: Any = importlib.import_module(SCORERS[name][0].partition(":")[0])
    if not hasattr(module, "judge_fields"):
        return None
    return str(module.JUDGE_PROMPT), module.judge_fields


def with_outside(scorer: TaskScorer, judge: OutsideJudge, *, decides: bool = True) -> TaskScorer:
    """The scorer with another judge.

    The judge that decides stands in the fingerprint, so runs that were judged differently do not
    compare; one beside it stands behind "|".

    Args:
        scorer: Not yet with a language.
        judge: The other judge.
        decides: Whether its verdict makes the metrics. A scorer without a judge of its own knows
            no other.
    """
    decides = decides or scorer.judge is None
    fingerprint = f"{scorer.fingerprint}|beside {judge.name}"
    if decides:
        fingerprint = f"{scorer.fingerprint.partition('+')[0]}+{judge.name}"
    return replace(scorer, fingerprint=fingerprint, outside=judge, outside_decides=decides)


def with_think_tags(scorer: TaskScorer, tags: Sequence[str] | None) -> TaskScorer:
    """The scorer for a model whose reasoning stands between other tags than the usual ones.

    Args:
        scorer: From `task_scorer`: its functions take `think_tags`.
        tags: Opening and closing tag of the card; None (no reasoning) and the usual ones
            leave the scorer as it is.
    """
    if tags is None or tuple(tags) == THINK_TAGS:
        return scorer
    start, end = tags
    score: Any = scorer.score
    judge: Any = scorer.judge
    return replace(
        scorer,
        score=partial(score, think_tags=(start, end)),
        judge=partial(judge, think_tags=(start, end)) if judge else None,
        fingerprint=f"{scorer.fingerprint}|think:{start}{end}",
    )


def with_language(
    scorer: TaskScorer, language: str, tags: Sequence[str] | None = None
) -> TaskScorer:
    """The scorer with the metrics of `harness.scoring.language` beside its own.

    The language stands behind "|" in the fingerprint: it makes a stored score stale, but runs
    with and without it compare on everything else.

    Args:
        scorer: Any.
        language: As `language=`: "ko", ..., or "prompt".
        tags: Tags of the reasoning; None takes the usual ones.

    Raises:
        UsageError: The language is not known, or the identifier is not installed.
    """
    from harness.scoring import language as consistency

    consistency.check(language)
    start, end = tags or THINK_TAGS

    def score(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> Score:
        own = scorer.score(doc, rollout, verdicts)
        if rollout.error is not None or rollout.finish == "error":
            return own
        extra = consistency.metrics(doc, rollout, language, (start, end))
        return Score({**own.metrics, **extra}, own.reasons)

    return replace(
        scorer,
        score=score,
        fingerprint=f"{scorer.fingerprint}|language@{consistency.VERSION}:{language}",
        metrics={**scorer.metrics, **consistency.METRICS},
    )


def of_policy(scorer: TaskScorer, policy: str) -> TaskScorer:
    """The scorer with what is measured of a policy's rollouts, whatever the task.

    As with a language, runs with and without it compare on everything else.

    Args:
        scorer: Any.
        policy: Name of the policy that plays.
    """
    if policy != "bookmark":
        return scorer
    from harness.scoring import bookmark

    def score(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> Score:
        own = scorer.score(doc, rollout, verdicts)
        if rollout.error is not None or rollout.finish == "error":
            return own
        reasons = (*own.reasons, *bookmark.reasons(rollout))
        return Score({**own.metrics, **bookmark.metrics(rollout)}, reasons)

    return replace(
        scorer,
        score=score,
        fingerprint=f"{scorer.fingerprint}|bookmark@{bookmark.VERSION}",
        metrics={**scorer.metrics, **bookmark.METRICS},
    )


def scorer_info(scorer: TaskScorer, pass_at: Sequence[int] = ()) -> dict[str, list[str]]:
    """What a run keeps of its scorer for the boards: metrics of the model, and of the doc.

    Args:
        scorer: The task's scorer.
        pass_at: Each k of the pass@k to show behind the metrics.
    """
    return {
        "columns": [m for m in scorer.metrics if m not in scorer.doc_metrics]
        + [f"pass@{k}" for k in pass_at],
        "context_columns": [m for m in scorer.metrics if m in scorer.doc_metrics],
    }


def fingerprint(name: str) -> str:
    """Name and version of a scorer and its judge, such as "rag@1+deterministic@1"."""
    return task_scorer(name).fingerprint


def _load(path: str) -> Any:
    module, _, function = path.partition(":")
    return getattr(importlib.import_module(module), function)


def _judge_name(path: str) -> str:
    """The judge's NAME, looked up where the judge function lives."""
    return str(_load(path.partition(":")[0] + ":JUDGE"))
