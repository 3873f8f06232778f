"""Scorers by name. Adding one: a module with `score` (and a judge) and a line in `SCORERS`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.errors import UsageError, nearest
from harness.schema import Doc, Rollout, Score, Scorer, Verdict

Judge = Callable[[Doc, Rollout], Verdict]

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
            work here.
    """

    name: str
    score: Scorer
    judge: Judge | None
    fingerprint: str
    metrics: Mapping[str, bool] = field(default_factory=dict[str, bool])
    doc_metrics: frozenset[str] = frozenset()
    slow: bool = False
    prepare: Callable[[], None] | None = None

    def judge_and_score(
        self, doc: Doc, rollout: Rollout
    ) -> tuple[tuple[Verdict, ...], Score | None]:
        """Verdicts and score of a rollout; the score is None where nothing could be scored."""
        if rollout.error is not None or rollout.finish == "error":
            return (), None
        verdicts = (self.judge(doc, rollout),) if self.judge else ()
        return verdicts, self.rescore(doc, rollout, verdicts)

    def rescore(self, doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> Score | None:
        """Score with verdicts that are already there."""
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


def with_language(scorer: TaskScorer, language: str) -> TaskScorer:
    """The scorer with the metrics of `harness.scoring.language` beside its own.

    The language stands behind "|" in the fingerprint: it makes a stored score stale, but runs
    with and without it compare on everything else.

    Args:
        scorer: Any.
        language: As `language=`: "ko", ..., or "prompt".

    Raises:
        UsageError: The language is not known, or the identifier is not installed.
    """
    from harness.scoring import language as consistency

    consistency.check(language)

    def score(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> Score:
        own = scorer.score(doc, rollout, verdicts)
        if rollout.error is not None or rollout.finish == "error":
            return own
        extra = consistency.metrics(doc, rollout, language)
        return Score({**own.metrics, **extra}, own.reasons)

    return replace(
        scorer,
        score=score,
        fingerprint=f"{scorer.fingerprint}|language@{consistency.VERSION}:{language}",
        metrics={**scorer.metrics, **consistency.METRICS},
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
