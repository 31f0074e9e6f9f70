"""Mistakes, planted one at a time where Raft and the controller are joined, and in what the
controller decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalog.controller.events import StoreResult
from kafkalog.quorum.replica import joining
from kafkalog.quorum.replica.joining import Joint
from kafkalog.quorum.sessions import Sessions
from kafkalog.raft import messages as raft
from kafkalog.simulate.quorum.mutants import Mutant

__all__ = ["MUTANTS"]

_step = joining.step


def _knows_less(now: Joint, event: Any) -> Any:
    """A controller begins before it has applied what earlier ones committed."""
    if isinstance(event, raft.BecameLeader):
        event = raft.BecameLeader(event.epoch, 0)
    return _step(now, event)


def _answers_at_append(now: Joint, event: Any) -> Any:
    """A controller goes on as if its records were committed once they are in its own log."""
    pending = now.pending
    appended = isinstance(event, raft.Appended) and event.last_offset is not None
    if appended and pending is not None and event.token == (now.epoch, pending.number):
        result = StoreResult(pending.number, [now.applied.image])
        return now._replace(pending=None), [result] if pending.number else []
    return _step(now, event)


def _stays_active(now: Joint, event: Any) -> Any:
    """A controller that leads no longer goes on, and answers."""
    if isinstance(event, raft.LostLeadership):
        return now, []
    return _step(now, event)


MUTANTS: Mapping[str, Mutant] = {
    "knows-less": Mutant(
        "a controller decides before it knows everything", ((joining, "step"),), _knows_less
    ),
    "answers-at-append": Mutant(
        "a controller goes on before its records are committed",
        ((joining, "step"),),
        _answers_at_append,
    ),
    "stays-active": Mutant(
        "a controller goes on after its leadership", ((joining, "step"),), _stays_active
    ),
    "no-sessions": Mutant(
        "a broker that died is never fenced",
        ((Sessions, "expired"),),
        lambda self, brokers, now_ms: [],
    ),
}
"""By name."""
