"""Warm-up: each side of a row runs its own load until its figure stays the same.

A JVM compiles the code that it runs often: under load it becomes two to three times as fast
within its first minute.  A comparison before that is one with its compiler.  Every side is warmed
by the same rule, so that none is fresher than another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["LIMIT_S", "STEADY", "Warmth", "steady", "warmed"]

STEADY = 0.05
"""Two rounds in a row that differ by less than this share of the larger one end a warm-up."""
LIMIT_S = 90.0
"""So does this time, whatever the rounds say."""


@dataclass(frozen=True)
class Warmth:
    """How one side was warmed."""

    rounds: int
    seconds: float
    steady: bool
    """The last two rounds agreed; False: the limit came first."""

    def __str__(self) -> str:
        text = f"{self.rounds} round{'' if self.rounds == 1 else 's'}, {self.seconds:.0f} s"
        return text if self.steady else f"{text}, not steady"


def steady(figures: Sequence[float]) -> bool:
    """True if a side is warm, by the figures of its rounds so far."""
    if len(figures) < 2:
        return False
    last, before = figures[-1], figures[-2]
    return abs(last - before) < STEADY * max(last, before)


def warmed(
    figure: Callable[[], float],
    limit_s: float = LIMIT_S,
    now_s: Callable[[], float] = time.perf_counter,
) -> Warmth:
    """Run rounds of one side until it is warm.

    `figure` runs a round and returns its figure.  No round begins that would probably end after
    `limit_s`, except the first two.
    """
    figures: list[float] = []
    begun_s = now_s()
    while True:
        figures.append(figure())
        taken_s = now_s() - begun_s
        if steady(figures):
            return Warmth(len(figures), taken_s, True)
        if len(figures) >= 2 and taken_s * (1 + 1 / len(figures)) > limit_s:
            return Warmth(len(figures), taken_s, False)
