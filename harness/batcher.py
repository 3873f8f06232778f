"""Requests that arrive together are sent on together.

A batch has no fixed size and nobody waits for it to fill: while one call runs, the next gathers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Batcher:
    """Collects calls that arrive while one is running and sends them on together.

    Args:
        call: `(items, k)` -> one answer an item; runs in a thread, one call at a time.
    """

    def __init__(self, call: Callable[[list[Any], int], list[Any]]) -> None:
        self._call = call
        self._waiting: dict[int, list[tuple[list[Any], asyncio.Future[list[Any]]]]] = {}
        self._running = False
        self._task: asyncio.Task[None] | None = None

    async def submit(self, items: list[Any], k: int) -> list[Any]:
        """The answers of these items, in order; calls with the same k are sent on together."""
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(k, []).append((items, future))
        if not self._running:
            self._running = True
            # One trip round the loop lets everybody who is ready now join the batch.
            asyncio.get_running_loop().call_soon(self._start)
        return await future

    def _start(self) -> None:
        self._task = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        while self._waiting:
            k, batch = self._waiting.popitem()
            flat = [item for items, _ in batch for item in items]
            try:
                answers = await asyncio.to_thread(self._call, flat, k)
                if len(answers) != len(flat):
                    raise ValueError(f"{len(flat)} queries, {len(answers)} answers")
            except Exception as error:  # handed to every waiter, which records it
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            at = 0
            for items, future in batch:
                if not future.done():
                    future.set_result(answers[at : at + len(items)])
                at += len(items)
        self._running = False
