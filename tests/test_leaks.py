"""Test questions that a prompt shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.leaks import Figure, bare, find_leaks, with_and_without
from harness.schema import Doc, Passage
from harness.scoring.process import doc_to_row
from tasks.railway_demo import rows as demo
from tasks.railway_rag import rows as railway

QUESTIONS = ["Who opens the door?", "When does the train leave?", "Where is the extinguisher?"]
TEMPLATE = "Example: who OPENS the\ndoor\uff1f the guard\n\nQuestion: {question}\n{documents}"


def docs(passages=()):
    answers = ["the guard", "at noon", "under the seat"]
    return [
        Doc(f"d{i}", q, (a,), tuple(passages))
        for i, (q, a) in enumerate(zip(QUESTIONS, answers, strict=True))
    ]


def rendered(items, template=TEMPLATE):
    return [
        template.replace("{question}", d.question).replace(
            "{documents}", "\n".join(p.text for p in d.passages)
        )
        for d in items
    ]


def test_a_worked_example_that_is_a_test_question_is_found_both_ways():
    wanted = {"d0": "the prompt shows this question with its answer"}
    assert find_leaks(docs(), rendered(docs())) == wanted
    assert find_leaks(docs(), template=TEMPLATE) == wanted


def test_case_width_space_and_punctuation_do_not_hide_a_question():
    assert bare("\uff37ho  OPENS\nthe door\uff1f!") == "whoopensthedoor"


def test_an_example_without_its_answer_is_a_leak_of_the_question_alone():
    template = TEMPLATE.replace("the guard", "somebody")
    assert find_leaks(docs(), template=template) == {"d0": "the prompt shows this question"}


def test_a_question_inside_a_retrieved_passage_is_no_leak_of_the_prompt():
    items = docs([Passage("p", "FAQ. When does the train leave? At noon.")])
    assert list(find_leaks(items, rendered(items))) == ["d0"]


def test_a_prompt_that_asks_twice_leaks_nothing_by_that():
    twice = "{question}\n{documents}\nOnce more: {question}"
    assert find_leaks(docs(), rendered(docs(), twice)) == {}
    assert list(find_leaks(docs(), rendered(docs(), TEMPLATE + twice))) == ["d0"]


def test_few_shots_of_one_doc_count_for_that_doc():
    prompts = rendered(docs(), "{question}\n{documents}")
    prompts[1] = f"Q: {QUESTIONS[1]} A: at noon\n\n{prompts[1]}"  # its own question as a few-shot
    prompts[2] = f"Q: {QUESTIONS[0]} A: the guard\n\n{prompts[2]}"  # another doc's: no help to d2
    assert list(find_leaks(docs(), prompts)) == ["d1"]


def test_a_question_too_short_to_be_told_apart_is_never_a_leak():
    assert find_leaks([Doc("x", "2+2?", ("4",))], template="Sum of 2+2? 4. {question}") == {}


def test_docs_without_prompts_are_refused():
    with pytest.raises(ValueError, match="3 docs need as many prompts"):
        find_leaks(docs(), ["one"])


def test_figures_are_given_with_and_without_the_leaked_docs():
    scores = {"d0": 1.0, "d1": 0.0, "d2": 0.5}
    assert with_and_without(scores, {"d0": "why"}) == (Figure(0.5, 3), Figure(0.25, 2))
    assert with_and_without({"d0": 1.0}, ["d0"])[1] == Figure(None, 0)


@given(st.lists(st.text(max_size=30), max_size=5), st.text(max_size=80))
def test_any_text_gives_an_answer_and_template_and_prompts_never_raise(questions, fixed):
    items = [Doc(str(i), q, ()) for i, q in enumerate(questions)]
    assert set(find_leaks(items, template=fixed)) <= {d.id for d in items}
    assert set(find_leaks(items, [fixed + d.question for d in items])) <= {d.id for d in items}


def test_the_demo_leaks_nothing():
    items, _ = demo.build_docs("test", 5)
    prompts = [demo.doc_to_text(doc_to_row(d)) for d in items]
    assert find_leaks(items, prompts) == {}
    assert find_leaks(items, template=demo.prompt()) == {}


@pytest.mark.data
def test_the_railway_prompt_shows_exactly_one_test_question(data_root):
    for k in (1, 5):
        items, _ = railway.build_docs(k, data=data_root)
        prompts = [railway.doc_to_text(doc_to_row(d)) for d in items]
        by_prompts = find_leaks(items, prompts)
        assert by_prompts == find_leaks(items, template=railway.prompt())
        assert by_prompts == {
            "1b310580-64f5-4755-bddf-ec2bc052b800": "the prompt shows this question with its answer"
        }
        assert set(by_prompts) == {d.id for d in items if d.meta["in_prompt"]}
