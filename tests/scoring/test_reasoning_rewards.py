"""Rewards of the reasoning systems: terms, weights, the oracle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import IncompleteError
from harness.schema import Doc, Rollout, Turn, Verdict
from harness.scoring import language, numeric, oracle
from harness.scoring.bookmark import tag_score
from harness.scoring.oracle import Thresholds, calibrate
from harness.scoring.reasoning_rewards import (
    REWARDS,
    KoreanSettings,
    Weights,
    bookmark_reward,
    korean_reward,
    korean_terms,
    thought_first,
)
from harness.scoring.terms import Overlong

DOC = Doc("d", "5 더하기 2는?", ("7",), meta={"kind": "integer"})
GOOD = "<think>다섯에 둘을 더하면 일곱이다.</think>답은 $\\boxed{7}$ 입니다."
ENGLISH = (  # the base model of appendix D: English thoughts, a Korean end, all before the tag
    "<think>Therefore, I think my solutions are correct.\n**Final Answer**\n"
    "(2) 최대 월 수익은 $\\boxed{7}$ 입니다.\n</think>"
)
PIECES = ["<think>", "</think>", "\\boxed{7}", "\\boxed{8}", "생각한다. ", "Let me think. ", "7 ",
          "<substep>", "</substep>", "<reflection>", "</reflection>", "\n"]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)


def rollout(text, tokens=100, **more):
    return Rollout("d", 0, (), text, completion_tokens=tokens, **more)


def said(value):
    return (Verdict("oracle", None if value is None else {"oracle": value}),)


@given(texts, st.integers(0, 40_000), st.floats(0, 1))
def test_every_reward_lies_in_its_range_and_is_the_sum_of_its_terms(text, tokens, value):
    played = rollout(text, tokens)
    metrics = numeric.score(DOC, played).metrics
    for name in ("korean", "korean_oracle"):
        assert -0.2 <= REWARDS[name](DOC, played, said(value)) <= 1.4
    terms = korean_terms(DOC, played, ())
    assert terms["accuracy"] == metrics["accuracy"]
    assert terms["format"] <= metrics["format"]
    assert terms["language"] in (0, 1)
    total = terms["accuracy"] + 0.2 * (terms["format"] + terms["language"] + terms["overlong"])
    assert REWARDS["korean"](DOC, played, ()) == pytest.approx(total)
    assert REWARDS["bookmark"](DOC, played, ()) == pytest.approx(
        metrics["accuracy"] + 0.1 * tag_score(text, ordered=False)
    )


@given(st.sampled_from([0.0, 1.0]), st.floats(0, 1), st.floats(0, 1))
def test_the_oracle_overrules_where_it_is_sure_and_never_lowers_by_rising(accuracy, a, b):
    low, high = sorted((a, b))
    assert calibrate(accuracy, low) <= calibrate(accuracy, high)
    assert calibrate(accuracy, a) in (0, accuracy, 1)
    if 0.4 < a < 0.6:
        assert calibrate(accuracy, a) == accuracy


@pytest.mark.parametrize(
    ("value", "right", "wrong"), [(0.0, 0, 0), (0.4, 0, 0), (0.5, 1, 0), (0.6, 1, 1), (1.0, 1, 1)]
)
def test_the_thresholds_belong_to_the_sure_side(value, right, wrong):
    assert calibrate(1.0, value) == right
    assert calibrate(0.0, value) == wrong


def test_both_thresholds_are_settings():
    assert calibrate(1.0, 0.5, Thresholds(0.5, 0.9)) == 0
    assert calibrate(0.0, 0.6, Thresholds(0.1, 0.9)) == 0
    strict = korean_reward(KoreanSettings(oracle=True, thresholds=Thresholds(0.7, 0.9)))
    assert strict(DOC, rollout(GOOD), said(0.65)) == pytest.approx(0.4)
    with pytest.raises(ValueError, match="wrong < right"):
        Thresholds(0.6, 0.4)


@pytest.mark.parametrize(
    ("reply", "value"),
    [("0.75", 0.75), (" 1.0\n", 1.0), ("`0.4`", 0.4), (".5", 0.5), ("0", 0.0), ("1", 1.0),
     ("<think>hm, 0.2?</think>0.9", 0.9),
     ("1.2", None), ("-0.1", None), ("7", None), ("1.000001", None), ("nan", None), ("1e-3", None),
     ("0.5 0.6", None), ("Score: 0.8", None), ("0,8", None), ("", None), ("<think>0.9", None)],
)  # fmt: skip
def test_the_oracle_is_trusted_with_one_number_from_0_to_1_only(reply, value):
    assert oracle.parse(reply) == value
    made = oracle.verdict("o", reply)
    assert made.values == (None if value is None else {"oracle": value})
    assert made.raw == reply


@given(st.text(max_size=30))
def test_no_reply_gives_a_number_outside(reply):
    value = oracle.parse(reply)
    assert value is None or 0 <= value <= 1


@pytest.mark.parametrize("verdicts", [(), said(None)])
def test_without_the_oracle_s_number_there_is_no_reward(verdicts):
    with pytest.raises(IncompleteError, match="no verdict of the oracle"):
        REWARDS["korean_oracle"](DOC, rollout(GOOD), verdicts)


def test_the_oracle_s_prompt_holds_problem_and_whole_response_as_they_stand():
    text = oracle.prompt(Doc("d", "{answer}?", ("7",)), rollout("<think>{question}</think>7"))
    assert "\n{answer}?\n" in text
    assert "\n<think>{question}</think>7\n" in text
    assert "at most 0.4" in text


def test_a_good_rollout_gets_the_whole_reward():
    assert REWARDS["korean"](DOC, rollout(GOOD), ()) == pytest.approx(1.4)
    assert REWARDS["korean_oracle"](DOC, rollout(GOOD), said(0.9)) == pytest.approx(1.4)
    assert REWARDS["korean_oracle"](DOC, rollout(GOOD), said(0.1)) == pytest.approx(0.4)


def test_english_thoughts_and_an_answer_before_the_end_of_thinking_get_nothing():
    assert REWARDS["korean"](DOC, rollout(ENGLISH), ()) == 0
    assert language.metrics(DOC, rollout(ENGLISH), "ko")["language_consistent"] == 0


@pytest.mark.parametrize(
    ("tokens", "term"), [(0, 0), (8192, 0), (20480, -0.5), (32768, -1), (90000, -1)]
)
def test_only_what_exceeds_the_soft_limit_costs(tokens, term):
    assert Overlong().term(tokens) == pytest.approx(term)
    assert korean_terms(DOC, rollout(GOOD, tokens), ())["overlong"] == pytest.approx(term)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_overlong_term_never_rises_with_length(a, b):
    low, high = sorted((a, b))
    assert -1 <= Overlong().term(high) <= Overlong().term(low) <= 0


def test_weights_and_limits_are_settings():
    rule = KoreanSettings(Weights(2, 0, 0, 1), Overlong(0, 100))
    assert korean_reward(rule)(DOC, rollout(GOOD, 50), ()) == pytest.approx(1.5)
    assert bookmark_reward(tags=0.5)(
        DOC, rollout(f"<substep>a</substep>{GOOD}"), ()
    ) == pytest.approx(1.5)
    with pytest.raises(ValueError, match="free < limit"):
        Overlong(5, 5)


@pytest.mark.parametrize(
    ("text", "right"),
    [("<think>a</think>b", True), ("a</think>b", True), ("b", False), ("<think>a</think>", False),
     ("<think></think>b", False), ("x<think>a</think>b", False), ("<think>a", False),
     ("<think>a</think>b</think>c", False), ("<think>a</think>b<think>c</think>", False)],
)  # fmt: skip
def test_one_closed_block_of_reasoning_comes_first(text, right):
    assert thought_first(text) == right


@pytest.mark.parametrize(
    ("text", "score"),
    [("", 0), ("no tags", 0), ("<substep>a</substep>", 1), ("<substep></substep>", 0),
     ("<substep>a</substep><reflection>b</reflection>", 1), ("<reflection>b</reflection>", 0),
     ("<substep>a</substep><substep>b", 2 / 3), ("<substep><substep>a</substep></substep>", 0.5)],
)  # fmt: skip
def test_tags_count_where_they_are_closed_and_hold_something(text, score):
    assert tag_score(text, ordered=False) == pytest.approx(score)


def test_a_reflection_before_any_substep_counts_for_the_reward_and_not_for_the_metric():
    text = "<reflection>b</reflection><substep>a</substep>"
    assert tag_score(text, ordered=False) == 1
    assert tag_score(text, ordered=True) == 0.5


def test_the_tags_of_every_turn_of_the_model_count_and_of_no_other():
    turns = (Turn("model", "<substep>a</substep>"), Turn("summary", "<substep>"),
             Turn("environment", "</substep>"), Turn("model", "\\boxed{7}"))  # fmt: skip
    played = Rollout("d", 0, turns, "\\boxed{7}", completion_tokens=5)
    assert REWARDS["bookmark"](DOC, played, ()) == pytest.approx(1.1)


@pytest.mark.parametrize("name", sorted(REWARDS))
def test_a_failed_rollout_has_no_reward(name):
    with pytest.raises(IncompleteError, match="gone"):
        REWARDS[name](DOC, rollout("", finish="error", error="gone"), said(1.0))


def test_an_unknown_length_is_no_zero():
    with pytest.raises(IncompleteError, match="no output_tokens"):
        REWARDS["korean"](DOC, rollout(GOOD, None), ())
