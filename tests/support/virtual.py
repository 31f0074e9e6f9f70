"""Virtual time for simulations: events in its order, chance from one seed, a trace."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count

from kafkalog.simulate.world import Violated

__all__ = ["Time", "Violated", "telling"]

TRACED = 60


class Time:
    """The events to come, the clock, and the trace of past events."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.trace: list[str] = []
        self._order = count()
        self._queue: list[tuple[int, int, Callable[[], None]]] = []

    @property
    def next_ms(self) -> int | None:
        """When the next event is due; None: there is none."""
        return self._queue[0][0] if self._queue else None

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now_ms:>8} {text}")

    def later(self, ms: int, event: Callable[[], None]) -> None:
        heappush(self._queue, (self.now_ms + ms, next(self._order), event))

    def happen(self) -> None:
        """Run the next event; one whose time has passed runs now."""
        at_ms, _, event = heappop(self._queue)
        self.now_ms = max(self.now_ms, at_ms)
        event()


@contextmanager
def telling(time: Time, seed: int) -> Iterator[None]:
    """A violation inside is reported with the seed and the last events."""
    try:
        yield
    except AssertionError as error:
        told = "\n".join(time.trace[-TRACED:])
        raise Violated(f"seed {seed}: {error}\n{told}") from error
