"""One prompt, one generation: what most tasks want."""

from __future__ import annotations

from collections.abc import Generator

from harness.schema import Completion, Doc, Generate, PolicyConfig, Rollout, Turn


def single_turn(doc: Doc, config: PolicyConfig) -> Generator[Generate, Completion, Rollout]:
    """Ask once and return the raw output as the answer."""
    completion = yield Generate(config.messages, config.sampling)
    return Rollout(
        doc_id=doc.id,
        repeat=config.repeat,
        turns=(model_turn(completion),),
        answer=completion.text,
        finish=completion.finish,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
    )


def model_turn(completion: Completion) -> Turn:
    """A completion as the model's turn, ids and log-probabilities kept."""
    return Turn(
        "model",
        completion.text,
        completion.prompt_ids,
        completion.token_ids,
        completion.logprobs,
    )
