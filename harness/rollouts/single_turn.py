"""One prompt, one generation: what most tasks want."""

from __future__ import annotations

from collections.abc import Generator

from harness.rollouts.options import read
from harness.rollouts.trace import Trace
from harness.schema import Completion, Doc, Generate, PolicyConfig, Rollout


def single_turn(doc: Doc, config: PolicyConfig) -> Generator[Generate, Completion, Rollout]:
    """Ask once and return the raw output as the answer.

    Raises:
        UsageError: An option is given; there are none.
    """
    read(single_turn, config.options)
    trace = Trace(doc, config)
    completion = yield trace.ask(config.messages, config.sampling)
    trace.said(completion)
    return trace.end(completion.text)
