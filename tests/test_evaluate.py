"""The whole path with a scripted engine: lm-eval, driver, store, scoring, resume."""

import dataclasses

import pytest

from harness import paths
from harness.catalog import catalog
from harness.engines.scripted import ScriptedEngine
from harness.evaluate import Settings, evaluate
from harness.progress import Progress
from harness.schema import Model
from harness.store import Store
from tasks.railway_demo import rows

MODEL = Model("scripted", "scripted", tasks=("railway_demo_top1",))
QUIET = Progress(quiet=True)


def gold():
    docs, _ = rows.build_docs("test", 5)
    return {d.question: rows.doc_to_target(rows.doc_to_row(d)) for d in docs}


def run(tmp_path, replies=None, model=MODEL, *, fail_every=0, **settings):
    engine = ScriptedEngine(replies or gold(), fail_every=fail_every)
    result = evaluate(
        model, Settings(out=tmp_path, **settings), engine=engine, progress=Progress(quiet=True)
    )
    return result, engine


def keys(result):
    return [(r.task, d.doc_id, s.repeat) for r in result.records for d in r.docs for s in d.samples]


def test_every_tasks_own_gold_answers_score_one(tmp_path):
    for name, entry in catalog(paths.TASKS).items():
        if entry.members or entry.metadata.get("dataset"):
            continue
        result, _ = run(tmp_path, tasks=(name,))
        (records,) = result.records
        assert records.missing == 0
        for doc in records.docs:
            (sample,) = doc.samples
            metrics = sample.metrics
            assert metrics["joint_accuracy"] == 1.0, doc.doc_id
            assert metrics["format_accuracy"] == 1.0
            assert metrics["degenerate"] == 0.0
            assert sample.reasons == ()


def test_our_means_are_lm_evals_means(tmp_path):
    answers = gold()
    wrong = {q: "nonsense" if i % 3 else a for i, (q, a) in enumerate(answers.items())}
    result, _ = run(tmp_path, wrong)
    (records,) = result.records
    for metric in ("joint_accuracy", "format_accuracy", "page_accuracy", "answer_accuracy"):
        ours = sum(d.mean(metric) for d in records.docs) / len(records.docs)
        theirs = result.lm_eval["railway_demo_top1"][f"{metric},none"]
        assert ours == pytest.approx(theirs)


def test_a_finished_run_opens_no_engine(tmp_path):
    first, _ = run(tmp_path, limit=5)
    again, engine = run(tmp_path, limit=5)
    assert engine.calls == 0
    assert again.outcome.reused == 5
    assert keys(again) == keys(first)


def test_another_limit_or_task_list_reuses_what_is_there(tmp_path):
    run(tmp_path, limit=4)
    larger, engine = run(tmp_path, limit=10)
    assert (larger.outcome.reused, engine.calls) == (4, 6)
    both, engine = run(tmp_path, limit=10, tasks=("railway_demo_top1", "railway_demo_top3"))
    assert (both.outcome.reused, engine.calls) == (10, 10)
    assert both.run == larger.run


def test_a_smaller_limit_is_contained_in_a_larger_one(tmp_path):
    small, _ = run(tmp_path, limit=7)
    large, _ = run(tmp_path, limit=20)
    assert keys(large)[:7] == keys(small)
    first_pages = {f"demo-test-p{p:02d}" for p in (2, 5)}
    assert {d.doc_id.rsplit("-", 1)[0] for d in small.records[0].docs} - first_pages


def test_failures_leave_samples_missing_and_the_same_call_completes_them(tmp_path):
    broken, _ = run(tmp_path, limit=10, fail_every=3)
    assert not broken.complete
    assert broken.outcome.failed == broken.records[0].missing > 0
    whole, engine = run(tmp_path, limit=10)
    assert whole.complete
    assert engine.calls == broken.outcome.failed
    assert whole.records[0].docs[0].mean("joint_accuracy") == 1.0


def test_repeats_have_records_and_seeds_of_their_own(tmp_path):
    seen = []

    def reply(prompt, sampling):
        seen.append(sampling.seed)
        return "x"

    result, _ = run(tmp_path, reply, limit=3, repeats=4, sampling={"temperature": 0.7})
    assert len(set(keys(result))) == 12
    assert len(set(seen)) == 12


def test_the_raw_output_and_its_tokens_are_kept(tmp_path):
    result, _ = run(tmp_path, {"": "<think>no</think> anything"}, limit=1)
    with Store.open(result.run) as store:
        (record,) = store.records("railway_demo_top1")
    (turn,) = record.rollout.turns
    assert turn.text == "<think>no</think> anything"
    assert len(turn.token_ids) == record.rollout.completion_tokens
    assert turn.prompt_ids


def test_a_run_with_other_sampling_is_another_run_and_off_protocol(tmp_path):
    plain, _ = run(tmp_path, limit=2)
    warm, _ = run(tmp_path, limit=2, sampling={"temperature": 0.5})
    assert plain.run_id != warm.run_id
    assert warm.records[0].info["off_protocol"] == ["temperature"]
    assert plain.records[0].info["off_protocol"] == []


def test_the_card_fills_only_what_the_protocol_leaves_open(tmp_path):
    model = dataclasses.replace(MODEL, sampling={"temperature": 0.9, "top_k": 7})
    used = []

    def reply(prompt, sampling):
        used.append(sampling)
        return "x"

    run(tmp_path, reply, model, limit=1)
    assert used[0].temperature == 0.0
    assert used[0].top_k == 7


def test_fresh_starts_over_and_keeps_the_old_run(tmp_path):
    first, _ = run(tmp_path, limit=2)
    second, engine = run(tmp_path, limit=2, fresh=True)
    assert engine.calls == 2
    assert second.run == first.run
    assert len(list(tmp_path.glob("*.old1"))) == 1


def test_a_new_scorer_rescores_what_is_stored_without_a_model(tmp_path, monkeypatch):
    from harness.scoring import rag

    run(tmp_path, limit=3)
    monkeypatch.setattr(rag, "VERSION", 99)
    again, engine = run(tmp_path, limit=3)
    assert engine.calls == 0
    assert again.outcome.rescored == 3
    assert "rag@99" in again.records[0].fingerprints["scorer"]


def test_every_document_reaches_the_prompt_and_nothing_of_it_is_a_placeholder(tmp_path):
    _, engine = run(tmp_path, limit=1, tasks=("railway_demo_top5",))
    (prompt,) = engine.prompts
    assert prompt.count("Reference document ") == 5 + 3  # five retrieved, three in the example
    assert "{question}" not in prompt
    assert "{documents}" not in prompt


def test_a_question_full_of_braces_changes_nothing_else():
    row = {"question": "{documents} {question}", "passages": [{"page": 1, "text": "{question}"}]}
    text = rows.doc_to_text(row)
    assert "Question: {documents} {question}" in text
    assert text.count("on page 1:\n{question}") == 1
