"""The search policy: dialects, budgets, and what models do wrong."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.dialects import DIALECTS
from harness.engines.scripted import ScriptedEngine
from harness.errors import UsageError
from harness.rollouts import identity
from harness.rollouts.driver import Driver, Job
from harness.rollouts.search import search
from harness.schema import (
    Completion,
    Doc,
    Generate,
    Message,
    Passage,
    PolicyConfig,
    RetrievalError,
    Retrieve,
    Sampling,
)
from harness.scoring.search import queries, search_reasons

DOC = Doc("d", "Who built it?", ("Ann",))
FOUND = [Passage("p1", "Ann built {it}.", title="Tower"), Passage("p2", "Nothing.")]
Q, E = "<|begin_of_query|>", "<|end_of_query|>"


class Library:
    fingerprint = "library"

    def __init__(self, results=None):
        self.results = results or {}
        self.asked = []

    def retrieve(self, queries, k):
        self.asked += queries
        return [self.results.get(q, FOUND)[:k] for q in queries]


def play(replies, options=None, retriever=None, **engine):
    engine = ScriptedEngine(replies, **engine)
    config = PolicyConfig((Message("user", "unused"),), Sampling(max_tokens=4096), 0, options or {})
    driver = Driver(engine, retriever or Library())
    return asyncio.run(driver.play(Job("t", DOC, config, search, "r"))), engine


def text(rollout):
    return "".join(t.text for t in rollout.turns if t.kind != "summary")


def test_documents_go_in_where_the_model_asked_and_it_goes_on():
    rollout, engine = play([f"I look. {Q} tower {E} ignored", "So. <answer> Ann </answer> more"])
    assert text(rollout) == (
        f"I look. {Q} tower {E}\n\n<|begin_of_documents|>\n(1)Tower   Ann built {{it}}.\n"
        "(2)Nothing.\n<|end_of_documents|>\n\nSo. <answer> Ann </answer>"
    )
    assert rollout.answer == "So. <answer> Ann </answer>"
    assert [t.kind for t in rollout.turns] == ["model", "environment", "model"]
    assert rollout.turns[1].passages == ("p1", "p2")
    assert rollout.searches == 1
    assert engine.prompts[1] == engine.prompts[0] + text(rollout)[: -len(rollout.answer)]


def test_the_second_prompt_begins_with_the_first_and_its_ids():
    rollout, _ = play([f"I look. {Q} tower {E}", "<answer>Ann</answer>"])
    first, _, second = rollout.turns
    begin = first.prompt_ids + first.token_ids
    assert second.prompt_ids[: len(begin)] == begin


@pytest.mark.parametrize(
    ("dialect", "asks", "shown"),
    [
        ("search_r1", "<search> tower </search>",
         "\n\n<information>Doc 1(Title: Tower) Ann built {it}.\nDoc 2(Title: ) Nothing."
         "</information>\n\n"),
        ("flashrag", f"{Q}tower{E}",
         "\n\n<|begin_of_documents|>\n(1)Title: Tower Text: Ann built {it}.\n"
         "(2)Title:  Text: Nothing.\n\n<|end_of_documents|>\n\n"),
    ],
)  # fmt: skip
def test_each_dialect_has_its_own_tags_and_documents(dialect, asks, shown):
    rollout, _ = play([asks, "<answer>Ann</answer>"], {"dialect": dialect})
    assert rollout.turns[1].text == shown
    assert rollout.answer == "<answer>Ann</answer>"


def test_a_query_over_the_budget_ends_the_rollout_with_the_published_answer():
    rollout, engine = play({"": f"{Q} again {E}"}, {"max_searches": 2})
    assert rollout.searches == 2
    assert engine.calls == 3
    assert rollout.answer == "I don't know."
    assert "search_budget" in search_reasons(rollout)
    assert "repeated_query" in search_reasons(rollout)


def test_an_answer_after_the_last_search_counts():
    rollout, _ = play([f"{Q} a {E}", f"{Q} b {E}", "<answer>x</answer>"], {"max_searches": 2})
    assert rollout.answer == "<answer>x</answer>"
    assert search_reasons(rollout) == ()


def test_a_model_that_never_acts_is_advised_or_stopped_as_its_dialect_says():
    stopped, engine = play({"": "hm"})
    assert (engine.calls, stopped.answer, len(stopped.turns)) == (1, "hm", 1)
    advised, engine = play({"": "hm"}, {"dialect": "search_r1"})
    assert advised.turns[-1].kind == "model"
    assert engine.calls == DIALECTS["search_r1"].max_turns
    assert "previous action is invalid" in advised.turns[1].text
    assert advised.searches == 0


def test_a_turn_that_never_ends_is_cut_and_says_so():
    rollout, _ = play({"": "la " * 400}, {"turn_tokens": 20})
    assert rollout.finish == "length"
    assert rollout.completion_tokens == 20


def test_a_full_context_is_the_models_failure_and_not_an_error():
    rollout, _ = play({"": f"{Q} a {E}"}, context_length=2000, retriever=Library(
        {"a": [Passage("big", "x" * 1500)]}))  # fmt: skip
    assert rollout.error is None
    assert rollout.finish == "context"


def test_documents_of_the_models_own_are_left_in_and_reported():
    own = f"{Q} a {E}\n<|begin_of_documents|>\n(1)made up\n<|end_of_documents|>"
    rollout, _ = play(["<|begin_of_documents|>(1)made up <answer>x</answer>"])
    assert search_reasons(rollout) == ("own_documents",)
    cut, _ = play([own, "<answer>x</answer>"])
    assert "made up" not in text(cut)
    assert search_reasons(cut) == ()


@pytest.mark.parametrize("said", [f"{Q}  {E}", f"no opening {E}"])
def test_an_empty_query_is_not_searched(said):
    library = Library()
    rollout, _ = play([said], retriever=library)
    assert library.asked == []
    assert search_reasons(rollout) == ("empty_query",)


def test_search_o1_refuses_what_was_asked_before_and_what_is_over_budget():
    q = "<|begin_search_query|> A <|end_search_query|>"
    other = q.replace("A", "B")
    library = Library()
    rollout, _ = play(
        [q, q.replace("A", "a"), other, q.replace("A", "C"), "<answer>x</answer>"],
        {"dialect": "search_o1", "max_searches": 2},
        library,
    )
    assert library.asked == ["A", "B"]
    said = [t.text for t in rollout.turns if t.kind == "environment"]
    assert "have searched this query" in said[1]
    assert "limit is exceeded" in said[3]
    assert search_reasons(rollout) == ("repeated_query", "search_budget")
    assert queries(rollout) == ["A", "a", "B", "C"]


def test_a_search_that_finds_nothing_says_so():
    rollout, _ = play([f"{Q} a {E}", "<answer>x</answer>"], retriever=Library({"a": []}))
    assert "No documents were found." in rollout.turns[1].text


def test_a_retriever_that_fails_is_an_infrastructure_failure():
    class Down:
        fingerprint = "down"

        def retrieve(self, queries, k):
            return [RetrievalError(q, "index gone") for q in queries]

    rollout, _ = play([f"{Q} a {E}"], retriever=Down())
    assert rollout.finish == "error"
    assert "index gone" in rollout.error


def test_with_summaries_the_model_reads_apart_and_only_what_it_took_goes_on():
    rollout, engine = play(
        [f"I look. {Q} tower {E}", "Long. Final Information: Ann did.", "<answer>Ann</answer>"],
        {"summarise": True},
    )
    assert [t.kind for t in rollout.turns] == ["model", "summary", "environment", "model"]
    assert "Ann did." in rollout.turns[2].text
    assert "built" not in rollout.turns[2].text
    assert rollout.turns[2].passages == ("p1", "p2")
    assert "Ann built {it}." in engine.prompts[1]
    assert "Long." not in engine.prompts[2]
    assert engine.prompts[2].startswith(engine.prompts[0])


def test_an_endpoint_that_names_no_stop_string_is_understood_by_its_open_tag():
    def step(generator, value):
        return generator.send(value)

    plain = lambda said: Completion(said, None, None, None, "stop")  # noqa: E731
    rollout = search(DOC, PolicyConfig((), Sampling()))
    first = next(rollout)
    assert isinstance(first, Generate)
    asked = step(rollout, plain(f"I look. {Q} tower "))
    assert asked == Retrieve(("tower",), 5)
    go_on = step(rollout, [FOUND])
    assert "".join(t.text for t in go_on.turns).startswith(f"I look. {Q} tower {E}\n\n<|begin")
    with pytest.raises(StopIteration) as end:
        step(rollout, plain("<answer> Ann "))
    assert end.value.value.answer == "<answer> Ann </answer>"


def test_the_turn_limit_and_the_stop_strings_reach_the_engine():
    command = next(search(DOC, PolicyConfig((), Sampling(max_tokens=4096, stop=("END",)))))
    assert command.sampling.max_tokens == 512
    assert command.sampling.stop == (E, "</answer>", "<|im_end|>", "<|endoftext|>", "END")
    assert next(search(DOC, PolicyConfig((), Sampling(max_tokens=64)))).sampling.max_tokens == 64


PIECES = [Q, E, "<answer>", "</answer>", "<search>", "</search>", "<|begin_of_documents|>",
          "tower", " ", "\n", "é", "<|im_end|>", "{passages}"]  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), min_size=1, max_size=4),
    st.sampled_from(sorted(DIALECTS)),
    st.integers(0, 3),
    st.booleans(),
)
def test_whatever_a_model_writes_the_rollout_ends_within_its_budgets(
    said, dialect, budget, summarise
):
    calls = iter(range(1000))
    rollout, engine = play(
        lambda prompt, sampling: said[next(calls) % len(said)],
        {"dialect": dialect, "max_searches": budget, "summarise": summarise},
    )
    assert rollout.error is None
    assert rollout.searches <= budget
    assert engine.calls <= DIALECTS[dialect].max_turns + budget
    own = [t for t in rollout.turns if t.kind == "model"]
    for before, after in pairwise(own):
        assert after.prompt_ids[: len(before.prompt_ids)] == before.prompt_ids
    assert rollout.turns[-1] is own[-1]
    spoken = "".join(t.text for t in rollout.turns[:-1] if t.kind != "summary")
    assert bytes(i for i in own[-1].prompt_ids if i < 256).decode().endswith(spoken)
    search_reasons(rollout)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"dialect": "r1_seacher"}, "r1_searcher"),
        ({"max_search": 3}, "max_searches"),
        ({"max_searches": "three"}, "max_searches"),
        ({"max_searches": -1}, "max_searches"),
        ({"top_k": True}, "top_k"),
        ({"block": "no documents"}, "passages"),
        ({"passage": "{nonsense}"}, "placeholder"),
        ({"query": ["<a>"]}, "query"),
        ({"prompt": "r1_searcher_bse"}, "r1_searcher_base"),
    ],
)
def test_a_wrong_option_is_one_line_that_names_it(options, names):
    with pytest.raises(UsageError, match=names) as error:
        identity("search", options)
    assert "\n" not in str(error.value)


def test_a_policy_without_options_refuses_them():
    with pytest.raises(UsageError, match="single_turn"):
        identity("single_turn", {"dialect": "flashrag"})


def test_another_prompt_is_another_policy():
    base = identity("search", {})
    assert identity("search", {"prompt": "r1_searcher_base"})[2] != base[2]
    assert identity("single_turn", {}) == ["single_turn", {}]
