"""Slow judges beside generation: a few threads, each waiting for what it started.

A rollout whose judge is slow (it runs programs) is committed without a score the moment it
ends, so that nothing is lost; its score follows. A killed run finds such samples again as stale.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from harness.rescore import settled
from harness.rollouts.driver import Job
from harness.schema import Rollout
from harness.scoring import TaskScorer
from harness.store import NewScore


class Judging:
    """Judges rollouts in threads; what is finished is collected by the thread that stores.

    Args:
        workers: Judgements at a time; None takes the number of cores, 8 at most.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers or min(8, os.cpu_count() or 1)
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: list[Future[NewScore]] = []

    def submit(self, job: Job, rollout: Rollout, scorer: TaskScorer) -> None:
        """Judge a rollout soon."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="judge")
        self._waiting.append(self._pool.submit(_judge, job, rollout, scorer))

    def finished(self, *, wait: bool = False) -> Iterator[NewScore]:
        """Hand over what is judged; with `wait`, everything that was submitted.

        `scorer` is the fingerprint alone, or "" where no verdict came.
        An exception of a judge is raised here.
        """
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if wait or future.done():
                yield future.result()
            else:
                self._waiting.append(future)

    def close(self) -> None:
        """Drop what has not begun; idempotent."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


def _judge(job: Job, rollout: Rollout, scorer: TaskScorer) -> NewScore:
    verdicts, score = scorer.judge_and_score(job.doc, rollout)
    by = scorer.fingerprint if settled(scorer, verdicts) else ""
    return NewScore(job.task, job.doc.id, rollout.repeat, job.request, verdicts, score, by)
