"""The order of work on a group whose members heartbeat: one write at a time, with all the work that
has come.

A decision rests on what is in the journal and on the decisions written together with it, never on a
write in progress.  So a write that fails is undone, and with it nothing that was acknowledged.  A
write of unknown outcome is restated by the next one (`Changes`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kafkalog.coordinator.consumer_groups.base import NewerGroup
from kafkalog.coordinator.consumer_groups.changes import GroupChanges
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.core import append_error, too_large
from kafkalog.coordinator.groups.group import Group, State
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.step import Body, Step
from kafkalog.coordinator.weight import kept_bytes
from kafkalog.logs.limit import limited
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["ALLOWANCE_BYTES", "Manner", "Turn", "end", "take_turn"]

LOG = limited(__name__)

WAITING_MAX = 10_000
"""Work that waits for a group: beyond it, requests are to be retried."""
ALLOWANCE_BYTES = 2_000
"""Work may keep so much of a request without being counted: small heartbeats always may wait."""
BATCH_BYTES = 200_000
"""Records of one write, with those of the decision that goes beyond it."""

Told = Callable[[Step, ErrorCode, str | None, Body], None]
"""Told the outcome: NONE and an answer's fields, or an error and its message."""


class Turn(NamedTuple):
    """Work on a group."""

    work: Callable[[Any, Step], Body]
    """Changes the group and returns the answer's fields.  Raises: Refusal."""
    told: Told
    alone: Callable[[Step], None] | None = None
    """Instead of `work`: called when nothing is being written."""
    keeps: Any = None
    """The parts of a request that it keeps, which count as memory while it waits."""


class _Done(NamedTuple):
    """Work that was done, and its outcome, which is to be answered."""

    told: Told
    code: ErrorCode
    message: str | None
    body: Body
    kept: int
    """The memory that is counted for it."""


class Manner(NamedTuple):
    """The type of groups on which work is done."""

    changes: Callable[[Group], GroupChanges[Any]]
    """Begins changes of a group."""
    after: Callable[[Step, Group, list[str]], None]
    """Called when changes of these members are in the journal, or were undone."""


def take_turn(shard: GroupShard, step: Step, group: Group, turn: Turn, manner: Manner) -> None:
    """Do work on a group, now or once its write in progress is done."""
    newer = group.newer
    assert newer is not None, group.group_id
    full = newer.stuck or len(newer.waiting) >= WAITING_MAX
    kept = max(kept_bytes(turn.keeps) - ALLOWANCE_BYTES, 0) if newer.writing and not full else 0
    if full or not shard.has_room(kept) or group.state is State.DEAD:
        turn.told(step, ErrorCode.COORDINATOR_NOT_AVAILABLE, None, {})
        return
    newer.waiting.append((turn, kept))
    group.weight.add(kept)
    if not newer.writing:
        _go_on(shard, step, group, manner)


def end(step: Step, group: Group, error: ErrorCode) -> None:
    """Tell all that waits for a group that it is not done here."""
    newer = group.newer
    while newer is not None and newer.waiting:
        _next(group, newer)[0].told(step, error, None, {})


def _next(group: Group, newer: NewerGroup[Any, Any]) -> tuple[Turn, int]:
    """The work whose turn it is, and the memory that was counted for it, and is not any more."""
    turn, kept = newer.waiting.popleft()
    group.weight.add(-kept)
    return turn, kept


def _go_on(shard: GroupShard, step: Step, group: Group, manner: Manner) -> None:
    """Do the work that waits, up to the next write."""
    newer = group.newer
    if newer is None:
        return  # a classic group's record was written: nothing waited
    while newer.waiting and not newer.writing:
        alone = newer.waiting[0][0].alone
        if alone is not None:
            _next(group, newer)
            alone(step)
            _end_if_dead(step, group)
            continue
        changes = manner.changes(group)
        done: list[_Done] = []
        while newer.waiting and (not done or changes.size < BATCH_BYTES):
            if changes.last or newer.waiting[0][0].alone is not None:
                break
            done.append(_done(changes, step, group, *_next(group, newer)))
        if changes.records:
            _write(shard, step, group, manner, (changes, done))
        else:
            _tell(step, group, done)
            _end_if_dead(step, group)
    if group.unused and not newer.waiting:
        shard.forget(group)


def _end_if_dead(step: Step, group: Group) -> None:
    """A group that is being deleted takes no more work."""
    if group.state is State.DEAD:
        end(step, group, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _done(
    changes: GroupChanges[Any], step: Step, group: Group, turn: Turn, kept: int
) -> _Done:  # fmt: skip
    """Do work.  It counts until its outcome is answered."""
    mark = changes.mark()
    try:
        return _Done(turn.told, ErrorCode.NONE, None, turn.work(changes, step), kept)
    except Refusal as refusal:
        changes.back_to(mark)
        return _Done(turn.told, refusal.code, refusal.message, {}, kept)
    except Exception:
        LOG.exception("group %s: an error of the coordinator", changes.group_id)
        changes.back_to(mark)
        return _Done(turn.told, ErrorCode.UNKNOWN_SERVER_ERROR, None, {}, kept)
    finally:
        group.weight.add(kept)


def _tell(
    step: Step, group: Group, done: list[_Done], error: ErrorCode = ErrorCode.NONE
) -> None:  # fmt: skip
    """Tell the outcomes of work; `error`: why what it changed was not written."""
    group.weight.add(-sum(one.kept for one in done))
    told, done[:] = list(done), []  # a write that takes long keeps none of it
    for one in told:
        if error is not ErrorCode.NONE and one.code is ErrorCode.NONE:
            one.told(step, append_error(error), None, {})
        else:
            one.told(step, one.code, one.message, one.body)


def _write(
    shard: GroupShard, step: Step, group: Group, manner: Manner,
    batch: tuple[GroupChanges[Any], list[_Done]],
) -> None:  # fmt: skip
    changes, done = batch
    newer = changes.group
    newer.writing = True
    group.writing += 1

    def settled(step: Step, error: ErrorCode) -> None:
        if error is ErrorCode.REQUEST_TIMED_OUT:
            newer.stuck = True  # until its outcome is known
            end(step, group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif error is ErrorCode.NONE:
            changes.written(step)
        _tell(step, group, done, error)
        if error is not ErrorCode.REQUEST_TIMED_OUT:
            over(step, error)

    def late(step: Step, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            changes.written(step)
        over(step, error)

    def over(step: Step, error: ErrorCode) -> None:
        newer.writing = newer.stuck = False
        group.writing -= 1
        if error is not ErrorCode.NONE:
            changes.failed(step, too_large(error))
        if shard.closed:
            end(step, group, ErrorCode.NOT_COORDINATOR)
            return
        manner.after(step, group, list(changes.touched))
        _go_on(shard, step, group, manner)

    step.write(shard.partition, changes.records, settled, late)
