"""How one task is played, and the key of what it asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness import codec
from harness.rescore import scored_by
from harness.rollouts import BY_LIKELIHOOD, CONTINUING, MODEL_FREE
from harness.rollouts import identity as policy_identity
from harness.schema import Encoder, Message, Retriever, Sampling
from harness.scoring import TaskScorer


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """How one task is played.

    Attributes:
        info: What the store keeps of the task (fingerprints, version, flags, ...).
        scorer: Judges and scores a finished rollout.
        selected: Docs in this invocation's selection, `total` in the whole set.
        retriever: What the policy searches while it plays; its index is built at the first
            query, so a finished run builds none.
        encoder: What the policy embeds with; its weights are read when it first does.
        source: Hash of the file that outside predictions come from; "" for rollouts of our own.
    """

    name: str
    info: Mapping[str, Any]
    policy: str
    policy_options: Mapping[str, Any]
    sampling: Sampling
    scorer: TaskScorer
    repeats: int
    selected: int
    total: int
    retriever: Retriever | None = None
    encoder: Encoder | None = None
    source: str = ""

    @property
    def needs(self) -> str:
        """Engine capability without which the task cannot be played; "" for a bare reader."""
        if self.policy in MODEL_FREE:
            return ""
        if self.policy in BY_LIKELIHOOD:
            return "loglikelihood"
        return "continue" if self.policy in CONTINUING else "generate"

    @property
    def scored_by(self) -> str:
        """What a stored score depends on besides the rollout: scorer, judge and data set."""
        return scored_by(self.scorer.fingerprint, str(self.info["fingerprints"]["dataset"]))


def request_key(messages: Sequence[Message], plan: TaskPlan, choices: Sequence[str] = ()) -> str:
    """Key of a sample besides doc and repeat: prompt, choices, sampling, policy, retriever."""
    parts: list[Any] = [
        codec.messages_to_json(messages),
        codec.sampling_to_json(plan.sampling),
        *policy_identity(plan.policy, plan.policy_options),
    ]
    if choices:
        parts.append(list(choices))
    if plan.retriever is not None:
        parts.append(plan.retriever.fingerprint)
    if plan.encoder is not None:
        parts.append(plan.encoder.fingerprint)
    if plan.source:
        parts.append(plan.source)
    return codec.sha(parts)[:32]
