"""The audit of judges: what a board says where two judges ran on the same outputs.

Per task and question ("is the answer right?"), the judge against the other one, the reference: a
row per model, and a mark on rows that it treats otherwise than the others. The reference is the
deterministic judge where there is one. It is no truth either, but it knows no model: a judge that
departs from it alike on all rows may be the better one, a judge that departs on one row is not to
be trusted with the order of rows, and one that follows it no better than by chance with nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import codec
from harness.errors import StoreError
from harness.records import RecordSet
from harness.report.cells import cell, escape, number, table
from harness.schema import Verdict
from harness.stats.agreement import Agreement, Difference, Judged, agreement, differential
from harness.store import Store

FILE = "disagreements.jsonl"
REFERENCE = "deterministic"


@dataclass(frozen=True, slots=True)
class Row:
    """One model's outputs under both judges.

    Attributes:
        records: Whose.
        found: None where no output has both verdicts.
        share: Share of outputs that the judge calls right: lowest and highest, should all that
            it gave no verdict on be wrong, or right.
        unscored: Outputs without the judge's verdict.
        spent: Calls, prompt_tokens and completion_tokens of the judge.
    """

    records: RecordSet
    found: Agreement | None
    share: tuple[float, float]
    unscored: int
    spent: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Audit:
    """A judge against a reference, on one question of one task.

    Attributes:
        pooled: Over the outputs of all rows; None where no output has both verdicts.
    """

    task: str
    question: str
    judge: str
    reference: str
    rows: tuple[Row, ...]
    differences: tuple[Difference, ...]
    pooled: Agreement | None

    @property
    def doubt(self) -> str:
        """Why the judge is not to be trusted on any row; "" where nothing speaks against it.

        Kappa's interval has to be above 0. Where the reference calls all outputs wrong (or all
        right) kappa says nothing; then a judge that contradicts most of them is doubted. Without
        intervals (fewer than 8 clusters) nothing is concluded.
        """
        a = self.pooled
        if a is None:
            return "none of its replies could be read"
        rates = [rate for rate in (a.sensitivity, a.specificity) if rate is not None]
        if len(rates) == 2 and a.low is not None and a.high is not None and a.low <= 0:
            return f"not shown to tell right from wrong, kappa {a.kappa:.2f} " + (
                f"[{a.low:.2f}, {a.high:.2f}]"
            )
        if len(rates) == 1 and rates[0].high is not None and rates[0].high < 0.5:
            return f"contradicts {short(self.reference)} on {a.n - a.both - a.neither} of {a.n}"
        return ""

    def flags(self, records: RecordSet) -> list[str]:
        """What is not to be trusted about a row: short remarks."""
        place = next((i for i, row in enumerate(self.rows) if row.records is records), None)
        if place is None:
            return []
        found = [self.doubt] * bool(self.doubt) + self.unequal(place)
        return [f"{self.question} by {short(self.judge)} not to be trusted: {f}" for f in found]

    def unequal(self, place: int) -> list[str]:
        """How the judge errs otherwise on a row, by its place, than on the others."""
        return [remark(d) for d in self.differences if d.flagged and d.model == str(place)]


def remark(found: Difference) -> str:
    """In which way a judge errs otherwise on a model."""
    return (
        f"{'lenient' if found.lenient else 'harsh'}, {found.rate} {number(found.value)} against "
        f"{number(found.others)} (p {found.p_adjusted:.2g})"
    )


def short(judge: str) -> str:
    """A judge's name without the hash of its settings."""
    return judge.removeprefix("llm:").partition("@")[0]


def pair(verdicts: Sequence[Verdict]) -> tuple[Verdict, Verdict] | None:
    """Of the verdicts on an output, the judge's and the reference's; None without two."""
    if len(verdicts) < 2:
        return None
    references = [v for v in verdicts if v.judge.startswith(REFERENCE)]
    reference = (references or list(verdicts[1:]))[0]
    return next(v for v in verdicts if v is not reference), reference


def audit(sets: Sequence[RecordSet]) -> list[Audit]:
    """Audit every judge of one task.

    Args:
        sets: Record sets of the task; those with one judge are left out.
    """
    groups: dict[tuple[str, str], list[tuple[RecordSet, list[_Line]]]] = {}
    for records in sets:
        for names, lines in _lines(records).items():
            groups.setdefault(names, []).append((records, lines))
    return [
        _audit(question, judge, reference, group)
        for (judge, reference), group in sorted(groups.items(), key=lambda item: item[0])
        for question in _questions(group)
    ]


@dataclass(frozen=True, slots=True)
class _Line:
    cluster: str
    judge: Verdict
    reference: Verdict


def _lines(records: RecordSet) -> dict[tuple[str, str], list[_Line]]:
    found: dict[tuple[str, str], list[_Line]] = {}
    for doc in records.docs:
        for sample in doc.samples:
            both = pair(sample.verdicts)
            if both is not None:
                names = (both[0].judge, both[1].judge)
                found.setdefault(names, []).append(_Line(doc.cluster or doc.doc_id, *both))
    return found


def _questions(group: Sequence[tuple[RecordSet, list[_Line]]]) -> list[str]:
    lines = [line for _, lines in group for line in lines]
    judged = {q for line in lines for q in line.judge.values or ()}
    known = {q for line in lines for q in line.reference.values or ()}
    return sorted(judged & known if judged else known)  # a judge that never answered is shown too


def _audit(
    question: str, judge: str, reference: str, group: Sequence[tuple[RecordSet, list[_Line]]]
) -> Audit:
    rows: list[Row] = []
    models: dict[str, Judged] = {}
    for place, (records, lines) in enumerate(group):
        said = [(line, _value(line.judge, question)) for line in lines]
        true = [_value(line.reference, question) for line in lines]
        whole = [
            (bool(word), bool(gold), line.cluster)
            for (line, word), gold in zip(said, true, strict=True)
            if word is not None and gold is not None
        ]
        known = [word for _, word in said if word is not None]
        unscored = len(said) - len(known)
        low = sum(known) / len(said)
        found = None
        if whole:
            models[str(place)] = Judged(*(list(part) for part in zip(*whole, strict=True)))
            found = agreement(models[str(place)])
        share = (low, low + unscored / len(said))
        rows.append(Row(records, found, share, unscored, _spent(line.judge for line in lines)))
    name = rows[0].records.task
    return Audit(
        name, question, judge, reference, tuple(rows), differential(models), _pooled(rows, models)
    )


def _pooled(rows: Sequence[Row], models: Mapping[str, Judged]) -> Agreement | None:
    """Agreement over all rows; the clusters are the docs' own, so they are shared by the rows."""
    if len(models) < 2:
        return next((row.found for row in rows if row.found is not None), None)
    each = list(models.values())
    return agreement(
        Judged(
            [x for m in each for x in m.judge],
            [x for m in each for x in m.reference],
            [x for m in each for x in m.clusters],
        )
    )


def _value(verdict: Verdict, question: str) -> float | None:
    value = (verdict.values or {}).get(question)
    return None if value is None else float(value)


def _spent(verdicts: Any) -> dict[str, int]:
    """What verdicts cost, as their judge noted it."""
    total: dict[str, int] = {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0}
    for verdict in verdicts:
        try:
            noted = json.loads(verdict.raw)
        except ValueError:
            continue
        for name in total:
            total[name] += int(noted.get(name, 0)) if isinstance(noted, dict) else 0
    return total


def section(audits: Sequence[Audit], names: Mapping[int, str]) -> list[str]:
    """The audits of a task as lines of a board.

    Args:
        audits: Of one task.
        names: What to call a row, by the id of its records.
    """
    lines: list[str] = []
    for found in audits:
        head = ["model", "n", "both right", "judge only", "reference only", "both wrong", "kappa",
                "sensitivity", "specificity", "judge - reference", "called right",
                "unscored", "calls", "tokens"]  # fmt: skip
        body = [_line(row, names[id(row.records)]) for row in found.rows]
        lines += [
            f"Judge {escape(found.judge)} against {escape(found.reference)}, {found.question}:",
            "",
            table(body, head),
            "",
        ]
        marks = [f"- **not to be trusted**, on any row: {escape(found.doubt)}"] * bool(found.doubt)
        marks += [
            f"- **not to be trusted**, {escape(names[id(row.records)])}: {escape(flag)}"
            for place, row in enumerate(found.rows)
            for flag in found.unequal(place)
        ]
        lines += [*marks, ""] if marks else []
    if lines:
        lines += [
            "Sensitivity and specificity take the reference for true. Called right: the judge's",
            "share of right outputs; where some are unscored, its lowest and highest value. A row",
            "is marked where the judge errs otherwise on it than on the others (5% over all rows);",
            "all are where kappa over all of them is not shown to be above 0.",
            "",
        ]
    return lines


def _line(row: Row, name: str) -> list[str]:
    low, high = row.share
    share = number(low) if low == high else f"{number(low)} to {number(high)}"
    tokens = row.spent["prompt_tokens"] + row.spent["completion_tokens"]
    cost = [str(row.unscored), str(row.spent["calls"]), f"{tokens:,}"]
    a = row.found
    if a is None:
        return [escape(name), "0", *[""] * 8, share, *cost]
    kappa = "undefined" if a.kappa is None else f"{a.kappa:.2f}"
    ends = f" [{a.low:.2f}, {a.high:.2f}]" if a.low is not None and a.high is not None else ""
    return [
        escape(name),
        str(a.n),
        *map(str, (a.both, a.judge_only, a.reference_only, a.neither)),
        kappa + ends,
        cell(a.sensitivity),
        cell(a.specificity),
        f"{a.bias:+.3f}",
        share,
        *cost,
    ]


def write_disagreements(store: Store) -> tuple[Path, int]:
    """Write every output on which two judges of a run differ as JSONL into its folder.

    A line has task, doc_id, repeat, questions, question, targets, meta, output and verdicts.

    Returns:
        The file and its number of lines. Without two judges nothing is written, and a file that
        is there is removed.

    Raises:
        StoreError: The file cannot be written.
    """
    path = store.folder / FILE
    lines: list[str] = []
    for task in store.tasks():
        docs = {d.doc.id: d.doc for d in store.docs(task)}
        for record in store.records(task, 2**62):
            both = pair(record.verdicts)
            ours, theirs = ({}, {}) if both is None else (both[0].values, both[1].values)
            if ours is None or theirs is None:
                continue
            questions = [q for q in ours if q in theirs and bool(ours[q]) != bool(theirs[q])]
            if questions:
                doc = docs[record.doc_id]
                lines.append(
                    codec.dumps(
                        {
                            "task": task, "doc_id": doc.id, "repeat": record.repeat,
                            "questions": questions, "question": doc.question,
                            "targets": list(doc.targets), "meta": dict(doc.meta),
                            "output": record.rollout.answer,
                            "verdicts": [codec.verdict_to_json(v) for v in record.verdicts],
                        }
                    )
                )  # fmt: skip
    try:
        if lines:
            text = "\n".join(lines) + "\n"
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from None
    return path, len(lines)
