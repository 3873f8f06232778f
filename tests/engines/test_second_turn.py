"""A second turn begins with the ids of the first: nothing the model wrote is encoded again."""

from typing import Any

import pytest

from harness.rollouts.continuation import continued
from harness.rollouts.trace import Trace
from harness.schema import Doc, PolicyConfig, Sampling, Tokenizer
from tests.engines.conftest import say, user

DOCUMENTS = "\n\n<information>Doc 1(Title: Zürich) A city — 瑞士.</information>\n\n"


def second_prompt(engine: Any, first: Any, said: str, shown: str = DOCUMENTS) -> list[int]:
    ask = tuple(user("Count from one to ten in words."))
    trace = Trace(Doc("d", "q", ("a",)), PolicyConfig(ask, Sampling()))
    trace.said(first, said)
    trace.shown(shown)
    return list(continued(engine, trace.ask(ask, Sampling(), go_on=True)))


def test_both_engines_know_their_tokens(engine: Any) -> None:
    assert isinstance(engine, Tokenizer)
    text = "Where is <search> Zürich </search>?\n\n"
    assert engine.decode(engine.encode(text)) == text


def test_a_turn_cut_by_its_budget_goes_on_from_its_own_ids(engine: Any) -> None:
    first = say(engine, user("Count from one to ten in words."), max_tokens=9)
    assert first.finish == "length"
    ids = second_prompt(engine, first, first.text)
    begin = [*first.prompt_ids, *first.token_ids]
    assert ids[: len(begin)] == begin
    assert ids[len(begin) :] == engine.encode(DOCUMENTS)


@pytest.mark.parametrize("where", [3, 14, 25])
def test_a_turn_ended_by_a_stop_string_keeps_every_token_that_says_only_it(
    engine: Any, where: int
) -> None:
    whole = say(engine, user("What is a train?"), max_tokens=24).text
    stop = whole[where : where + 3]  # inside a word: the last token says more than the stop
    first = say(engine, user("What is a train?"), max_tokens=24, stop=(stop,))
    assert first.stop_string == stop
    ids = second_prompt(engine, first, first.text + stop)
    new = ids[len(first.prompt_ids) :]
    assert tuple(ids[: len(first.prompt_ids)]) == first.prompt_ids
    assert engine.decode(new) == first.text + stop + DOCUMENTS
    sure = max(len(first.token_ids) - 4, 0)  # three characters are four tokens at most
    assert new[:sure] == list(first.token_ids[:sure])


def test_a_finished_turn_goes_on_without_its_end_mark(engine: Any) -> None:
    first = say(engine, user("Say hello."), max_tokens=40)
    assert first.finish == "stop"
    ids = second_prompt(engine, first, first.text)
    new = ids[len(first.prompt_ids) :]
    assert new == [*first.token_ids[:-1], *engine.encode(DOCUMENTS)]
    again = say(engine, ids, max_tokens=4)
    assert list(again.prompt_ids) == ids
