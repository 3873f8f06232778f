"""The scorer of retrieval-augmented tasks whose answers name their page.

Metrics of an output (BJTU railway report, III.B): answer_accuracy, page_accuracy,
page_accuracy_any (any page that supports the answer), joint_accuracy, format_accuracy,
output_tokens, degenerate. Metrics of the doc alone: answer_recall, answer_recall_published,
gold_page_in_topk.

The report's usability rule: repeated or excess output makes answer and page wrong, however
right they look. Fields read from `Doc.meta`: gold_page (int), supporting_pages (list of int).
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.schema import Doc, Rollout, Score, Verdict
from harness.scoring import degenerate, tagged
from harness.scoring.judge import NAME as JUDGE
from harness.scoring.judge import gold_pages
from harness.scoring.judge import judge as judge_parsed
from harness.scoring.text import FINAL_PUNCTUATION, THINK_TAGS, squeeze

__all__ = [
    "DOC_METRICS", "JUDGE", "JUDGE_PROMPT", "METRICS", "REASONS", "VERSION",
    "judge", "judge_fields", "score",
]  # fmt: skip

VERSION = 1

JUDGE_PROMPT = "railway"
"""Prompt of an LLM judge (judges.toml)."""

METRICS = {
    "answer_accuracy": True,
    "page_accuracy": True,
    "page_accuracy_any": True,
    "joint_accuracy": True,
    "format_accuracy": True,
    "output_tokens": False,
    "degenerate": False,
    "answer_recall": True,
    "answer_recall_published": True,
    "gold_page_in_topk": True,
}
"""Metric -> whether higher is better."""

DOC_METRICS = frozenset({"answer_recall", "answer_recall_published", "gold_page_in_topk"})
"""Metrics that no checkpoint can change: they measure the retriever."""

REASONS = tuple(dict.fromkeys(degenerate.REASONS + tagged.REASONS))
"""Every reason this scorer can give, in the order in which it gives them."""

_UNUSABLE = frozenset({"repeated_output", "over_output"})


def judge(doc: Doc, rollout: Rollout, think_tags: tuple[str, str] | None = THINK_TAGS) -> Verdict:
    """Parse a rollout and ask the deterministic judge (`harness.scoring.judge`)."""
    return judge_parsed(doc, tagged.parse(rollout.answer, think_tags))


def judge_fields(doc: Doc, rollout: Rollout) -> dict[str, str]:
    """What an LLM judge is shown; several targets stand one a line."""
    parsed = tagged.parse(rollout.answer)
    return {
        "question": doc.question,
        "gold_answer": "\n".join(doc.targets),
        "gold_page": ", ".join(map(str, sorted(gold_pages(doc)))),
        "pred_answer": parsed.answer or "",
        "pred_page": parsed.page_text or "",
        "output": rollout.answer,
    }


def score(
    doc: Doc,
    rollout: Rollout,
    verdicts: Sequence[Verdict],
    think_tags: tuple[str, str] | None = THINK_TAGS,
) -> Score:
    """Score one rollout.

    Args:
        doc: The doc with the passages the model was shown.
        rollout: An errored one gets no metric at all.
        verdicts: The first one decides; without it (or without its values) answer, page and
            joint accuracy are absent, never zero.
        think_tags: Tags of the reasoning.

    Returns:
        Metrics in [0, 1], output_tokens in [0, inf); reasons from `REASONS`.
    """
    if rollout.error is not None or rollout.finish == "error":
        return Score({})
    parsed = tagged.parse(rollout.answer, think_tags)
    output = degenerate.reasons(rollout.answer, rollout.finish, think_tags)
    given = {*output, *parsed.reasons}
    usable = not _UNUSABLE & given
    metrics: dict[str, float] = {
        "format_accuracy": float(parsed.well_formed),
        "degenerate": float(not given.isdisjoint(degenerate.REASONS)),
        **retrieval_metrics(doc),
    }
    if rollout.completion_tokens is not None:
        metrics["output_tokens"] = float(rollout.completion_tokens)
    metrics.update(_verdict_metrics(doc, parsed, verdicts[0] if verdicts else None, usable))
    return Score(metrics, tuple(reason for reason in REASONS if reason in given))


def _verdict_metrics(
    doc: Doc, parsed: tagged.TaggedAnswer, verdict: Verdict | None, usable: bool
) -> dict[str, float]:
    if verdict is None or verdict.values is None:
        return {}
    metrics: dict[str, float] = {}
    answer = verdict.values.get("answer_correct")
    page = verdict.values.get("page_correct")
    if answer is not None:
        metrics["answer_accuracy"] = float(answer) * usable
    if page is not None:
        metrics["page_accuracy"] = float(page) * usable
        supporting = {int(p) for p in doc.meta.get("supporting_pages") or ()} | gold_pages(doc)
        supported = len(parsed.pages) == 1 and parsed.pages[0] in supporting
        metrics["page_accuracy_any"] = max(float(page), float(supported)) * usable
    if answer is not None and page is not None:
        metrics["joint_accuracy"] = float(answer) * float(page) * usable
    return metrics


def retrieval_metrics(doc: Doc) -> dict[str, float]:
    """What the passages of a doc hold: 0 or 1 each, absent where the doc has no gold.

    Source: BJTU railway report, table 1. `answer_recall_published` is the report's recall: a
    target occurs in one passage after all white space is removed from both. Most of its misses
    are a full stop at the end of the target: `answer_recall` removes final punctuation from the
    target as well.
    """
    metrics: dict[str, float] = {}
    passages = [squeeze(p.text) for p in doc.passages]
    targets = [squeeze(t) for t in doc.targets]
    if targets:
        bare = [t.rstrip(FINAL_PUNCTUATION) or t for t in targets]
        metrics["answer_recall"] = _any_in(bare, passages)
        metrics["answer_recall_published"] = _any_in(targets, passages)
    gold = gold_pages(doc)
    if gold:
        metrics["gold_page_in_topk"] = float(any(p.page in gold for p in doc.passages))
    return metrics


def _any_in(targets: Sequence[str], passages: Sequence[str]) -> float:
    return float(any(t and t in p for t in targets for p in passages))
