"""What every in-process engine does, shown with a real model."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from harness.engines import open_engine
from harness.errors import EngineError, UsageError
from harness.schema import Engine, Message, Model, Sampling
from tests.engines.conftest import need, say, say_all, user

CAPITAL = user("What is the capital of France?")


def test_it_is_an_engine(engine: Any) -> None:
    assert isinstance(engine, Engine)
    assert {"generate", "token_ids", "logprobs", "seed", "render"} <= engine.capabilities


def test_greedy_text_is_the_same_every_time(engine: Any) -> None:
    first, second = say(engine, CAPITAL), say(engine, CAPITAL)
    assert first.text == second.text != ""
    assert first.token_ids == second.token_ids


def test_a_token_budget_ends_with_length(engine: Any) -> None:
    made = say(engine, user("Count from one to one hundred."), 5)
    assert made.finish == "length"
    assert made.completion_tokens == len(made.token_ids or ()) == 5


def test_an_end_of_turn_is_a_stop_whose_token_is_kept_but_not_its_text(engine: Any) -> None:
    made = say(engine, user("Say hello."), 80)
    assert made.finish == "stop" and made.stop_string is None
    assert made.token_ids is not None and made.token_ids[-1] == 2
    assert "<|im_end|>" not in made.text
    assert made.logprobs is not None and len(made.logprobs) == len(made.token_ids)


def test_log_probabilities_are_those_of_the_model(engine: Any) -> None:
    made = say(engine, CAPITAL)
    assert made.logprobs is not None and all(-30 < value <= 0 for value in made.logprobs)


def test_a_stop_string_ends_the_text_and_is_named(engine: Any) -> None:
    counting = [*user("Count."), Message("assistant", "1, 2, 3, 4,")]
    whole = say(engine, counting, 24)
    assert ", 7" in whole.text
    made = say(engine, counting, 24, stop=("never said", ", 7"))
    assert (made.finish, made.stop_string) == ("stop", ", 7")
    assert made.text == whole.text.partition(", 7")[0]
    assert len(made.token_ids or ()) < len(whole.token_ids or ())


def test_a_trailing_assistant_message_is_continued(engine: Any) -> None:
    made = say(engine, [*CAPITAL, Message("assistant", "The capital of France is")], 3)
    assert made.text.startswith(" Paris")


def test_a_continued_turn_is_the_answer_s_prompt_plus_its_text(engine: Any) -> None:
    asked = engine.render(CAPITAL, None)
    begun = engine.render([*CAPITAL, Message("assistant", "The capital")], None)
    assert begun[: len(asked)] == asked and len(begun) > len(asked)


def test_the_reported_prompt_is_the_rendered_one(engine: Any) -> None:
    made = say(engine, CAPITAL, 1)
    assert list(made.prompt_ids or ()) == engine.render(CAPITAL, None)
    assert made.prompt_tokens == len(made.prompt_ids or ())


def test_token_ids_as_a_prompt_give_what_the_messages_give(engine: Any) -> None:
    assert say(engine, engine.render(CAPITAL, None)).text == say(engine, CAPITAL).text


def test_a_switch_for_thinking_changes_nothing_without_such_a_template(engine: Any) -> None:
    assert engine.render(CAPITAL, False) == engine.render(CAPITAL, None)


def test_the_same_seed_says_the_same_and_others_something_else(engine: Any) -> None:
    prompt = user("Invent a name for a cat.")
    seeds = [7, 7, 8, 9, 2**63]
    samplings = [Sampling(1.0, max_tokens=10, seed=seed) for seed in seeds]
    made = [c.text for c in say_all(engine, [prompt] * 5, samplings)]
    assert made[0] == made[1]
    assert len(set(made)) >= 3


def test_a_sampled_text_does_not_depend_on_its_neighbours(engine: Any) -> None:
    prompt, sampling = user("Invent a city."), Sampling(0.8, top_p=0.9, max_tokens=8, seed=5)
    alone = say_all(engine, [prompt], [sampling])[0].text
    others = [Sampling(1.0, max_tokens=4 + n, seed=n) for n in range(4)]
    crowd = say_all(engine, [prompt, *(user(f"Say {n}") for n in range(4))], [sampling, *others])
    assert crowd[0].text == alone


def test_top_k_of_one_is_greedy(engine: Any) -> None:
    assert say(engine, CAPITAL, temperature=2.0, top_k=1, seed=3).text == say(engine, CAPITAL).text


def test_a_prompt_over_the_context_is_data_not_an_error(engine: Any) -> None:
    made = say(engine, [504] * 512)
    assert (made.finish, made.text, made.completion_tokens) == ("context", "", 0)
    assert made.prompt_tokens == 512


def test_a_generation_ends_where_the_context_ends(engine: Any) -> None:
    made = say(engine, [504] * 507, 100)
    assert (made.finish, made.completion_tokens) == ("context", 5)
    assert say(engine, [504] * 507, 5).finish == "length"


def test_more_requests_than_slots_all_come_back(engine: Any) -> None:
    prompts = [user(f"Repeat the number {n}.") for n in range(11)]
    samplings = [Sampling(max_tokens=1 + n % 4) for n in range(11)]
    made = say_all(engine, prompts, samplings)
    assert [c.completion_tokens for c in made] == [1 + n % 4 for n in range(11)]
    assert [list(c.prompt_ids or ()) for c in made] == [engine.render(p, None) for p in prompts]


def test_a_caller_that_gives_up_leaves_the_others_alone(engine: Any) -> None:
    async def run() -> str:
        long = asyncio.create_task(engine.generate(CAPITAL, Sampling(max_tokens=60)))
        other = asyncio.create_task(engine.generate(CAPITAL, Sampling(max_tokens=6)))
        await asyncio.sleep(0.05)
        long.cancel()
        return (await other).text

    assert asyncio.run(run()) == say(engine, CAPITAL, 6).text


@pytest.mark.parametrize("name", ["hf", "llamacpp"])
def test_plain_text_a_template_file_and_closing(
    name: str, card: Model, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One load each for what needs another card."""
    need(name)
    stock = request.getfixturevalue(name)
    chat = [Message("system", "Trains."), *user("Where to?"), Message("assistant", "To the")]
    plain = open_engine(dataclasses.replace(card, engine=name, chat_template="none"))
    again = open_engine(dataclasses.replace(card, engine=name, chat_template="none"))
    assert plain.render(chat, None) == plain.render(user("Trains.\n\nWhere to?To the"), None)
    assert plain.fingerprint == again.fingerprint != stock.fingerprint
    again.close()

    file = tmp_path / "short.jinja"
    file.write_text("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}>>")
    own = open_engine(dataclasses.replace(card, engine=name, chat_template=str(file)))
    expected = "[system] Trains.\n[user] Where to?\n>>To the"
    assert own.render(chat, None) == plain.render(user(expected), None)
    assert own.fingerprint not in (plain.fingerprint, stock.fingerprint)
    plain.close()
    own.close()
    own.close()
    with pytest.raises(EngineError, match="closed"):
        say(own, [1, 2])


@pytest.mark.parametrize("name", ["hf", "llamacpp"])
def test_a_flag_that_the_engine_has_not_is_refused(name: str, card: Model) -> None:
    wrong = dataclasses.replace(card, engine=name, flags={"dytpe": "x", "cache_promt": True})
    with pytest.raises(UsageError, match="has no flag 'dytpe'"):
        open_engine(wrong)
    bad = {"hf": {"dtype": 16}, "llamacpp": {"cache_prompt": 1}}[name]
    with pytest.raises(UsageError, match="must be a"):
        open_engine(dataclasses.replace(card, engine=name, flags=bad))


def test_both_engines_render_a_chat_to_the_same_ids(hf: Any, llamacpp: Any) -> None:
    chats = [
        CAPITAL,
        [
            Message("system", "Be brief."),
            *user("Hi"),
            Message("assistant", "Hello"),
            *user("列车?"),
        ],
        [*user("  spaces \n\n and <|im_end|> inside "), Message("assistant", "As I said, ")],
    ]
    for chat in chats:
        assert hf.render(chat, None) == llamacpp.render(chat, None)
    assert hf.fingerprint != llamacpp.fingerprint
