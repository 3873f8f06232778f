"""Self-Ask with search: the model asks itself follow-up questions, the retriever answers them.

Press et al., "Measuring and Narrowing the Compositionality Gap in Language Models", arXiv
2210.03350, Section 3. One prompt with worked examples; generation stops where the model would
write an intermediate answer by itself, passages go in, and it goes on. If it stops without a final
answer, or may search no more, it is asked for one, once, as in the paper's code.

Known differences: the worked examples are ours; passages stand in place of a search engine's
short answer, as `Context` lines before the intermediate answer that the model then writes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from harness.rollouts.baselines import Steps, at_least_one, numbered, tagged
from harness.rollouts.options import read, takes
from harness.rollouts.prompts import messages
from harness.rollouts.trace import Trace
from harness.schema import Completion, Doc, PolicyConfig, Retrieve

FOLLOW_UP = "Follow up:"
INTERMEDIATE = "Intermediate answer:"
FINAL = "final answer is:"
STOPS = (INTERMEDIATE, "\nQuestion:", "\nContext:")


@dataclass(frozen=True, slots=True)
class SelfAskOptions:
    """Settings of `self_ask`.

    Attributes:
        top_k: Passages a follow-up question.
        max_searches: Follow-up questions that are answered; then the final answer is asked for.
    """

    top_k: int = 5
    max_searches: int = 5

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        at_least_one(top_k=self.top_k, max_searches=self.max_searches)


@takes(SelfAskOptions, ["self_ask"])
def self_ask(doc: Doc, config: PolicyConfig) -> Steps:
    """Ask follow-up questions, search for each, then answer (arXiv 2210.03350)."""
    options: SelfAskOptions = read(self_ask, config.options)
    trace = Trace(doc, config)
    start = messages("self_ask", question=doc.question)
    sampling = dataclasses.replace(config.sampling, stop=(*STOPS, *config.sampling.stop))
    closing = dataclasses.replace(config.sampling, stop=("\n", *config.sampling.stop))
    while True:
        completion: Completion = yield trace.ask(start, sampling, go_on=True)
        text = completion.text
        trace.said(completion)
        if FINAL in text or completion.finish == "context" or sampling is closing:
            break
        asked = _follow_up(text)
        if asked and trace.searches < options.max_searches:
            passages = trace.found((yield Retrieve((asked,), options.top_k)))
            shown = f"Context:\n{numbered(passages)}\n{INTERMEDIATE}"
            trace.shown(_line_end(text) + shown, passages)
        else:
            trace.shown(f"{_line_end(text)}So the {FINAL}")
            sampling = closing
    return trace.end(tagged(_final(trace)) or text)  # without an answer, what it said last


def _follow_up(text: str) -> str:
    """The last question that the model asked itself and did not answer."""
    before, found, rest = text.rpartition(FOLLOW_UP)
    del before
    return rest.strip().partition("\n")[0].strip() if found else ""


def _line_end(text: str) -> str:
    return "" if text.endswith("\n") else "\n"


def _final(trace: Trace) -> str:
    """What follows the last "final answer is:", to the end of the line."""
    said = "".join(turn.text for turn in trace.turns)
    _, found, rest = said.rpartition(FINAL)
    return rest.strip().partition("\n")[0].strip().removesuffix(".") if found else ""
