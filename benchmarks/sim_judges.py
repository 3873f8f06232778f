"""Simulate the audit of judges and the correction by labels.

    python benchmarks/sim_judges.py                  # 2,000 runs a row, of coverage 600
    python benchmarks/sim_judges.py scale=0.1        # a glance

Models answer the same docs; a doc is harder or easier for all. The judge errs on a share of the
outputs of either kind, right or wrong. Lenient by 10 points to the first model means that it calls
as many more of its wrong outputs right as make its row on a board 10 points too high, over what
the judge's errors do to all rows alike. Output is Markdown.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from harness.labelling import allocate
from harness.stats.agreement import ALPHA, RATES, p_values, shares
from harness.stats.ppi import Labelled, corrected, corrected_delta

Rng = np.random.Generator
Bools = npt.NDArray[np.bool_]
SEED = 11
BATCH = 50
POINTS = 0.1


@dataclass(frozen=True, slots=True)
class World:
    """What the audit is tried on.

    Attributes:
        labels: Docs with a reference's verdict on all models' outputs.
        cluster: Docs a page; 1: independent ones.
        accuracies: Of each model.
        error: Chance that the judge is wrong about an output.
        docs: What `label` draws the labelled docs from; 0: the reference judges all there are.
        errors: Where they fall: "alone", "doc" (on a doc that the judge errs on, it errs on all
            models' outputs) or "page" (each model has pages that confuse the judge: beta(1, .)).
    """

    labels: int = 150
    cluster: int = 1
    accuracies: tuple[float, ...] = (0.5, 0.5)
    error: float = 0.03
    docs: int = 0
    errors: str = "alone"

    @property
    def shape(self) -> str:
        return "independent" if self.cluster == 1 else f"pages of {self.cluster}"


def truths(rng: Rng, runs: int, docs: int, cluster: int, accuracies: tuple[float, ...]) -> Bools:
    """Right or not: (runs, models, docs). Docs of a cluster share half of a doc's difficulty."""
    from scipy.special import ndtri

    page = np.repeat(rng.normal(size=(runs, 1, -(-docs // cluster))), cluster, axis=2)[..., :docs]
    share = 0.2 if cluster > 1 else 0.0
    doc = share**0.5 * page + (0.5 - share) ** 0.5 * rng.normal(size=(runs, 1, docs))
    own = 0.5**0.5 * rng.normal(size=(runs, len(accuracies), docs))
    return (doc + own) < ndtri(np.array(accuracies))[:, None]


def wrong_words(rng: Rng, runs: int, world: World, docs: int) -> Bools:
    """Outputs that the judge errs on: (runs, models, docs)."""
    shape = (runs, len(world.accuracies), docs)
    if world.errors == "doc":
        return np.broadcast_to(rng.random((runs, 1, docs)) < world.error, shape)
    rate = np.full(shape, world.error)
    if world.errors == "page" and world.error > 0:
        pages = (runs, shape[1], -(-docs // world.cluster))
        drawn = rng.beta(1, 1 / world.error - 1, size=pages)
        rate = np.repeat(drawn, world.cluster, axis=2)[..., :docs]
    return rng.random(shape) < rate


def judged(rng: Rng, truth: Bools, wrong: Bools, lenient: float) -> Bools:
    """The judge's words: (runs, models, docs).

    `lenient` is a share of all outputs of the first model: wrong ones, called right besides those
    that the judge's errors make right.
    """
    said = truth ^ wrong
    refused = ~truth[:, 0] & ~said[:, 0]
    chance = lenient / np.maximum(1e-9, refused.mean(axis=1, keepdims=True))
    said[:, 0] |= refused & (rng.random(refused.shape) < chance)
    return said


def drawn(rng: Rng, said: Bools, labels: int) -> np.ndarray:
    """Inclusion probabilities of the docs that `label` draws, 0 of the others: (runs, docs)."""
    models, docs = said.shape[1:]
    if models <= 3:
        code = np.einsum("rmd,m->rd", said, 2 ** np.arange(models))
        names = [f"{x:0{models}b}" for x in range(2**models)]
    else:
        code = said.sum(axis=1)
        names = ["1" * x + "0" * (models - x) for x in range(models + 1)]
    counts = np.stack([(code == x).sum(axis=1) for x in range(len(names))], axis=1)
    sizes = np.zeros_like(counts)
    for run, row in enumerate(counts.tolist()):
        there = {name: count for name, count in zip(names, row, strict=True) if count}
        chosen = allocate(there, labels)
        sizes[run] = [chosen.get(name, 0) for name in names]
    # Each doc's place among those of its stratum, in random order.
    order = np.argsort(code + rng.random(code.shape), axis=1)
    first = np.cumsum(counts, axis=1) - counts
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(docs)[None, :], axis=1)
    place -= np.take_along_axis(first, code, axis=1)
    size = np.take_along_axis(sizes, code, axis=1)
    return np.where(place < size, size / np.take_along_axis(counts, code, axis=1), 0.0)


def audited(rng: Rng, runs: int, world: World, lenient: float) -> tuple[Bools, Bools, np.ndarray]:
    """Words and truth, (runs, models, docs), and inclusion probabilities, (runs, docs)."""
    docs = world.docs or world.labels
    truth = truths(rng, runs, docs, world.cluster, world.accuracies)
    said = judged(rng, truth, wrong_words(rng, runs, world, docs), lenient)
    return said, truth, drawn(rng, said, world.labels) if world.docs else np.ones((runs, docs))


def flagged(
    said: Bools, truth: Bools, probability: np.ndarray, cluster: int, *, first: bool = False
) -> Bools:
    """Whether the audit flags any rate of any model, or the specificity of the first: (runs,).

    It is `differential` as far as its first step, of many runs at once (tests/stats compares them).
    """
    models, docs = said.shape[1:]
    known = probability > 0
    weight = np.where(known, 1 / np.where(known, probability, 1.0), 0.0)[:, None]
    found, errors = [], []
    for right in RATES.values():
        kind = truth == right
        mean = (weight * kind).sum(axis=(1, 2)) / (known[:, None] & kind).sum(axis=(1, 2))
        scaled = weight / mean[:, None, None]
        starts = np.arange(0, docs, cluster)
        wrong = np.add.reduceat(scaled * (kind & (said != truth)), starts, axis=2)
        found.append(p_values(wrong, np.add.reduceat(scaled * kind, starts, axis=2)))
        errors.append(wrong.sum(axis=(1, 2)))
    p = np.stack(found, axis=1)
    tests = models if models > 2 else 1
    by_rate = tests * p.min(axis=2) <= ALPHA * shares(np.stack(errors, axis=1))
    if first:
        return by_rate[:, 1] & (p[:, 1].argmin(axis=1) == 0)
    return by_rate.any(axis=1)


def flag_rate(runs: int, world: World, lenient: float, seed: int = 0) -> float:
    """Share of runs in which a lenient judge is flagged for what it is, a fair one for anything."""
    found: list[Bools] = []
    for i in range(-(-runs // BATCH)):
        rng = np.random.default_rng([SEED, seed, i])
        seen = audited(rng, BATCH, world, lenient)
        found.append(flagged(*seen, world.cluster, first=lenient > 0))
    return float(np.mean(found))


def labelled(
    rng: Rng, docs: int, labels: int, cluster: int, error: float, lenient: float
) -> tuple[list[Labelled], np.ndarray]:
    """Two judged models of which a stratified sample is labelled, and what was true."""
    world = World(labels, cluster, (0.55, 0.5), error, docs)
    (said,), (truth,), (chance,) = audited(rng, 1, world, lenient)
    chosen = chance > 0
    # Where a doc was not drawn its own probability does not matter.
    probability = np.where(chosen, chance, 1.0)
    clusters = [i // cluster for i in range(docs)]
    return [
        Labelled(
            said[m].astype(float).tolist(),
            [float(truth[m, i]) if chosen[i] else None for i in range(docs)],
            probability.tolist(),
            clusters,
        )
        for m in (0, 1)
    ], truth


def coverage(runs: int, docs: int, labels: int, cluster: int, error: float, lenient: float,
             seed: int = 0) -> tuple[float, ...]:  # fmt: skip
    """Coverage of accuracy and of delta; widths: corrected, labels alone."""
    accuracies, hits = (0.55, 0.5), np.zeros(2)
    widths = np.zeros(2)
    for i in range(runs):
        rng = np.random.default_rng([SEED, seed, i])
        (a, b), _truth = labelled(rng, docs, labels, cluster, error, lenient)
        one, delta = corrected(a, unchecked=True), corrected_delta(a, b, unchecked=True)
        alone = corrected(a, power=0.0, unchecked=True)
        hits += [
            one.low <= accuracies[0] <= one.high,
            delta.low <= accuracies[0] - accuracies[1] <= delta.high,
        ]
        widths += [one.high - one.low, alone.high - alone.low]
    return (*(100 * hits / runs), *(widths / runs))


ERRORS = (0.0, 0.03, 0.05, 0.08)
GRID = [
    World(cluster=cluster, accuracies=(0.5,) * models) for models in (2, 4) for cluster in (1, 10)
]
LABELLED = [
    World(docs=docs, cluster=cluster, accuracies=(0.5,) * models)
    for models in (2, 4)
    for docs, cluster in ((1000, 1), (225, 1), (225, 15))
]
OTHER = [
    replace(world, accuracies=accuracies)
    for world in (World(), World(errors="doc"), World(cluster=10, errors="page"))
    for accuracies in ((0.6, 0.4), (0.4, 0.6), (0.3, 0.3), (0.9, 0.3), (0.3, 0.5, 0.6, 0.8))
]
NUMBERS = [
    *(World(labels, cluster) for cluster in (1, 10) for labels in (75, 100, 200, 250, 300)),
    *(World(labels, accuracies=(0.4, 0.6)) for labels in (200, 250, 300)),
    *(World(labels, 10, (0.4, 0.6), errors="page") for labels in (300, 400)),
    *(World(labels, accuracies=(0.3, 0.5, 0.6, 0.8)) for labels in (200, 300)),
    World(200, 10, (0.5,) * 4),
    *(World(200, 15, (0.5,) * models, docs=225) for models in (2, 4)),
]


def flags(title: str, worlds: list[World], runs: int, seed: int) -> None:
    """Print a table: how often a lenient judge is flagged, and one that is not."""
    print(f"### Flagged if 10 points lenient / if not (%): {title}\n")
    heads = [f"judge errs on {error:.0%}" for error in ERRORS]
    print(f"| labelled docs | shape | accuracies | errors fall | {' | '.join(heads)} |")
    print("| --- " * (4 + len(heads)) + "|")
    for world in worlds:
        cells: list[str] = []
        for error in ERRORS:
            seed += 1
            power, false = (
                100 * flag_rate(runs, replace(world, error=error), points, seed)
                for points in (POINTS, 0.0)
            )
            cells.append(f"{power:.1f} / {false:.1f}")
        docs = f"{world.labels} of {world.docs}" if world.docs else str(world.labels)
        accuracies = ", ".join(map(str, world.accuracies))
        print(
            f"| {docs} | {world.shape} | {accuracies} | {world.errors} | {' | '.join(cells)} |",
            flush=True,
        )
    print()


def main() -> None:
    scale = float(dict(a.split("=") for a in sys.argv[1:]).get("scale", 1))
    runs = round(2000 * scale)
    flags("both judges on all docs", GRID, runs, 0)
    flags("labels of docs that `label` draws", LABELLED, runs, 1000)
    flags("other accuracies and errors", OTHER, runs, 2000)
    flags("numbers of docs", NUMBERS, runs, 3000)
    print("### Accuracy and delta corrected by labels: coverage of 95% intervals (%)\n")
    print("| docs | labels | cluster | error | lenient | accuracy | delta | width | labels alone |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for number, (docs, labels, c, error, lenient) in enumerate(
        (docs, labels, c, error, lenient)
        for docs, c in ((1000, 1), (450, 15))
        for labels in (30, 50, 100, 200)
        for error, lenient in ((0.03, 0.0), (0.03, 0.1))
    ):
        accuracy, delta, width, alone = coverage(
            round(600 * scale), docs, labels, c, error, lenient, seed=number
        )
        print(
            f"| {docs} | {labels} | {c} | {error} | {lenient} | {accuracy:.1f} | {delta:.1f} |"
            f" {width:.3f} | {alone:.3f} |"
        )


if __name__ == "__main__":
    main()
