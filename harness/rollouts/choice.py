"""Multiple choice by log-likelihood: nothing is generated, the likeliest choice is the answer."""

from __future__ import annotations

from collections.abc import Generator

from harness.schema import Doc, LogLikelihood, PolicyConfig, Rollout


def choice(
    doc: Doc, config: PolicyConfig
) -> Generator[LogLikelihood, list[tuple[float, bool]], Rollout]:
    """Ask for the log-likelihood of every choice; the first of equally likely ones is taken."""
    values = yield LogLikelihood(config.messages, config.choices, config.sampling.thinking)
    totals = tuple(total for total, _ in values)
    best = totals.index(max(totals))
    return Rollout(
        doc_id=doc.id,
        repeat=config.repeat,
        turns=(),
        answer=config.choices[best].strip(),
        choices=totals,
    )
