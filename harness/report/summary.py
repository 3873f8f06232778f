"""Aggregates of a record set: what a row of a board shows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from harness.records import MACRO, RecordSet, doc_metric
from harness.stats.counts import pass_at_k
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
    main = doc_metric(str(records.info.get("metric", "")))[0]
    names = set(records.metric_names()) | ({main} if main else set[str]())  # main: all unscored
    macros = [c for c in records.info.get("columns") or () if c.startswith(MACRO)]
    columns = {m: [d.mean(m) for d in records.docs] for m in sorted(names)}
    columns.update({m: columns[of] for m in macros if (of := doc_metric(m)[0]) in columns})
    columns.update(_pass_at(records))
    for metric, values in columns.items():
        macro = doc_metric(metric)[1]
        scored = [(d, v) for d, v in zip(records.docs, values, strict=True) if v is not None]
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


def policy_name(records: RecordSet) -> str:
    """Policy with the settings that were given to it: rows that differ in them differ here."""
    given = records.info.get("policy_options") or {}
    shown = {k: str(v).lower() if isinstance(v, bool) else v for k, v in given.items()}
    options = ", ".join(f"{key}={value}" for key, value in shown.items())
    return str(records.info.get("policy") or "") + (f" ({options})" if options else "")


def _pass_at(records: RecordSet) -> dict[str, list[float | None]]:
    """pass@k of the main metric for each k above 1 that the task names and the repeats allow.

    A doc with an unscored repeat has none: its samples are not all there.
    """
    metric, n = str(records.info.get("metric", "")), records.repeats
    found: dict[str, list[float | None]] = {}
    for k in records.info.get("pass_at", ()):
        if 1 < k <= n:
            found[f"pass@{k}"] = [
                None if (mean := d.mean(metric)) is None else pass_at_k(round(mean * n), n, k)
                for d in records.docs
            ]
    return found


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
        sampling = json.loads(records.fingerprints.get("sampling") or "{}")
        named = [f"{name}={sampling[name]}" if name in sampling else name for name in off]
        flags.append(f"off protocol: {', '.join(named)}")
    if records.info.get("retriever") == "oracle":
        flags.append("given the gold pages")
    flags += records.info.get("flags", ())
    if unscored:
        flags.append(f"unscored: up to {max(unscored.values())} docs")
    leaked = sum(d.in_prompt for d in records.docs)
    if leaked:
        flags.append(f"test items in the prompt: {leaked}")
    for field, name in (("code", "code"), ("packages", "packages"), ("hardware", "hardware")):
        if len({str(e.get(field)) for e in records.environment}) > 1:
            flags.append(f"mixed {name}")
    return tuple(flags)
