"""Mathematics: where the answer stands, what it is, and whether it is right."""

import json
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data import locate
from harness.schema import Doc, Rollout
from harness.scoring import equality, numeric, task_scorer
from harness.scoring.numeric import REASONS, boxes, last_number, number, read, score, stated

STATED = {
    r"so \boxed{204}": "204",
    r"first \boxed{7}, then \boxed{\frac{1}{2}}.": r"\frac{1}{2}",
    r"\boxed{\left\{1, \frac{2}{3}\right\}}": r"\left\{1, \frac{2}{3}\right\}",
    r"\boxed{\{1, 2\}}": r"\{1, 2\}",
    r"\framebox{204} minutes": "204",
    r"\fbox {5}": "5",
    r"\boxed{5} and then \boxed{6": "5",  # a box that is never closed is none
    r"\boxed{5 and then \boxed{6}": "6",
    r"\boxed{x = \boxed{6}}": "6",
    r"\boxed{3}. Answer: 4": "3",  # a box outranks a sentence
    "The answer is 18.": "18",
    "The final answer is: **18 dollars**. Bye": "18 dollars",
    "The answer is 5. No: the answer is 6.": "6",
    "Answer:\n18": "18",
    "9 * 2 = 18\n#### 18": "18",
    "정답: 204": "204",
    "따라서 정답은 204입니다.": "204입니다",
    "答案是 204。": "204",
    "I have no idea": None,
    "": None,
}

NUMBERS = {
    r"\textbf{(113) }": 113,
    "104.": 104,
    r"\mathbf{127} ": 127,
    r"204 \text{ minutes}": 204,
    "m+n = 113": 113,
    "025": 25,
    "1{,}000": 1000,
    "1,234,567": 1234567,
    r"\$18": 18,
    r"-\$5.50": Fraction(-11, 2),
    r"50\%": 50,
    r"\frac{3}{4}": Fraction(3, 4),
    "3/4": Fraction(3, 4),
    "18 dollars a day": 18,
    "204입니다": 204,
    r"90^\circ": 90,
    "18.00": 18,
    "3x": None,
    r"2\sqrt{3}": None,
    "2^5": None,
    "6-4": None,
    "1/0": None,
    "x": None,
    "": None,
}

BASE = (  # the end of the base model's output in the paper's appendix D: all of it is thought
    "Therefore, I think my solutions are correct.\n\n**Final Answer**\n\n"
    "(1) $\\boxed{98}$ 대\n\n(2) 최대 월 수익은 $\\boxed{51250000}$ 원일 때, "
    "월 임대료는 $\\boxed{3250000}$ 원입니다.\n</think>"
)
TUNED = (  # the trained model's, likewise
    "<think>\n결론적으로,\n\n(1) 98대\n\n(2) 월 임대료 280만원일 때 최대 월 수익 14080만원\n\n"
    "입니다.\n\n</think>"
)


def doc(target, kind="integer"):
    return Doc("d", "q", (target,), meta={"kind": kind})


def rollout(text, finish="stop", **more):
    return Rollout("d", 0, (), text, finish=finish, completion_tokens=7, **more)


@pytest.mark.parametrize(("text", "expected"), STATED.items())
def test_the_last_box_else_the_last_sentence_is_the_answer(text, expected):
    assert stated(text, "expression") == expected


@pytest.mark.parametrize(("text", "expected"), NUMBERS.items())
def test_a_number_is_read_through_its_dress_and_a_term_is_none(text, expected):
    assert number(text) == expected


@given(st.integers(0, 999), st.integers(0, 4))
def test_leading_zeros_change_no_integer(value, zeros):
    answer = rf"\boxed{{{'0' * zeros}{value}}}"
    assert score(doc(str(value)), rollout(answer)).metrics["accuracy"] == 1


@pytest.mark.parametrize("text", ["1000", "-1", "2.5", r"\frac{1}{2}"])
def test_an_answer_that_aime_cannot_have_is_out_of_range(text):
    made = score(doc("100"), rollout(rf"\boxed{{{text}}}"))
    assert made.metrics["accuracy"] == made.metrics["format"] == 0
    assert made.reasons == ("out_of_range",)


@given(st.text(alphabet="\\boxed{}frac123 #,.$=-^/√sqrt答案: answer is\n", max_size=60),
       st.sampled_from(["integer", "number"]))  # fmt: skip
def test_any_text_has_a_score_and_known_reasons(text, kind):
    made = score(doc("5", kind), rollout(text))
    assert set(made.reasons) <= set(REASONS)
    assert made.metrics["accuracy"] in (0, 1)
    assert made.metrics["accuracy"] <= made.metrics["format"]
    assert ("accuracy_flexible" in made.metrics) == (kind == "number")
    if kind == "number":
        assert made.metrics["accuracy"] <= made.metrics["accuracy_flexible"]


NESTED = st.recursive(
    st.just(""),
    lambda inner: st.lists(inner, max_size=3).map(lambda ps: "".join(f"{{x{p}}}" for p in ps)),
    max_leaves=8,
)


@given(NESTED)
def test_nested_braces_are_kept_whole(content):
    assert boxes(rf"a \boxed{{{content}}} b") == [content]


def test_an_answer_before_the_end_of_the_thinking_is_no_answer():
    made = score(doc("3250000", "number"), rollout(BASE))
    assert made.metrics["accuracy"] == made.metrics["accuracy_flexible"] == 0
    assert {"answer_in_thinking", "no_answer", "empty_output"} <= set(made.reasons)
    tuned = score(doc("280", "number"), rollout(TUNED))
    assert tuned.metrics["accuracy"] == 0
    assert {"no_answer", "empty_output"} <= set(tuned.reasons)


def test_of_several_boxes_the_last_is_the_whole_answer_only_where_the_target_has_one_part():
    answer = BASE.removesuffix("</think>")
    every = score(doc("98, 51250000, 3250000", "expression"), rollout(answer))
    assert every.metrics["accuracy"] == 1
    partly = score(doc("98, 51250000, 280", "expression"), rollout(answer))
    assert partly.metrics["accuracy"] == 0
    assert partly.reasons == ("several_answers",)
    last = score(doc("3250000", "expression"), rollout(answer))
    assert last.metrics["accuracy"] == 1
    first = score(doc("98", "expression"), rollout(answer))
    assert first.metrics["accuracy"] == 0
    assert first.reasons == ("several_answers",)


@pytest.mark.parametrize("answer", ["9" * 5000, r"\text{" + "a" * 50_000, "1," * 9999, "{" * 9999])
@pytest.mark.parametrize("kind", numeric.KINDS)
def test_an_answer_without_end_is_wrong_and_nothing_worse(answer, kind):
    for text in (answer, rf"\boxed{{{answer}}}", f"The answer is {answer}"):
        assert score(doc("7", kind), rollout(text)).metrics["accuracy"] == 0


def test_a_box_repeated_is_one_answer():
    assert score(doc("7"), rollout(r"\boxed{7} so \boxed{7}")).reasons == ()


def test_thinking_that_is_never_closed_is_wrong_with_its_reason():
    made = score(doc("7"), rollout(r"<think>so \boxed{7}"))
    assert made.metrics["accuracy"] == made.metrics["format"] == 0
    assert "unclosed_think" in made.reasons


def test_the_cards_own_tags_end_the_thinking():
    text = r"[T]maybe \boxed{8}[/T] so \boxed{7}"
    assert score(doc("7"), rollout(text), think_tags=("[T]", "[/T]")).metrics["accuracy"] == 1


def test_a_truncated_output_is_wrong_and_casts_no_vote():
    made = score(doc("7"), rollout(r"\boxed{7} and", finish="length"))
    assert made.metrics["accuracy"] == 0
    assert made.reasons == ("truncated",)
    assert made.metrics["vote"] == numeric.NO_VOTE


def test_equal_answers_cast_equal_votes():
    votes = [
        score(doc("7", kind), rollout(text)).metrics["vote"]
        for kind in ("integer", "number")
        for text in (r"\boxed{007}", r"\boxed{7.}")
    ]
    assert len(set(votes)) == 1
    assert score(doc("7"), rollout(r"\boxed{8}")).metrics["vote"] != votes[0]


def test_strict_extraction_wants_a_stated_answer_and_flexible_takes_the_last_number():
    made = score(doc("18", "number"), rollout("She sells 9 eggs at 2 dollars: 18 dollars."))
    assert (made.metrics["accuracy"], made.metrics["accuracy_flexible"]) == (0, 1)
    assert made.reasons == ("no_answer",)


def test_a_failed_rollout_has_no_metric():
    assert score(doc("7"), rollout("", finish="error", error="gone")).metrics == {}


@pytest.mark.parametrize(
    ("target", "answer", "same"),
    [
        (r"\frac{1}{2}", "0.5", True),
        (r"\frac{639}{40}", r"15\frac{39}{40}", True),
        ("p - q", "-q+p", True),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\pi/2)", True),
        ("(1,2)", "(2,1)", False),
        (r"2\sqrt{3}", r"\sqrt{12}", True),
        (r"\text{Evelyn}", "Evelyn", True),
        ("7", r"\frac{1", False),
        ("7", "8", False),
    ],
)
def test_expressions_are_compared_by_value(target, answer, same):
    made = score(doc(target, "expression"), rollout(rf"\boxed{{{answer}}}"))
    assert made.metrics["accuracy"] == same or answer == r"\frac{1"


def test_a_comparison_that_never_ends_is_given_up_and_the_next_one_works(monkeypatch):
    hostile = score(doc("7", "expression"), rollout(r"\boxed{9^{9^{9^{9}}}}"))
    assert hostile.metrics["accuracy"] == 0
    assert hostile.reasons == ("not_comparable",)
    assert equality.equal("7", "14/2") is True


def test_worker_threads_may_compare():
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(equality.equal, str(i), f"\\frac{{{2 * i}}}{{2}}") for i in range(8)]
        assert all(a.result() for a in asked)


def test_an_endless_expression_is_not_compared_at_all():
    assert equality.equal("7", "1+" * 5000 + "1") is None


def test_it_is_in_the_table_with_its_version():
    assert task_scorer("numeric").fingerprint == f"numeric@{numeric.VERSION}"


# --- real data ------------------------------------------------------------------------------


def lines(dataset, file, root):
    with locate(dataset, file, root).open(encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def misses(pairs, kind):
    """(solution, target) pairs whose stated answer is not the target."""
    found = []
    for name, solution, target in pairs:
        answer = stated(solution, kind, target)
        normal = None if answer is None else read(answer, kind)[0]
        if normal is None or not numeric.equal(normal, target, kind)[0]:
            found.append((name, answer, target))
    return found


@pytest.mark.data
def test_every_aime_2024_solution_states_its_answer(data_root):
    rows = lines("aime24", "aime24.jsonl", data_root)
    assert len(rows) == 30
    assert misses([(r["id"], r["solution"], r["answer"]) for r in rows], "integer") == []


@pytest.mark.data
def test_every_gsm8k_solution_states_its_answer(data_root):
    rows = lines("gsm8k", "test.jsonl", data_root)
    assert len(rows) == 1319
    pairs = [(r["question"][:40], r["answer"], r["answer"].split("####")[1]) for r in rows]
    assert misses(pairs, "number") == []


@pytest.mark.data
def test_every_math_500_solution_states_its_answer(data_root):
    rows = lines("math500", "test.jsonl", data_root)
    assert len(rows) == 500
    pairs = [(r["unique_id"], r["solution"], r["answer"]) for r in rows]
    assert misses(pairs, "expression") == []


@pytest.mark.data
def test_flexible_extraction_agrees_with_the_published_verdicts_on_5276_outputs(data_root):
    other = []
    for row in lines("gsm8k", "example_model_solutions.jsonl", data_root):
        gold = row["ground_truth"].rpartition("A:")[2].strip()
        for model in ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"):
            said = last_number(row[model]["solution"])
            right = said is not None and number(said) == number(gold)
            if right != row[model]["is_correct"]:
                other.append((gold, row[model]["solution"][-60:]))
    assert other == []


@pytest.mark.parametrize("answer", ["70", "588", "016", "0"])
def test_aime_2025_answers_are_read_in_every_usual_form(answer):
    value = int(answer)
    for text in (
        rf"Hence the answer is $\boxed{{{answer}}}$.",
        rf"<think>try \boxed{{1}}</think>**Final answer**\n$$\boxed{{{value:03d}}}$$",
        rf"$\boxed{{\text{{{value}}}}}$",
        f"The final answer is {answer}.",
        f"**Answer:** {answer}",
    ):
        assert score(doc(str(value)), rollout(text)).metrics["accuracy"] == 1, text
