"""Search inside the reasoning: the model asks, generation pauses, documents go in, it goes on.

R1-Searcher (arXiv 2503.05592, Section 2.2.2), Search-R1 (arXiv 2503.09516, Algorithm 1) and
Search-o1 (arXiv 2501.05366, Section 3) differ in tags, document format and limits: dialects,
see harness/dialects.py. Options are the fields of a dialect, over the one that is named:

    policy=search policy_options.dialect=search_r1 policy_options.max_searches=8

What a model does wrong stays in the rollout, where `harness.scoring.search` reads it: documents
of its own, a repeated query, a query over budget (a last turn that nobody answers), no answer,
a full context (finish "context"), a turn without end (finish "length").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from harness.dialects import DIALECTS, Dialect
from harness.errors import UsageError, nearest
from harness.rollouts.options import checked, read, takes, value_of
from harness.rollouts.prompts import messages
from harness.rollouts.trace import Trace
from harness.schema import (
    Command,
    Completion,
    Doc,
    Generate,
    Message,
    Passage,
    PolicyConfig,
    Retrieve,
    Rollout,
    Sampling,
)

Steps = Generator[Command, Any, Rollout]

QUERY, ANSWER, NEITHER = "query", "answer", "neither"


@dataclasses.dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options beside those of the dialect.

    Attributes:
        dialect: One of `harness.dialects.DIALECTS`.
        summarise: Let the model read the documents of each search apart and go on with what it
            took from them (Search-o1's Reason-in-Documents; R1-Searcher's online setting).
    """

    dialect: str = "r1_searcher"
    summarise: bool = False


def search_options(policy: str, given: Mapping[str, Any]) -> tuple[Dialect, SearchOptions]:
    """A dialect with the user's changes.

    Raises:
        UsageError: Unknown dialect or option, or a bad value.
    """
    own = {f.name for f in dataclasses.fields(SearchOptions)}
    options = checked(SearchOptions, {k: v for k, v in given.items() if k in own}, policy)
    if options.dialect not in DIALECTS:
        hint = nearest(options.dialect, DIALECTS)
        raise UsageError(f"policy '{policy}': unknown dialect '{options.dialect}': {hint}")
    known = [*own, *(f.name for f in dataclasses.fields(Dialect))]
    changes: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            raise UsageError(f"policy '{policy}': unknown option '{key}': {nearest(key, known)}")
        if key not in own:
            changes[key] = value_of(Dialect, key, value, policy)
    try:
        return dataclasses.replace(DIALECTS[options.dialect], **changes), options
    except ValueError as error:
        raise UsageError(f"policy '{policy}': {error}") from None


def prompts_of(given: Mapping[str, Any]) -> list[str]:
    """Names of the prompts that these options use."""
    dialect, options = search_options("search", given)
    own = [] if dialect.prompt == "task" else [dialect.prompt]
    return own + ["reason_in_documents"] * options.summarise


@takes(search_options, prompts_of, (SearchOptions, Dialect))
def search(doc: Doc, config: PolicyConfig) -> Steps:
    """Search inside the reasoning (R1-Searcher, Search-R1, FlashRAG, Search-o1 dialects).

    Raises:
        UsageError: Unknown dialect, option or prompt, or a bad value.
    """
    dialect, options = read(search, config.options)
    return (yield from play(doc, config, dialect, summarise=options.summarise))


def play(doc: Doc, config: PolicyConfig, dialect: Dialect, *, summarise: bool) -> Steps:
    """One rollout in a dialect; policies with their own defaults share it."""
    trace = Trace(doc, config)
    start = _prompt(doc, config, dialect)
    sampling = _sampling(config.sampling, dialect)
    asked: set[str] = set()
    for turn in range(1, dialect.max_turns + 1):
        completion: Completion = yield trace.ask(start, sampling, go_on=True)
        text, kind = ending(completion, dialect)
        trace.said(completion, text)
        if completion.finish == "context" or kind == ANSWER:
            return trace.end(text)
        query = _query(text, dialect) if kind == QUERY else ""
        if turn == dialect.max_turns:  # nobody would read what is shown now
            return trace.end(dialect.no_answer if query else text)
        over = bool(query) and trace.searches >= dialect.max_searches
        if not query:
            remark = dialect.invalid
        elif over:
            remark = dialect.said(dialect.over_budget) if dialect.over_budget else ""
        elif dialect.repeated and same(query) in asked:
            remark = dialect.said(dialect.repeated)
        else:
            asked.add(same(query))
            passages = trace.found((yield Retrieve((query,), dialect.top_k)))
            shown = dialect.shown(passages)
            if summarise and passages:
                shown = yield from _read(trace, dialect, query, passages, sampling)
            trace.shown(shown, passages)
            continue
        if not remark:
            return trace.end(dialect.no_answer if over else text)
        trace.shown(remark)
    raise AssertionError("the last turn returns")


def _prompt(doc: Doc, config: PolicyConfig, dialect: Dialect) -> tuple[Message, ...]:
    if dialect.prompt == "task":
        return config.messages
    return messages(dialect.prompt, question=doc.question, max_searches=dialect.max_searches)


def _sampling(sampling: Sampling, dialect: Dialect) -> Sampling:
    ends = (dialect.query[1], dialect.answer[1], *dialect.stop, *sampling.stop)
    return dataclasses.replace(
        sampling,
        max_tokens=min(sampling.max_tokens, dialect.turn_tokens),
        stop=tuple(dict.fromkeys(ends)),
    )


def ending(completion: Completion, dialect: Dialect) -> tuple[str, str]:
    """What the model said, its closing tag included, and what it thereby asks for."""
    text, stop = completion.text, completion.stop_string
    if stop is None and completion.finish == "stop" and completion.token_ids is None:
        # Endpoints do not say which stop string they met; an open tag tells.
        stop = next(
            (tags[1] for tags in (dialect.query, dialect.answer) if _open(text, tags)), None
        )
    if stop == dialect.query[1]:
        return text + dialect.query[1], QUERY
    if stop == dialect.answer[1]:
        return text + dialect.answer[1], ANSWER
    return text, NEITHER


def _open(text: str, tags: tuple[str, str]) -> bool:
    return text.rfind(tags[0]) > text.rfind(tags[1])


def _query(text: str, dialect: Dialect) -> str:
    """The query that a turn ends with; "" where it was never opened or is empty."""
    said = text.removesuffix(dialect.query[1])
    return said.rpartition(dialect.query[0])[2].strip() if _open(said, dialect.query) else ""


def same(query: str) -> str:
    """Queries that differ in case and white space only are the same."""
    return " ".join(query.casefold().split())


def _read(
    trace: Trace, dialect: Dialect, query: str, passages: Sequence[Passage], sampling: Sampling
) -> Generator[Generate, Completion, str]:
    """Let the model read the documents apart; what it took from them is what is shown."""
    prompt = messages(
        "reason_in_documents",
        previous="".join(t.text for t in trace.turns if t.kind != "summary"),
        query=query,
        documents=dialect.lines(passages),
    )
    completion = yield trace.ask(prompt, dataclasses.replace(sampling, stop=()))
    trace.summarised(completion)
    taken = completion.text.rpartition("Final Information:")[2].strip()
    return dialect.said(f"\n{taken or dialect.nothing}\n")
