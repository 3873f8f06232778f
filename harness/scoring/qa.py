"""Short answers of open questions: the metrics, and the scorer of multi-hop question answering.

Metrics are functions `(prediction, targets) -> float`, in [0, 1], the best over the targets:

    em             the normal forms are equal
    f1             2 x common / (predicted + target words), each word as often as it stands
    cem_bag        every word of the target is in the prediction, in any order
    cem_substring  the target's normal form stands in the prediction's, within words too

With the default normal form (`harness.scoring.normal`) they are R1-Searcher's exact match, F1,
`cover_em_1` and `cover_em_2`: `cem_bag` is the paper's ACC_R. `cem_substring` is FlashRAG's `acc`
and Search-R1's `subem`. The two cover matches differ both ways: "Obama, Barack" covers "Barack
Obama" as a bag only, "mil" covers the answer "l" as a substring only.

The scorer adds acc_l (an outside judge's verdict; absent without one), searches, support_recall
(only where the doc names its supporting passages), output_tokens and degenerate. As everywhere,
repeated or excess output makes an answer wrong.

A rollout's `answer` holds the answer between tags: a policy whose prompt asks for none (a plain
reader, Self-Ask) puts the tags around what its dialect reads (`harness.scoring.answers`), and
keeps the raw text in its turns.

Fields read from `Doc.meta`: support (ids of the supporting passages), support_titles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from harness.schema import Doc, Rollout, Score, Verdict
from harness.scoring import answers, degenerate, search
from harness.scoring.normal import DEFAULT as FORM
from harness.scoring.normal import Variant, variant
from harness.scoring.text import THINK_TAGS

VERSION = 1

JUDGE_PROMPT = "acc_l"
"""Prompt of an LLM judge (judges.toml)."""

METRICS = {
    "cem_bag": True,
    "em": True,
    "f1": True,
    "cem_substring": True,
    "acc_l": True,
    "searches": False,
    "support_recall": True,
    "output_tokens": False,
    "degenerate": False,
}
"""Metric -> whether higher is better."""

REASONS = (
    *degenerate.REASONS,
    "no_answer",
    "unclosed_answer",
    *search.REASONS,
)
"""Every reason this scorer can give, in the order in which it gives them."""

_UNUSABLE = frozenset({"repeated_output", "over_output"})
Pair = Callable[[str, str], float]


def em(prediction: str, targets: Sequence[str], form: str = FORM) -> float:
    """Exact match of normal forms: 0 or 1."""
    return _best(_equal, prediction, targets, variant(form))


def f1(prediction: str, targets: Sequence[str], form: str = FORM) -> float:
    """F1 of the two bags of words, in [0, 1]; all or nothing for a closed answer."""
    rule = variant(form)

    def overlap(said: str, gold: str) -> float:
        if said != gold and (said in rule.closed or gold in rule.closed):
            return 0.0
        a, b = Counter(said.split()), Counter(gold.split())
        common = sum((a & b).values())
        return 2 * common / (sum(a.values()) + sum(b.values())) if common else 0.0

    return _best(overlap, prediction, targets, rule)


def cem_bag(prediction: str, targets: Sequence[str], form: str = FORM) -> float:
    """Cover exact match: every word of a target is in the prediction; 0 or 1."""
    return _best(_covers, prediction, targets, variant(form))


def cem_substring(prediction: str, targets: Sequence[str], form: str = FORM) -> float:
    """Cover exact match: a target's normal form is part of the prediction's; 0 or 1."""
    return _best(_contains, prediction, targets, variant(form))


def _equal(said: str, gold: str) -> float:
    return float(said == gold)


def _covers(said: str, gold: str) -> float:
    return float(set(gold.split()) <= set(said.split()))


def _contains(said: str, gold: str) -> float:
    return float(gold in said)


def _best(metric: Pair, prediction: str, targets: Sequence[str], rule: Variant) -> float:
    pairs = (rule.pair(prediction, target) for target in targets)
    return max((metric(said, gold) for said, gold in pairs if gold), default=0.0)


# --- the scorer -----------------------------------------------------------------------------


def judge_fields(doc: Doc, rollout: Rollout) -> dict[str, str]:
    """What an LLM judge is shown; several targets stand one a line."""
    return {
        "question": doc.question,
        "gold_answer": "\n".join(doc.targets),
        "pred_answer": (answers.extract(rollout.answer) or "").strip(),
    }


def score(
    doc: Doc,
    rollout: Rollout,
    verdicts: Sequence[Verdict],
    think_tags: tuple[str, str] | None = THINK_TAGS,
    dialect: str = answers.DEFAULT,
    form: str = FORM,
) -> Score:
    """Score one rollout.

    Args:
        doc: Without targets, the match metrics are absent.
        rollout: An errored one gets no metric at all.
        verdicts: The first with a value "answer_correct" gives acc_l.
        think_tags: Tags of the reasoning.
        dialect: How the answer is found in the output.
        form: Normal form of the match metrics.

    Returns:
        Metrics in [0, 1]; searches and output_tokens in [0, inf); reasons from `REASONS`.
    """
    if rollout.error is not None or rollout.finish == "error":
        return Score({})
    text = rollout.answer
    answer = answers.extract(text, dialect)
    given = {
        *degenerate.reasons(text, rollout.finish, think_tags),
        *search.search_reasons(rollout),
    }
    if answer is None:
        unclosed = answers.OPEN in text and answers.CLOSE not in text
        given.add("unclosed_answer" if unclosed else "no_answer")
    usable = not _UNUSABLE & given
    metrics: dict[str, float] = {}
    if doc.targets:
        for name, metric in MATCHES.items():
            metrics[name] = metric(answer or "", doc.targets, form) * usable
    judged = next((v for v in map(_correct, verdicts) if v is not None), None)
    if judged is not None:
        metrics["acc_l"] = judged * usable
    metrics["searches"] = float(rollout.searches)
    recall = support_recall(doc, rollout)
    if recall is not None:
        metrics["support_recall"] = recall
    if rollout.completion_tokens is not None:
        metrics["output_tokens"] = float(rollout.completion_tokens)
    metrics["degenerate"] = float(not given.isdisjoint(degenerate.REASONS))
    return Score(metrics, tuple(reason for reason in REASONS if reason in given))


MATCHES: dict[str, Callable[[str, Sequence[str], str], float]] = {
    "em": em,
    "f1": f1,
    "cem_bag": cem_bag,
    "cem_substring": cem_substring,
}
"""The metrics of an answer against its targets."""


def support_recall(doc: Doc, rollout: Rollout) -> float | None:
    """Share of a doc's supporting passages that the rollout was shown; None without any.

    Shown are the passages that environment turns name. Where they name none, the titles in
    their text count; where there is no such turn, the doc's own passages.
    """
    support = {str(i) for i in doc.meta.get("support") or ()}
    if not support:
        return None
    turns = [turn for turn in rollout.turns if turn.kind == "environment"]
    if not turns:
        return len(support & {p.doc_id for p in doc.passages}) / len(support)
    named = {i for turn in turns for i in turn.passages}
    if named:
        return len(support & named) / len(support)
    titles = {str(t) for t in doc.meta.get("support_titles") or ()}
    text = "\n".join(turn.text for turn in turns)
    return sum(title in text for title in titles) / len(titles) if titles else None


def _correct(verdict: Verdict) -> float | None:
    value = (verdict.values or {}).get("answer_correct")
    return None if value is None else float(value)
