"""HarnessLM: what lm-eval believes is a model, and what plays rollouts instead.

lm-eval renders the prompts and hands over all requests at once. Samples that the store already
holds are read from it; the driver plays the rest, and each is committed, judged and scored the
moment it ends. lm-eval gets back a string that carries its rollout.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from lm_eval.api.model import LM

from harness import codec
from harness.errors import UsageError
from harness.judging import Judging
from harness.leaks import IN_PROMPT, find_leaks
from harness.progress import Progress
from harness.rescore import score_again
from harness.rollouts import policy as find_policy
from harness.rollouts.driver import Job, OnDone
from harness.schema import (
    Message,
    PolicyConfig,
    Rollout,
    Score,
)
from harness.scoring.process import RolloutLikelihood, RolloutText, doc_from_row
from harness.store import Store, StoredDoc
from harness.task_plan import TaskPlan, request_key


@dataclass(slots=True)
class Outcome:
    """What became of a run's samples.

    Attributes:
        unjudged: Samples in the selection whose judge gave no verdict: it is asked again.
    """

    reused: int = 0
    played: int = 0
    failed: int = 0
    rescored: int = 0
    unjudged: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str = ""
    finished: set[str] = field(default_factory=set[str])


class Player(Protocol):
    """Answers jobs: the driver, or predictions that were made elsewhere.

    Attributes:
        gave_up: Why it stopped early; "" if it did not.
    """

    gave_up: str

    def run(self, jobs: Iterable[Job], on_done: OnDone) -> None:
        """Hand over a rollout for every job that can be answered; others stay missing."""
        ...


def mark_leaks(docs: Mapping[str, StoredDoc]) -> dict[str, StoredDoc]:
    """Docs whose question their prompt shows, marked in their meta: boards name them.

    Worked examples and few-shots alike, of any task: what counts is the rendered prompt.
    """
    prompts = ["\n".join(m.content for m in d.messages) for d in docs.values()]
    leaks = find_leaks([d.doc for d in docs.values()], prompts)
    return {
        doc_id: replace(docs[doc_id], doc=replace(doc, meta={**doc.meta, IN_PROMPT: True}))
        for doc_id in leaks
        if not (doc := docs[doc_id].doc).meta.get(IN_PROMPT)
    }


class HarnessLM(LM):
    """Plays lm-eval's requests through policies and keeps every rollout.

    Args:
        store: The run, open for writing.
        plans: By task name.
        open_driver: Called only if something has to be played: a finished run loads no model.
        progress: Told of every sample.
        chat: Whether lm-eval was told to apply the chat template (`apply_chat_template` here).
            Without, its plain text is the prompt, in one message.
    """

    def __init__(
        self,
        store: Store,
        plans: Mapping[str, TaskPlan],
        open_driver: Callable[[], Player],
        progress: Progress,
        *,
        chat: bool = True,
    ) -> None:
        super().__init__()
        self._chat = chat
        self._store = store
        self._plans = plans
        self._open_driver = open_driver
        self._progress = progress
        self._choices: dict[tuple[str, str], tuple[str, ...]] = {}
        self._judging = Judging()
        self.outcome = Outcome()

    @property
    def tokenizer_name(self) -> str:
        """lm-eval asks for it; prompts are not tokenised there."""
        return "checkrail"

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Keep the messages as JSON; the engine applies the real template."""
        return json.dumps([[m["role"], m["content"]] for m in chat_history], ensure_ascii=False)

    def chat_template(self, chat_template: bool | str = False) -> str:
        """Recorded by lm-eval's tracker; the run's manifest has the real one."""
        return ""

    def generate_until(self, requests: list[Any]) -> list[str]:
        """Return one RolloutText per request, in order; repeats arrive as one object n times."""
        return [RolloutText(r.answer, r, score) for r, score in self._rollouts(requests)]

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        """Return one RolloutLikelihood per request, in order.

        lm-eval asks for each choice by itself; those of a doc are played as one rollout,
        whatever the order they come in. The second value says whether the choice is the
        likeliest of its doc (greediness is not kept). A doc that could not be played gets NaN:
        the task's scorer never reads it.

        Raises:
            UsageError: The choices of a doc have different prompts.
        """
        made: list[tuple[float, bool]] = []
        for request, (rollout, _) in zip(requests, self._rollouts(requests), strict=True):
            totals = rollout.choices or ()
            index = int(request.idx)
            value = totals[index] if index < len(totals) else math.nan
            best = bool(totals) and value == max(totals)
            made.append(RolloutLikelihood(value, best, rollout))
        return made

    def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
        """Not offered: no task here measures perplexity."""
        raise UsageError("perplexity tasks are not supported; use a generative task")

    def _rollouts(self, requests: Sequence[Any]) -> list[tuple[Rollout, Score]]:
        """The rollout of each request with its score, played or read from the store.

        A score is empty where nothing could be scored.
        """
        keys: list[tuple[str, str, int]] = []
        asked: dict[str, dict[str, dict[int, Any]]] = {}  # task -> doc -> index -> request
        seen: Counter[tuple[str, str, int]] = Counter()
        for request in requests:
            task, doc_id = str(request.task_name), str(request.doc["id"])
            keys.append((task, doc_id, seen[task, doc_id, request.idx]))
            seen[task, doc_id, request.idx] += 1
            asked.setdefault(task, {}).setdefault(doc_id, {})[request.idx] = request
        stored = {
            task: {
                doc_id: self._stored_doc(self._plans[task], of_doc, rank)
                for rank, (doc_id, of_doc) in enumerate(docs.items())
            }
            for task, docs in asked.items()
        }
        for task, docs in stored.items():
            docs.update(mark_leaks(docs))
            plan = self._plans[task]
            self._store.put_task(task, plan.info, plan.total, plan.repeats, list(docs.values()))
        self._play(stored)
        return self._answers(keys, stored)

    def _stored_doc(self, plan: TaskPlan, requests: Mapping[int, Any], rank: int) -> StoredDoc:
        """One doc with its prompt; a multiple choice has a request for each choice."""
        first = requests[min(requests)]
        doc = doc_from_row(first.doc)
        if len({request.args[0] for request in requests.values()}) > 1:
            raise UsageError(
                f"task '{plan.name}', doc '{doc.id}': its choices have different prompts, which "
                f"is not supported: put what differs into the choices"
            )
        choices: tuple[str, ...] = ()
        if first.request_type == "loglikelihood":
            choices = tuple(str(requests[i].args[1]) for i in sorted(requests))
        self._choices[plan.name, doc.id] = choices
        if self._chat:
            messages = tuple(Message(role, text) for role, text in json.loads(first.args[0]))
        else:
            messages = (Message("user", first.args[0]),)
        return StoredDoc(
            doc=doc,
            rank=rank,
            messages=messages,
            prompt_sha=codec.prompt_sha(messages),
            request=request_key(messages, plan, choices),
        )

    def _play(self, stored: Mapping[str, Mapping[str, StoredDoc]]) -> None:
        missing: dict[str, list[tuple[StoredDoc, int]]] = {}
        total = 0
        for task, docs in stored.items():
            plan = self._plans[task]
            have = self._store.finished(task, plan.selected)
            want = [(d, r) for d in docs.values() for r in range(plan.repeats)]
            missing[task] = [(d, r) for d, r in want if (d.doc.id, r) not in have]
            total += len(want)
            self.outcome.reused += len(want) - len(missing[task])
            self._rescore(plan)
        count = sum(len(m) for m in missing.values())
        if count:
            driver = self._open_driver()
            with self._progress.samples(total, done=total - count):
                try:
                    driver.run(self._jobs(missing), self._on_done)
                    self._put_judged(wait=True)
                finally:
                    self._judging.close()
            self.outcome.error = self.outcome.error or driver.gave_up
        for task in stored:
            plan = self._plans[task]
            finished = self._store.finished(task, plan.selected)
            self.outcome.unjudged += len(finished & self._store.stale(task, plan.scored_by))
            if len(finished) >= plan.selected * plan.repeats:
                self._store.complete(task, plan.selected)
                self.outcome.finished.add(task)

    def _jobs(self, missing: Mapping[str, Sequence[tuple[StoredDoc, int]]]) -> Iterator[Job]:
        for task, items in missing.items():
            plan = self._plans[task]
            play = find_policy(plan.policy)
            for stored, repeat in items:
                choices = self._choices[task, stored.doc.id]
                options = dict(plan.policy_options)
                config = PolicyConfig(stored.messages, plan.sampling, repeat, options, choices)
                yield Job(
                    task, stored.doc, config, play, stored.request, plan.retriever, plan.encoder
                )

    def _on_done(self, job: Job, rollout: Rollout) -> None:
        """Commit one rollout with its verdicts and score (called from the driver's thread)."""
        if rollout.error is not None:
            self.outcome.failed += 1
            self.outcome.error = self.outcome.error or rollout.error
            self._store.put_failure(
                job.task, rollout.doc_id, rollout.repeat, job.request, rollout.error
            )
            self._progress.sample(failed=True)
            return
        plan = self._plans[job.task]
        if plan.scorer.waits:
            self._store.put_sample(job.task, job.request, rollout, (), None, "")
            self._judging.submit(job, rollout, plan.scorer)
            self._put_judged()
        else:
            verdicts, score = plan.scorer.judge_and_score(job.doc, rollout)
            self._store.put_sample(
                job.task, job.request, rollout, verdicts, score, plan.scored_by
            )  # fmt: skip
        self.outcome.played += 1
        self.outcome.prompt_tokens += rollout.prompt_tokens or 0
        self.outcome.completion_tokens += rollout.completion_tokens or 0
        self._progress.sample(tokens=rollout.completion_tokens or 0)

    def _put_judged(self, *, wait: bool = False) -> None:
        """Commit what slow judges have finished (never from one of their threads)."""
        scores = [
            replace(new, scorer=self._plans[new.task].scored_by if new.scorer else "")
            for new in self._judging.finished(wait=wait)
        ]
        if scores:
            self._store.put_scores(scores)

    def _rescore(self, plan: TaskPlan) -> None:
        """Bring stored scores up to date: a newer scorer, judge or data set needs no model.

        Docs outside this selection as well: a larger one that is complete stays readable.
        """
        stale = self._store.stale(plan.name, plan.scored_by)
        if stale:
            again = score_again(
                self._store,
                plan.name,
                plan.scorer,
                wanted=lambda record: (record.doc_id, record.repeat) in stale,
            )
            scores = [new for _, new in again]
            self._store.put_scores(scores)
            self.outcome.rescored += len(scores)

    def _answers(
        self,
        keys: Sequence[tuple[str, str, int]],
        stored: Mapping[str, Mapping[str, StoredDoc]],
    ) -> list[tuple[Rollout, Score]]:
        by_key = {
            (task, record.doc_id, record.repeat): (record.rollout, record.score or Score({}))
            for task in stored
            for record in self._store.records(task, self._plans[task].selected)
        }
        missing = Score({})
        return [
            by_key.get(key)
            or (Rollout(key[1], key[2], (), "", "error", error="not finished"), missing)
            for key in keys
        ]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt; `choices` are those of a multiple choice."""

    stored: StoredDoc
    choices: tuple[str, ...]


class PromptLM(HarnessLM):
    """Renders every prompt exactly as a run would, and plays none.

    Args:
        store: A scratch store.
        plans: By task name.
        progress: Not told of anything.
        chat: As for `HarnessLM`.
    """

    def __init__(
        self, store: Store, plans: Mapping[str, TaskPlan], progress: Progress, *, chat: bool
    ) -> None:
        super().__init__(store, plans, self._never, progress, chat=chat)
        self.prompts: dict[str, list[Prompt]] = {}

    @staticmethod
    def _never() -> Player:
        raise AssertionError("nothing is played here")

    def _play(self, stored: Mapping[str, Mapping[str, StoredDoc]]) -> None:
        for task, docs in stored.items():
            self.prompts[task] = [
                Prompt(doc, self._choices[task, doc_id]) for doc_id, doc in docs.items()
            ]
