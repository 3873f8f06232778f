"""The engine without a model."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engines import open_engine
from harness.engines.scripted import END, ScriptedEngine, decode, encode
from harness.errors import EngineError, UsageError
from harness.schema import Completion, Engine, Message, Model, Sampling
from tests.engines.conftest import say, say_all, user


def test_it_is_an_engine() -> None:
    assert isinstance(ScriptedEngine([]), Engine)


def test_a_list_is_played_in_order_and_then_is_an_error() -> None:
    engine = ScriptedEngine(["one", "two"])
    assert [say(engine, user("?")).text for _ in range(2)] == ["one", "two"]
    with pytest.raises(EngineError, match="the script has 2 replies, this is call 3"):
        say(engine, user("?"))
    assert engine.calls == 3


def test_a_mapping_answers_by_what_the_prompt_contains() -> None:
    engine = ScriptedEngine({"train": "rail", "": "else"})
    assert say(engine, user("a train")).text == "rail"
    assert say(engine, user("a plane")).text == "else"


def test_a_function_sees_prompt_and_sampling() -> None:
    engine = ScriptedEngine(lambda prompt, sampling: f"{len(prompt)} {sampling.seed}")
    assert say(engine, user("x"), seed=9).text == "1 9"
    assert say(engine, encode("abc"), seed=1).text == "3 1"


def test_completions_and_exceptions_pass_through() -> None:
    ready = Completion("ready", None, None, None, "error")
    engine = ScriptedEngine([ready, ValueError("bad luck")])
    assert say(engine, user("?")) is ready
    with pytest.raises(ValueError, match="bad luck"):
        say(engine, user("?"))


def test_every_nth_call_fails() -> None:
    engine = ScriptedEngine({"": "ok"}, fail_every=3)
    outcomes: list[bool] = []
    for _ in range(6):
        try:
            say(engine, user("?"))
            outcomes.append(True)
        except EngineError:
            outcomes.append(False)
    assert outcomes == [True, True, False] * 2


def test_calls_overlap_and_are_counted() -> None:
    engine = ScriptedEngine({"": "ok"}, latency=lambda call: 0.01)
    say_all(engine, [user("?")] * 5, [Sampling()] * 5)
    assert (engine.calls, engine.max_concurrency) == (5, 5)
    assert len(engine.prompts) == 5


def test_the_earliest_stop_string_wins_and_is_named() -> None:
    made = say(ScriptedEngine(["a b c d"]), user("?"), 99, stop=(" d", " b"))
    assert (made.text, made.finish, made.stop_string) == ("a", "stop", " b")


def test_the_token_budget_and_the_context_cut() -> None:
    made = say(ScriptedEngine(["abcdef"]), user("?"), 3)
    assert (made.text, made.finish, made.token_ids) == ("abc", "length", (97, 98, 99))
    engine = ScriptedEngine({"": "abcdef"}, context_length=10)
    made = say(engine, encode("12345678"), 5)
    assert (made.text, made.finish) == ("ab", "context")
    made = say(engine, encode("1234567890"), 5)
    assert (made.text, made.finish, made.completion_tokens) == ("", "context", 0)


def test_an_answer_ends_with_the_end_token() -> None:
    made = say(ScriptedEngine(["hi"]), user("?"))
    assert made.token_ids == (*encode("hi"), END)
    assert made.logprobs == (-1.0,) * 3


def test_a_trailing_assistant_message_is_left_open() -> None:
    engine = ScriptedEngine([])
    chat = [*user("Q"), Message("assistant", "partial")]
    assert decode(engine.render(chat, None)) == "user: Q\nassistant: partial"
    assert decode(engine.render(user("Q"), None)) == "user: Q\nassistant: "


def test_likelihoods_are_scriptable() -> None:
    engine = ScriptedEngine([], likelihood=lambda context, text: (-len(text) / 2, text == "b"))
    assert asyncio.run(engine.loglikelihood("c", ["aa", "b"])) == [(-1.0, False), (-0.5, True)]
    assert asyncio.run(ScriptedEngine([]).loglikelihood("c", ["abc"])) == [(-3.0, False)]


def test_a_closed_engine_refuses() -> None:
    engine = ScriptedEngine({"": "ok"})
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        say(engine, user("?"))


def test_a_card_can_name_it() -> None:
    model = Model("echo", "scripted", flags={"reply": "always this"}, context_length=100)
    engine = open_engine(model)
    assert say(engine, user("?")).text == "always this"[:12]
    with pytest.raises(UsageError, match="reply = TEXT"):
        open_engine(Model("echo", "scripted"))


@given(st.text())
def test_tokens_are_reversible(text: str) -> None:
    assert decode(encode(text)) == text


@given(st.text(max_size=40), st.lists(st.text(min_size=1, max_size=3), max_size=3))
def test_a_text_never_contains_its_stop_strings(text: str, stops: list[str]) -> None:
    made = say(ScriptedEngine([text]), user("?"), 999, stop=tuple(stops))
    assert not any(stop in made.text for stop in stops)
    assert text.startswith(made.text)
