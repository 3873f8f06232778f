"""Checkpoint against baseline: pairing, comparability, verdicts.

Pure functions over record sets. Two runs are comparable when every *held* field agrees: data
set, prompt, scorer, task version, and whatever `vary` does not name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness import paths
from harness.errors import UsageError, nearest
from harness.gates import Gates, load_gates
from harness.records import DocSamples, RecordSet, doc_metric
from harness.schema import Comparison
from harness.stats import gate, paired, power
from harness.stats import missing as missing_data

VARIABLE = ("weights", "engine", "template", "sampling", "policy", "retriever")
"""Fields that `vary=` may name."""

HELD = ("version", "dataset", "prompt", "scorer")
"""Fields that always have to agree."""

UNKNOWN = '{"unknown":'
"""How a fingerprint begins of something that outside predictions do not tell."""


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison with its rule."""

    comparison: Comparison
    rule: gate.GateRule


@dataclass(frozen=True, slots=True)
class Gated:
    """A checkpoint's gate: every comparison, and what the whole comes to.

    Attributes:
        exit_code: See harness.stats.gate.EXIT_CODES.
        reason: What that code says.
    """

    lines: tuple[Line, ...] = ()
    exit_code: int = 0
    reason: str = "passed"


def parse_vary(text: str) -> tuple[str, ...]:
    """Fields named by `vary=`.

    Raises:
        UsageError: A field that cannot be varied.
    """
    fields = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in fields:
        if name in HELD:
            raise UsageError(f"vary={name}: a different {name} is never comparable")
        if name not in VARIABLE:
            raise UsageError(f"vary={name}: {nearest(name, VARIABLE)}")
    return fields


def differing(candidate: RecordSet, baseline: RecordSet, vary: Sequence[str]) -> str:
    """Name the first held field in which two record sets differ, with both values; "" if none."""
    unknown = [name for name in _unknown(candidate, baseline) if name not in vary]
    if unknown:
        every = dict.fromkeys((*vary, *unknown))
        return (
            f"{', '.join(unknown)} unknown: {_origin(candidate, baseline)} "
            f"(vary={','.join(every)} to compare nonetheless)"
        )
    for name in (*HELD, *VARIABLE):
        if name in vary:
            continue
        ours = str(candidate.fingerprints.get(name))
        theirs = str(baseline.fingerprints.get(name))
        if ours != theirs:
            hint = f" (vary={name} to compare them)" if name in VARIABLE else ""
            return f"{name} differs: {_short(ours)} against {_short(theirs)}{hint}"
    if not {"retriever", "template", "policy"} & set(vary):
        theirs_by_id = {d.doc_id: d for d in baseline.docs}
        for doc in candidate.docs:
            other = theirs_by_id.get(doc.doc_id)
            if other is not None and other.prompt_sha != doc.prompt_sha:
                return f"prompt differs on doc '{doc.doc_id}', though every setting is the same"
    return ""


def _unknown(*sets: RecordSet) -> list[str]:
    """Fields of which outside predictions do not say what they were."""
    imported = [s for s in sets if "imported" in s.info]
    return [
        name
        for name in VARIABLE
        if any(str(s.fingerprints.get(name)).startswith(UNKNOWN) for s in imported)
    ]


def _origin(*sets: RecordSet) -> str:
    imported = [s for s in sets if "imported" in s.info]
    return " and ".join(
        f"{s.label} is imported from {s.info['imported']['file']}" for s in imported
    )


def _short(value: str, width: int = 60) -> str:
    return value if len(value) <= width else value[: width - 3] + "..."


def compare(
    candidates: Mapping[str, RecordSet],
    baselines: Mapping[str, RecordSet],
    gates: Gates | None = None,
    vary: Sequence[str] = ("weights",),
) -> Gated:
    """Compare every task of a checkpoint with its baseline, metric by metric.

    Args:
        candidates: By task.
        baselines: By task; a task that is missing here gets the verdict "no baseline".
        gates: Rules of the profile; None takes those of baselines/gates.toml, profile "pr".
        vary: Fields that may differ.
    """
    gates = gates or load_gates(paths.BASELINES, "pr")
    cases: list[gate.Case] = []
    drafts: list[Comparison] = []
    rules = [
        (candidate, rule)
        for task, candidate in candidates.items()
        for rule in gates.of(
            task, str(candidate.info.get("board", task)), str(candidate.info.get("metric", ""))
        )
    ]
    tests = sum(rule.blocking for _, rule in rules)
    for candidate, rule in rules:
        case, draft = _case(candidate, baselines.get(candidate.task), rule, vary, max(tests, 1))
        cases.append(case)
        drafts.append(draft)
    outcome = gate.decide(cases)
    lines = tuple(
        Line(replace(draft, verdict=verdict, p_adjusted=p), case.rule)
        for draft, verdict, p, case in zip(
            drafts, outcome.verdicts, outcome.p_adjusted, cases, strict=True
        )
    )
    return Gated(lines, outcome.exit_code, outcome.reason)


def worst(gated: Sequence[Gated], incomplete: bool = False) -> tuple[int, str]:
    """Exit code of several gates: the first of EXIT_CODES that any of them has."""
    codes = {g.exit_code for g in gated} | ({3} if incomplete else {0})
    return next((code, reason) for code, reason in gate.EXIT_CODES if code in codes)


def _case(
    candidate: RecordSet,
    baseline: RecordSet | None,
    rule: gate.GateRule,
    vary: Sequence[str],
    tests: int,
) -> tuple[gate.Case, Comparison]:
    blank = Comparison(
        task=candidate.task,
        metric=rule.metric,
        baseline=baseline.label if baseline else "",
        candidate=candidate.label,
        n=0,
        clusters=0,
        delta=None,
        interval=None,
        p_value=None,
        test="",
        mde=None,
        margin=rule.margin,
        verdict="",
    )

    def without(state: gate.State, note: str) -> tuple[gate.Case, Comparison]:
        return gate.Case(rule, None, state=state), replace(blank, note=note)

    if baseline is None:
        return without("no baseline", "no stored records to compare with")
    difference = differing(candidate, baseline, vary)
    if difference:
        return without("not comparable", difference)
    pairs = _pairs(candidate, baseline)
    level = 1 - rule.alpha
    clusters = _labels([ours.cluster or ours.doc_id for ours, _ in pairs], pairs, "cluster")
    strata = _labels([ours.stratum or "" for ours, _ in pairs], pairs, "stratum")
    metric, macro = doc_metric(rule.metric)
    if macro and strata is None:
        return without("incomplete", f"'{rule.metric}' is a mean over strata, and no doc has one")
    ranges = [
        (_range(theirs, metric, baseline.repeats), _range(ours, metric, candidate.repeats))
        for ours, theirs in pairs
    ]
    whole = [i for i, (b, c) in enumerate(ranges) if isinstance(b, float) and isinstance(c, float)]
    if not whole:
        return without("incomplete", f"no doc has '{metric}' on both sides")
    result = paired.paired(
        [_number(ranges[i][0]) for i in whole],
        [_number(ranges[i][1]) for i in whole],
        [clusters[i] for i in whole] if clusters else None,
        [strata[i] for i in whole] if strata else None,
        level,
        macro=macro,
    )
    missing = None
    identical = _identical(pairs)
    notes: list[str] = [result.note] if result.note and not identical else []
    unknown = _unknown(candidate, baseline)
    if unknown:
        notes.append(f"{', '.join(unknown)} unknown: {_origin(candidate, baseline)}")
    if len(whole) < len(pairs):
        unscored = len(pairs) - len(whole)
        notes.append(f"{unscored} docs are missing or unscored: bounded by best and worst case")
        if any(max(map(abs, _ends(r))) > 1 for pair in ranges for r in pair if r is not None):
            note = f"{unscored} docs are missing and '{rule.metric}' has no bound"
            return without("incomplete", note)
        missing = missing_data.missing_bounds(
            [b for b, _ in ranges], [c for _, c in ranges], clusters, strata, level, macro=macro
        )
    if len(pairs) < max(candidate.selected, baseline.selected):
        notes.append(f"{len(pairs)} docs in common of {candidate.selected} and {baseline.selected}")
    identical = identical and missing is None
    known = [_number(x) for i in whole for x in ranges[i]]
    sizes = power.cluster_sizes([clusters[i] for i in whole]) if clusters else None
    mde = None
    size = len(whole)
    if macro and strata:
        size = power.macro_size([strata[i] for i in whole])
    # A drop in points: lengths have no such scale.
    if all(0 <= v <= 1 for v in known) and not (macro and clusters):
        mde = power.mde(
            size, sizes, alpha=rule.alpha, tests=tests, margin=rule.margin,
            repeats=candidate.repeats,
        )  # fmt: skip
    interval = None
    if result.low is not None and result.high is not None and not identical:
        interval = (result.low, result.high)
    draft = replace(
        blank,
        n=result.n,
        clusters=result.clusters,
        delta=result.delta,
        interval=interval,
        p_value=result.p_value,
        test=result.test,
        mde=mde,
        note="; ".join(notes),
    )
    return gate.Case(rule, result, identical, missing=missing), draft


def _pairs(candidate: RecordSet, baseline: RecordSet) -> list[tuple[DocSamples, DocSamples]]:
    """Docs that both selections hold, in the candidate's order, unfinished ones at the end."""
    theirs = {d.doc_id: d for d in (*baseline.docs, *baseline.unfinished)}
    mine = (*candidate.docs, *candidate.unfinished)
    return [(d, theirs[d.doc_id]) for d in mine if d.doc_id in theirs]


def _labels(
    labels: list[str], pairs: Sequence[tuple[DocSamples, DocSamples]], field: str
) -> list[str] | None:
    """Labels, or None where no doc has one."""
    return labels if any(getattr(ours, field) is not None for ours, _ in pairs) else None


def _range(doc: DocSamples, metric: str, repeats: int) -> missing_data.Partial:
    """The doc's mean, its range where repeats are missing or unscored, None where all are."""
    values = [s.metrics.get(metric) if s.metrics is not None else None for s in doc.samples]
    values += [None] * (repeats - len(values))
    if all(v is None for v in values):
        return None
    return missing_data.doc_range(values)


def _number(value: missing_data.Partial) -> float:
    assert isinstance(value, float)
    return value


def _ends(value: float | tuple[float, float]) -> tuple[float, float]:
    return value if isinstance(value, tuple) else (value, value)


def _identical(pairs: Sequence[tuple[DocSamples, DocSamples]]) -> bool:
    """Whether outputs and scores are the same, byte for byte."""
    return all(
        len(ours.samples) == len(theirs.samples)
        and all(
            a.says(b) and (a.metrics, a.finish) == (b.metrics, b.finish)
            for a, b in zip(ours.samples, theirs.samples, strict=True)
        )
        for ours, theirs in pairs
    )
