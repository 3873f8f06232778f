"""Steps of SFT on a CPU: what `trainers/cpu.py` brings, side by side in one run.

    python benchmarks/train_steps.py steps=4     # about 5 minutes on two cores

The recipe railway_demo_sft, its first steps, each form in a process of its own:

    plain      float32, as TRL trains by itself on a CPU
    fitted     float32, with masked positions left out and freed memory kept
    bfloat16   the same with matrix products in bfloat16: what the recipe does
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

FORMS = ("plain", "fitted", "bfloat16")


def measure(form: str, steps: int) -> None:
    """Print seconds a step and the peak of memory of one form."""
    from harness import paths
    from harness.models import load_model
    from harness.progress import Progress
    from trainers import trl_adapter
    from trainers.data import examples
    from trainers.recipe import load_recipe

    recipe = load_recipe("railway_demo_sft")
    hyper = replace(recipe.hyper, dtype="bfloat16" if form == "bfloat16" else "float32")
    recipe = replace(recipe, hyper=hyper)
    if form == "plain":
        trl_adapter.fitted = lambda dtype: contextlib.nullcontext()
    model = load_model(recipe.base, paths.BASELINES)
    with tempfile.TemporaryDirectory() as folder:
        progress = Progress(quiet=True)
        job = trl_adapter.Job(recipe, model, Path(folder), progress, steps)
        trl_adapter.train_sft(job, examples(recipe, None))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{progress.seconds['steps'] / steps:.2f} {peak:.1f}")


def main() -> None:
    """Measure every form and print the table."""
    from tabulate import tabulate

    steps = int(dict(a.split("=") for a in sys.argv[1:]).get("steps", 4))
    rows: list[tuple[str, float, float]] = []
    for form in FORMS:
        done = subprocess.run(
            [sys.executable, __file__, form, str(steps)],
            capture_output=True, text=True, check=True, env=os.environ,
        )  # fmt: skip
        seconds, peak = map(float, done.stdout.split()[-2:])
        rows.append((form, seconds, peak))
    table = [(f, s, round(s / rows[0][1], 2), p) for f, s, p in rows]
    headers = ("form", "s a step", "ratio to plain", "peak GiB")
    print(tabulate(table, headers, tablefmt="github"))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in FORMS:
        measure(sys.argv[1], int(sys.argv[2]))
    else:
        main()
