"""Slow judges beside generation: a few threads, each waiting for what it started.

A rollout whose judge is slow (it runs programs, or is a model) is committed without a score the
moment it ends, so that nothing is lost; its score follows. A killed run finds such samples again
as stale.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from harness.rescore import workers_of
from harness.rollouts.driver import Job
from harness.schema import Rollout
from harness.scoring import TaskScorer
from harness.store import NewScore


class Judging:
    """Judges rollouts in threads; what is finished is collected by the thread that stores.

    Judges that compute share as many threads as there are cores, 8 at most; one that waits for a
    server has as many as it asks for.
    """

    def __init__(self) -> None:
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._waiting: list[Future[NewScore]] = []

    def submit(self, job: Job, rollout: Rollout, scorer: TaskScorer) -> None:
        """Judge a rollout soon."""
        workers = workers_of(scorer)
        if workers not in self._pools:
            self._pools[workers] = ThreadPoolExecutor(workers, thread_name_prefix="judge")
        self._waiting.append(self._pools[workers].submit(_judge, job, rollout, scorer))

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
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
        self._pools = {}


def _judge(job: Job, rollout: Rollout, scorer: TaskScorer) -> NewScore:
    verdicts, score = scorer.judge_and_score(job.doc, rollout)
    by = scorer.fingerprint if scorer.settled(verdicts) else ""
    return NewScore(job.task, job.doc.id, rollout.repeat, job.request, verdicts, score, by)
