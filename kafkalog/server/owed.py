"""Changes of replicas that failed, and when they are tried again.  Pure."""

from __future__ import annotations

from typing import NamedTuple

from kafkalog.replication.roles import Effect

__all__ = ["Owed", "owed"]

FIRST_S, LONGEST_S = 0.9, 60.0
"""Until a change is retried: less than the second between two looks at it, then twice as long each
time."""


class Owed(NamedTuple):
    """A change of a partition's replica that failed, and the reason."""

    effect: Effect
    why: str
    due_s: float
    """When it is retried (monotonic)."""
    pause_s: float
    """The delay before that."""


def owed(effect: Effect, why: str, before: Owed | None, now_s: float) -> Owed:
    """A change has failed now; `before`: what the partition owed until then."""
    pause_s = FIRST_S
    if before is not None and type(before.effect) is type(effect):
        pause_s = min(2 * before.pause_s, LONGEST_S)
    return Owed(effect, why, now_s + pause_s, pause_s)
