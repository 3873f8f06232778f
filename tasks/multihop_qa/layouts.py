"""The layouts in which multi-hop questions are published: one row to one question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from harness.errors import DataError
from harness.jsonl import text


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        id: As published.
        text: The question.
        targets: Accepted answers, best first.
        support: (title, text) of the supporting paragraphs, each once, in their order.
        meta: Type, level, number of hops and the like.
    """

    id: str
    text: str
    targets: tuple[str, ...]
    support: tuple[tuple[str, str], ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


def r1_searcher(where: str, row: Mapping[str, Any]) -> Question:
    """R1-Searcher's evaluation sets: idx, question, answer."""
    return Question(
        _id(where, row, "idx"), text(where, row, "question"), (text(where, row, "answer"),)
    )


def hotpotqa(where: str, row: Mapping[str, Any]) -> Question | None:
    """HotpotQA and 2WikiMultiHopQA: context [title, sentences], supporting_facts [title, n].

    None for a row without a context, whose support cannot be shown.
    """
    if "context" not in row:
        return None
    titles = {title for title, _ in row["supporting_facts"]}
    paragraphs = [(title, "".join(sentences)) for title, sentences in row["context"]]
    support = tuple(dict.fromkeys(p for p in paragraphs if p[0] in titles))
    meta = {key: row[key] for key in ("type", "level") if row.get(key)}
    return Question(
        _id(where, row, "_id"),
        text(where, row, "question"),
        (text(where, row, "answer"),),
        support,
        meta,
    )


def musique(where: str, row: Mapping[str, Any]) -> Question:
    """MuSiQue: paragraphs with is_supporting, answer_aliases."""
    answers = (text(where, row, "answer"), *row["answer_aliases"])
    support = tuple(
        dict.fromkeys((p["title"], p["paragraph_text"]) for p in row["paragraphs"]
                      if p["is_supporting"])
    )  # fmt: skip
    question_id = _id(where, row, "id")
    hops = {"hops": len(row["question_decomposition"])}
    return Question(
        question_id, text(where, row, "question"), tuple(dict.fromkeys(answers)), support, hops
    )


def flashrag(where: str, row: Mapping[str, Any]) -> Question:
    """FlashRAG: id, question, golden_answers (a list, or one text). Also veRL's layout of it."""
    if "golden_answers" in row:
        return Question(
            _id(where, row, "id"),
            text(where, row, "question"),
            _answers(where, "golden_answers", row["golden_answers"]),
        )
    if isinstance(row.get("reward_model"), dict) and isinstance(row.get("extra_info"), dict):
        extra = cast("dict[str, Any]", row["extra_info"])
        truth = cast("dict[str, Any]", row["reward_model"]).get("ground_truth")
        if isinstance(truth, dict):  # Search-R1's: {"target": [...]}
            truth = cast("dict[str, Any]", truth).get("target")
        return Question(
            f"{row.get('data_source', 'row')}-{_id(where, extra, 'index')}",
            text(where, extra, "question"),
            _answers(where, "reward_model.ground_truth", truth),
        )
    raise DataError(f"{where}: key 'golden_answers' is missing")


def _id(where: str, row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return text(where, row, key)


def _answers(where: str, key: str, value: object) -> tuple[str, ...]:
    answers: Sequence[object] = [value] if isinstance(value, str) else cast("Any", value)
    if (
        not isinstance(answers, list)
        or not answers
        or not all(isinstance(a, str) and a.strip() for a in answers)
    ):
        raise DataError(f"{where}: key '{key}' must be a list of answers, got {value!r:.40}")
    return tuple(cast("list[str]", answers))
