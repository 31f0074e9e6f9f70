"""Changes of replicas that failed, and when they are retried.  Pure."""

from __future__ import annotations

from typing import NamedTuple

from kafkalog.replication.roles import Effect

__all__ = ["Retry", "retry_of"]

FIRST_S, LONGEST_S = 0.9, 60.0
"""Until a change is retried: less than the second between two looks at it, then twice as long each
time."""


class Retry(NamedTuple):
    """A change of a partition's replica that failed, and the reason."""

    effect: Effect
    why: str
    due_s: float
    """When it is retried (monotonic)."""
    pause_s: float
    """The delay before that."""


def retry_of(effect: Effect, why: str, before: Retry | None, now_s: float) -> Retry:
    """The retry of a change that failed now; `before`: the partition's previous one."""
    pause_s = FIRST_S
    if before is not None and type(before.effect) is type(effect):
        pause_s = min(2 * before.pause_s, LONGEST_S)
    return Retry(effect, why, now_s + pause_s, pause_s)
