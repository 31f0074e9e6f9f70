"""The order of work on a consumer group: one write at a time, with all the work that has come.

A decision rests on what is in the journal and on the decisions written together with it, never on a
write in progress.  So a write that fails is undone, and with it nothing that was acknowledged.  A
write of unknown outcome is restated by the next one (`Changes`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from kafkalog.coordinator.consumer_groups.changes import Changes
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.state import ConsumerGroup
from kafkalog.coordinator.core import append_error, too_large
from kafkalog.coordinator.groups.group import Group, State
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.step import Body, Step
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Turn", "end", "take_turn"]

LOG = logging.getLogger(__name__)

WAITING_MAX = 10_000
"""Work that waits for a group: beyond it, requests are to be retried."""
BATCH_BYTES = 200_000
"""Records of one write, with those of the decision that goes beyond it."""

Told = Callable[[Step, ErrorCode, str | None, Body], None]
"""Told the outcome: NONE and an answer's fields, or an error and its message."""


class Turn(NamedTuple):
    """Work on a group."""

    work: Callable[[Changes, Step], Body]
    """Changes the group and returns the answer's fields.  Raises: Refusal."""
    told: Told
    alone: Callable[[Step], None] | None = None
    """Instead of `work`: called when nothing is being written."""
    size: int = 0
    """Approximate memory that it keeps while it waits, beyond a small allowance."""


AfterWrite = Callable[[Step, Group, list[str]], None]
"""Called when changes of these members are in the journal, or were undone."""


def take_turn(shard: GroupShard, step: Step, group: Group, turn: Turn, after: AfterWrite) -> None:
    """Do work on a consumer group, now or once its write in progress is done."""
    consumer = group.consumer
    assert consumer is not None, group.group_id
    full = consumer.stuck or len(consumer.waiting) >= WAITING_MAX
    full = full or (consumer.writing and not shard.has_room(turn.size))
    if full or group.state is State.DEAD:
        turn.told(step, ErrorCode.COORDINATOR_NOT_AVAILABLE, None, {})
        return
    consumer.waiting.append(turn)
    group.weight.add(turn.size)
    if not consumer.writing:
        _go_on(shard, step, group, after)


def end(step: Step, group: Group, error: ErrorCode) -> None:
    """Tell all that waits for a group that it is not done here."""
    consumer = group.consumer
    while consumer is not None and consumer.waiting:
        _next(group, consumer).told(step, error, None, {})


def _next(group: Group, consumer: ConsumerGroup) -> Turn:
    turn: Turn = consumer.waiting.popleft()
    group.weight.add(-turn.size)
    return turn


def _go_on(shard: GroupShard, step: Step, group: Group, after: AfterWrite) -> None:
    """Do the work that waits, up to the next write."""
    consumer = group.consumer
    if consumer is None:
        return  # a classic group's record was written: nothing waited
    while consumer.waiting and not consumer.writing:
        alone = consumer.waiting[0].alone
        if alone is not None:
            _next(group, consumer)
            alone(step)
            if group.state is State.DEAD:
                end(step, group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            continue
        changes = Changes(group.group_id, consumer, group.foreign)
        done: list[tuple[Told, ErrorCode, str | None, Body]] = []
        while consumer.waiting and (not done or changes.size < BATCH_BYTES):
            if changes.last or consumer.waiting[0].alone is not None:
                break
            done.append(_done(changes, step, _next(group, consumer)))
        if changes.records:
            _write(shard, step, group, after, (changes, done))
        else:
            for told, code, message, body in done:
                told(step, code, message, body)
    if group.unused and not consumer.waiting:
        shard.forget(group)


def _done(changes: Changes, step: Step, turn: Turn) -> tuple[Told, ErrorCode, str | None, Body]:
    mark = changes.mark()
    try:
        return turn.told, ErrorCode.NONE, None, turn.work(changes, step)
    except Refusal as refusal:
        changes.back_to(mark)
        return turn.told, refusal.code, refusal.message, {}
    except Exception:
        LOG.exception("group %s: an error of the coordinator", changes.group_id)
        changes.back_to(mark)
        return turn.told, ErrorCode.UNKNOWN_SERVER_ERROR, None, {}


def _write(
    shard: GroupShard, step: Step, group: Group, after: AfterWrite,
    batch: tuple[Changes, list[tuple[Told, ErrorCode, str | None, Body]]],
) -> None:  # fmt: skip
    changes, done = batch
    consumer = changes.group
    consumer.writing = True
    group.writing += 1

    def settled(step: Step, error: ErrorCode) -> None:
        if error is ErrorCode.REQUEST_TIMED_OUT:
            consumer.stuck = True  # until its outcome is known
            end(step, group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif error is ErrorCode.NONE:
            changes.written(step)
        for told, code, message, body in done:
            failed = error is not ErrorCode.NONE and code is ErrorCode.NONE
            if failed:
                told(step, append_error(error), None, {})
            else:
                told(step, code, message, body)
        if error is not ErrorCode.REQUEST_TIMED_OUT:
            over(step, error)

    def late(step: Step, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            changes.written(step)
        over(step, error)

    def over(step: Step, error: ErrorCode) -> None:
        consumer.writing = consumer.stuck = False
        group.writing -= 1
        if error is not ErrorCode.NONE:
            changes.failed(step, too_large(error))
        if shard.closed:
            end(step, group, ErrorCode.NOT_COORDINATOR)
            return
        after(step, group, list(changes.touched))
        _go_on(shard, step, group, after)

    step.write(shard.partition, changes.records, settled, late)
