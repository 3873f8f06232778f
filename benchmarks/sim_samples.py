"""Simulate several samples a question: coverage of pass@1, pass@k and the decoding interval.

    python benchmarks/sim_samples.py               # about 2 minutes
    python benchmarks/sim_samples.py scale=0.1

30 questions with 16 samples each, as AIME has them. A question's chance of a right sample is
drawn from a beta distribution: anew in each run for the total interval, once for all runs for
the decoding interval, whose truth is the mean chance of those very questions. `U` is
beta(mean, 1 - mean), most questions easy or hopeless; `flat` is beta(4 mean, 4 (1 - mean)).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from harness.stats.intervals import Estimate
from harness.stats.repeated import Repeated, repeated

SEED = 11
QUESTIONS, SAMPLES = 30, 16
KS = (1, 4, 16)
SHAPES = {"U": 1.0, "flat": 4.0}


def draw(rng: np.random.Generator, p: np.ndarray) -> Repeated:
    right = rng.binomial(1, p[:, None], size=(p.size, SAMPLES))
    return repeated(right.tolist(), ks=KS)


def covers(found: Estimate, truth: float) -> bool:
    return found.low is not None and found.high is not None and found.low <= truth <= found.high


def row(shape: str, mean: float, runs: int) -> list[str]:
    weight = SHAPES[shape]
    a, b = weight * mean, weight * (1 - mean)
    many = np.random.default_rng(SEED).beta(a, b, size=400_000)
    truth = {k: float((1 - (1 - many) ** k).mean()) for k in KS} | {1: mean}
    fixed = np.random.default_rng([SEED, 1]).beta(a, b, size=QUESTIONS)
    hits = dict.fromkeys(KS, 0)
    decoding = kept = 0
    widths = np.zeros(2)
    for i in range(runs):
        rng = np.random.default_rng([SEED, 2, i])
        fresh = draw(rng, rng.beta(a, b, size=QUESTIONS))
        for k in KS:
            hits[k] += covers(fresh.pass_at[k], truth[k])
        parts = draw(rng, fixed).parts
        total = fresh.parts.total
        assert total.low is not None and total.high is not None
        widths[0] += total.high - total.low
        if parts.decoding_low is not None and parts.decoding_high is not None:
            kept += 1
            decoding += parts.decoding_low <= fixed.mean() <= parts.decoding_high
            widths[1] += parts.decoding_high - parts.decoding_low
    shares = [f"{100 * hits[k] / runs:.1f}" for k in KS]
    return [
        shape, f"{mean:g}", shares[0], f"{widths[0] / runs:.3f}", f"{100 * decoding / kept:.1f}",
        f"{widths[1] / kept:.3f}", *shares[1:],
    ]  # fmt: skip


def main(arguments: list[str]) -> None:
    options: dict[str, Any] = dict(a.split("=", 1) for a in arguments)
    runs = max(50, int(2000 * float(options.get("scale", 1))))
    head = ["shape", "mean", "pass@1, total", "width", "pass@1, decoding", "width",
            *[f"pass@{k}" for k in KS[1:]]]  # fmt: skip
    print(f"\n{QUESTIONS} x {SAMPLES}: coverage of 95% intervals (%), {runs} runs a row\n")
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for shape in SHAPES:
        for mean in (0.1, 0.3, 0.5, 0.7, 0.9):
            print(f"| {' | '.join(row(shape, mean, runs))} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
