"""A real model under stock lm-eval, imported, against our own run of the same weights."""

import dataclasses
import json

import pytest

from harness.engines.weights import resolve, safetensors_from_gguf
from harness.evaluate import Settings, evaluate
from harness.importing import import_predictions
from harness.models import load_model
from harness.progress import Progress
from harness.scoring import task_scorer
from harness.store import Store
from harness.task_loader import nested_order

TASK = "railway_demo_top1"
N = 8
NOT_IN_A_FILE = {"output_tokens", "degenerate"}
QUIET = Progress(quiet=True)


@pytest.mark.soak
def test_smollm2_under_stock_lm_eval_scores_as_in_our_own_run(tmp_path, capsys):
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    from harness import paths

    manager = TaskManager(include_path=[str(paths.TASKS)], include_defaults=False)
    rows = manager.load([TASK])["tasks"][TASK].test_docs()
    chosen = sorted(nested_order(TASK, [str(i) for i in rows["id"]])[:N])
    model = load_model("SmolLM2-135M")
    folder = safetensors_from_gguf(resolve(model))
    tracker = EvaluationTracker(output_path=str(tmp_path / "stock"))
    done = simple_evaluate(
        model="hf",
        model_args={"pretrained": str(folder), "dtype": "float32", "device": "cpu"},
        tasks=[TASK],
        task_manager=manager,
        samples={TASK: chosen},
        apply_chat_template=True,
        bootstrap_iters=0,
        log_samples=True,
        batch_size=1,
        evaluation_tracker=tracker,
    )
    samples = done.pop("samples")
    tracker.save_results_aggregated(results=done, samples=samples)
    tracker.save_results_samples(task_name=TASK, samples=samples[TASK])
    (file,) = (tmp_path / "stock").rglob("samples_*.jsonl")

    ours = evaluate(model, Settings(tasks=(TASK,), limit=N, out=tmp_path / "own"), progress=QUIET)
    theirs = import_predictions(
        file, TASK, "stock", partial=True, out=tmp_path / "stock", progress=QUIET
    )
    assert theirs.outcome.played == N
    prompt = theirs.records[0].info["imported"]["prompt"]
    logged = {r["doc"]["id"]: r for r in map(json.loads, file.read_text("utf-8").splitlines())}
    with Store.open(ours.run) as store:
        mine = {r.doc_id: r for r in store.records(TASK)}
    with Store.open(theirs.run) as store:
        docs = {d.doc.id: d.doc for d in store.docs(TASK)}
        imported = {r.doc_id: r for r in store.records(TASK, 10**9)}
    assert set(mine) == set(imported)
    scorer, same = task_scorer("rag"), 0
    for doc_id, other in imported.items():
        record = mine[doc_id]
        for metric in set(other.score.metrics) & set(logged[doc_id]["metrics"]):
            assert other.score.metrics[metric] == logged[doc_id][metric]
        if other.rollout.answer == record.rollout.answer:
            same += 1
            theirs_text = record.score
        else:  # another engine, another text: the same text must score the same
            text = dataclasses.replace(record.rollout, answer=other.rollout.answer, finish="stop")
            _, theirs_text = scorer.judge_and_score(docs[doc_id], text)
        told = {k: v for k, v in theirs_text.metrics.items() if k not in NOT_IN_A_FILE}
        assert dict(other.score.metrics) == told
    with capsys.disabled():
        print(f"\n{same} of {N} texts are the same in both; prompt: {prompt}")
