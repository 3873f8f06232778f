"""Token ids in, token ids out: the next prompt begins with what the engine read and wrote."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engines.scripted import END, ScriptedEngine, encode
from harness.rollouts.continuation import continued, spoken
from harness.rollouts.trace import Trace
from harness.schema import Completion, Doc, Generate, Message, PolicyConfig, Sampling, Turn

ASK = (Message("user", "q"),)
DOC = Doc("d", "q", ("a",))


class Merging:
    """A tokenizer with two tokens of several characters, as real ones have."""

    TOKENS = (">\n\n", "ab")

    def encode(self, text):
        ids = []
        while text:
            token = next((t for t in self.TOKENS if text.startswith(t)), text[0])
            ids.append(self.TOKENS.index(token) if token in self.TOKENS else ord(token) + 10)
            text = text[len(token) :]
        return ids

    def decode(self, ids):
        return "".join(self.TOKENS[i] if i < 2 else "" if i == 9 else chr(i - 10) for i in ids)


def after(engine, first, text, environment):
    completion = asyncio.run(engine.generate(ASK, first))
    trace = Trace(DOC, PolicyConfig(ASK, first))
    trace.said(completion, text)
    trace.shown(environment)
    return completion, continued(engine, trace.ask(ASK, first, go_on=True))


def test_the_next_prompt_is_the_last_one_its_answer_and_the_environment():
    engine = ScriptedEngine(["think <q> x </q> never said"])
    done, ids = after(engine, Sampling(stop=("</q>",)), "think <q> x </q>", "\nDOCS\n")
    assert list(ids) == [*done.prompt_ids, *encode("think <q> x </q>\nDOCS\n")]
    assert tuple(ids[: len(done.prompt_ids)]) == done.prompt_ids


def test_the_end_of_turn_token_is_no_part_of_what_goes_on():
    engine = ScriptedEngine(["no tags"])
    done, ids = after(engine, Sampling(), "no tags", "\ntry again\n")
    assert done.token_ids[-1] == END
    assert list(ids) == [*done.prompt_ids, *encode("no tags\ntry again\n")]


def test_a_token_that_holds_the_environments_first_characters_is_kept_whole():
    tokens = Merging()
    written = tokens.encode("<q>\n\n")  # the stop string was "<q>"
    kept, rest = spoken(tokens, written, "<q>\n\nDOCS")
    assert (kept, rest) == (written, "DOCS")


def test_a_token_that_says_more_than_the_turn_is_cut_and_only_it():
    tokens = Merging()
    written = tokens.encode("ab<q>\n\n")
    kept, rest = spoken(tokens, written, "ab<q>DOCS")
    assert kept == written[:-1]
    assert rest == ">DOCS"


@given(st.text("ab<>q\n", max_size=30), st.text("ab<>q\n", max_size=30))
def test_what_is_kept_and_what_is_encoded_say_the_text(said, environment):
    tokens = Merging()
    kept, rest = spoken(tokens, [*tokens.encode(said), 9], said + environment)
    assert tokens.decode(kept) + rest == said + environment
    assert kept == tokens.encode(said)[: len(kept)]


def test_without_a_tokenizer_the_turns_are_an_open_assistant_message():
    class Endpoint:
        pass

    turns = (Turn("model", "one "), Turn("summary", "aside"), Turn("environment", "two"))
    command = Generate((*ASK, Message("assistant", "<think>")), Sampling(), turns)
    assert continued(Endpoint(), command) == [*ASK, Message("assistant", "<think>one two")]
    with pytest.raises(ValueError, match="tokenizer"):
        continued(Endpoint(), Generate((1, 2), Sampling(), turns))


def test_turns_without_ids_go_as_text_even_where_there_is_a_tokenizer():
    turns = (Turn("model", "one "), Turn("environment", "two"))
    assert continued(ScriptedEngine([]), Generate(ASK, Sampling(), turns)) == [
        *ASK,
        Message("assistant", "one two"),
    ]


def test_a_turn_that_nobody_counted_leaves_the_rollout_without_a_sum() -> None:
    trace = Trace(DOC, PolicyConfig(ASK, Sampling()))
    for count in (3, None, 4):
        trace.said(Completion("a", None, None, None, "stop", completion_tokens=count))
    assert trace.end("a").completion_tokens is None
    assert len(trace.turns) == 3
