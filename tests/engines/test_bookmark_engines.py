"""Bookmark on a real engine: pauses leave the tokens alone, a refresh begins a new prompt."""

import asyncio
from typing import Any

import pytest

from harness.retrieval.encoders import open_encoder
from harness.rollouts import bookmark as module
from harness.rollouts.driver import Driver, Job
from harness.rollouts.single_turn import single_turn
from harness.schema import Doc, PolicyConfig, Rollout, Sampling
from harness.scoring.bookmark import metrics
from tests.engines.conftest import user

DOC = Doc("d", "What is a train?", ("x",))


@pytest.fixture(autouse=True)
def tags_that_a_small_model_writes(monkeypatch: Any) -> None:
    """It never writes the real ones by itself; these it does, and they end within its tokens."""
    monkeypatch.setattr(module, "SUBSTEP", (" a ", " transport"))
    monkeypatch.setattr(module, "REFLECTION", (" net", " and"))


def play(engine: Any, policy: Any, tokens: int, **options: Any) -> Rollout:
    if policy is module.bookmark:
        options |= {"encoder": "ngram", "summary_tokens": 2, "max_archive": 2}
    config = PolicyConfig(tuple(user(DOC.question)), Sampling(max_tokens=tokens), options=options)
    driver = Driver(engine, encoder=open_encoder("ngram"))
    rollout = asyncio.run(driver.play(Job("t", DOC, config, policy, "r")))
    assert rollout.error is None, rollout.error
    return rollout


def said(rollout: Rollout) -> list[int]:
    return [i for t in rollout.turns if t.kind == "model" for i in t.token_ids or ()]


def test_archive_and_pauses_without_refresh_change_no_token(engine: Any) -> None:
    plain = play(engine, single_turn, 32)
    kept = play(engine, module.bookmark, 32, refresh=False)
    assert metrics(kept)["archive_size"] >= 1
    assert sum(turn.kind == "model" for turn in kept.turns) >= 3
    assert said(kept) == said(plain)
    assert (kept.answer, kept.finish) == (plain.answer, plain.finish)


def test_a_refreshed_context_is_a_prompt_of_its_own(engine: Any) -> None:
    rollout = play(engine, module.bookmark, 90, max_refreshes=1)
    assert metrics(rollout)["compressions"] >= 1
    context = next(i for i, t in enumerate(rollout.turns) if t.kind == "environment")
    behind = next(t for t in rollout.turns[context:] if t.kind == "model")
    shown = engine.decode(behind.prompt_ids)
    assert shown.endswith(rollout.turns[context].text)
    assert " network" in rollout.turns[context].text  # the rest of the tag's own token
    assert DOC.question in shown
