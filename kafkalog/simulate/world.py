"""Virtual time: events in their order, chance from one seed, a trace.

A run is a function of its seed: everything that happens is an event at a moment, and each choice is
drawn from the world's `rng`.  Each simulation is built on this: that of a cluster here, and those
of the coordinator and of the clients in tests/unit.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from math import inf
from typing import Protocol
from zlib import crc32

__all__ = ["Life", "Violated", "World"]


class Violated(AssertionError):
    """An invariant does not hold; the first word names it."""


class Life(Protocol):
    """An actor that lives and dies, and may be paused: a node, a client, a coordinator."""

    life: int
    """Another number after each start and each end."""
    paused_until_ms: float


class World:
    """The clock, the events to come, chance, and the trace of what happened."""

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now_ms: float = 0
        self.events = 0
        """How many have happened."""
        self._notes: list[tuple[float, str]] = []
        self._due: list[tuple[float, int, Life | None, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def note(self, *words: object) -> None:
        """Add a line to the trace."""
        self._notes.append((self.now_ms, " ".join(map(str, words))))

    @property
    def trace(self) -> list[str]:
        """The trace: events with their times."""
        return [f"{at_ms / 1000:9.3f} s  {line}" for at_ms, line in self._notes]

    @property
    def digest(self) -> int:
        """The checksum of the trace: two runs of one seed have the same."""
        found = 0
        for at_ms, line in self._notes:
            found = crc32(b"%d %s" % (int(at_ms * 1000), line.encode()), found)
        return found

    def chance(self, share: float) -> bool:
        """True if something happens that happens in this share of cases; 0 draws nothing."""
        return share > 0 and self.rng.random() < share

    def later(self, ms: float, event: Callable[[], None], whose: Life | None = None) -> None:
        """Like `at`, that much later than now."""
        self.at(self.now_ms + ms, event, whose)

    def at(self, ms: float, event: Callable[[], None], whose: Life | None = None) -> None:
        """Let it happen then, after what is due at the same moment.  With `whose`: if that is still
        in the same life then, and once it is not paused."""
        life = 0 if whose is None else whose.life
        heapq.heappush(self._due, (ms, next(self._numbers), whose, life, event))

    @property
    def next_ms(self) -> float:
        """When the next event is due, perhaps in the past; infinity: there is none."""
        return self._due[0][0] if self._due else inf

    def happen(self, until_ms: float = inf) -> bool:
        """Let time pass to the next event, and let that happen; False: none is due until then."""
        if not self._due:
            return False
        now_ms = self._due[0][0]
        if now_ms < self.now_ms:
            now_ms = self.now_ms
        if now_ms > until_ms:
            return False
        self.now_ms = now_ms
        _, _, whose, life, event = heapq.heappop(self._due)
        if whose is None or (whose.life == life and whose.paused_until_ms <= now_ms):
            self.events += 1
            event()
        elif whose.life == life:
            self.at(whose.paused_until_ms, event, whose)
        return True

    def run(self, until_ms: float, done: Callable[[], bool] = lambda: False) -> None:
        """Let everything happen that is due until then, or until `done`."""
        while not done():
            if not self.happen(until_ms):
                self.now_ms = max(self.now_ms, until_ms)
                return
