"""Two ways of playing at the same cost: what came of each within a budget of tokens.

A policy that summarises writes more than a plain one for the same chain of thought. At a budget of
N, a sample that took more than N new tokens, summaries included, has not answered in time: what
its task counts as good is 0, on both sides of a comparison alike. Nothing is generated again, so a
budget above the `max_tokens` of a run says nothing about that run.
"""

from __future__ import annotations

from dataclasses import replace

from harness.errors import UsageError
from harness.records import DocSamples, RecordSet, Sample
from harness.scoring.table import task_scorer

OVER_BUDGET = "over_budget"


def at_budget(records: RecordSet, tokens: int) -> RecordSet:
    """The records as if whatever took more than `tokens` new tokens had said nothing.

    Args:
        records: One task of one run.
        tokens: Of all turns of a sample together, at least 1.

    Raises:
        UsageError: The budget is below 1, or nobody counted the tokens of a sample.
    """
    if tokens < 1:
        raise UsageError(f"budget={tokens}: a budget is at least 1 token")
    scorer = task_scorer(str(records.fingerprints["scorer"]).partition("@")[0])
    good = {name for name, higher in scorer.metrics.items() if higher} - scorer.doc_metrics

    def cut(sample: Sample) -> Sample:
        if sample.metrics is None:
            return sample
        if sample.completion_tokens is None:
            raise UsageError(
                f"{records.label}, task '{records.task}': nobody counted the tokens of its "
                f"samples, so there is no budget to hold them to"
            )
        if sample.completion_tokens <= tokens:
            return sample
        metrics = {n: 0.0 if n in good else v for n, v in sample.metrics.items()}
        return replace(sample, metrics=metrics, reasons=(*sample.reasons, OVER_BUDGET))

    def of_doc(doc: DocSamples) -> DocSamples:
        return replace(doc, samples=tuple(cut(s) for s in doc.samples))

    return replace(
        records,
        docs=tuple(of_doc(d) for d in records.docs),
        unfinished=tuple(of_doc(d) for d in records.unfinished),
    )


def over_budget(records: RecordSet) -> tuple[int, int]:
    """Samples that a budget cut, and all samples."""
    samples = [s for doc in (*records.docs, *records.unfinished) for s in doc.samples]
    return sum(OVER_BUDGET in s.reasons for s in samples), len(samples)
