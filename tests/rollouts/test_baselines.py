"""The baseline methods: what they ask, what they search, and what they take as the answer."""

import asyncio

import pytest

from harness.engines.scripted import ScriptedEngine
from harness.errors import UsageError
from harness.rollouts import POLICIES, SEARCHING, identity, policy
from harness.rollouts.driver import Driver, Job
from harness.rollouts.prompts import messages, prompts
from harness.schema import Doc, Passage, PolicyConfig, RetrievalError, Sampling

DOC = Doc("d", "Who built the {documents} of {question}?", ("Ann",))
ONE_SHOT = ("naive", "cot", "rag")


class Shelf:
    """One passage a query, its text the query."""

    fingerprint = "shelf"

    def __init__(self):
        self.asked = []

    def retrieve(self, queries, k):
        self.asked += [(q, k) for q in queries]
        return [[Passage(f"p{q}", f"about {q}", title="T")] for q in queries]


def play(name, replies, options=None, retriever=None, **engine):
    engine = ScriptedEngine(replies, **engine)
    config = PolicyConfig((), Sampling(max_tokens=4096), 0, options or {})
    driver = Driver(engine, retriever)
    job = Job("t", DOC, config, policy(name), "r")
    return asyncio.run(driver.play(job)), engine


@pytest.mark.parametrize("name", ONE_SHOT)
def test_a_one_shot_method_asks_once_and_returns_what_was_said(name):
    shelf = Shelf()
    rollout, engine = play(name, ["so <answer>Ann</answer>"], retriever=shelf)
    assert engine.calls == 1
    assert rollout.answer == "so <answer>Ann</answer>"
    assert (rollout.searches, len(shelf.asked)) == ((1, 1) if name == "rag" else (0, 0))


def test_rag_shows_the_passages_of_the_question_and_braces_change_nothing():
    shelf = Shelf()
    rollout, engine = play("rag", ["x"], {"top_k": 7}, shelf)
    assert shelf.asked == [(DOC.question, 7)]
    assert f"(1)T   about {DOC.question}" in engine.prompts[0]
    assert engine.prompts[0].count(DOC.question) == 2
    assert rollout.turns[0].passages == (f"p{DOC.question}",)


def test_iter_retgen_searches_with_what_it_said_last():
    shelf = Shelf()
    rollout, engine = play("iter_retgen", ["first", "second", "third"], retriever=shelf)
    assert [q for q, _ in shelf.asked] == [
        DOC.question,
        f"{DOC.question} first",
        f"{DOC.question} second",
    ]
    assert rollout.answer == "third"
    assert "first" in engine.prompts[1]  # in the passages of its query only
    assert rollout.searches == 3


def test_self_ask_searches_its_follow_up_questions_and_its_answer_is_tagged():
    shelf = Shelf()
    replies = [
        " Yes.\nFollow up: Who was it?\nIntermediate answer: made up",
        " It was Ann.\nSo the final answer is: Ann.\nQuestion: another",
    ]
    rollout, engine = play("self_ask", replies, retriever=shelf)
    assert shelf.asked == [("Who was it?", 5)]
    assert rollout.answer == "<answer>Ann</answer>"
    said = "".join(t.text for t in rollout.turns)
    assert said.startswith(" Yes.\nFollow up: Who was it?\nContext:\n(1)T   about Who was it?\n")
    assert "made up" not in said
    assert engine.prompts[1].endswith("Intermediate answer:")
    first = rollout.turns[0]
    assert rollout.turns[2].prompt_ids[: len(first.prompt_ids)] == first.prompt_ids


def test_self_ask_that_never_ends_is_asked_for_its_answer_once():
    again = " Yes.\nFollow up: Who?\nIntermediate answer:"
    replies = [again, again, again, " nobody\n"]
    rollout, engine = play("self_ask", replies, {"max_searches": 2}, Shelf())
    assert (rollout.searches, engine.calls) == (2, 4)
    assert rollout.answer == "<answer>nobody</answer>"


def test_ircot_takes_a_sentence_at_a_time_and_searches_with_it():
    shelf = Shelf()
    replies = [" Ann built it. She was tall.", " So the answer is: Ann. Really."]
    rollout, engine = play("ircot", replies, retriever=shelf)
    assert [q for q, _ in shelf.asked] == [DOC.question, "Ann built it."]
    assert engine.prompts[1].endswith("Thought: Ann built it.")
    assert "She was tall" not in engine.prompts[1]
    assert rollout.answer == "<answer>Ann</answer>"
    assert rollout.turns[2].passages == (f"p{DOC.question}", "pAnn built it.")


CLOSINGS = {"self_ask": "\nSo the final answer is:", "ircot": " So the answer is:"}


@pytest.mark.parametrize("name", CLOSINGS)
def test_a_method_that_stops_without_an_answer_is_asked_for_it_once(name):
    replies = [" She built it.", " Ann.", " Ann.", " Ann."]
    rollout, engine = play(name, replies, {"max_steps": 1} if name == "ircot" else {}, Shelf())
    assert engine.calls == 2
    assert engine.prompts[1].endswith(f" She built it.{CLOSINGS[name]}")
    assert rollout.answer == "<answer>Ann</answer>"


@pytest.mark.parametrize("name", CLOSINGS)
def test_a_method_that_comes_to_no_answer_all_the_same_is_judged_by_what_it_said(name):
    rollout, _ = play(name, [" No.", "", "", ""], {}, Shelf())
    assert rollout.answer == ""
    rollout, _ = play(name, {"": "no room"}, {}, Shelf(), context_length=400)
    said = [t.text for t in rollout.turns if t.kind == "model"]
    assert (rollout.finish, rollout.answer) == ("context", said[-1])


@pytest.mark.parametrize("name", ["naive", "rag"])
def test_without_tags_the_whole_output_is_the_answer(name):
    rollout, engine = play(name, [" Ann \n"], {"tags": False}, Shelf())
    assert rollout.answer == "<answer>Ann</answer>"
    assert "<answer>" not in engine.prompts[0]
    assert identity(name, {"tags": False})[2:] != identity(name, {})[2:]  # another prompt


def test_search_o1_reads_documents_apart_by_default():
    replies = [
        "<|begin_search_query|> bridge <|end_search_query|>",
        "Final Information: Ann.",
        "<answer>Ann</answer>",
    ]
    rollout, _ = play("search_o1", replies, retriever=Shelf())
    assert [t.kind for t in rollout.turns] == ["model", "summary", "environment", "model"]
    assert rollout.turns[2].text == ("\n\n<|begin_search_result|>\nAnn.\n<|end_search_result|>\n\n")


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_names_an_unknown_option(name):
    with pytest.raises(UsageError, match="nonsense"):
        identity(name, {"nonsense": 1})


@pytest.mark.parametrize("name", sorted(SEARCHING - {"search"}))
def test_a_failing_retriever_is_never_the_models_fault(name):
    class Down:
        fingerprint = "down"

        def retrieve(self, queries, k):
            return [RetrievalError(q, "index gone") for q in queries]

    asks = "<|begin_search_query|> a <|end_search_query|>\nFollow up: who?\nIntermediate answer:"
    rollout, _ = play(name, {"": asks}, retriever=Down())
    assert rollout.finish == "error"


@pytest.mark.parametrize("name", sorted(SEARCHING | {"naive", "cot"}))
@pytest.mark.parametrize("said", ["", "hm", "answer is:", "Follow up:", "<answer>"])
def test_a_model_that_says_nothing_useful_ends_and_has_no_answer(name, said):
    rollout, engine = play(name, {"": said}, retriever=Shelf())
    assert rollout.error is None
    assert engine.calls <= 16
    assert "<answer></answer>" not in rollout.answer


@pytest.mark.parametrize("name", sorted(SEARCHING | {"naive", "cot"}))
def test_a_prompt_over_the_context_is_recorded_as_such(name):
    rollout, _ = play(name, {"": "x"}, retriever=Shelf(), context_length=64)
    assert (rollout.error, rollout.finish) == (None, "context")


def test_every_prompt_names_its_source_and_knows_its_fields():
    fields = dict.fromkeys(
        ("question", "documents", "thoughts", "query", "previous", "max_searches"), "VALUE"
    )
    for name, prompt in prompts().items():
        assert prompt["source"]
        assert any("VALUE" in m.content for m in messages(name, **fields))
