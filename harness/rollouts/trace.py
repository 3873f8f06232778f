"""What a policy of several turns notes down as it goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from harness.errors import RetrieverError
from harness.schema import (
    Completion,
    Doc,
    Finish,
    Generate,
    Message,
    Passage,
    PolicyConfig,
    RetrievalError,
    Rollout,
    Sampling,
    Turn,
)


class Trace:
    """The turns so far, and their counts.

    Args:
        doc: Played.
        config: As the policy got it.
    """

    def __init__(self, doc: Doc, config: PolicyConfig) -> None:
        self.doc = doc
        self.config = config
        self.turns: list[Turn] = []
        self.searches = 0
        self.finish: Finish = "stop"
        self._prompt_tokens = 0
        self._completion_tokens: int | None = 0

    def ask(
        self, messages: tuple[Message, ...], sampling: Sampling, *, go_on: bool = False
    ) -> Generate:
        """A request: from scratch, or continuing all turns so far."""
        return Generate(messages, sampling, tuple(self.turns) if go_on else ())

    def said(self, completion: Completion, text: str | None = None) -> None:
        """Note a model turn; `text` where it counts as having said more (its stop string)."""
        self._count(completion)
        self.finish = completion.finish
        said = completion.text if text is None else text
        self.turns.append(dataclasses.replace(model_turn(completion), text=said))

    def summarised(self, completion: Completion) -> None:
        """Note what the model said on the side: not a part of what is continued."""
        self._count(completion)
        self.turns.append(dataclasses.replace(model_turn(completion), kind="summary"))

    def shown(self, text: str, passages: Sequence[Passage] = ()) -> None:
        """Note a turn of the environment, with the ids of the passages it shows."""
        self.turns.append(Turn("environment", text, passages=tuple(p.doc_id for p in passages)))

    def found(self, results: Sequence[list[Passage] | RetrievalError]) -> list[Passage]:
        """The passages of one query's result, counted as a search.

        Raises:
            RetrieverError: The retriever failed: not the model's fault, so never scored.
        """
        (result,) = results
        if isinstance(result, RetrievalError):
            raise RetrieverError(f"{result.message} (query {result.query[:80]!r})")
        self.searches += 1
        return result

    def end(self, answer: str) -> Rollout:
        """The rollout, with the text that scoring reads."""
        return Rollout(
            doc_id=self.doc.id,
            repeat=self.config.repeat,
            turns=tuple(self.turns),
            answer=answer,
            finish=self.finish,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            searches=self.searches,
        )

    def _count(self, completion: Completion) -> None:
        self._prompt_tokens += completion.prompt_tokens
        if self._completion_tokens is None or completion.completion_tokens is None:
            self._completion_tokens = None  # a server that cannot count leaves no sum
        else:
            self._completion_tokens += completion.completion_tokens


def model_turn(completion: Completion) -> Turn:
    """A completion as the model's turn, ids and log-probabilities kept."""
    return Turn(
        "model",
        completion.text,
        completion.prompt_ids,
        completion.token_ids,
        completion.logprobs,
    )
