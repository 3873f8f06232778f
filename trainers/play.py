"""TRL's rollout hook, played by the harness's own driver and policies.

TRL hands the hook the `prompt` column and nothing else; here that column holds ids of docs, so a
prompt means one doc whatever its text. The driver plays the doc with the recipe's policy on the
model in training, and what comes back is token ids with the environment's masked
(`trainers.sequences`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from harness.errors import ConfigError, EngineError, UsageError
from harness.rollouts import encoder_name, policy
from harness.rollouts.driver import Driver, Job
from harness.rollouts.options import read
from harness.schema import (
    Doc,
    Encoder,
    Engine,
    Message,
    PolicyConfig,
    Retriever,
    Rollout,
    Sampling,
    Verdict,
)
from harness.scoring import oracle
from trainers.data import Example
from trainers.recipe import Recipe
from trainers.sequences import TokenSequence, sequences

WINDOW = 64
"""Rollouts in flight at most."""


def sampling_of(recipe: Recipe) -> Sampling:
    """How rollouts are drawn."""
    h = recipe.hyper
    return Sampling(h.temperature, h.top_p, h.top_k, h.max_tokens, thinking=h.thinking)


class Player:
    """Plays docs by their ids.

    Args:
        recipe: Names policy and sampling.
        rows: The docs.
        engine: The model in training.
        retriever: What a searching policy searches.
        encoder: What an embedding policy embeds with.
    """

    def __init__(
        self,
        recipe: Recipe,
        rows: Sequence[Example],
        engine: Engine,
        retriever: Retriever | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        self._recipe = recipe
        self._rows = {e.doc.id: e for e in rows}
        self._engine = engine
        self._retriever = retriever
        self._encoder = encoder
        self._policy = policy(recipe.policy)

    def doc(self, doc_id: str) -> Doc:
        """The doc behind a prompt."""
        return self._rows[doc_id].doc

    def play(self, ids: Sequence[str], step: int) -> list[Rollout]:
        """One rollout for each id, in order; an id that comes again is the next repeat.

        Raises:
            EngineError: A rollout failed. It is never a zero: the run stops and resumes.
        """
        seen: Counter[str] = Counter()
        jobs: list[Job] = []
        for doc_id in ids:
            row = self._rows[doc_id]
            repeat = seen[doc_id]
            seen[doc_id] += 1
            options = dict(self._recipe.policy_options)
            config = PolicyConfig(row.messages, sampling_of(self._recipe), repeat, options)
            jobs.append(Job(self._recipe.name, row.doc, config, self._policy, f"{doc_id}/{repeat}"))
        done: dict[str, Rollout] = {}

        def keep(job: Job, rollout: Rollout) -> None:
            done[job.request] = rollout

        driver = Driver(
            self._engine,
            self._retriever,
            self._encoder,
            window=WINDOW,
            seed=self._recipe.hyper.seed * 1_000_003 + step,
        )
        driver.run(jobs, keep)
        rollouts = [done[job.request] for job in jobs if job.request in done]
        failed = next((r.error for r in rollouts if r.error is not None), driver.gave_up or None)
        if failed or len(rollouts) < len(jobs):
            raise EngineError(f"step {step}: a rollout failed ({failed}); the same command resumes")
        return rollouts


def hook_output(
    docs: Sequence[Doc], rollouts: Sequence[Rollout], filler: int
) -> tuple[dict[str, list[Any]], list[list[TokenSequence]]]:
    """What TRL's rollout hook returns, and all sequences of each rollout.

    TRL wants one row a rollout: it gets the last sequence (see trainers/trl_turns.py for the
    others).

    Args:
        docs: Of each rollout.
        rollouts: In the order of the prompts.
        filler: Token of a rollout in which the model said nothing; its weight is 0.
    """
    every = [sequences(rollout) or [TokenSequence((filler,), (), ())] for rollout in rollouts]
    every = [[_filled(sequence, filler) for sequence in of_one] for of_one in every]
    last = [of_one[-1] for of_one in every]
    columns: dict[str, list[Any]] = {
        "prompt_ids": [list(s.prompt_ids) for s in last],
        "completion_ids": [list(s.completion_ids) for s in last],
        "env_mask": [list(s.mask) for s in last],
        "doc": list(docs),
        "rollout": list(rollouts),
    }
    return columns, every


def _filled(sequence: TokenSequence, filler: int) -> TokenSequence:
    if sequence.completion_ids:
        return sequence
    return TokenSequence(sequence.prompt_ids, (filler,), (0,))


# --- what a recipe's policy needs ------------------------------------------------------------


def check_policy(recipe: Recipe) -> None:
    """Refuse a policy or option that does not exist, before anything is loaded.

    Raises:
        UsageError: Names it.
    """
    if recipe.is_rl:
        read(policy(recipe.policy), recipe.policy_options)
        if recipe.reward == "korean_oracle" and not recipe.judge:
            raise UsageError(
                f"recipe '{recipe.name}': reward '{recipe.reward}' needs an oracle: give "
                f"judge=CARD (a model card; a server's is best)"
            )


def open_search(recipe: Recipe, data: str | None) -> tuple[Retriever | None, Encoder | None]:
    """Retriever and encoder of the recipe's policy; None where it needs none.

    Raises:
        ConfigError: The policy searches, but the recipe names no corpus.
        UsageError, DataError: The corpus or the encoder is unknown or not at hand.
    """
    from harness.retrieval import open_retriever
    from harness.retrieval.encoders import open_encoder
    from harness.rollouts import SEARCHING

    retriever: Retriever | None = None
    if recipe.policy in SEARCHING:
        if not recipe.data.corpus:
            raise ConfigError(
                f"recipe '{recipe.name}': policy '{recipe.policy}' needs 'data.corpus'"
            )
        from tasks.multihop_qa.rows import corpus

        found = corpus(corpus=recipe.data.corpus, data=data)
        retriever = open_retriever(recipe.data.retriever, found)
    name = encoder_name(recipe.policy, recipe.policy_options)
    return retriever, open_encoder(name) if name else None


def oracle_judge(engine: Engine, name: str) -> Callable[[Doc, Rollout], Verdict]:
    """The oracle judge of the Korean reward, played by any engine.

    A reply without a number gives a verdict without values: the reward then refuses.
    """
    sampling = Sampling(max_tokens=16_384)

    def judge(doc: Doc, rollout: Rollout) -> Verdict:
        asked = [Message("user", oracle.prompt(doc, rollout))]
        completion = asyncio.run(engine.generate(asked, sampling))
        return oracle.verdict(name, completion.text)

    return judge
