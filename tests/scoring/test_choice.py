"""Multiple choice: what a text states, and what log-likelihoods say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.schema import Doc, Rollout
from harness.scoring import choice, task_scorer
from harness.scoring.choice import LETTERS, likelihood_metrics, score, stated

STATED = {
    # a label with a colon, as simple-evals reads it
    "Answer: B": "B",
    "answer: b": "B",
    "ANSWER : D.": "D",
    "Answer: $B$": "B",
    "Steps ...\n\nAnswer: (C)": "C",
    "**Answer:** B": "B",
    "**Answer: B**": "B",
    "Answer:\n\nB": "B",
    "Ａｎｓｗｅｒ：Ｂ": "B",
    '{"answer": "C"}': "C",
    r"Answer: $\boxed{\text{C}}$": "C",
    "정답: B": "B",
    "정답：B": "B",
    "정답 : **D** (설명)": "D",
    "최종 답: A": "A",
    "答案：D": "D",
    "正确答案为：A": "A",
    # a sentence
    "The answer is not A. The correct answer is (D).": "D",
    "the answer is option B": "B",
    "정답은 B입니다.": "B",
    "정답은 A가 아니다. 정답은 C이다.": "C",
    "정답은 A가 아니라 B입니다.": "B",
    "따라서 답은 B번이다": "B",
    "答案是B。": "B",
    "故选C": "C",
    "不选A，应选B": "B",
    # a box, a bare choice
    r"hence $\boxed{B}$": "B",
    "B": "B",
    "(B)": "B",
    "d": "D",
    "B. its own text": "B",
    # thinking is not the answer
    "<think>Answer: A</think>Answer: B": "B",
    "<think>Answer: A</think>\n\nC": "C",
    # none
    "": "",
    "I do not know": "",
    "Answer: Both are right": "",
    "Answer: a mixture": "",
    "Answer: A-bomb": "",
    "Answer: E": "",
    "A man is here": "",
    "A. one\nB. two": "",
    "<think>Answer: A": "",
    "답: ③": "",
    # several
    "Answer: A or B": "AB",
    "정답: A, C": "AC",
    "答案：A和B": "AB",
    "Answer: A, since B is wrong": "A",
}


@pytest.mark.parametrize("text", STATED)
def test_the_letter_is_read_as_a_person_reads_it(text):
    assert stated(text) == STATED[text]


def test_the_first_labelled_answer_wins_and_the_last_sentence_does():
    assert stated("Answer: A\nNo.\nAnswer: B") == "A"
    assert stated("The answer is A. On second thoughts, the answer is B.") == "B"
    assert stated("The answer is A.\nAnswer: B") == "B"  # a label goes before a sentence


@given(st.sampled_from(LETTERS), st.integers(2, 10))
def test_only_the_letters_of_the_choices_are_answers(letter, n):
    assert stated(f"Answer: {letter}", n) == (letter if letter in LETTERS[:n] else "")


@given(st.text())
def test_any_text_states_something_or_nothing(text):
    assert set(stated(text)) <= set("ABCD")


@given(st.text(alphabet="abc d\n.", max_size=60), st.sampled_from("ABCD"))
def test_reasoning_in_front_changes_nothing(reasoning, letter):
    assert stated(f"{reasoning}\n정답: {letter}") == letter


@pytest.mark.parametrize("text", ["answer " * 9000, "정답은 " * 9000, "**" * 20000, "답 :" * 9000])
def test_a_long_text_that_states_nothing_is_read_to_its_end(text):
    assert stated(text) == ""


DOC = Doc("d", "q", ("B",), stratum="s", meta={"choices": ["A", "B", "C", "D"], "gold": 1})


def text(answer, **fields):
    return Rollout("d", 0, (), answer, completion_tokens=7, **fields)


def test_a_right_letter_scores_one():
    made = score(DOC, text("정답: B"))
    assert made.metrics == {
        "accuracy": 1.0, "answered": 1.0, "degenerate": 0.0, "output_tokens": 7.0
    }  # fmt: skip
    assert made.reasons == ()


def test_no_answer_is_wrong_with_its_reason_and_not_unscored():
    made = score(DOC, text("I cannot tell."))
    assert (made.metrics["accuracy"], made.metrics["answered"]) == (0.0, 0.0)
    assert made.reasons == ("no_answer",)


def test_naming_several_is_wrong_even_if_one_of_them_is_right():
    made = score(DOC, text("Answer: B or C"))
    assert made.metrics["accuracy"] == 0.0
    assert made.reasons == ("several_answers",)


def test_an_unusable_output_is_wrong_however_right_it_looks():
    made = score(DOC, text("Answer: B", finish="length"))
    assert made.metrics["accuracy"] == 0.0
    assert made.metrics["answered"] == 1.0
    assert made.reasons == ("truncated",)
    endless = score(DOC, text("<think>Answer: B"))
    assert endless.reasons == ("unclosed_think", "no_answer")


def test_an_infrastructure_failure_has_no_metric_at_all():
    assert score(DOC, text("Answer: B", error="gone")).metrics == {}


def test_reasons_and_metrics_are_the_declared_ones():
    for answer in STATED:
        made = score(DOC, text(answer))
        assert set(made.metrics) <= set(choice.METRICS)
        assert set(made.reasons) <= set(choice.REASONS)
    assert task_scorer("choice").fingerprint == f"choice@{choice.VERSION}"


@given(st.data())
def test_likelihood_metrics_are_those_of_lm_eval(data):
    np = pytest.importorskip("numpy")
    n = data.draw(st.integers(2, 6))
    totals = data.draw(st.lists(st.integers(-40, 0).map(float), min_size=n, max_size=n))
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    gold = data.draw(st.integers(0, n - 1))
    made = likelihood_metrics(totals, lengths, gold)
    assert made["accuracy"] == float(np.argmax(totals) == gold)
    norm = float(np.argmax(np.array(totals) / np.array(lengths, dtype=float)) == gold)
    assert made.get("accuracy_norm", made["accuracy"]) == norm


def test_letters_have_no_length_to_correct_for():
    assert "accuracy_norm" not in likelihood_metrics([-1.0, -2.0], [1, 1], 0)
