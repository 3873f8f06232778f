"""The engine for OpenAI-compatible servers, against one that misbehaves on purpose."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engines import endpoint, open_engine, openai_reply
from harness.errors import EngineError, UsageError
from harness.schema import Completion, Engine, Message, Model, Sampling
from tests.engines.conftest import need, say_all, user
from tests.engines.conftest import say as ask
from tests.engines.endpoint_server import (
    Act,
    Server,
    answer,
    break_off,
    cut_short,
    good,
    hang,
    overflow,
    say,
    slam,
)

Serve = Callable[..., Server]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    monkeypatch.delenv(endpoint.KEY_VARIABLE, raising=False)
    servers: list[Server] = []

    def start(software: str = "", **card: Any) -> Server:
        servers.append(Server(software, **card))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def card_of(server: Server, flags: dict[str, Any] | None = None, **fields: Any) -> Model:
    return Model(
        fields.pop("name", "m"), "openai", flags={"endpoint": server.url, **(flags or {})}, **fields
    )


def opened(server: Server, flags: dict[str, Any] | None = None, **fields: Any) -> Any:
    return open_engine(card_of(server, flags, **fields), backoff=0.001)


# --- what is served --------------------------------------------------------------------------


def test_it_is_an_engine_that_promises_no_more_than_the_server_can(serve: Serve) -> None:
    engine = opened(serve())
    assert isinstance(engine, Engine)
    assert engine.capabilities == {"generate"}
    vllm = opened(serve("vllm", max_model_len=64))
    assert {"token_ids", "logprobs", "render", "continue", "loglikelihood"} < vllm.capabilities
    assert vllm.context_length == 64


def test_the_only_model_is_taken_and_a_wrong_name_gets_the_nearest(serve: Serve) -> None:
    server = serve()
    server.cards = [{"id": "Qwen/Qwen3-8B"}]
    assert endpoint.find(card_of(server)).name == "Qwen/Qwen3-8B"
    with pytest.raises(UsageError, match=r"serves no 'Qwen/Qwen3-9B': did you mean Qwen/Qwen3-8B"):
        endpoint.find(card_of(server, {"model": "Qwen/Qwen3-9B"}))


def test_of_several_models_the_card_s_own_is_taken_or_a_name_is_asked_for(serve: Serve) -> None:
    server = serve()
    server.cards = [{"id": "a"}, {"id": "base"}]
    assert endpoint.find(card_of(server, name="a")).name == "a"
    assert endpoint.find(card_of(server, path="base")).name == "base"
    for other in ({}, {"path": "base", "adapter": "lora"}):  # a base is not its adapter
        with pytest.raises(UsageError, match=r"2 models, name one with served=NAME: known: a, ba"):
            endpoint.find(card_of(server, **other))


def test_a_server_without_a_list_of_models_needs_the_name(serve: Serve) -> None:
    server = serve()
    server.cards = None
    assert endpoint.find(card_of(server, {"model": "x"})).name == "x"
    with pytest.raises(UsageError, match="with /v1, and served=NAME"):
        endpoint.find(card_of(server))


def test_no_server_is_one_clear_failure(serve: Serve) -> None:
    server = serve()
    gone = card_of(server)
    server.shutdown()
    server.server_close()
    with pytest.raises(EngineError, match=r"no model server answers: .*same command goes on"):
        endpoint.find(gone)


def test_a_server_that_has_loaded_nothing_yet_is_no_server(serve: Serve) -> None:
    server = serve()
    server.cards = []
    with pytest.raises(EngineError, match="serves no model yet"):
        endpoint.find(card_of(server))


def test_another_port_is_the_same_model_and_another_root_is_not(serve: Serve) -> None:
    first, moved = serve("vllm", root="/models/a"), serve("vllm", root="/models/a")
    other = serve("vllm", root="/models/b")
    found = [endpoint.find(card_of(s)) for s in (first, moved, other)]
    assert found[0] == found[1]
    assert found[0].weights != found[2].weights
    engines = [opened(s) for s in (first, moved, other)]
    assert engines[0].fingerprint == engines[1].fingerprint != engines[2].fingerprint


def test_the_smaller_context_of_card_and_server_holds(serve: Serve) -> None:
    server = serve("vllm", max_model_len=4096)
    assert endpoint.find(card_of(server, context_length=1000)).context_length == 1000
    assert endpoint.find(card_of(server, context_length=10**6)).context_length == 4096
    assert endpoint.find(card_of(serve())).context_length == endpoint.UNKNOWN_CONTEXT


# --- keys and cards --------------------------------------------------------------------------


def test_the_key_is_sent_and_never_shown(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve()
    server.key = "sk-secret-1"
    monkeypatch.setenv("MY_KEY", "sk-secret-1\n")
    assert ask(opened(server, {"api_key_env": "MY_KEY"}), user("Hi")).text == "fine"
    assert set(server.keys) == {"Bearer sk-secret-1"}
    monkeypatch.setenv("MY_KEY", "sk-secret-2")
    with pytest.raises(UsageError, match="environment variable MY_KEY") as refused:
        opened(server, {"api_key_env": "MY_KEY"})
    assert "secret-2" not in str(refused.value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"endpoint": ""}, "needs the address of a server"),
        ({"endpoint": "localhost:8000"}, "no http:// or https:// address"),
        ({"endpoint": "http://me:word@host/v1"}, "cannot carry a password"),
        ({"endpoint": "http://host/v1?key=1"}, "cannot carry a password"),
        ({"api_key": "sk-1"}, "no flag 'api_key', did you mean api_key_env"),
        ({"api_key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY holds no API key"),
        ({"timeout": "long"}, "'timeout' must be"),
    ],
)
def test_a_mistake_in_a_card_is_named(
    serve: Serve, flags: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(UsageError, match=message) as error:
        endpoint.find(card_of(serve(), flags))
    assert "word" not in str(error.value).replace("password", "")


def test_a_template_of_our_own_is_refused(serve: Serve) -> None:
    with pytest.raises(UsageError, match=r"applies its own chat template: .*x\.jinja"):
        opened(serve(), chat_template="x.jinja")


# --- servers that misbehave ------------------------------------------------------------------

FAILURES: dict[str, Act] = {
    "429": answer(429, {"error": "slow down"}, Retry_After="0"),
    "500": answer(500, {"error": "oh"}),
    "503": answer(503, b"upstream gone"),
    "no choices": answer(200, {"choices": []}),
    "null choices": answer(200, {"choices": None}),
    "null content": good(say(None)),
    "no finish": good(say("half of", None)),
    "aborted": good(say("half of", "abort")),
    "filtered": good(say("", "content_filter")),
    "an error with 200": answer(200, {"error": {"message": "CUDA error"}}),
    "no object": answer(200, [1]),
    "message no object": answer(200, {"choices": [{"finish_reason": "stop", "message": "x"}]}),
    "broken off": break_off,
    "cut short": cut_short,
    "slammed": slam,
    "hung": hang,
}


@pytest.mark.parametrize("software", ["", "vllm"])
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_asked_again_and_leaves_no_trace(
    serve: Serve, name: str, software: str
) -> None:
    server = serve(software)
    server.acts = [FAILURES[name], FAILURES[name]]
    made = ask(opened(server, {"timeout": 0.1 if name == "hung" else 20}), user("Hi"))
    assert (made.text, made.finish) == ("fine", "stop")
    assert len(server.asked) == 3
    assert server.asked[0] == server.asked[2]


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_that_stays_is_an_error_and_never_an_answer(serve: Serve, name: str) -> None:
    server = serve()
    server.answer = lambda _: FAILURES[name]
    timeout = 0.05 if name == "hung" else 20
    with pytest.raises(EngineError, match="after 3 attempts"):
        ask(opened(server, {"retries": 2, "timeout": timeout}), user("Hi"))
    assert len(server.asked) == 3


def test_a_request_that_is_refused_is_not_repeated(serve: Serve) -> None:
    server = serve()
    server.answer = lambda _: answer(400, {"error": "top_k is not a thing here"})
    with pytest.raises(EngineError, match="top_k is not a thing here"):
        ask(opened(server), user("Hi"))
    assert len(server.asked) == 1


def test_no_more_requests_are_in_flight_than_the_card_allows(serve: Serve) -> None:
    server = serve()
    now = most = 0

    def slow(body: dict[str, Any]) -> dict[str, Any]:
        nonlocal now, most
        with server.lock:
            now += 1
            most = max(most, now)
        server.let_go.wait(0.02)
        with server.lock:
            now -= 1
        return say(body["messages"][0]["content"])(body)

    server.answer = slow
    engine = opened(server, parallelism={"requests": 3})
    texts = [str(n) for n in range(12)]
    made = say_all(engine, [user(t) for t in texts], [Sampling()] * 12)
    assert [c.text for c in made] == texts
    assert most <= 3


def test_a_closed_engine_refuses(serve: Serve) -> None:
    engine = opened(serve())
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        ask(engine, user("Hi"))


# --- token counts ----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, -1, 10**9, None, True, "3", 12.5])
def test_a_count_that_cannot_be_true_is_unknown_and_said_once(
    serve: Serve, count: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    server.answer = say("four words are here", usage={"completion_tokens": count})
    engine = opened(server)
    with caplog.at_level(logging.WARNING, "checkrail"):
        assert ask(engine, user("Hi")).completion_tokens is None
        assert ask(engine, user("Hi")).text == "four words are here"
    assert engine.miscounts == 2
    assert len(caplog.records) == 1 and "missing or wrong" in caplog.text


def test_ids_are_counted_and_the_server_s_count_is_not_believed(serve: Serve) -> None:
    server = serve("vllm")
    server.answer = say("abc", token_ids=[97, 98, 99], usage={"completion_tokens": 8})
    engine = opened(server)
    made = ask(engine, user("Hi"))
    assert (made.token_ids, made.completion_tokens) == ((97, 98, 99), 3)
    assert made.prompt_tokens == len(made.prompt_ids or ())
    assert engine.miscounts == 1


def test_log_probabilities_come_with_ids_or_not_at_all(serve: Serve) -> None:
    server = serve("vllm")
    both = {"token_ids": [1, 2], "logprobs": {"token_logprobs": [-0.5, -1.5]}}
    server.answer = say("ab", **both)
    assert ask(opened(server), user("Hi")).logprobs == (-0.5, -1.5)
    server.answer = say("ab", **{**both, "token_ids": [1, 2, 3]})
    assert ask(opened(server), user("Hi")).logprobs is None
    server.tokenizes = False
    content = {"content": [{"token": "a", "logprob": -0.25}, {"token": "b", "logprob": -1.0}]}
    server.answer = say("ab", token_ids=[1, 2], logprobs=content)
    assert ask(opened(server), user("Hi")).logprobs == (-0.25, -1.0)


# --- ends ------------------------------------------------------------------------------------


def test_a_stop_string_is_named_where_the_server_says_so(serve: Serve) -> None:
    server = serve("vllm")
    server.answer = say("a", stop_reason="\n", token_ids=[97])
    made = ask(opened(server), user("Hi"), stop=("\n", ""))
    assert (made.finish, made.stop_string) == ("stop", "\n")
    assert server.asked[0]["stop"] == ["\n"]


def test_a_token_budget_is_length_and_the_end_of_the_context_is_context(serve: Serve) -> None:
    server = serve()
    server.answer = say("a b", "length", usage={"prompt_tokens": 9, "completion_tokens": 3})
    engine = opened(server)
    assert ask(engine, user("Hi"), 3).finish == "length"
    assert ask(engine, user("Hi"), 30).finish == "context"


def test_a_prompt_over_the_context_is_data_not_an_error(serve: Serve) -> None:
    server = serve()
    server.answer = lambda _: overflow(100, 101)
    made = ask(opened(server), user("Hi"), 30)
    assert (made.finish, made.text, made.completion_tokens) == ("context", "", 0)
    vllm = serve("vllm", max_model_len=10)
    made = ask(opened(vllm), user("longer than ten bytes"), 30)
    assert (made.finish, made.text) == ("context", "") and not vllm.asked
    assert made.prompt_tokens == len("user: longer than ten bytes\nassistant: ")


@pytest.mark.parametrize("fields", [{}, {"context_length": 100}, {"chat_template": "none"}])
def test_a_budget_over_the_context_is_cut_to_what_is_left(
    serve: Serve, fields: dict[str, Any]
) -> None:
    server = serve()
    server.answer = lambda _: overflow(100, 80)
    made = ask(opened(server, **fields), user("Hi"), 30)
    assert (made.finish, made.text, made.completion_tokens) == ("context", "cut", 20)
    assert [body["max_tokens"] for body in server.asked] == [30, 1, 20]


def test_ids_over_a_context_that_only_the_refusal_names_are_cut_to_it(serve: Serve) -> None:
    server = serve()
    server.answer = lambda body: overflow(100, len(body["prompt"]))
    engine = opened(server)
    assert ask(engine, [5] * 90, 30).completion_tokens == 10
    assert ask(engine, [5] * 100, 30).finish == "context"
    server.answer = lambda _: answer(400, {"error": "prompt is too long"})
    with pytest.raises(EngineError, match="too long"):  # by how much, nobody knows
        ask(engine, [5] * 90, 30)
    assert ask(opened(server, context_length=95), [5] * 90, 30).finish == "context"


def test_llama_cpp_s_words_for_an_overflow_are_understood() -> None:
    text = "request (3000 tokens) exceeds the available context size (2048 tokens), try increasing"
    assert openai_reply.overflows(text) and openai_reply.limit_of(text) == 2048
    assert not openai_reply.overflows("temperature must be at least 0")


# --- what is asked ---------------------------------------------------------------------------


def test_sampling_and_thinking_reach_the_server(serve: Serve) -> None:
    server = serve()
    engine = opened(server)
    ask(engine, user("Hi"), 9, temperature=0.6, top_p=0.9, top_k=20, seed=5, thinking=False)
    ask(engine, user("Hi"), 9)
    full, bare = server.asked
    assert full == {
        "model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9,
        "temperature": 0.6, "top_p": 0.9, "top_k": 20, "seed": 5,
        "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    assert not {"top_k", "seed", "stop", "chat_template_kwargs"} & set(bare)


def test_vllm_is_told_to_leave_off_what_it_would_add(serve: Serve) -> None:
    server = serve("vllm")
    ask(opened(server), user("Hi"), 9)
    (body,) = server.asked
    assert (body["top_k"], body["min_p"], body["repetition_penalty"]) == (-1, 0.0, 1.0)
    assert body["return_token_ids"] is True


def test_a_server_that_renders_is_asked_for_token_ids(serve: Serve) -> None:
    server = serve("vllm")
    engine = opened(server)
    chat = [Message("system", "Brief."), *user("Hi"), Message("assistant", "As I")]
    text = "system: Brief.\nuser: Hi\nassistant: [True]As I"
    assert bytes(engine.render(chat, True)).decode() == text == engine.render_text(chat, True)
    made = ask(engine, chat, thinking=True)
    assert server.asked[0]["prompt"] == list(text.encode()) == list(made.prompt_ids or ())
    assert "messages" not in server.asked[0]


def test_an_open_turn_is_continued_where_the_server_can_and_refused_where_not(
    serve: Serve,
) -> None:
    chat = [*user("Hi"), Message("assistant", "Well")]
    hidden = serve("vllm")
    hidden.tokenizes = False
    engine = opened(hidden)
    assert "continue" in engine.capabilities and "render" not in engine.capabilities
    ask(engine, chat)
    (body,) = hidden.asked
    assert body["continue_final_message"] is True and body["add_generation_prompt"] is False
    assert body["messages"][-1] == {"role": "assistant", "content": "Well"}
    other = serve()
    with pytest.raises(UsageError, match="cannot continue a trailing assistant message"):
        ask(opened(other), chat)
    with pytest.raises(UsageError, match="does not render"):
        opened(other).render(chat, None)


def test_a_base_model_is_asked_in_plain_text(serve: Serve) -> None:
    server = serve()
    chat = [Message("system", "Trains."), *user("Where to?"), Message("assistant", " To")]
    ask(opened(server, chat_template="none"), chat)
    assert server.asked[0]["prompt"] == "Trains.\n\nWhere to? To"


def test_token_ids_are_sent_as_they_are(serve: Serve) -> None:
    server = serve()
    made = ask(opened(server), [5, 6, 7])
    assert server.asked[0]["prompt"] == [5, 6, 7] == list(made.prompt_ids or ())


# --- reasoning -------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_that_is_returned_apart_is_put_back(serve: Serve, key: str) -> None:
    server = serve()
    server.answer = say("42", reasoning={key: "\nhm\n"})
    assert ask(opened(server), user("Hi")).text == "<think>\nhm\n</think>42"
    tags = ("[T]", "[/T]")
    assert ask(opened(server, think_tags=tags), user("Hi")).text == "[T]\nhm\n[/T]42"


@pytest.mark.parametrize("content", [None, ""])
def test_reasoning_without_an_answer_stays_open(serve: Serve, content: str | None) -> None:
    server = serve()
    usage = {"completion_tokens": 12}
    server.answer = say(content, "length", reasoning={"reasoning_content": "hm"}, usage=usage)
    made = ask(opened(server), user("Hi"), 12)
    assert (made.text, made.finish) == ("<think>hm", "length")


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_text_of_a_reply_is_lost(reasoning: str, content: str) -> None:
    whole = openai_reply.whole_text(reasoning, content, ("<think>", "</think>"))
    assert reasoning in whole and content in whole
    assert ("<think>" in whole) >= bool(reasoning)
    assert whole.endswith(content) or not content


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "message", "content", "text", "finish_reason", "error"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_reply_is_read_or_complained_about(reply: Any) -> None:
    if not openai_reply.complaint(reply):
        made = openai_reply.completion(reply, Sampling(), None)
        assert isinstance(made, Completion) and made.finish in ("stop", "length", "context")


# --- log-likelihood --------------------------------------------------------------------------


def test_log_likelihoods_are_sums_over_the_continuation(serve: Serve) -> None:
    server = serve("vllm")

    def table(body: dict[str, Any]) -> dict[str, Any]:
        rows = [{str(i): {"logprob": -float(i), "rank": 1 + (i == 99)}} for i in body["prompt"]]
        return say("x", prompt_logprobs=[None, *rows[1:]])(body)

    server.answer = table
    values = asyncio.run(opened(server).loglikelihood("Q: ", ["ab", "c"]))
    # The space at the end of the context counts with the continuation, as in lm-eval.
    assert values == [(-(32.0 + 97 + 98), True), (-(32.0 + 99), False)]
    server.answer = say("x", prompt_logprobs=None)
    with pytest.raises(EngineError, match="no usable prompt_logprobs"):
        asyncio.run(opened(server).loglikelihood("Q:", ["a"]))


def test_log_likelihood_is_refused_where_the_server_has_none(serve: Serve) -> None:
    with pytest.raises(UsageError, match="no probabilities of prompt tokens"):
        asyncio.run(opened(serve()).loglikelihood("a", ["b"]))


# --- llama.cpp's own server ------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(card: Model, llamacpp: Any) -> Iterator[tuple[Any, Any]]:
    """The in-process engine, and its server asked from outside."""
    need("llamacpp")
    flags = {"endpoint": f"http://{llamacpp.address}/v1"}
    outside = open_engine(dataclasses.replace(card, engine="openai", flags=flags))
    yield llamacpp, outside
    outside.close()


def test_llama_cpp_s_server_can_what_the_engine_can(served: tuple[Any, Any]) -> None:
    inside, outside = served
    assert outside.capabilities == inside.capabilities
    assert outside.context_length == inside.context_length


def test_llama_cpp_s_server_says_what_the_engine_says(served: tuple[Any, Any]) -> None:
    inside, outside = served
    chats = [
        user("What is the capital of France?"),
        [*user("Count."), Message("assistant", "1, 2, 3, 4,")],
        [Message("system", "Be brief."), *user("列车?")],
    ]
    for chat in chats:
        assert outside.render(chat, None) == inside.render(chat, None)
        assert outside.render_text(chat, None) == inside.render_text(chat, None)
        here, there = ask(inside, chat, 12), ask(outside, chat, 12)
        assert here.prompt_ids == there.prompt_ids
        assert (here.text, here.token_ids, here.finish) == (
            there.text,
            there.token_ids,
            there.finish,
        )
        assert there.logprobs == pytest.approx(here.logprobs, abs=0.05)


def test_llama_cpp_s_server_stops_and_overflows_like_the_engine(served: tuple[Any, Any]) -> None:
    _, outside = served
    counting = [*user("Count."), Message("assistant", "1, 2, 3, 4,")]
    made = ask(outside, counting, 24, stop=("never said", ", 7"))
    assert (made.finish, made.stop_string) == ("stop", ", 7")
    assert ask(outside, [504] * 512).finish == "context"
    made = ask(outside, [504] * 507, 100)
    assert (made.finish, made.completion_tokens) == ("context", 5)
