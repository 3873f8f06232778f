"""The driver: plays many rollouts at once, each advancing on its own.

One event loop in a background thread. At most `window` rollouts are in flight; the next one
starts the moment one ends, so nobody waits for the slowest of a batch. Retrieval and embedding
run in worker threads, and requests that arrive while one is running are answered together.
A failed rollout is data (`Rollout.error`); the others go on. When everything fails and nothing
succeeds, the driver stops asking: the engine is down, and the same command resumes later.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness.batcher import Batcher
from harness.errors import UsageError
from harness.rollouts.continuation import continued, tail_of
from harness.schema import (
    Completion,
    Doc,
    Encoder,
    Engine,
    Generate,
    LogLikelihood,
    Policy,
    PolicyConfig,
    Retrieve,
    Retriever,
    Rollout,
    TextKind,
    Tokenizer,
)

GIVE_UP_AFTER = 8
"""Failures in a row, with no success between, times the window: then the engine is down."""

KINDS: tuple[TextKind, ...] = ("passage", "query")


@dataclass(frozen=True, slots=True)
class Job:
    """One rollout to play.

    Attributes:
        task: Task name; part of the seed.
        request: Key under which the store keeps the sample.
        retriever: What this rollout searches; None takes the driver's.
        encoder: What embeds for it; None takes the driver's.
    """

    task: str
    doc: Doc
    config: PolicyConfig
    policy: Policy
    request: str
    retriever: Retriever | None = None
    encoder: Encoder | None = None


OnDone = Callable[[Job, Rollout], None]


def request_seed(run_seed: int, task: str, doc_id: str, repeat: int, turn: int) -> int:
    """Seed of one request, in [0, 2**31): depends on what is asked, never on when."""
    key = f"{run_seed}\0{task}\0{doc_id}\0{repeat}\0{turn}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(key).digest()[:4], "big") >> 1


def _embed(encoder: Encoder, texts: list[str], kind: int) -> list[Any]:
    return list(encoder.encode(texts, KINDS[kind]))


class Driver:
    """Plays jobs on an engine, a retriever and an encoder.

    Args:
        engine: None for policies that never generate.
        retriever: For jobs that name none; None for policies that never retrieve.
        encoder: None for policies that never embed.
        window: Rollouts in flight at most.
        seed: The run's seed.
    """

    def __init__(
        self,
        engine: Engine | None,
        retriever: Retriever | None = None,
        encoder: Encoder | None = None,
        *,
        window: int = 16,
        seed: int = 0,
    ) -> None:
        if window < 1:
            raise ValueError("window must be at least 1")
        self._engine = engine
        self._window = window
        self._seed = seed
        self._retriever = retriever
        self._batchers: dict[int, tuple[Retriever, Batcher]] = {}
        self._encoder = encoder
        self._embedders: dict[int, tuple[Encoder, Batcher]] = {}
        self._failed_in_a_row = 0
        self.gave_up = ""

    def run(self, jobs: Iterable[Job], on_done: OnDone) -> None:
        """Play all jobs; `on_done` is called once for each, from one thread, as it ends.

        Args:
            jobs: Consumed lazily, at most `window` ahead.
            on_done: Stores the rollout. An exception from it stops the run and is raised here.

        Raises:
            KeyboardInterrupt: Passed on after the rollouts in flight are dropped.
        """
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="rollouts", daemon=True)
        thread.start()
        future = asyncio.run_coroutine_threadsafe(self._play_all(iter(jobs), on_done), loop)
        try:
            future.result()
        except BaseExceptionGroup as group:  # from on_done: all workers hit the same wall
            raise group.exceptions[0] from None
        except BaseException:
            future.cancel()
            raise
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=10)
            if not thread.is_alive():
                loop.close()

    async def _play_all(self, jobs: Iterator[Job], on_done: OnDone) -> None:
        async def worker() -> None:
            for job in jobs:  # shared by all workers: each takes the next one
                rollout = await self.play(job)
                on_done(job, rollout)
                if self._is_down(rollout):
                    return

        async with asyncio.TaskGroup() as group:
            for _ in range(self._window):
                group.create_task(worker())

    def _is_down(self, rollout: Rollout) -> bool:
        if rollout.error is None:
            self._failed_in_a_row = 0
            return False
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= GIVE_UP_AFTER * self._window:
            self.gave_up = rollout.error
        return bool(self.gave_up)

    async def play(self, job: Job) -> Rollout:
        """Play one rollout. Infrastructure failures come back as `Rollout.error`."""
        started = time.perf_counter()
        steps = job.policy(job.doc, job.config)
        turn = 0
        try:
            command = next(steps)
            while True:
                if isinstance(command, Generate):
                    result: Any = await self._generate(job, command, turn)
                    turn += 1
                elif isinstance(command, LogLikelihood):
                    result = await self._loglikelihood(command)
                elif isinstance(command, Retrieve):
                    batcher = self._batcher(job.retriever or self._retriever)
                    result = await self._ask(batcher, "retriever", command.queries, command.k)
                else:
                    batcher = self._embedder(job.encoder or self._encoder)
                    kind = KINDS.index(command.kind)
                    result = await self._ask(batcher, "encoder", command.texts, kind)
                command = steps.send(result)
        except StopIteration as stop:
            rollout: Rollout = stop.value
            return dataclasses.replace(rollout, seconds=time.perf_counter() - started)
        except (asyncio.CancelledError, UsageError):
            raise  # a mistake of the user's (a policy option, say) is none of the engine's
        except Exception as error:  # one failure never stops the rest
            return Rollout(
                job.doc.id,
                job.config.repeat,
                (),
                "",
                "error",
                seconds=time.perf_counter() - started,
                error=f"{type(error).__name__}: {error}",
            )

    async def _generate(self, job: Job, command: Generate, turn: int) -> Completion:
        if self._engine is None:
            raise RuntimeError("the policy generates, but no engine was opened")
        sampling = command.sampling
        if sampling.seed is None:
            seed = request_seed(self._seed, job.task, job.doc.id, job.config.repeat, turn)
            sampling = dataclasses.replace(sampling, seed=seed)
        prompt: Any = command.prompt
        if command.turns:  # tokenizers may take a while: llama.cpp's sits behind a socket
            prompt = await asyncio.to_thread(continued, self._engine, command)
        completion = await self._engine.generate(prompt, sampling)
        if completion.finish == "error":
            raise RuntimeError(completion.text or "the engine reported an error")
        if command.tail and completion.stop_string and isinstance(self._engine, Tokenizer):
            tail = await asyncio.to_thread(tail_of, self._engine, completion)
            completion = dataclasses.replace(completion, tail=tail)
        return completion

    async def _loglikelihood(self, command: LogLikelihood) -> list[tuple[float, bool]]:
        if self._engine is None:
            raise RuntimeError("the policy asks for log-likelihoods, but no engine was opened")
        context = self._engine.render_text(command.prompt, command.thinking)
        values = await self._engine.loglikelihood(context, command.continuations)
        if len(values) != len(command.continuations):
            raise RuntimeError(
                f"{len(command.continuations)} continuations, {len(values)} log-likelihoods"
            )
        if not all(math.isfinite(total) for total, _ in values):
            raise RuntimeError(f"a log-likelihood is no finite number: {values}")
        return values

    def _batcher(self, retriever: Retriever | None) -> Batcher | None:
        """The one batcher of a retriever: tasks that share it share its batches."""
        if retriever is None:
            return None
        kept = self._batchers.setdefault(id(retriever), (retriever, Batcher(retriever.retrieve)))
        return kept[1]

    def _embedder(self, encoder: Encoder | None) -> Batcher | None:
        if encoder is None:
            return None
        batcher = Batcher(partial(_embed, encoder))
        return self._embedders.setdefault(id(encoder), (encoder, batcher))[1]

    async def _ask(
        self, batcher: Batcher | None, name: str, items: Sequence[str], k: int
    ) -> list[Any]:
        if batcher is None:
            raise RuntimeError(f"the policy needs a {name}, but none was opened")
        return await batcher.submit(list(items), k)
