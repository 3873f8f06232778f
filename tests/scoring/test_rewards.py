"""Rewards are the metrics of evaluation, put together as each paper and each server does it."""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data import locate
from harness.errors import IncompleteError, UsageError
from harness.schema import Doc, Rollout, Turn, Verdict
from harness.scoring import qa, rag, reasoning_rewards
from harness.scoring.rewards import (
    REWARDS,
    Length,
    format_is_right,
    railway_reward,
    reward,
    transcript,
)

RANGES = {
    "r1_searcher_stage1": (0, 1),
    "r1_searcher_stage2": (-2, 1),
    "r1_searcher_stage2_em": (-3, 1),
    "r1_searcher_stage2_cem": (-3, 1),
    "r1_searcher_qwen_code": (-2, 1),
    "r1_searcher_llama_stage1_code": (-1, 2),
    "r1_searcher_llama_stage2_code": (-1, 1),
    "railway": (-2, 2),
}
ASK = "I look it up. <|begin_of_query|> Paris<|end_of_query|>"
FOUND = "\n\n<|begin_of_documents|>\n(1)Paris   A city.\n<|end_of_documents|>\n\n"
SAID = "It is so. </think>\n\n <answer> Paris </answer>"

PIECES = [
    "<think>", "</think>", "<answer>", "</answer>", "Paris", "not Paris", "assistant", "中", "\n",
    "<|begin_of_query|>", "<|end_of_query|>", "<|begin_of_documents|>\n(1)x\n<|end_of_documents|>",
    "<page>5</page>", "\ufffd", "one two three four five six seven eight nine ten eleven",
]  # fmt: skip
texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
    st.sampled_from([SAID, "<answer>Paris</answer>\n<page>5</page>"]),
)
DOC = Doc("q", "?", ("Paris", "the city of Paris"), meta={"gold_page": 5})
judged = st.builds(
    lambda a, p: (Verdict("j", {"answer_correct": a, "page_correct": p}),),
    st.booleans(), st.booleans(),
)  # fmt: skip


@st.composite
def rollouts(draw):
    said = draw(st.lists(texts, min_size=1, max_size=3))
    turns = []
    for text in said[:-1]:
        turns += [Turn("model", text), Turn("environment", FOUND)]
    turns.append(Turn("model", said[-1]))
    tokens = draw(st.integers(0, 400))
    return Rollout("q", 0, tuple(turns), said[-1], searches=len(said) - 1, completion_tokens=tokens)


def rollout(*turns, searches=1, **fields):
    kinds = ("environment" if "begin_of_documents" in t and t == FOUND else "model" for t in turns)
    made = tuple(Turn(kind, text) for kind, text in zip(kinds, turns, strict=True))
    return Rollout("q", 0, made, turns[-1], searches=searches, **fields)


def values(played, doc=DOC):
    return {name: REWARDS[name](doc, played, ()) for name in RANGES if name != "railway"}


GOOD = rollout(ASK, FOUND, SAID)


# --- by property ----------------------------------------------------------------------------


@given(rollouts(), judged)
def test_every_reward_lies_in_its_range(played, verdicts):
    assert {*RANGES, *reasoning_rewards.REWARDS} == set(REWARDS)
    for name, (low, high) in RANGES.items():
        assert low <= REWARDS[name](DOC, played, verdicts) <= high, name


@given(rollouts(), judged)
def test_the_paper_s_rewards_are_the_metrics_and_the_format(played, verdicts):
    metrics = qa.score(DOC, played, verdicts).metrics
    right = format_is_right(played)
    penalty = 0 if right else -2
    found = values(played)
    assert found["r1_searcher_stage1"] == 0.5 * (metrics["searches"] >= 1) + 0.5 * right
    assert found["r1_searcher_stage2"] == metrics["f1"] + penalty
    assert found["r1_searcher_stage2_em"] == 2 * metrics["em"] - 1 + penalty
    assert found["r1_searcher_stage2_cem"] == 2 * metrics["cem_bag"] - 1 + penalty


@given(rollouts(), judged)
def test_the_railway_reward_is_the_metrics_the_tags_and_the_length(played, verdicts):
    metrics = rag.score(DOC, played, verdicts).metrics
    long = min((max(0, metrics["output_tokens"] - 64) / 64) ** 3, 2)
    tags = REWARDS["railway"](DOC, played, verdicts) + long
    tags -= 0.5 * metrics["answer_accuracy"] + 0.5 * metrics["page_accuracy"]
    assert min(abs(tags - x) for x in (0, 0.5, 1)) < 1e-9
    if metrics["format_accuracy"]:
        assert tags == pytest.approx(1)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_length_penalty_never_falls_and_is_capped(a, b):
    rule = Length()
    low, high = sorted((a, b))
    assert 0 <= rule.penalty(low) <= rule.penalty(high) <= 2


# --- by hand --------------------------------------------------------------------------------


def test_a_good_rollout_gets_the_best_of_every_reward():
    assert values(GOOD) == {name: RANGES[name][1] for name in RANGES if name != "railway"}
    assert transcript(GOOD) == ASK + FOUND + SAID


@pytest.mark.parametrize(
    ("turns", "paper", "qwen", "llama2"),
    [  # whether each rule finds the format right
        ((SAID,), True, True, True),
        ((SAID + " <answer>x</answer>",), False, False, False),
        (("<answer> Paris </answer>",), False, False, False),
        ((SAID.replace("Paris", "one two three four five six seven eight nine ten 11"),),
         True, False, True),
        (("The assistant thinks. " + SAID,), True, False, True),
        (("中文 " + SAID,), True, False, False),
        ((ASK, FOUND.replace("A city.", "中文"), SAID), True, True, True),
        ((FOUND + SAID + " ",), False, False, False),  # its own documents
        (("<|begin_of_query|> open " + SAID,), False, False, False),
        (("broken \ufffd " + SAID,), False, True, True),
        ((SAID.replace("Paris", "begin_of_query Paris"),), False, False, False),
    ],
)  # fmt: skip
def test_each_rule_of_format_is_its_own(turns, paper, qwen, llama2):
    kinds = ["environment" if i % 2 else "model" for i in range(len(turns))]
    made = tuple(Turn(k, t) for k, t in zip(kinds, turns, strict=True))
    played = Rollout("q", 0, made, turns[-1], searches=len(turns) // 2)
    answer = qa.answers.extract(turns[-1])
    f1 = qa.f1(answer or "", DOC.targets)
    found = values(played)
    assert format_is_right(played) == paper
    assert (found["r1_searcher_qwen_code"] >= 0) == qwen
    assert (found["r1_searcher_llama_stage2_code"] == pytest.approx(f1)) == llama2


def test_the_first_llama_server_rewards_the_answer_which_the_paper_does_not():
    wrong = rollout(ASK, FOUND, SAID.replace("Paris", "Lyon"))
    found = values(wrong)
    assert found["r1_searcher_stage1"] == 1
    assert found["r1_searcher_llama_stage1_code"] == -1 + 0.5 + 0.5
    silent = rollout("no answer", searches=0)
    assert values(silent)["r1_searcher_llama_stage1_code"] == -1


def test_without_an_answer_the_f1_is_zero_and_the_penalty_stays():
    found = values(rollout("thinking", searches=0))
    assert (found["r1_searcher_stage2"], found["r1_searcher_qwen_code"]) == (-2, -2)
    assert found["r1_searcher_stage2_em"] == -3


@pytest.mark.parametrize(
    ("tokens", "penalty"), [(0, 0), (64, 0), (96, 0.125), (128, 1), (144, 1.953125), (145, 2)]
)
def test_the_railway_penalty_grows_with_the_cube_of_the_excess(tokens, penalty):
    verdicts = (Verdict("j", {"answer_correct": True, "page_correct": True}),)
    played = Rollout("q", 0, (), "<answer>Paris</answer>\n<page>5</page>", completion_tokens=tokens)
    assert REWARDS["railway"](DOC, played, verdicts) == pytest.approx(2 - penalty)


def test_the_constants_of_the_length_penalty_are_settings():
    verdicts = (Verdict("j", {"answer_correct": True, "page_correct": True}),)
    played = Rollout("q", 0, (), "<answer>Paris</answer><page>5</page>", completion_tokens=30)
    gentle = railway_reward(Length(free=10, scale=20, power=1, cap=0.5))
    assert gentle(DOC, played, verdicts) == 1.5
    with pytest.raises(ValueError, match="length penalty"):
        Length(scale=0)


@pytest.mark.parametrize("name", sorted(REWARDS))
def test_a_failed_rollout_has_no_reward(name):
    failed = Rollout("q", 0, (), "", "error", error="lost the server")
    with pytest.raises(IncompleteError, match="lost the server"):
        REWARDS[name](DOC, failed, ())


def test_a_missing_verdict_or_length_is_no_zero():
    played = Rollout("q", 0, (), "<answer>Paris</answer>\n<page>5</page>", completion_tokens=9)
    for verdicts in ((), (Verdict("j", None),)):
        with pytest.raises(IncompleteError, match="no answer_accuracy"):
            REWARDS["railway"](DOC, played, verdicts)
    untold = Rollout("q", 0, (), played.answer)
    verdicts = (Verdict("j", {"answer_correct": True, "page_correct": True}),)
    with pytest.raises(IncompleteError, match="no output_tokens"):
        REWARDS["railway"](DOC, untold, verdicts)


def test_an_unknown_reward_is_named_with_the_nearest():
    with pytest.raises(UsageError, match="r1_searcher_stage1"):
        reward("r1_searcher_stage_1")
    assert reward("railway") is REWARDS["railway"]


# --- the published traces -------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "wanted"), [("hotpotqa_qwen", (500, 480)), ("bamboogle_qwen", (125, 119))]
)
def test_every_published_trace_is_well_formed_but_not_all_for_the_released_server(
    name, wanted, data_root
):
    path = locate("r1_searcher", f"eval_results/{name}.jsonl", data_root)
    cut = re.compile(r"(\n\n<\|begin_of_documents\|>.*?<\|end_of_documents\|>\n\n)", re.DOTALL)
    right = strict = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        kinds = ("model", "environment")
        parts = cut.split(row["gen_text_store"])
        turns = tuple(Turn(kinds[i % 2], part) for i, part in enumerate(parts))
        doc = Doc("q", row["question"], (row["answer"],))
        played = Rollout("q", 0, turns, parts[-1], searches=len(parts) // 2)
        ok = format_is_right(played)
        right += ok
        strict += REWARDS["r1_searcher_qwen_code"](doc, played, ()) >= 0
        f1 = qa.f1(qa.answers.extract(parts[-1]), doc.targets)
        assert math.isclose(REWARDS["r1_searcher_stage2"](doc, played, ()), f1 - 2 * (not ok))
    assert (right, strict) == wanted
