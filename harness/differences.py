"""How far two runs say the same: how many outputs are identical, and where one first differs.

Two engines that serve the same weights greedily should say the same. They seldom do for long:
kernels, batch shapes and cached prefixes round differently, and a near tie between two tokens
then falls either way. Pure functions over record sets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from harness.records import RecordSet, Sample

_BEFORE = 24
_AFTER = 40


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two outputs part.

    Attributes:
        doc_id: The doc.
        repeat: 0-based sample index.
        position: 0-based character at which they part; the length of the shorter one where it
            is the beginning of the other (or where only the finish differs).
        common: End of what both say before it.
        candidate: What the candidate goes on with; printable, cut, with its finish at the end.
        baseline: The baseline's.
    """

    doc_id: str
    repeat: int
    position: int
    common: str
    candidate: str
    baseline: str


@dataclass(frozen=True, slots=True)
class Agreement:
    """Outputs of one task that two runs share.

    Attributes:
        same: Samples with the same text and finish.
        total: Samples that both runs have.
        greedy: Whether both runs decoded greedily: sampled texts need not agree. None where
            outside predictions do not tell.
        first: In the candidate's order of docs; None if all agree.
    """

    task: str
    candidate: str
    baseline: str
    same: int
    total: int
    greedy: bool | None
    first: Difference | None

    def __str__(self) -> str:
        kind = {True: "greedy ", False: "sampled ", None: ""}[self.greedy]
        line = f"{self.task}: {self.same} of {self.total} {kind}outputs identical"
        if self.first is None:
            return line
        d = self.first
        repeat = f", repeat {d.repeat}" if d.repeat else ""
        return (
            f"{line}; first difference on doc '{printable(d.doc_id, 80)}'{repeat} at character "
            f"{d.position}, after '{d.common}': '{d.candidate}' against '{d.baseline}'"
        )


def agreement(candidate: RecordSet, baseline: RecordSet) -> Agreement:
    """Compare the outputs of two runs on the samples that both have."""
    same = total = 0
    first: Difference | None = None
    for doc_id, ours, theirs in _pairs(candidate, baseline):
        total += 1
        ended = {ours.finish, theirs.finish}
        if ours.says(theirs) and (len(ended) == 1 or "unknown" in ended):
            same += 1
        elif first is None and not (ours.output_sha or theirs.output_sha):
            first = difference(doc_id, ours, theirs)
    kinds = {_greedy(candidate), _greedy(baseline)}
    greedy = None if None in kinds else kinds == {True}
    return Agreement(
        candidate.task, candidate.label, baseline.label, same, total, greedy, first
    )  # fmt: skip


def difference(doc_id: str, ours: Sample, theirs: Sample) -> Difference:
    """Where two samples of a doc part."""
    together = zip(ours.output, theirs.output, strict=False)
    at = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], together))
    start = max(0, at - _BEFORE)
    return Difference(
        doc_id,
        ours.repeat,
        at,
        ("…" if start else "") + printable(ours.output[start:at]),
        _rest(ours, at),
        _rest(theirs, at),
    )


def printable(text: str, width: int | None = None) -> str:
    """Text that is safe to print on one line: whatever is not printable is escaped.

    Line ends, terminal escapes, text-direction marks and lone surrogates become Python escapes;
    a backslash is doubled, so that the two cannot be taken for one another.

    Args:
        text: What a model said, or a name from outside.
        width: Characters of `text` to show; an ellipsis marks a cut. None shows all.
    """
    shown = text if width is None else text[:width]
    safe = "".join(
        c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in shown
    )
    return safe + ("…" if len(shown) < len(text) else "")


def _pairs(candidate: RecordSet, baseline: RecordSet) -> Iterator[tuple[str, Sample, Sample]]:
    theirs = {
        (d.doc_id, s.repeat): s for d in (*baseline.docs, *baseline.unfinished) for s in d.samples
    }
    for doc in (*candidate.docs, *candidate.unfinished):
        for sample in doc.samples:
            if (other := theirs.get((doc.doc_id, sample.repeat))) is not None:
                yield doc.doc_id, sample, other


def _rest(sample: Sample, at: int) -> str:
    rest = sample.output[at:]
    end = f"<{sample.finish}>" if len(rest) <= _AFTER else ""
    return printable(rest, _AFTER) + end


def _greedy(records: RecordSet) -> bool | None:
    """Whether the stored sampling has temperature 0; a reader without a model always has.

    None for outside predictions, which do not tell.
    """
    sampling = json.loads(records.fingerprints.get("sampling") or "{}")
    return None if "unknown" in sampling else not sampling.get("temperature")
