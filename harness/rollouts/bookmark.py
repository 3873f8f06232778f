"""Bookmark: a long chain of thought that is archived in steps, and goes on from a short context.

The model writes `<substep>...</substep>`; each finished substep goes to an archive with its
embedding and a summary, its bookmark, that the same engine makes. Where the model writes
`<reflection>`, its next two sentences are embedded, the most relevant substep is fetched, and
generation goes on from a fresh context instead of the whole history:

    variant=insert    problem + all bookmarks so far + reflection, two sentences + that substep
    variant=replace   problem + the bookmarks retrieved + reflection, two sentences

Source: the report "NLP-Bookmark-Framework" (2025-12-26), section 2: `insert` is the text of its
training section, `replace` that of its overview, `summarise=all` follows its annotation, which
summarises reflections as well. The report gives no format of a refreshed context, no limits, and
no number of bookmarks to retrieve: those are ours, as is the prompt of the summaries.

What is recorded: model turns; a summary turn a bookmark; an environment turn wherever the context
was replaced, with the new context as its text and the ids of what was fetched ("substep-3") as
its passages. The model turn behind it has the refreshed prompt's ids. `harness.scoring.bookmark`
reads compressions, archive and context lengths from them.

`compress=false` plays `single_turn`, request by request. `refresh=false` archives and pauses but
keeps the history: under greedy decoding, token for token what `single_turn` says (drawn samples
differ, since each request has a seed of its own). `max_tokens` bounds what the model writes in its
own turns; summaries come on top (see harness/budget.py for comparisons at equal cost).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.rollouts.baselines import Steps, at_least_one
from harness.rollouts.options import read, takes
from harness.rollouts.prompts import messages
from harness.rollouts.trace import Trace
from harness.schema import (
    Completion,
    Doc,
    Embed,
    Generate,
    PolicyConfig,
    Rollout,
    Turn,
)

SUBSTEP = ("<substep>", "</substep>")
REFLECTION = ("<reflection>", "</reflection>")
BOOKMARK = ("<bookmark>", "</bookmark>")
VARIANTS = ("insert", "replace")
SUMMARISED = ("substeps", "all")
FETCHED = {"insert": 1, "replace": 3}
"""Substeps, or bookmarks, that a reflection fetches by default."""

SENTENCES = 2
SENTENCE_ENDS = (". ", ".\n", "? ", "?\n", "! ", "!\n", "\n\n", "。", "？", "！")
PIECES = 8
"""Stretches at most that are read for the two sentences: a list's "1. " is no sentence."""

_WORDS = re.compile(r"[^\W\d_]{2}|[\u3040-\ud7af]")
_TAG = re.compile(r"</?(?:substep|reflection|bookmark|think)>")
_THINK = re.compile(r"\s*<think>\s*")
CHARS_A_TOKEN = 3
"""Where a server counts no tokens, the budget is kept by characters."""


@dataclass(frozen=True, slots=True)
class BookmarkOptions:
    """Settings of `bookmark`.

    Attributes:
        variant: insert or replace.
        summarise: substeps, or all (reflections too).
        encoder: Embeds archive and reflections; see `nox -s encoders`.
        prompt: "task" for the task's own, or a name in prompts.toml.
        fetch: Substeps (insert) or bookmarks (replace) a reflection; 0 takes 1 or 3.
        summary_tokens: Longest bookmark.
        max_archive: Bookmarks a rollout; later substeps are not archived.
        max_refreshes: Contexts a rollout; later reflections do not refresh.
        compress: False plays one plain generation.
        refresh: False keeps the whole history, with archive and pauses.
    """

    variant: str = "insert"
    summarise: str = "substeps"
    encoder: str = "e5"
    prompt: str = "task"
    fetch: int = 0
    summary_tokens: int = 128
    max_archive: int = 256
    max_refreshes: int = 64
    compress: bool = True
    refresh: bool = True

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        at_least_one(
            summary_tokens=self.summary_tokens,
            max_archive=self.max_archive,
            max_refreshes=self.max_refreshes,
        )
        if self.fetch < 0:
            raise ValueError("'fetch' must be at least 0")
        for name, known in (("variant", VARIANTS), ("summarise", SUMMARISED)):
            if getattr(self, name) not in known:
                raise ValueError(f"'{name}' must be {' or '.join(known)}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A part of the reasoning in the archive.

    Attributes:
        id: "substep-1", "reflection-2", ...: numbered together, in order.
        text: Without its tags.
        bookmark: Its summary.
        vector: Of unit length.
    """

    id: str
    text: str
    bookmark: str
    vector: Any


def _prompts(given: Mapping[str, Any]) -> list[str]:
    own = str(given.get("prompt", "task"))
    return ["bookmark_summary"] + ([own] if own != "task" else [])


@takes(BookmarkOptions, _prompts)
def bookmark(doc: Doc, config: PolicyConfig) -> Steps:
    """Archive substeps, fetch them on reflection, go on from a short context (Bookmark)."""
    options: BookmarkOptions = read(bookmark, config.options)
    return (yield from _Bookmark(doc, config, options).play())


class _Bookmark:
    """One rollout."""

    def __init__(self, doc: Doc, config: PolicyConfig, options: BookmarkOptions) -> None:
        self._doc = doc
        self._options = options
        self._sampling = config.sampling
        own = options.prompt != "task"
        self._prompt = messages(options.prompt, question=doc.question) if own else config.messages
        self._trace = Trace(doc, config)
        self._archive: list[Entry] = []
        self._said = ""  # by the model, over all contexts
        self._context = 0  # first turn of the context that is being continued
        self._part = 0  # where the archived part of what was said ends
        self._tail = ""  # what the last token said behind the pause
        self._refreshes = 0
        self._left = config.sampling.max_tokens
        if own and self._prompt[-1].role == "assistant":  # tags in it count as said
            self._said = self._prompt[-1].content
            self._prompt = self._prompt[:-1]
            self._trace.shown(self._said)

    def play(self) -> Steps:
        if not self._options.compress:
            yield from self._write(self._sampling.stop)
            return self._end()
        while True:
            stop = yield from self._write((*self._pauses(), *self._sampling.stop))
            if stop not in (SUBSTEP[1], *REFLECTION):
                return self._end()
            if self._answers():
                pass  # the pause was asked for before the thinking ended
            elif stop == REFLECTION[0]:
                if self._may_refresh():
                    over = yield from self._reflect()
                    if over:
                        return self._end()
            else:
                yield from self._keep("substep" if stop == SUBSTEP[1] else "reflection")
            if self._left <= 0:
                self._trace.finish = "length"
                return self._end()

    def _end(self) -> Rollout:
        return self._trace.end(self._said)

    def _pauses(self) -> list[str]:
        """Tags that are waited for now; none in the answer behind the thinking."""
        if self._answers():
            return []
        pauses: list[str] = []
        if len(self._archive) < self._options.max_archive:
            pauses.append(SUBSTEP[1])
            if self._options.summarise == "all":
                pauses.append(REFLECTION[1])
        if self._archive and self._refreshes < self._options.max_refreshes:
            pauses.append(REFLECTION[0])
        return pauses

    def _write(self, stops: Sequence[str]) -> Generator[Generate, Completion, str]:
        """Let the model go on; gives the tag or sentence end that it paused at, else ""."""
        sampling = dataclasses.replace(
            self._sampling, max_tokens=self._left, stop=tuple(dict.fromkeys(stops))
        )
        turns = tuple(self._trace.turns[self._context :])
        completion = yield Generate(self._prompt, sampling, turns, tail=True)
        stop = completion.stop_string or ""
        text, self._tail = completion.text, ""
        if stop in self._sampling.stop:
            stop = ""  # the task's own: the end, and no part of the text
        elif stop:
            # The last token often says more than the tag; a tag that it begins is said again.
            self._tail = "" if "<" in completion.tail else completion.tail
            text += stop + self._tail
        self._trace.said(completion, text)
        self._said += text
        self._left -= _tokens(completion)
        return stop

    def _may_refresh(self) -> bool:
        return self._options.refresh and any(e.id.startswith("substep") for e in self._archive)

    def _answers(self) -> bool:
        return "</think>" in self._said

    def _keep(self, kind: str) -> Generator[Generate | Embed, Any, None]:
        """Archive what the last closing tag closed, unless it was never opened or is empty."""
        text = closed(self._said[self._part :], SUBSTEP if kind == "substep" else REFLECTION)
        self._part = len(self._said)
        if not text:
            return
        (vector,) = yield Embed((text,))
        summary = yield Generate(
            messages("bookmark_summary", question=self._doc.question, previous=text),
            dataclasses.replace(
                self._sampling, max_tokens=self._options.summary_tokens, stop=(), thinking=False
            ),
        )
        self._trace.summarised(summary)
        name = f"{kind}-{len(self._archive) + 1}"
        self._archive.append(Entry(name, text, _one_line(summary.text) or _one_line(text), vector))

    def _reflect(self) -> Generator[Generate | Embed, Any, bool]:
        """Read two sentences, fetch, refresh; gives whether the rollout is over."""
        start = self._said.rindex(REFLECTION[0]) + len(REFLECTION[0])  # its token may say more
        known = list(self._archive)
        ends = (*SENTENCE_ENDS, SUBSTEP[1], REFLECTION[1])
        sentences, stop = 0, ""
        for _ in range(PIECES):
            if self._left <= 0:
                self._trace.finish = "length"
                return True
            piece = len(self._said)
            stop = yield from self._write((*ends, *self._sampling.stop))
            if not stop:
                return True
            sentences += _WORDS.search(self._said[piece:]) is not None
            if stop in (SUBSTEP[1], REFLECTION[1]) or sentences == SENTENCES:
                break
        self._forget_tail()
        said = self._said[start:]
        if len(self._archive) < self._options.max_archive:
            if stop == SUBSTEP[1]:
                yield from self._keep("substep")
            elif stop == REFLECTION[1] and self._options.summarise == "all":
                yield from self._keep("reflection")
        asked = _TAG.sub(" ", said).strip()
        if asked:
            (query,) = yield Embed((asked,), "query")
            self._refresh(said, known, query)
        return False

    def _forget_tail(self) -> None:
        """The context ends with the second sentence, not with the first word of a third."""
        if self._tail:
            last = self._trace.turns[-1]
            text = last.text.removesuffix(self._tail)
            self._trace.turns[-1] = dataclasses.replace(last, text=text)
            self._said = self._said.removesuffix(self._tail)

    def _refresh(self, said: str, known: Sequence[Entry], query: Any) -> None:
        """Begin a new context with what was known of the two sentences before they were said."""
        inserts = self._options.variant == "insert"
        ranked = sorted(
            (entry for entry in known if entry.id.startswith("substep") or not inserts),
            key=lambda entry: -float(entry.vector @ query),
        )[: self._options.fetch or FETCHED[self._options.variant]]
        fetched = sorted(ranked, key=self._archive.index)
        opened = _THINK.match(self._said)
        parts = [opened[0] if opened else ""]
        shown = self._archive if inserts else fetched
        parts += [f"{BOOKMARK[0]}{entry.bookmark}{BOOKMARK[1]}\n" for entry in shown]
        parts.append(f"{REFLECTION[0]}{said}")
        if inserts:
            gap = "" if said.endswith("\n") else "\n"
            texts = (f"{SUBSTEP[0]}{entry.text}{SUBSTEP[1]}\n" for entry in fetched)
            parts += [gap, *texts]
        self._refreshes += 1
        self._trace.turns.append(
            Turn("environment", "".join(parts), passages=tuple(entry.id for entry in ranked))
        )
        self._context = len(self._trace.turns) - 1


def closed(said: str, tags: tuple[str, str]) -> str:
    """What the last closing tag closes, stripped; "" where it was never opened."""
    before = said.rpartition(tags[1])[0]
    opened, found, text = before.rpartition(tags[0])
    del opened
    return text.strip() if found and tags[1] not in text else ""


def _one_line(text: str, longest: int = 600) -> str:
    """A bookmark: the model's tags and thinking removed, on one line."""
    said = text.rpartition("</think>")[2]
    return " ".join(_TAG.sub(" ", said).split())[:longest]


def _tokens(completion: Completion) -> int:
    """At least 1, so that every budget comes to an end."""
    counted = completion.completion_tokens
    if counted is None and completion.token_ids is not None:
        counted = len(completion.token_ids)
    return max(1, len(completion.text) // CHARS_A_TOKEN if counted is None else counted)
