"""Multiple choice by log-likelihood: one rollout a doc, stored, resumed and scored."""

import dataclasses
import json
from pathlib import Path

import pytest

from harness.engines.scripted import ScriptedEngine
from harness.errors import UsageError
from harness.evaluate import Settings, evaluate
from harness.lm import HarnessLM
from harness.planning import check_capabilities
from harness.progress import Progress
from harness.schema import LogLikelihood, Message, Model, PolicyConfig, Sampling
from harness.store import Store
from tests.example_choice.rows import WORDS, docs

FOLDER = Path(__file__).parent / "example_choice"
MODEL = Model("scripted", "scripted", tasks=("example_choice",))
GOLD = {d.question: d.targets[0] for d in docs()}


def knows(context, continuation):
    """Log-likelihoods of a model that knows every answer, but likes short ones."""
    question = context.partition("Question: ")[2].partition("\n")[0]
    right = continuation.strip() == GOLD[question]
    return (-1.0 if right else -1.5 - len(continuation)), right


def run(tmp_path, likelihood=knows, model=MODEL, fail_every=0, **settings):
    engine = ScriptedEngine({}, likelihood=likelihood, fail_every=fail_every)
    settings = Settings(out=tmp_path, tasks_folder=FOLDER, **settings)
    return evaluate(model, settings, engine=engine, progress=Progress(quiet=True)), engine


def rollouts(result):
    with Store.open(result.run) as store:
        return {r.doc_id: r.rollout for r in store.records("example_choice")}


def test_the_choices_of_a_doc_are_one_request_and_one_record(tmp_path):
    result, engine = run(tmp_path)
    assert engine.calls == 12
    stored = rollouts(result)
    assert {len(r.choices) for r in stored.values()} == {3}
    assert stored["colour-1"].choices == (-4.5, -1.0, -12.5)
    assert stored["colour-1"].answer == "yellow"
    assert result.complete


def test_our_mean_is_lm_evals(tmp_path):
    def likelihood(context, continuation):
        return -float(sum(map(ord, context + continuation)) % 97) - 1, False

    result, _ = run(tmp_path, likelihood)
    for metric in ("accuracy", "accuracy_norm"):
        (records,) = result.records
        ours = sum(d.mean(metric) for d in records.docs) / 12
        assert result.lm_eval["example_choice"][f"{metric},none"] == pytest.approx(ours)
        assert 0 < ours < 1


def test_the_likelihood_per_character_favours_long_choices(tmp_path):
    result, _ = run(tmp_path, lambda context, text: (-5.0 - 0.1 * len(text), False))
    (records,) = result.records
    docs_by_id = {d.doc_id: d for d in records.docs}
    assert docs_by_id["colour-0"].mean("accuracy") == 1.0  # the shortest, "red"
    assert docs_by_id["colour-0"].mean("accuracy_norm") == 0.0
    assert docs_by_id["colour-2"].mean("accuracy_norm") == 1.0  # the longest, "ultramarine"


def test_a_finished_run_asks_nothing_and_a_failed_one_asks_for_the_rest(tmp_path):
    broken, _ = run(tmp_path, fail_every=3)
    assert broken.outcome.failed == 4
    assert not broken.complete
    assert broken.lm_eval["example_choice"]["accuracy,none"] == 1.0  # of those that were played
    whole, engine = run(tmp_path)
    assert (whole.complete, engine.calls) == (True, 4)
    again, engine = run(tmp_path)
    assert (again.outcome.reused, engine.calls) == (12, 0)


def test_a_new_scorer_rescores_without_a_model(tmp_path, monkeypatch):
    from harness.scoring import choice

    run(tmp_path, limit=3)
    monkeypatch.setattr(choice, "VERSION", 99)
    again, engine = run(tmp_path, limit=3)
    assert (again.outcome.rescored, engine.calls) == (3, 0)


def test_a_chat_gets_the_bare_choices_and_a_base_model_a_space_before_them(tmp_path):
    seen = []

    def likelihood(context, continuation):
        seen.append((context, continuation))
        return -1.0, False

    run(tmp_path / "chat", likelihood, limit=1)
    (context, choice), *_ = seen
    assert context.startswith("user: Question:") and context.endswith("Answer:\nassistant: ")
    assert choice == "red"
    seen.clear()
    plain = dataclasses.replace(MODEL, chat_template="none")
    result, _ = run(tmp_path / "plain", likelihood, plain, limit=1)
    with Store.open(result.run) as store:
        (doc,) = store.docs("example_choice")
    assert doc.messages == (Message("user", doc.messages[0].content),)
    assert doc.messages[0].content == f"Question: {doc.doc.question}\nAnswer:"
    assert [choice for _, choice in seen] == [f" {word}" for word in WORDS]


class Request:
    request_type = "loglikelihood"
    task_name = "example_choice"

    def __init__(self, number, idx, context=""):
        from harness.scoring.process import doc_to_row

        self.doc, self.idx = doc_to_row(docs()[number]), idx
        text = context or f"Question: {self.doc['question']}\nAnswer:"
        self.args = (json.dumps([["user", text]]), WORDS[idx])


@pytest.fixture
def lm(tmp_path):
    """A HarnessLM over a finished run of the example: nothing is left to play."""
    result, _ = run(tmp_path)
    with Store.create(result.run, {"run_id": result.run_id}) as store:
        info = store.tasks()["example_choice"].info
        from harness.scoring import task_scorer
        from harness.task_plan import TaskPlan

        plan = TaskPlan(
            "example_choice", info, "choice", {}, Sampling(), task_scorer("choice"), 1, 12, 12
        )
        driver = None
        yield HarnessLM(store, {plan.name: plan}, lambda: driver, Progress(quiet=True))


def test_requests_may_come_in_any_order(lm):
    order = [(n, i) for i in (2, 0, 1) for n in reversed(range(12))]
    answers = lm.loglikelihood([Request(n, i) for n, i in order])
    expected = [knows(f"Question: {docs()[n].question}\n", WORDS[i]) for n, i in order]
    assert [tuple(a) for a in answers] == expected
    assert {len(a.rollout.choices) for a in answers} == {3}


def test_choices_with_different_prompts_are_refused_in_one_line(lm):
    requests = [Request(0, 0), Request(0, 1, "another prompt")]
    with pytest.raises(UsageError, match="choices have different prompts"):
        lm.loglikelihood(requests)


def test_an_engine_without_log_likelihoods_is_refused_before_a_sample_is_played(tmp_path):
    engine = ScriptedEngine({})
    engine.capabilities = frozenset({"generate"})
    settings = Settings(out=tmp_path, tasks_folder=FOLDER)
    model = dataclasses.replace(MODEL, engine="llamacpp")
    with pytest.raises(UsageError, match=r"needs loglikelihood, .* 'llamacpp' .* engine=hf"):
        evaluate(model, settings, engine=engine, progress=Progress(quiet=True))
    assert engine.calls == 0
    check_capabilities(model, engine, ())


def test_a_generating_policy_cannot_play_a_likelihood_task(tmp_path):
    with pytest.raises(UsageError, match="asks for log-likelihoods: policy 'single_turn'"):
        run(tmp_path, policy="single_turn")


def test_a_card_s_own_policy_does_not_stand_in_the_way(tmp_path):
    result, _ = run(tmp_path, model=dataclasses.replace(MODEL, policy="single_turn"))
    assert result.complete


def test_the_policy_asks_once_and_takes_the_first_of_equals():
    from harness.rollouts.choice import choice

    messages = (Message("user", "q"),)
    config = PolicyConfig(messages, Sampling(thinking=False), choices=(" a", " b", " c"))
    steps = choice(docs()[0], config)
    assert next(steps) == LogLikelihood(messages, (" a", " b", " c"), False)
    with pytest.raises(StopIteration) as stop:
        steps.send([(-2.0, False), (-1.0, True), (-1.0, False)])
    assert stop.value.value.answer == "b"
    assert stop.value.value.choices == (-2.0, -1.0, -1.0)


def test_a_likelihood_that_is_no_number_is_a_failure_and_no_score(tmp_path):
    result, _ = run(tmp_path, lambda context, text: (float("nan"), False), limit=2)
    assert result.outcome.failed == 2
    assert "no finite number" in result.outcome.error


def test_stock_results_are_scored_without_a_rollout():
    from tests.example_choice.rows import process_results

    row = Request(1, 0).doc
    assert process_results(row, [(-3.0, False), (-1.0, True), (-2.0, False)])["accuracy"] == 1.0
    assert process_results(row, [(-1.0, True), (-3.0, False), (-2.0, False)])["accuracy"] == 0.0
