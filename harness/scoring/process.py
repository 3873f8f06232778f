"""The seam to lm-eval: rows to docs, and `process_results` over strings that carry rollouts.

A task's YAML names it through its own Python file:

    process_results = harness.scoring.process.process_results("rag")

Nothing here imports lm_eval, so the same task also runs under stock lm-eval: its plain strings
are scored too, only without token metrics.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from harness.errors import DataError
from harness.schema import Doc, Passage, Rollout, Score, Scorer
from harness.scoring.table import Judge, TaskScorer, task_scorer

_PASSAGE_FIELDS = ("doc_id", "text", "score", "title", "page")


class RolloutText(str):
    """A rollout's answer as the string lm-eval wants, with the rollout attached.

    `score` is the stored one (empty where nothing could be scored): what was judged once is not
    judged again. None leaves the scoring to `process_results`.
    """

    rollout: Rollout
    score: Score | None

    def __new__(cls, text: str, rollout: Rollout, score: Score | None = None) -> RolloutText:
        """Make the string `text` carry `rollout` and `score`."""
        self = super().__new__(cls, text)
        self.rollout = rollout
        self.score = score
        return self

    def __getnewargs__(self) -> tuple[str, Rollout, Score | None]:  # type: ignore[override]
        """Arguments with which pickle and copy rebuild the string (str's takes one)."""
        return str(self), self.rollout, self.score


class RolloutLikelihood(tuple[float, bool]):
    """A choice's log-likelihood as the pair lm-eval wants, with the whole rollout attached."""

    rollout: Rollout

    def __new__(cls, value: float, likeliest: bool, rollout: Rollout) -> RolloutLikelihood:
        """Make the pair carry `rollout`."""
        self = super().__new__(cls, (value, likeliest))
        self.rollout = rollout
        return self

    def __getnewargs__(self) -> tuple[float, bool, Rollout]:
        """Arguments with which pickle and copy rebuild the pair."""
        return self[0], self[1], self.rollout


def doc_to_row(doc: Doc) -> dict[str, Any]:
    """A doc as a row of a `datasets.Dataset`.

    Columns: id, question, targets (list of str), passages (list of dicts with doc_id, text,
    score, title, page), cluster, stratum, meta (a JSON string, so that docs may differ in it).
    """
    return {
        "id": doc.id,
        "question": doc.question,
        "targets": list(doc.targets),
        "passages": [{name: getattr(p, name) for name in _PASSAGE_FIELDS} for p in doc.passages],
        "cluster": doc.cluster,
        "stratum": doc.stratum,
        "meta": json.dumps(dict(doc.meta), ensure_ascii=False, sort_keys=True),
    }


def doc_from_row(row: Mapping[str, Any]) -> Doc:
    """Inverse of `doc_to_row`; further columns are ignored.

    Raises:
        DataError: A column is missing or has the wrong shape; names the row and the column.
    """
    column = "id"
    try:
        doc_id = str(row["id"])
        column = "question"
        question = str(row["question"])
        column = "targets"
        targets = tuple(str(t) for t in row["targets"])
        column = "passages"
        passages = tuple(_passage(p) for p in _rows(row.get("passages")))
        column = "meta"
        meta = row.get("meta") or {}
        if isinstance(meta, str):
            meta = json.loads(meta)
        return Doc(
            doc_id, question, targets, passages, row.get("cluster"), row.get("stratum"), dict(meta)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"row {row.get('id', '?')!r}: column '{column}' is missing or malformed ({error})"
        ) from error


def process_results(
    scorer: str | Scorer, judge: Judge | None = None
) -> Callable[[Mapping[str, Any], Sequence[Any]], dict[str, float]]:
    """Make lm-eval's `process_results(row, results)` from a scorer.

    The result averages the repeats of a doc, each metric over those repeats that have it. No
    output of a model makes it raise; an errored rollout counts for nothing, and a doc without
    any metric gives an empty dict, which lm-eval leaves out of its means.

    Args:
        scorer: A name from `harness.scoring.SCORERS` (looked up at the first call), or a
            scorer, judged by `judge`.
        judge: Judge for a scorer that is given as a function.

    Raises:
        UsageError: (at the first call) the name is unknown.
    """
    found: list[TaskScorer] = []

    def process(row: Mapping[str, Any], results: Sequence[Any]) -> dict[str, float]:
        if not found:
            found.append(
                task_scorer(scorer)
                if isinstance(scorer, str)
                else TaskScorer("", scorer, judge, "")
            )
        doc = doc_from_row(row)
        values: dict[str, list[float]] = {}
        for rollout, score in _rollouts(doc, results):
            if score is None:
                _, score = found[0].judge_and_score(doc, rollout)
            for name, value in score.metrics.items() if score else ():
                values.setdefault(name, []).append(value)
        return {name: sum(v) / len(v) for name, v in values.items()}

    return process


def _rollouts(doc: Doc, results: Sequence[Any]) -> Iterable[tuple[Rollout, Score | None]]:
    """One rollout a repeat, with its score if it carries one.

    Of a multiple choice there is one rollout over all its (log-likelihood, bool).
    """
    if results and all(isinstance(r, tuple) and len(cast(Any, r)) == 2 for r in results):
        if isinstance(results[0], RolloutLikelihood):
            return ((results[0].rollout, None),)
        totals = tuple(float(total) for total, _ in results)
        return ((Rollout(doc.id, 0, (), "", choices=totals), None),)
    return (_rollout(doc, repeat, result) for repeat, result in enumerate(_flat(results)))


def _rollout(doc: Doc, repeat: int, result: object) -> tuple[Rollout, Score | None]:
    if isinstance(result, RolloutText):
        return result.rollout, result.score
    return Rollout(doc.id, repeat, (), "" if result is None else str(result)), None


def _flat(results: object) -> Iterable[object]:
    """Repeats may come as a list within lm-eval's list of results."""
    if isinstance(results, (list, tuple)):
        for result in cast("Sequence[object]", results):
            yield from _flat(result)
    else:
        yield results


def _rows(value: Any) -> list[Mapping[str, Any]]:
    """A list of dicts, also from the dict of lists that older `datasets` return."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        columns = cast("Mapping[str, Sequence[Any]]", value)
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return list(value)


def _passage(row: Mapping[str, Any]) -> Passage:
    page = row.get("page")
    return Passage(
        str(row["doc_id"]),
        str(row["text"]),
        float(row.get("score") or 0.0),
        str(row.get("title") or ""),
        None if page is None else int(page),
    )
