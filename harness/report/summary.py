"""Aggregates of a record set: what a row of a board shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from harness.records import MACRO, RecordSet, doc_metric
from harness.stats.intervals import Estimate, estimate


@dataclass(frozen=True, slots=True)
class Summary:
    """One task of one run, aggregated.

    Attributes:
        estimates: By metric; docs are the unit, repeats are reduced first.
        reasons: How many samples carry each reason, most frequent first.
        unscored: By metric: docs without a value (no verdict), never counted as zero.
        leaked: Ids of docs whose question the prompt shows (a worked example, a few-shot).
        flags: Short remarks that a reader of the row must see.
    """

    records: RecordSet
    estimates: Mapping[str, Estimate]
    reasons: Mapping[str, int]
    unscored: Mapping[str, int]
    leaked: tuple[str, ...]
    flags: tuple[str, ...]

    @property
    def samples(self) -> int:
        """Finished samples."""
        return sum(len(d.samples) for d in self.records.docs)


def summarise(records: RecordSet) -> Summary:
    """Aggregate one record set."""
    estimates: dict[str, Estimate] = {}
    unscored: dict[str, int] = {}
    names = records.metric_names()
    macros = [c for c in records.info.get("columns") or () if c.startswith(MACRO)]
    for metric in [*names, *(m for m in macros if doc_metric(m)[0] in names)]:
        name, macro = doc_metric(metric)
        scored = [(d, v) for d in records.docs if (v := d.mean(name)) is not None]
        if macro:
            scored = [(d, v) for d, v in scored if d.stratum is not None]
        missing = len(records.docs) - len(scored)
        if missing and not macro:
            unscored[metric] = missing
        if scored:
            docs = [d for d, _ in scored]
            clusters = [d.cluster for d in docs]
            strata = [d.stratum for d in docs]
            estimates[metric] = estimate(
                [v for _, v in scored],
                clusters=[c or d.doc_id for c, d in zip(clusters, docs, strict=True)]
                if any(c is not None for c in clusters)
                else None,
                strata=[s or "" for s in strata] if any(s is not None for s in strata) else None,
                macro=macro,
            )
    reasons = Counter(r for d in records.docs for s in d.samples for r in s.reasons)
    return Summary(
        records,
        estimates,
        dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        unscored,
        tuple(d.doc_id for d in records.docs if d.in_prompt),
        _flags(records, unscored),
    )


def _flags(records: RecordSet, unscored: Mapping[str, int]) -> tuple[str, ...]:
    flags: list[str] = []
    if records.missing:
        flags.append(f"incomplete: {records.missing} docs missing")
    if records.selected < records.total:
        flags.append(f"{records.selected} of {records.total} docs")
    if "imported" in records.info:
        flags.append(f"imported from {records.info['imported']['file']}")
    off = records.info.get("off_protocol", ())
    if off:
        flags.append(f"off protocol: {', '.join(off)}")
    if unscored:
        flags.append(f"unscored: up to {max(unscored.values())} docs")
    leaked = sum(d.in_prompt for d in records.docs)
    if leaked:
        flags.append(f"test items in the prompt: {leaked}")
    for field, name in (("code", "code"), ("packages", "packages"), ("hardware", "hardware")):
        if len({str(e.get(field)) for e in records.environment}) > 1:
            flags.append(f"mixed {name}")
    return tuple(flags)
