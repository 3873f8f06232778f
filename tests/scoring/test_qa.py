"""Short-answer metrics by hand, by property, and on the predictions that were published."""

import csv
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data import locate
from harness.schema import Doc, Passage, Rollout, Turn, Verdict
from harness.scoring import task_scorer
from harness.scoring.answers import extract
from harness.scoring.normal import VARIANTS
from harness.scoring.qa import MATCHES, REASONS, cem_bag, cem_substring, em, f1, score
from tests import strategies

words = st.lists(
    st.sampled_from(["the", "a", "yes", "no", "paris", "Lyon", "U.S.", "1,000", ""]), max_size=5
)
answers = words.map(" ".join)
forms = st.sampled_from(sorted(VARIANTS))


def rollout(answer, turns=(), **fields):
    return Rollout("q", 0, tuple(turns), answer, **fields)


def doc(*targets, passages=(), **meta):
    return Doc("q", "?", targets, passages, meta=meta)


# --- by hand --------------------------------------------------------------------------------


def test_the_two_cover_matches_differ_both_ways():
    assert cem_bag("Obama, Barack", ["Barack Obama"]) == 1
    assert cem_substring("Obama, Barack", ["Barack Obama"]) == 0
    assert cem_bag("mil", ["l"]) == 0
    assert cem_substring("mil", ["l"]) == 1


def test_f1_counts_words_as_often_as_they_stand():
    assert f1("new york new york", ["new york"]) == pytest.approx(2 * 2 / 6)
    assert f1("1 March 1990", ["1990"]) == pytest.approx(2 * 1 / 4)


def test_a_closed_answer_is_all_or_nothing_where_the_form_has_closed_answers():
    assert f1("no evidence", ["no"], "r1_searcher") == f1("no evidence", ["no"], "hotpotqa") == 0
    assert f1("no evidence", ["no"], "squad") == pytest.approx(2 / 3)
    assert f1("No.", ["no"], "hotpotqa") == 1


def test_the_best_target_counts():
    assert em("UK", ["United Kingdom", "UK"]) == f1("UK", ["United Kingdom", "UK"]) == 1


def test_a_target_of_articles_is_not_found_everywhere():
    assert em("", ["The The"]) == cem_bag("anything", ["The The"]) == 0
    assert cem_substring("anything", ["The The"]) == 0
    assert em("the the", ["The The"]) == cem_bag("The The (band)", ["The The"]) == 1


# --- by property ----------------------------------------------------------------------------


@given(answers, st.lists(answers, max_size=3), forms)
def test_metrics_lie_in_the_unit_interval_and_order(prediction, targets, form):
    values = {name: metric(prediction, targets, form) for name, metric in MATCHES.items()}
    assert all(0 <= v <= 1 for v in values.values())
    assert values["em"] <= values["f1"]
    assert values["em"] <= min(values["cem_bag"], values["cem_substring"])
    assert {values["em"], values["cem_bag"], values["cem_substring"]} <= {0.0, 1.0}


@given(answers, forms)
def test_a_target_is_its_own_best_answer(target, form):
    expected = 1.0 if target.strip() else 0.0
    assert {metric(target, [target], form) for metric in MATCHES.values()} == {expected}


@given(answers, st.lists(answers, min_size=1, max_size=3), answers, forms)
def test_a_further_target_never_lowers_a_metric(prediction, targets, another, form):
    for metric in MATCHES.values():
        assert metric(prediction, [*targets, another], form) >= metric(prediction, targets, form)


@given(strategies.docs, strategies.rollouts, st.lists(strategies.verdicts, max_size=2))
def test_the_scorer_takes_any_rollout(doc, rollout, verdicts):
    found = score(doc, rollout, verdicts)
    assert set(found.reasons) <= set(REASONS)
    assert all(v >= 0 for v in found.metrics.values())


# --- the scorer -----------------------------------------------------------------------------


def test_an_answer_between_tags_is_scored_with_its_searches_and_tokens():
    found = score(
        doc("Paris"),
        rollout("</think> <answer> Paris </answer>", searches=2, completion_tokens=40),
        (),
    )
    assert found.metrics == {
        "em": 1, "f1": 1, "cem_bag": 1, "cem_substring": 1, "searches": 2, "output_tokens": 40,
        "degenerate": 0,
    }  # fmt: skip
    assert found.reasons == ()


def test_a_missing_verdict_is_absent_and_a_given_one_counts():
    said = rollout("<answer>Paris</answer>")
    assert "acc_l" not in score(doc("Paris"), said, ()).metrics
    assert "acc_l" not in score(doc("Paris"), said, (Verdict("j", None),)).metrics
    right = Verdict("gpt-4o-mini", {"answer_correct": True})
    assert score(doc("Paris"), said, (Verdict("j", None), right)).metrics["acc_l"] == 1


def test_without_an_answer_every_match_is_zero_and_the_reason_says_why():
    for text, reason in (("Paris", "no_answer"), ("<answer>Paris", "unclosed_answer")):
        found = score(doc("Paris"), rollout(text), ())
        assert [found.metrics[m] for m in MATCHES] == [0, 0, 0, 0]
        assert found.reasons == (reason,)


def test_repeated_output_is_wrong_however_right_it_looks():
    loop = "The capital of France is the city of Paris. " * 30
    found = score(doc("Paris"), rollout(f"<answer>Paris</answer>{loop}"), ())
    assert found.metrics["em"] == 0
    assert found.metrics["degenerate"] == 1
    assert "repeated_output" in found.reasons


def test_an_infrastructure_failure_has_no_metric():
    assert score(doc("Paris"), rollout("", finish="error", error="lost"), ()).metrics == {}


def test_what_went_wrong_while_searching_is_among_the_reasons():
    ask = "<|begin_of_query|>capital  France<|end_of_query|>"
    given = "<|begin_of_documents|>\n(1)x\n<|end_of_documents|>"
    answer = "<answer>Paris</answer>"
    own = [Turn("model", given + answer)]
    asked = [Turn("model", ask), Turn("environment", given)]
    assert score(doc("Paris"), rollout(answer, own), ()).reasons == ("own_documents",)
    twice = [*asked, *asked, Turn("model", answer)]
    assert score(doc("Paris"), rollout(answer, twice), ()).reasons == ("repeated_query",)
    over = score(doc("Paris"), rollout("I don't know.", [*asked, Turn("model", "x" + ask)]), ())
    assert {"no_answer", "search_budget"} <= set(over.reasons)


def test_support_recall_counts_the_passages_that_the_environment_named():
    item = doc("x", support=["p1", "p2"], support_titles=["One", "Two"])
    answer = "<answer>x</answer>"

    def recall(*turns, item=item):
        return score(item, rollout(answer, turns), ()).metrics.get("support_recall")

    named = [
        Turn("environment", "", passages=("p1", "p9")),
        Turn("environment", "", passages=("p2",)),
    ]
    assert recall(named[0]) == 0.5
    assert recall(*named) == 1
    assert recall(Turn("environment", "(1)Two words")) == 0.5  # titles, where no ids are named
    assert recall() == 0
    shown = doc("x", passages=(Passage("p2", "t"),), support=["p1", "p2"])
    assert recall(item=shown) == 0.5
    assert recall(named[0], item=doc("x")) is None


def test_the_scorer_is_in_the_table_without_a_judge_of_its_own():
    scorer = task_scorer("qa")
    assert scorer.judge is None
    verdicts, found = scorer.judge_and_score(doc("Paris"), rollout("<answer>Paris</answer>"))
    assert verdicts == ()
    assert found is not None
    assert set(found.metrics) <= set(scorer.metrics)


# --- the predictions that were published ----------------------------------------------------

PUBLISHED = {  # recomputed with the published evaluation script: EM, F1, cover_em_1, _2, judge
    "hotpotqa_qwen": (500, 0.580, 0.7187, 0.654, 0.654, 0.750),
    "bamboogle_qwen": (125, 0.456, 0.5769, 0.528, 0.488, 0.544),
}
DOCUMENTS = re.compile(r"<\|begin_of_documents\|>.*?<\|end_of_documents\|>", re.DOTALL)


def predictions(name, data_root):
    path = locate("r1_searcher", f"eval_results/{name}.jsonl", data_root)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def peer_rows(data_root):
    """Qwen3-8B on 200 2WikiMultiHopQA questions, with F1 in SQuAD's form by their authors."""
    path = data_root / "peer_predictions" / "2wikimqa_200_samples_from_blend__qwen3-8b.csv"
    if not path.is_file():
        pytest.skip(f"{path.name} not at hand")
    with path.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["question"]]
    assert len(rows) == 200
    return rows


def means(scores):
    return tuple(
        sum(s.metrics[m] for s in scores) / len(scores)
        for m in ("em", "f1", "cem_bag", "cem_substring", "acc_l")
    )


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_published_predictions_give_the_published_figures(name, data_root):
    n, *figures = PUBLISHED[name]
    rows = predictions(name, data_root)
    scores = [
        score(
            doc(row["answer"]),
            rollout(f"<answer>{row['pred_ans']}</answer>"),
            [Verdict("gpt-4o-mini", {"answer_correct": row["gpt4o_output"] == "True"})],
        )
        for row in rows
    ]
    assert len(rows) == n
    assert means(scores) == pytest.approx(figures, abs=5e-5)


def test_the_published_traces_hold_the_published_predictions_but_for_one(data_root):
    """One prediction of Bamboogle reads "July 27, 1953" where its trace says "27 July 1953"."""
    differ = [
        (name, row["pred_ans"], extract(row["gen_text_store"]))
        for name in PUBLISHED
        for row in predictions(name, data_root)
        if extract(row["gen_text_store"]) != row["pred_ans"]
    ]
    assert differ == [("bamboogle_qwen", "July 27, 1953", "27 July 1953")]


def test_no_published_trace_is_degenerate_or_without_an_answer(data_root):
    for name in PUBLISHED:
        for row in predictions(name, data_root):
            found = score(doc(row["answer"]), rollout(DOCUMENTS.sub("", row["gen_text_store"])), ())
            assert set(found.reasons) <= {"repeated_query"}


@pytest.mark.parametrize(
    ("form", "figures"),
    [("r1_searcher", (0.295, 0.3613, 0.325, 0.33)), ("squad", (0.295, 0.3624, 0.325, 0.33))],
)
def test_the_figures_of_a_peer_s_predictions_are_those_of_the_readme(form, figures, data_root):
    rows = peer_rows(data_root)
    found = [
        sum(metric(r["response"], [r["gold"]], form) for r in rows) / len(rows)
        for metric in (em, f1, cem_bag, cem_substring)
    ]
    assert found == pytest.approx(figures, abs=5e-5)


def test_f1_equals_a_peer_evaluator_on_its_200_predictions(data_root):
    rows = peer_rows(data_root)
    ours = [f1(row["response"], [row["gold"]], "squad") for row in rows]
    assert ours == pytest.approx([float(row["f1"]) for row in rows], abs=1e-9)
    assert sum(ours) / 200 == pytest.approx(0.36237109, abs=1e-8)
