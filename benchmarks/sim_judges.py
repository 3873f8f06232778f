"""Simulate the audit of judges and the correction by labels.

    python benchmarks/sim_judges.py                  # 1,000 runs a row
    python benchmarks/sim_judges.py scale=0.1        # a glance

Two models answer the same docs; a doc is harder or easier for both. The judge errs on 3 or 5% of
outputs of either kind. Lenient by 10 points to one model means that 10% of all its outputs are
wrong and called right on top of that: its row on a board is 10 points too high. Output is Markdown.
"""

from __future__ import annotations

import sys

import numpy as np

from harness.stats.agreement import Judged, differential
from harness.stats.ppi import Labelled, corrected, corrected_delta

Rng = np.random.Generator
SEED = 11


def truths(rng: Rng, docs: int, cluster: int, accuracies: tuple[float, ...]) -> np.ndarray:
    """Right or not: (models, docs). Docs of a cluster share half of a doc's difficulty."""
    from scipy.special import ndtri

    page = np.repeat(rng.normal(size=-(-docs // cluster)), cluster)[:docs]
    share = 0.2 if cluster > 1 else 0.0
    doc = share**0.5 * page + (0.5 - share) ** 0.5 * rng.normal(size=docs)
    own = 0.5**0.5 * rng.normal(size=(len(accuracies), docs))
    return (doc + own) < ndtri(np.array(accuracies))[:, None]


def judged(rng: Rng, truth: np.ndarray, error: float, lenient: float) -> np.ndarray:
    """The judge's word on one model: `lenient` is a share of all outputs, wrong ones."""
    said = np.where(rng.random(truth.size) < error, ~truth, truth)
    share = min(1.0, lenient / max(1e-9, float((~truth).mean())))
    return said | (~truth & (rng.random(truth.size) < share))


def flagged(
    rng: Rng, docs: int, cluster: int, accuracies: tuple[float, ...], error: float, lenient: float
) -> bool:
    """Whether the audit flags a rate of a judge that is lenient to the first model."""
    truth = truths(rng, docs, cluster, accuracies)
    clusters = [i // cluster for i in range(docs)]
    models = {
        str(m): Judged(
            judged(rng, truth[m], error, lenient if m == 0 else 0.0).tolist(),
            truth[m].tolist(),
            clusters,
        )
        for m in range(len(accuracies))
    }
    return any(d.flagged for d in differential(models))


def flag_rate(runs: int, *world: object, seed: int = 0) -> float:
    return float(
        np.mean([flagged(np.random.default_rng([SEED, seed, i]), *world) for i in range(runs)])  # type: ignore[arg-type]
    )


def labelled(
    rng: Rng, docs: int, labels: int, cluster: int, error: float, lenient: float
) -> tuple[list[Labelled], np.ndarray]:
    """Two judged models of which a stratified sample is labelled, and what was true."""
    truth = truths(rng, docs, cluster, (0.55, 0.5))
    said = np.stack([judged(rng, truth[m], error, lenient * (m == 0)) for m in (0, 1)])
    stratum = said[0] * 2 + said[1]
    probability = np.zeros(docs)
    chosen = np.zeros(docs, dtype=bool)
    for s in np.unique(stratum):
        where = np.flatnonzero(stratum == s)
        size = min(where.size, max(2, round(labels * where.size / docs)))
        probability[where] = size / where.size
        chosen[rng.choice(where, size, replace=False)] = True
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


def main() -> None:
    scale = float(dict(a.split("=") for a in sys.argv[1:]).get("scale", 1))
    runs = round(1000 * scale)
    print("### A judge 10 points lenient to one of two models, flagged (%)\n")
    print(
        "| labels a model | shape | accuracies | judge error | flagged | flagged if not lenient |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    worlds = [
        (75, 1, (0.5, 0.5), 0.03),
        (150, 1, (0.5, 0.5), 0.03),
        (150, 1, (0.5, 0.5), 0.05),
        (150, 1, (0.6, 0.4), 0.03),
        (150, 1, (0.3, 0.3), 0.03),
        (150, 10, (0.5, 0.5), 0.03),
    ]
    for number, (n, c, acc, error) in enumerate(worlds):
        power = 100 * flag_rate(runs, n, c, acc, error, 0.1, seed=number)
        false = 100 * flag_rate(runs, n, c, acc, error, 0.0, seed=number)
        shape = "independent" if c == 1 else f"{n // c} x {c}"
        print(
            f"| {n} | {shape} | {acc[0]}, {acc[1]} | {error} | {power:.1f} | {false:.1f} |",
            flush=True,
        )
    print("\n### Accuracy and delta corrected by labels: coverage of 95% intervals (%)\n")
    print("| docs | labels | cluster | error | lenient | accuracy | delta | width | labels alone |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for number, (docs, labels, c, error, lenient) in enumerate(
        (docs, labels, c, error, lenient)
        for docs, c in ((1000, 1), (450, 15))
        for labels in (30, 50, 100, 200)
        for error, lenient in ((0.03, 0.0), (0.03, 0.1))
    ):
        accuracy, delta, width, alone = coverage(runs, docs, labels, c, error, lenient, seed=number)
        print(
            f"| {docs} | {labels} | {c} | {error} | {lenient} | {accuracy:.1f} | {delta:.1f} |"
            f" {width:.3f} | {alone:.3f} |"
        )


if __name__ == "__main__":
    main()
