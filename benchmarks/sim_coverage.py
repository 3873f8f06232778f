"""Simulate the statistics: coverage of each interval, both errors of the gate, power at the MDE.

    python benchmarks/sim_coverage.py               # about 2 minutes on 2 cores
    python benchmarks/sim_coverage.py scale=0.1     # a glance

Data come from beta and Dirichlet clusters, not from the copula that `power` simulates with,
so the MDE is checked against a world it was not fitted to. Total intervals draw the docs'
probabilities afresh in every run; decoding-only intervals keep them. Output is Markdown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from harness.stats.gate import PASSING, verdict
from harness.stats.intervals import (
    clopper_pearson,
    estimate,
    macro_estimate,
    mid_p,
    variance_parts,
    wilson,
)
from harness.stats.paired import PairedResult, paired
from harness.stats.power import cluster_sizes, mde

Row = tuple[str, ...]
Rng = np.random.Generator
SEED = 7


def pages(clusters: int, size: int) -> list[int]:
    return [i // size for i in range(clusters * size)]


def page_scores(rng: Rng, mean: float, clusters: int, size: int, icc: float) -> np.ndarray:
    """0/1 scores whose page means are beta, so that docs of a page correlate by `icc`."""
    k = (1 - icc) / icc
    p = rng.beta(mean * k, (1 - mean) * k, size=clusters)
    return (rng.random((clusters, size)) < p[:, None]).astype(float).ravel()


def pair(
    rng: Rng, clusters: int, size: int, drop: float, discordance: float, icc: float
) -> tuple[np.ndarray, np.ndarray]:
    """Baseline and candidate; a page draws its rates of loss, gain, no change together."""
    lose, gain = discordance / 2 + drop, discordance / 2
    rates = np.array([lose, gain, 1 - lose - gain])
    if icc > 0:
        rates = rng.dirichlet(rates * (1 - icc) / icc, size=clusters)
    else:
        rates = np.broadcast_to(rates, (clusters, 3))
    u = rng.random((clusters, size))
    lost = u < rates[:, :1]
    gained = ~lost & (u < rates[:, :1] + rates[:, 1:2])
    same = (rng.random((clusters, size)) < 0.6).astype(float)
    base, cand = np.where(gained, 0.0, same), np.where(lost, 0.0, same)
    return np.where(lost, 1.0, base).ravel(), np.where(gained, 1.0, cand).ravel()


def repeats(rng: Rng, n: int, k: int, mean: float) -> np.ndarray:
    """N docs by k samples, docs differing much in difficulty."""
    return rng.binomial(1, rng.beta(mean, 1 - mean, size=n)[:, None], size=(n, k)).astype(float)


def cover(
    interval: Callable[[Rng], tuple[float | None, float | None]], truth: float, runs: int, seed: int
) -> tuple[float, float]:
    """Coverage in percent and mean width."""
    hits = width = 0.0
    for i in range(runs):
        low, high = interval(np.random.default_rng([SEED, seed, i]))
        assert low is not None and high is not None
        hits += low <= truth <= high
        width += high - low
    return 100 * hits / runs, width / runs


def ends(
    values: np.ndarray, clusters: list[int] | None = None
) -> tuple[float | None, float | None]:
    found = estimate(values, clusters)
    return found.low, found.high


def t_ends(x: np.ndarray) -> tuple[float, float]:
    from scipy.special import stdtrit

    half = stdtrit(x.size - 1, 0.975) * x.std(ddof=1) / x.size**0.5
    return x.mean() - half, x.mean() + half


def naive_ends(x: np.ndarray) -> tuple[float, float]:
    half = 1.96 * x.std(ddof=1) / x.size**0.5
    return x.mean() - half, x.mean() + half


def cr1_ends(x: np.ndarray, clusters: int) -> tuple[float, float]:
    """CR1 with t(G - 1) at every mean, for comparison with what `estimate` picks."""
    return t_ends(x.reshape(clusters, -1).mean(axis=1))


def exact_coverage(form: Callable[[int, int], tuple[float, float]], n: int) -> tuple[float, ...]:
    """Coverage over p = .02 ... .98, summed exactly: mean, floor, share of p in 93 to 97%."""
    from scipy.stats import binom

    grid, k = np.linspace(0.02, 0.98, 481), np.arange(n + 1)
    table = np.array([form(int(i), n) for i in k])
    covers = (table[:, :1] <= grid) & (grid <= table[:, 1:])
    rate = (covers * binom.pmf(k[:, None], n, grid)).sum(axis=0)
    inside = ((rate >= 0.93) & (rate <= 0.97)).mean()
    return 100 * rate.mean(), 100 * rate.min(), 100 * inside


def binary_job(name: str, n: int) -> Row:
    form = {"Wilson": wilson, "mid-P": mid_p, "Clopper-Pearson (conservative)": clopper_pearson}
    mean, floor, inside = exact_coverage(form[name], n)
    return name, str(n), f"{mean:.1f}", f"{floor:.1f}", f"{inside:.0f}"


def means_job(n: int, mean: float, runs: int) -> Row:
    def values(rng: Rng) -> np.ndarray:
        return repeats(rng, n, 16, mean).mean(axis=1)

    ours, width = cover(lambda rng: ends(values(rng)), mean, runs, 1)
    plain, _ = cover(lambda rng: t_ends(values(rng)), mean, 4 * runs, 1)
    return f"{n} x 16", f"{mean:g}", f"{ours:.1f}", f"{width:.3f}", f"{plain:.1f}"


def decoding_job(n: int, mean: float, runs: int) -> Row:
    p = np.random.default_rng(SEED).beta(2 * mean, 2 * (1 - mean), size=n)

    def interval(rng: Rng) -> tuple[float | None, float | None]:
        parts = variance_parts(rng.binomial(1, p[:, None], size=(n, 16)).tolist())
        return parts.decoding_low, parts.decoding_high

    rate, width = cover(interval, float(p.mean()), runs, 2)
    return f"{n} x 16", f"{mean:g}", f"{rate:.1f}", f"{width:.3f}"


def cluster_job(clusters: int, size: int, icc: float, mean: float, runs: int) -> Row:
    def values(rng: Rng) -> np.ndarray:
        return page_scores(rng, mean, clusters, size, icc)

    ids = pages(clusters, size)
    ours, width = cover(lambda rng: ends(values(rng), ids), mean, runs, 3)
    plain, _ = cover(lambda rng: cr1_ends(values(rng), clusters), mean, runs, 3)
    naive, _ = cover(lambda rng: naive_ends(values(rng)), mean, runs, 3)
    shape = f"{clusters} x {size}"
    return (
        shape,
        f"{icc:g}",
        f"{mean:g}",
        f"{ours:.1f}",
        f"{width:.3f}",
        f"{plain:.1f}",
        f"{naive:.1f}",
    )


def compare_runs(
    clusters: int, size: int, drop: float, discordance: float, icc: float, runs: int
) -> Iterator[PairedResult]:
    ids = pages(clusters, size) if size > 1 else None
    for i in range(runs):
        rng = np.random.default_rng([SEED, 4, i])
        yield paired(*pair(rng, clusters, size, drop, discordance, icc), ids)


def gate_job(
    clusters: int, size: int, discordance: float, icc: float, margin: float, runs: int
) -> Row:
    null = list(compare_runs(clusters, size, 0.0, discordance, icc, runs))
    edge = list(compare_runs(clusters, size, margin, discordance, icc, runs))
    alarm = sum(verdict(r, margin) == "regressed" for r in null)
    tests = sum(r.p_value is not None and r.p_value <= 0.05 for r in null)
    flips = sum(r.second_p is not None and r.second_p <= 0.05 for r in null)
    released, passed = (sum(verdict(r, margin) in PASSING for r in rs) for rs in (edge, null))
    covered = sum(
        r.low <= -margin <= r.high for r in edge if r.low is not None and r.high is not None
    )
    shape = f"{clusters} x {size}" if size > 1 else str(clusters)
    flip = f"{100 * flips / runs:.1f}" if size > 1 else ""
    figures = (tests, alarm, released, covered, passed)
    test, alarms, release, coverage, through = (f"{100 * x / runs:.1f}" for x in figures)
    return (
        shape,
        f"{discordance:g}",
        f"{icc:g}",
        f"{margin:g}",
        coverage,
        test,
        flip,
        alarms,
        release,
        through,
    )


def power_job(
    clusters: int, size: int, discordance: float, icc: float, tests: int, runs: int
) -> Row:
    n = clusters * size
    sizes = cluster_sizes(pages(clusters, size)) if size > 1 else None
    drop = mde(n, sizes, discordance, icc=icc, tests=tests)
    assert drop is not None
    shares = []
    for factor in (1.0, 1.5):
        results = compare_runs(clusters, size, factor * drop, discordance, icc, runs)
        called = sum(
            verdict(r, 0.0, p_adjusted=None if r.p_value is None else min(1.0, tests * r.p_value))
            == "regressed"
            for r in results
        )
        shares.append(f"{100 * called / runs:.1f}")
    shape = f"{clusters} x {size}" if size > 1 else str(n)
    return shape, f"{discordance:g}", f"{icc:g}", str(tests), f"{100 * drop:.1f}", *shares


def f1_pair_job(n: int, k: int, drop: float, runs: int) -> Row:
    """Means of k samples, both sides; a drop makes a random share of docs wrong for good."""
    counts = {"cover": 0, "test": 0, "low": 0}
    for i in range(runs):
        rng = np.random.default_rng([SEED, 5, i])
        p = rng.beta(0.5, 0.5, size=n)
        # Lost docs are drawn from all docs, so the true change is -drop * mean(p) = -drop / 2.
        q = np.where(rng.random(n) < drop, 0.0, p)
        r = paired(rng.binomial(k, p) / k, rng.binomial(k, q) / k)
        assert r.low is not None and r.high is not None and r.p_value is not None
        counts["cover"] += r.low <= -drop / 2 <= r.high
        counts["test"] += r.p_value <= 0.05
        counts["low"] += r.low > -drop / 2
    return f"{n} x {k}", f"{drop / 2:g}", *(f"{100 * c / runs:.1f}" for c in counts.values())


def unequal_job(sizes: tuple[int, ...], discordance: float, icc: float, runs: int) -> Row:
    """Clusters of unequal size: t on the effective number of clusters, and on t(G - 1)."""
    from scipy.special import stdtrit

    keep = np.concatenate([np.arange(max(sizes)) < m for m in sizes])
    ids = np.repeat(np.arange(len(sizes)), sizes).tolist()
    margin, alarm, released, plain = 0.03, 0, 0, 0
    for i in range(runs):
        for drop in (0.0, margin):
            rng = np.random.default_rng([SEED, 8, i])
            base, cand = pair(rng, len(sizes), max(sizes), drop, discordance, icc)
            r = paired(base[keep], cand[keep], ids)
            assert r.low is not None and r.p_value is not None
            if drop:
                released += r.low > -margin
                sums = np.bincount(ids, (cand - base)[keep] - r.delta)
                g = len(sizes)
                half = stdtrit(g - 1, 0.975) * (g / (g - 1) * sums @ sums) ** 0.5 / keep.sum()
                plain += r.delta - half > -margin
            else:
                alarm += r.p_value <= 0.05
    shares = (f"{100 * x / runs:.1f}" for x in (alarm, released, plain))
    return f"{sizes[0]}, {sizes[1]}, {len(sizes) - 2} x {sizes[-1]}", f"{discordance:g}", *shares


def strata_job(strata: int, size: int, runs: int) -> Row:
    """Fixed strata of known difficulty: with them in the variance, and without."""
    p = np.linspace(0.1, 0.9, strata).repeat(size)
    ids = pages(strata, size)

    def interval(rng: Rng, labels: list[int] | None) -> tuple[float | None, float | None]:
        found = estimate((rng.random(p.size) < p).astype(float), strata=labels)
        return found.low, found.high

    ours, width = cover(partial(interval, labels=ids), float(p.mean()), runs, 6)
    plain, wider = cover(partial(interval, labels=None), float(p.mean()), runs, 6)
    shape = f"{strata} strata x {size}"
    return shape, f"{ours:.1f}", f"{width:.3f}", f"{plain:.1f}", f"{wider:.3f}"


def joint_job(clusters: int, size: int, icc: float, runs: int) -> Row:
    """Three tasks on the same docs (top-1, top-3, top-5): joint, and as if on separate docs."""
    from scipy.special import beta

    k, ids, powers = (1 - icc) / icc, pages(clusters, size), (1.5, 1.0, 0.7)
    a, b = 0.6 * k, 0.4 * k
    truth = float(np.mean([beta(a + x, b) / beta(a, b) for x in powers]))

    def interval(rng: Rng, joint: bool) -> tuple[float | None, float | None]:
        p, u = rng.beta(a, b, size=(clusters, 1)), rng.random((clusters, size))
        tasks = [(u < p**x).astype(float).ravel() for x in powers]
        labels = [ids if joint else [(t, i) for i in ids] for t in range(3)]
        found = macro_estimate(tasks, labels)
        return found.low, found.high

    ours, width = cover(partial(interval, joint=True), truth, runs, 7)
    apart, narrow = cover(partial(interval, joint=False), truth, runs, 7)
    return (
        f"{clusters} x {size} x 3",
        f"{ours:.1f}",
        f"{width:.3f}",
        f"{apart:.1f}",
        f"{narrow:.3f}",
    )


def sections(scale: float) -> list[tuple[str, Row, list[Callable[[], Row]]]]:
    def runs(full: int) -> int:
        return max(50, int(full * scale))

    flat = [(n, 1, 0.1, 0.0) for n in (30, 125, 500)]
    grouped = [(g, m, d, 0.2) for g, m in ((15, 15), (20, 5)) for d in (0.05, 0.1, 0.2)]
    wide = 950, 1, 0.1, 0.0
    return [
        (
            "Binary, independent docs: coverage over p = .02 to .98, summed exactly (%)",
            ("form", "n", "mean", "floor", "share of p at 93 to 97"),
            [
                partial(binary_job, name, n)
                for name in ("Wilson", "mid-P", "Clopper-Pearson (conservative)")
                for n in (30, 125, 500)
            ],
        ),
        (
            "Means of 16 samples, total interval (%)",
            ("docs", "mean", "coverage", "width", "plain t"),
            [
                partial(means_job, n, mean, runs(1000))
                for n in (30, 125)
                for mean in (0.02, 0.09, 0.3, 0.5, 0.91)
            ],
        ),
        (
            "Means of 16 samples, decoding-only interval, docs kept (%)",
            ("docs", "mean", "coverage", "width"),
            [partial(decoding_job, 30, mean, runs(2000)) for mean in (0.1, 0.5, 0.9)],
        ),
        (
            "Clusters: 0/1 scores (%)",
            ("shape", "ICC", "mean", "coverage", "width", "plain CR1 t", "ignoring clusters"),
            [
                partial(cluster_job, g, m, icc, mean, runs(3000))
                for g, m in ((15, 15), (20, 5))
                for icc in (0.1, 0.2)
                for mean in (0.02, 0.1, 0.3, 0.5, 0.9)
            ],
        ),
        (
            "Fixed strata, and three tasks on the same clusters (%)",
            ("shape", "coverage", "width", "taken as independent", "width"),
            [
                partial(strata_job, 20, 10, runs(3000)),
                partial(strata_job, 50, 2, runs(3000)),
                partial(joint_job, 15, 15, 0.2, runs(3000)),
                partial(joint_job, 20, 5, 0.2, runs(3000)),
            ],
        ),
        (
            "Gate: both errors (%)",
            (
                "shape",
                "discordance",
                "ICC",
                "margin",
                "coverage at -margin",
                "type I",
                "sign-flip type I",
                "alarm if unchanged",
                "release at -margin",
                "released if unchanged",
            ),
            [partial(gate_job, *shape, 0.03, runs(4000)) for shape in (*flat, wide, *grouped)],
        ),
        (
            "Unequal clusters, ICC .2, margin .03 (%)",
            ("sizes", "discordance", "type I", "release at -margin", "release with t(G - 1)"),
            [
                partial(unequal_job, sizes, d, 0.2, runs(3000))
                for sizes in ((40, 20, *[3] * 12), (30, 20, *[10] * 10))
                for d in (0.1, 0.2)
            ],
        ),
        (
            "Power at the MDE (%)",
            ("shape", "discordance", "ICC", "tests", "MDE, points", "power at 1.0", "at 1.5"),
            [
                partial(power_job, *shape, tests, runs(2000))
                for shape in (*flat, *grouped)
                for tests in (1, 5)
            ],
        ),
        (
            "Means of samples, paired t (%): coverage, rejections, lower end above the true change",
            ("docs", "true drop", "coverage", "test rejects", "low too high"),
            [
                partial(f1_pair_job, n, 16, drop, runs(4000))
                for n in (30, 125)
                for drop in (0.0, 0.06, 0.2)
            ],
        ),
    ]


def call(job: Callable[[], Row]) -> Row:
    return job()


def main(arguments: list[str]) -> None:
    options: dict[str, Any] = dict(a.split("=", 1) for a in arguments)
    plan = sections(float(options.get("scale", 1)))
    with ProcessPoolExecutor(int(options.get("workers", 2))) as pool:
        pending = [
            (title, head, [pool.submit(call, job) for job in jobs]) for title, head, jobs in plan
        ]
        for title, head, jobs in pending:
            print(f"\n{title}\n\n| {' | '.join(head)} |\n|{' --- |' * len(head)}")
            for job in jobs:
                print(f"| {' | '.join(job.result())} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
