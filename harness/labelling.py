"""Labels by people: a random sample of outputs, drawn with known probabilities, asked blind.

    OUT/labels/NAME.jsonl    first line: the design; then one label a line, the last one counts

Docs are drawn, not outputs: of each drawn doc the outputs of all runs are labelled, so that a
delta is corrected on the same docs. Strata are what the judge said (right in both runs, in one,
...), each with at least two docs, so rare disagreements are in it with a probability that is
known. Docs that the judge called right in any run are twice as likely as the others: that is
where leniency is seen. Outputs come in random order without the model's name; equal outputs of
a doc are asked once. What the usability rule makes wrong is not asked at all.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import codec
from harness.differences import printable
from harness.errors import DataError, StoreError, UsageError
from harness.records import RecordSet, Sample
from harness.schema import Doc
from harness.stats.agreement import Difference, Judged, differential
from harness.stats.ppi import Corrected, Labelled, TooFewLabels, corrected, corrected_delta
from harness.store import now

FOLDER = "labels"
SCHEMA = 1
LEAST = 2
"""Docs of a stratum at least."""

UNUSABLE = frozenset({"repeated_output", "over_output"})
"""Reasons that make an output wrong whatever it says."""

KEYS = "y right, n wrong, s later, b back, q quit"


@dataclass(frozen=True, slots=True)
class Item:
    """A drawn doc (one repeat of it) with its inclusion probability, in (0, 1]."""

    doc_id: str
    repeat: int
    stratum: str
    probability: float


@dataclass(frozen=True, slots=True)
class Design:
    """A sample to label.

    Attributes:
        runs: Run ids, in the order of the command.
        population: Docs (times repeats) it was drawn from.
        items: In random order.
    """

    task: str
    metric: str
    runs: tuple[str, ...]
    seed: int
    population: int
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One output to label: of an item, in the runs that gave this very text."""

    item: int
    runs: tuple[int, ...]
    output: str


Key = tuple[str, int]


def samples(sets: Sequence[RecordSet]) -> dict[Key, tuple[Sample, ...]]:
    """Samples that all runs have, by doc and repeat, in the first one's order."""
    found = [{(d.doc_id, s.repeat): s for d in records.docs for s in d.samples} for records in sets]
    return {key: tuple(f[key] for f in found) for key in found[0] if all(key in f for f in found)}


def word(sample: Sample, metric: str) -> float | None:
    """What the judge made of an output; None where it is unscored."""
    return None if sample.metrics is None else sample.metrics.get(metric)


def draw(sets: Sequence[RecordSet], metric: str, n: int, seed: int) -> Design:
    """Draw a stratified sample of docs.

    Args:
        sets: The runs' records of one task.
        metric: What is to be labelled, 0 or 1 on each output.
        n: Docs; a few more where strata are small.
        seed: The same seed draws the same docs.

    Raises:
        UsageError: The runs share no docs, or the metric is not 0 or 1 there.
    """
    population = samples(sets)
    strata: dict[str, list[Key]] = {}
    for key in sorted(population):
        words = [word(s, metric) for s in population[key]]
        if any(w not in (None, 0.0, 1.0) for w in words):
            raise UsageError(f"metric={metric}: is not 0 or 1 on each output")
        codes = ["?" if w is None else f"{w:.0f}" for w in words]
        strata.setdefault("".join(codes if len(codes) <= 3 else sorted(codes)), []).append(key)
    if not population or set(strata) <= {"?" * len(sets)}:
        raise UsageError(f"metric={metric}: the runs share no docs that have it")
    sizes = allocate({stratum: len(keys) for stratum, keys in strata.items()}, n)
    rng = random.Random(seed)
    items: list[Item] = []
    for stratum, keys in sorted(strata.items()):
        drawn = rng.sample(keys, sizes[stratum])
        items += [Item(*key, stratum, len(drawn) / len(keys)) for key in drawn]
    rng.shuffle(items)
    task, runs = sets[0].task, tuple(s.source for s in sets)
    return Design(task, metric, runs, seed, len(population), tuple(items))


def allocate(strata: Mapping[str, int], n: int) -> dict[str, int]:
    """Docs to draw of each stratum.

    In proportion to its docs, counted twice where the judge called any run right.

    Args:
        strata: Docs of each; its name has a character for each run, "1" where it is right.
        n: Docs altogether; a few more where strata are small.
    """
    likely = {s: docs * (2 if "1" in s else 1) for s, docs in strata.items()}
    sizes: dict[str, int] = {}
    # A stratum that is taken whole leaves its share to the others, so the most likely come first.
    for s in sorted(strata, key=lambda s: (-likely[s] / strata[s], s)):
        left = n - sum(sizes.values())
        rest = sum(docs for other, docs in likely.items() if other not in sizes)
        sizes[s] = min(strata[s], max(LEAST, round(left * likely[s] / rest)))
    return sizes


def questions(design: Design, sets: Sequence[RecordSet]) -> list[Question]:
    """Every output to be asked about, in random order.

    Raises:
        DataError: A drawn doc is no longer in the runs, or a baseline was frozen without texts.
    """
    population = samples(sets)
    asked: list[Question] = []
    for number, item in enumerate(design.items):
        texts: dict[str, list[int]] = {}
        for run, sample in enumerate(_drawn(population, item)):
            if not UNUSABLE.intersection(sample.reasons):
                if sample.output_sha:
                    raise DataError(f"{sets[run].label} keeps no texts: label the run itself")
                texts.setdefault(sample.output, []).append(run)
        asked += [Question(number, tuple(runs), text) for text, runs in texts.items()]
    random.Random(f"order {design.seed}").shuffle(asked)
    return asked


def _drawn(population: Mapping[Key, tuple[Sample, ...]], item: Item) -> tuple[Sample, ...]:
    if (item.doc_id, item.repeat) not in population:
        raise DataError(f"doc '{item.doc_id}' was drawn for labelling and is not in the runs now")
    return population[item.doc_id, item.repeat]


# --- the file ---------------------------------------------------------------------------------


class Labels:
    """A design and the labels given so far, on disk.

    Raises:
        DataError: The file is damaged; names the line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.given: dict[tuple[int, int], float] = {}
        number = 1
        try:
            with path.open(encoding="utf-8") as lines:
                head = json.loads(next(lines))
                if head["schema"] != SCHEMA:
                    raise DataError(f"{path}: another schema than {SCHEMA}")
                self.design = Design(
                    head["task"],
                    head["metric"],
                    tuple(head["runs"]),
                    head["seed"],
                    head["population"],
                    tuple(Item(**item) for item in head["items"]),
                )
                for line in lines:
                    number += 1
                    if not line.endswith("\n"):
                        break  # the last one was cut off by a kill: it is asked again
                    row = json.loads(line)
                    self.given[int(row["item"]), int(row["run"])] = float(row["label"])
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}") from None
        except (KeyError, TypeError, ValueError, StopIteration) as error:
            what = f"{type(error).__name__} {error}".strip()
            hint = ": labels cannot be used without inclusion probabilities" * (
                "probability" in str(error)
            )
            raise DataError(f"{path}, line {number}: {what}{hint}") from None

    @classmethod
    def create(cls, path: Path, design: Design) -> Labels:
        """Write a design to a new file."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = codec.dumps({"schema": SCHEMA, **asdict(design)}) + "\n"
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from None
        return cls(path)

    def add(self, question: Question, label: float, labeller: str) -> None:
        """Write a label to disk, at once, for every run that gave this output."""
        item = self.design.items[question.item]
        with self.path.open("rb+") as out:
            data = out.read()
            out.seek(data.rfind(b"\n") + 1)  # drops a line that a kill cut off
            out.truncate()
            for run in question.runs:
                row = {"item": question.item, "run": run, "label": label, "labeller": labeller,
                       "at": now(), "doc_id": item.doc_id, "repeat": item.repeat,
                       "run_id": self.design.runs[run], "probability": item.probability,
                       "stratum": item.stratum}  # fmt: skip
                out.write(codec.dumps(row).encode("utf-8", "surrogatepass") + b"\n")
                self.given[question.item, run] = label

    def has(self, question: Question) -> bool:
        """Whether an output is labelled."""
        return all((question.item, run) in self.given for run in question.runs)


# --- asking -----------------------------------------------------------------------------------


def ask(
    labels: Labels,
    sets: Sequence[RecordSet],
    docs: Mapping[str, Doc],
    read: Callable[[], str],
    say: Callable[[str], None],
    labeller: str = "",
) -> int:
    """Ask for every label that is not there; returns how many are left.

    Args:
        labels: Design and labels so far; written after each answer.
        sets: The runs' records.
        docs: By id.
        read: Gives a line, "" at the end of input.
        say: Shows a line.
        labeller: Kept with each label.
    """
    asked = questions(labels.design, sets)
    todo = [q for q in asked if not labels.has(q)]
    done: list[Question] = []
    while todo:
        question = todo[0]
        item = labels.design.items[question.item]
        say(f"\n[{len(asked) - len(todo) + 1} of {len(asked)}] Is this right? ({KEYS})")
        for line in shown(docs[item.doc_id], question.output):
            say(line)
        answer = read()
        key = answer.strip().lower()[:1]
        if not answer or key == "q":
            break
        if key in ("y", "n"):
            labels.add(question, float(key == "y"), labeller)
            done.append(todo.pop(0))
        elif key == "b" and done:
            todo.insert(0, done.pop())
        elif key == "s":
            todo = list(todo[1:])
        else:
            say(f"'{printable(answer.strip(), 20)}' is no answer: {KEYS}")
    return sum(not labels.has(q) for q in asked)


def shown(doc: Doc, output: str) -> Iterator[str]:
    """What a labeller sees: each line marked by what it is, nothing unprintable in it."""
    pages = doc.meta.get("gold_pages") or [doc.meta.get("gold_page")]
    texts = {
        "question": doc.question,
        "answer": "\n".join(doc.targets),
        "page": ", ".join(str(p) for p in pages if p is not None),
        "output": output,
    }
    for name, text in texts.items():
        for line in text.split("\n") if text else []:
            yield f"{name:>9} | {printable(line)}"


# --- correcting -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    """Corrected figures: of each run, and of each pair of runs, first minus second.

    Attributes:
        refused: Why a figure is not given, by its runs.
        differences: The judge against the labels, between runs: `model` is a run's place.
    """

    means: Mapping[int, Corrected]
    deltas: Mapping[tuple[int, int], Corrected]
    refused: Mapping[tuple[int, ...], str]
    differences: tuple[Difference, ...]


def report(labels: Labels, sets: Sequence[RecordSet]) -> Report:
    """Correct the judge's figures by the labels.

    Raises:
        UsageError: Labels are missing, or the runs have other docs than those drawn from.
    """
    design = labels.design
    population = samples(sets)
    if len(population) != design.population:
        raise UsageError(
            f"{labels.path}: drawn from {design.population} docs, the runs have {len(population)} "
            "now: draw again with another name="
        )
    left = sum(not labels.has(q) for q in questions(design, sets))
    if left:
        raise UsageError(f"{labels.path}: {left} outputs are still to be labelled: run label again")
    drawn = {(item.doc_id, item.repeat): i for i, item in enumerate(design.items)}
    clusters = {d.doc_id: d.cluster or d.doc_id for d in sets[0].docs}
    made: list[Labelled] = []
    for run in range(len(sets)):
        rows = [
            (
                word(of_doc[run], design.metric) or 0.0,
                labels.given.get((drawn[key], run), 0.0) if key in drawn else None,
                design.items[drawn[key]].probability if key in drawn else 1.0,
                clusters[key[0]],
            )
            for key, of_doc in population.items()
        ]
        made.append(Labelled(*(list(column) for column in zip(*rows, strict=True))))  # type: ignore[arg-type]
    means: dict[int, Corrected] = {}
    deltas: dict[tuple[int, int], Corrected] = {}
    refused: dict[tuple[int, ...], str] = {}
    for i, docs in enumerate(made):
        try:
            means[i] = corrected(docs)
        except TooFewLabels as error:
            refused[(i,)] = str(error)
        for j in range(i + 1, len(made)):
            try:
                deltas[i, j] = corrected_delta(docs, made[j])
            except TooFewLabels as error:
                refused[i, j] = str(error)
    return Report(means, deltas, refused, differential(_judged(labels, population, clusters)))


def _judged(
    labels: Labels, population: Mapping[Key, tuple[Sample, ...]], clusters: Mapping[str, str]
) -> dict[str, Judged]:
    """The judge beside the labels, on each run's drawn outputs that it gave a verdict on."""
    design, found = labels.design, {}
    for run in range(len(design.runs)):
        rows = [
            (said == 1, labels.given.get((i, run), 0.0) == 1, clusters[x.doc_id], 1 / x.probability)
            for i, x in enumerate(design.items)
            if (said := word(population[x.doc_id, x.repeat][run], design.metric)) is not None
        ]
        if rows:
            found[str(run)] = Judged(*(list(column) for column in zip(*rows, strict=True)))
    return found


def path_of(out: Path, name: str, given: Any) -> Path:
    """Where a sample lies; without a name it has one by what was asked for."""
    if name and ("/" in name or name.startswith(".")):
        raise UsageError(f"name={name}: a name cannot contain '/' or start with '.'")
    return out / FOLDER / f"{name or codec.sha(given)[:10]}.jsonl"
