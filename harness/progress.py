"""Progress on the terminal: a live bar where there is one, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

EVERY_SECONDS = 10.0


class Progress:
    """Says what is going on. One line a step, and a running count of samples.

    Args:
        stream: Where to write; standard error, so that results can be piped.
        quiet: Write nothing.
    """

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._live = self._stream.isatty() and not quiet
        self._total = self._done = self._failed = self._tokens = self._new = 0
        self._started = self._last = 0.0
        self._unit = "samples"
        self.seconds: dict[str, float] = {}

    def say(self, text: str) -> None:
        """Write one line."""
        if not self._quiet:
            self._clear()
            print(text, file=self._stream, flush=True)

    @contextmanager
    def step(self, name: str, text: str) -> Generator[None]:
        """Announce a step and keep its wall time under `name` in `seconds`."""
        self.say(text)
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + spent

    @contextmanager
    def samples(
        self, total: int, done: int = 0, unit: str = "samples", name: str = "generate"
    ) -> Generator[None]:
        """Count samples (or another unit); `done` of `total` are there already.

        The wall time is kept under `name` in `seconds`.
        """
        self._unit = unit
        self._total, self._done, self._failed, self._tokens, self._new = total, done, 0, 0, 0
        self._started = self._last = time.perf_counter()
        if done:
            self.say(f"  {done} of {total} {unit} are stored already")
        try:
            yield
        finally:
            self._draw(final=True)
            spent = time.perf_counter() - self._started
            self.seconds[name] = self.seconds.get(name, 0.0) + spent

    def sample(self, *, tokens: int = 0, failed: bool = False) -> None:
        """One rollout ended."""
        self._failed += failed
        self._done += not failed
        self._new += 1
        self._tokens += tokens
        if time.perf_counter() - self._last >= (0.2 if self._live else EVERY_SECONDS):
            self._draw()

    def _draw(self, *, final: bool = False) -> None:
        if self._quiet:
            return
        now = time.perf_counter()
        self._last = now
        spent = max(now - self._started, 1e-9)
        left = self._total - self._done - self._failed
        parts = [f"{self._done}/{self._total} {self._unit}"]
        if self._failed:
            parts.append(f"{self._failed} failed")
        if self._tokens:
            parts.append(f"{self._tokens / spent:.0f} tok/s")
        if self._new and left > 0 and not final:
            parts.append(f"about {clock(left * spent / self._new)} left")
        parts.append(f"{clock(spent)} so far" if not final else f"in {clock(spent)}")
        line = "  " + ", ".join(parts)
        if self._live and not final:
            width = 24
            filled = round(width * self._done / max(self._total, 1))
            bar = "#" * filled + "." * (width - filled)
            self._stream.write(f"\r\x1b[2K  [{bar}]{line[1:]}")
            self._stream.flush()
        else:
            self.say(line)

    def _clear(self) -> None:
        if self._live:
            self._stream.write("\r\x1b[2K")


def clock(seconds: float) -> str:
    """Seconds, minutes or hours, for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 90:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
