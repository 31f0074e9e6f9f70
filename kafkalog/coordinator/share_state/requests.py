"""The effect of a request on the state of a share partition.

Pure: a request and what is kept give the result, and the change that must be written first.
Source: Kafka's ShareCoordinatorShard; the messages are its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog.coordinator.share_state.persister import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    StateChanged,
    StateRead,
    SummaryRead,
    WriteState,
)
from kafkalog.coordinator.share_state.state import (
    BATCHES_MAX,
    Change,
    Kept,
    Snapshot,
    Update,
    combined,
    initial,
)
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Decision", "Given", "Request", "Result", "cold", "decide", "failed"]

Request = InitializeState | ReadState | WriteState | DeleteState | ReadSummary
Result = StateChanged | StateRead | SummaryRead

NEGATIVE_PARTITION = "The partition id cannot be a negative number."
NEGATIVE_LEADER_EPOCH = "The leader epoch cannot be a negative number."
NEGATIVE_STATE_EPOCH = "The state epoch cannot be a negative number."
WRITE_UNINITIALIZED = "Write operation on uninitialized share partition not allowed."
READ_UNINITIALIZED = "Read operation on uninitialized share partition not allowed."
MESSAGES = {
    ErrorCode.FENCED_LEADER_EPOCH: (
        "The leader epoch in the request is older than the epoch on the broker."
    ),
    ErrorCode.FENCED_STATE_EPOCH: (
        "The coordinator rejected the request because the state epoch did not match."
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
}


class Given(NamedTuple):
    """All that a decision depends on, besides the request and the state."""

    wall_ms: int
    updates_max: int
    """After so many updates a snapshot is due."""
    exists: Callable[[UUID, int], bool]
    """True if a topic has a partition."""


class Decision(NamedTuple):
    """The result of a request, valid once the changes are written."""

    result: Result
    changes: tuple[Change, ...] = ()
    """None, or one."""


def failed(asked: Request, error: ErrorCode, message: str | None = None) -> Result:
    """The result of a request that is refused."""
    kind: type[Any] = StateChanged
    if isinstance(asked, ReadState):
        kind = StateRead
    elif isinstance(asked, ReadSummary):
        kind = SummaryRead
    result: Result = kind(
        asked.topic_id, asked.partition, error, MESSAGES.get(error) if message is None else message
    )
    return result


def decide(asked: Request, kept: Kept | None, given: Given) -> Decision:
    """The result of a request, and what must be written before it is given."""
    refused = _refused(asked, kept, given)
    if refused is not None:
        return Decision(failed(asked, *refused))
    if isinstance(asked, InitializeState):
        return _initialize(asked, kept, given)
    if isinstance(asked, DeleteState):
        return Decision(_done(asked), () if kept is None else (None,))
    if isinstance(asked, ReadSummary):
        return _summary(asked, kept)
    assert kept is not None
    if isinstance(asked, ReadState):
        return _read(asked, kept, given)
    return _write(asked, kept, given)


def _done(asked: Request) -> StateChanged:
    return StateChanged(asked.topic_id, asked.partition, ErrorCode.NONE)


def _refused(
    asked: Request, kept: Kept | None, given: Given
) -> tuple[ErrorCode, str | None] | None:
    """Why a request is refused, in Kafka's order."""
    invalid = _invalid(asked)
    if invalid is not None:
        return ErrorCode.INVALID_REQUEST, invalid
    if isinstance(asked, ReadState | WriteState):
        if kept is None:
            read = isinstance(asked, ReadState)
            return ErrorCode.INVALID_REQUEST, READ_UNINITIALIZED if read else WRITE_UNINITIALIZED
        if kept.leader_epoch > asked.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, None
    if (
        isinstance(asked, WriteState | InitializeState)
        and kept is not None
        and kept.state_epoch > asked.state_epoch
    ):
        return ErrorCode.FENCED_STATE_EPOCH, None
    if not given.exists(asked.topic_id, asked.partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    return None


def _invalid(asked: Request) -> str | None:
    """The fault of a request, whatever is kept."""
    if asked.partition < 0:
        return NEGATIVE_PARTITION
    if isinstance(asked, ReadState | WriteState) and asked.leader_epoch < 0:
        return NEGATIVE_LEADER_EPOCH
    if isinstance(asked, WriteState | InitializeState) and asked.state_epoch < 0:
        return NEGATIVE_STATE_EPOCH
    if isinstance(asked, WriteState):
        for one in asked.state_batches:
            if one.first_offset > one.last_offset:  # Kafka's takes it, and loses its way
                return (
                    f"state batch: found last offset {one.last_offset}, wanted first offset "
                    f"{one.first_offset} or more"
                )
        if len(asked.state_batches) > BATCHES_MAX:
            return _too_many(len(asked.state_batches))
    return None


def _too_many(count: int) -> str:
    return f"state batches: found {count}, wanted at most {BATCHES_MAX} in a share partition"


def _initialize(asked: InitializeState, kept: Kept | None, given: Given) -> Decision:
    epoch = 0 if kept is None else kept.state.snapshot_epoch + 1
    state = initial(epoch, asked.state_epoch, asked.start_offset, given.wall_ms)
    return Decision(_done(asked), (Snapshot(state),))


def _summary(asked: ReadSummary, kept: Kept | None) -> Decision:
    found = SummaryRead(asked.topic_id, asked.partition, ErrorCode.NONE)
    if kept is None:
        return Decision(found)
    state = kept.state
    return Decision(
        found._replace(
            state_epoch=state.state_epoch, leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )
    )  # fmt: skip


def _read(asked: ReadState, kept: Kept, given: Given) -> Decision:
    state = kept.state
    found = StateRead(
        asked.topic_id, asked.partition, ErrorCode.NONE, None, state.state_epoch,
        state.start_offset, state.state_batches,
    )  # fmt: skip
    if kept.leader_epoch == asked.leader_epoch:
        return Decision(found)
    fencing = WriteState(
        asked.topic_id, asked.partition, state.state_epoch, asked.leader_epoch,
        state.start_offset, state.delivery_complete_count, (),
    )  # fmt: skip
    return Decision(found, (_changed(fencing, kept, given, asked.leader_epoch),))


def _write(asked: WriteState, kept: Kept, given: Given) -> Decision:
    change = _changed(asked, kept, given, kept.state.leader_epoch)
    count = len(change.state.state_batches) if isinstance(change, Snapshot) else 0
    if isinstance(change, Update):
        count = len(change.state_batches) + len(kept.state.state_batches)
        if count > BATCHES_MAX:  # as an upper bound; many may become one
            start = change.start_offset
            count = len(combined(kept.state.state_batches, change.state_batches, start))
    if count > BATCHES_MAX:
        return Decision(failed(asked, ErrorCode.INVALID_REQUEST, _too_many(count)))
    return Decision(_done(asked), (change,))


def _changed(asked: WriteState, kept: Kept, given: Given, leader_epoch: int) -> Snapshot | Update:
    """The record of a write: an update, or a snapshot if one is due."""
    state = kept.state
    start = max(asked.start_offset, state.start_offset)
    count = asked.delivery_complete_count
    if asked.start_offset == state.start_offset:
        count = max(count, state.delivery_complete_count)
    elif asked.start_offset < state.start_offset:
        count = state.delivery_complete_count
    if kept.updates < given.updates_max:
        batches = combined((), asked.state_batches, start)
        return Update(state.snapshot_epoch, leader_epoch, start, count, batches)
    return Snapshot(
        state._replace(
            snapshot_epoch=state.snapshot_epoch + 1, leader_epoch=leader_epoch, start_offset=start,
            delivery_complete_count=count,
            state_batches=combined(state.state_batches, asked.state_batches, start),
            created_ms=given.wall_ms, written_ms=given.wall_ms,
        )
    )  # fmt: skip


def cold(kept: Kept, wall_ms: int) -> Snapshot:
    """The snapshot of a state that has not changed for long."""
    state = kept.state
    return Snapshot(state._replace(snapshot_epoch=state.snapshot_epoch + 1, written_ms=wall_ms))
