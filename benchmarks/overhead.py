"""What a rollout costs besides the model: the whole path with an engine that answers at once.

    python benchmarks/overhead.py [docs]

Each doc has five passages of 80 words in its prompt; each output is 200 tokens, whose ids are
stored. In the same run, as the reference: stock lm-eval with a model that answers at once, which
keeps no ids, no verdicts and no record until the end. The marginal cost is the slope between a
small and a large run, so imports and start-up are left out.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

OUTPUT_TOKENS = 200
PROMPT_TOKENS = 900

TASK = """
task: overhead
custom_dataset: !function overhead_rows.build
output_type: generate_until
test_split: test
doc_to_text: !function tasks.railway_demo.rows.doc_to_text
doc_to_target: !function tasks.railway_demo.rows.doc_to_target
process_results: !function tasks.railway_demo.rows.process_results
generation_kwargs: {do_sample: false, until: [], max_gen_toks: 256}
metric_list: [{metric: joint_accuracy, aggregation: mean, higher_is_better: true}]
metadata: {version: 1, about: x, board: overhead, scorer: rag, metric: joint_accuracy}
"""
ROWS = """
import os
import datasets
from tasks.railway_demo import rows
from harness.scoring.process import doc_to_row
import dataclasses

def build(**_):
    docs, _ = rows.build_docs("test", 5)
    made = [
        doc_to_row(dataclasses.replace(docs[i % len(docs)], id=f"d{i}"))
        for i in range(int(os.environ["OVERHEAD_DOCS"]))
    ]
    return {"test": datasets.Dataset.from_list(made)}
"""


class Instant:
    """Answers at once with 200 tokens."""

    fingerprint = "instant"
    capabilities = frozenset({"generate", "token_ids"})
    context_length = 1 << 20

    def __init__(self):
        from harness.schema import Completion

        text = "<answer> the train manager </answer>\n<page> 12 </page>"
        self.reply = Completion(
            text, tuple(range(PROMPT_TOKENS)), tuple(range(OUTPUT_TOKENS)), None, "stop", None,
            PROMPT_TOKENS, OUTPUT_TOKENS,
        )  # fmt: skip

    async def generate(self, prompt, sampling):
        return self.reply

    def close(self):
        pass


def ours(folder: Path, docs: int) -> float:
    import os

    from harness.evaluate import Settings, evaluate
    from harness.progress import Progress
    from harness.schema import Model

    os.environ["OVERHEAD_DOCS"] = str(docs)
    settings = Settings(
        tasks=("overhead",), out=folder / f"runs{docs}", tasks_folder=folder, window=64
    )
    started = time.perf_counter()
    result = evaluate(
        Model("instant", "scripted"), settings, engine=Instant(), progress=Progress(quiet=True)
    )
    spent = time.perf_counter() - started
    assert len(result.records[0].docs) == docs
    return spent


def stock(folder: Path, docs: int) -> float:
    import os

    from lm_eval.api.model import LM
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.tasks import TaskManager

    class Dummy(LM):
        def generate_until(self, requests):
            return ["<answer> the train manager </answer>\n<page> 12 </page>"] * len(requests)

        loglikelihood = loglikelihood_rolling = None

    os.environ["OVERHEAD_DOCS"] = str(docs)
    started = time.perf_counter()
    simple_evaluate(
        model=Dummy(),
        model_args={"pretrained": "dummy"},
        tasks=["overhead"],
        task_manager=TaskManager(include_path=[str(folder)], include_defaults=False),
        bootstrap_iters=0,
        log_samples=True,
    )
    return time.perf_counter() - started


def main() -> None:
    import logging
    import os

    os.environ.setdefault("TQDM_DISABLE", "1")
    large = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    small = max(large // 10, 1)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "overhead.yaml").write_text(TASK, encoding="utf-8")
        (folder / "overhead_rows.py").write_text(ROWS, encoding="utf-8")
        for label, run in (("checkrail, every id stored", ours), ("stock lm-eval", stock)):
            logging.getLogger("lm_eval").setLevel(logging.ERROR)
            run(folder, small)  # imports and caches
            for stale in folder.glob("runs*"):
                import shutil

                shutil.rmtree(stale)
            low, high = run(folder, small), run(folder, large)
            rows.append((label, low, high, 1000 * (high - low) / (large - small)))
    print(f"| path | {small} docs, s | {large} docs, s | marginal ms a doc |")
    print("|---|---|---|---|")
    for label, low, high, slope in rows:
        print(f"| {label} | {low:.2f} | {high:.2f} | {slope:.3f} |")
    print(f"\nratio {rows[0][3] / rows[1][3]:.2f}")


if __name__ == "__main__":
    main()
