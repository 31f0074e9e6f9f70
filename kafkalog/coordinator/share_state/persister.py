"""The state of share partitions as its users see it: requests, results, and the persister that
carries them out, on this broker or another.

A share partition is a partition of a topic in one share group.  Source: Kafka's Persister and the
messages of APIs 83 to 87 (KIP-932).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "ACKNOWLEDGED",
    "ARCHIVED",
    "AVAILABLE",
    "NO_EPOCH",
    "UNINITIALIZED_COUNT",
    "UNINITIALIZED_OFFSET",
    "Changed",
    "DeleteState",
    "InitializeState",
    "Persister",
    "ReadState",
    "ReadSummary",
    "StateBatch",
    "StateChanged",
    "StateRead",
    "SummaryRead",
    "WriteState",
]

AVAILABLE = 0
"""StateBatch.delivery_state: the records may be delivered (again)."""
ACKNOWLEDGED = 2
"""StateBatch.delivery_state: the records were accepted."""
ARCHIVED = 4
"""StateBatch.delivery_state: the records were rejected, or delivered too often."""
UNINITIALIZED_OFFSET = -1
"""A start offset that is not known; in a write: it stays as it is."""
UNINITIALIZED_COUNT = -1
"""A delivery complete count that is not known; in a write: it stays as it is."""
NO_EPOCH = -1
"""An epoch that is not known."""


class StateBatch(NamedTuple):
    """Consecutive offsets in the same state."""

    first_offset: int
    last_offset: int
    """Included."""
    delivery_state: int
    """AVAILABLE, ACKNOWLEDGED or ARCHIVED."""
    delivery_count: int


class InitializeState(NamedTuple):
    """Begin to keep the state of a share partition, or begin again in a later state epoch."""

    topic_id: UUID
    partition: int
    state_epoch: int
    start_offset: int
    """UNINITIALIZED_OFFSET: the leader of the partition will choose one."""


class ReadState(NamedTuple):
    """Read the state of a share partition; from now on earlier leader epochs are fenced."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    """The epoch of the partition's leader, which reads."""


class WriteState(NamedTuple):
    """Change the state of a share partition."""

    topic_id: UUID
    partition: int
    state_epoch: int
    """As it was read."""
    leader_epoch: int
    """The epoch of the partition's leader, which writes."""
    start_offset: int
    """The state of offsets below it is dropped; UNINITIALIZED_OFFSET: it stays."""
    delivery_complete_count: int
    """Offsets from start_offset on that are ACKNOWLEDGED or ARCHIVED; UNINITIALIZED_COUNT: it
    stays."""
    state_batches: Sequence[StateBatch]
    """The changes: of several states of an offset the one with the higher delivery count holds."""


class DeleteState(NamedTuple):
    """Forget the state of a share partition."""

    topic_id: UUID
    partition: int


class ReadSummary(NamedTuple):
    """Read where a share partition begins; it fences nothing and is not fenced."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    """Sent, but not looked at; NO_EPOCH if the reader does not know it."""


class StateChanged(NamedTuple):
    """The result of InitializeState, WriteState or DeleteState."""

    topic_id: UUID
    partition: int
    error: ErrorCode
    """NONE: it is done, and as durable as the topic promises."""
    message: str | None = None
    """Kafka's or ours; only with an error."""


class StateRead(NamedTuple):
    """The result of ReadState."""

    topic_id: UUID
    partition: int
    error: ErrorCode
    message: str | None = None
    state_epoch: int = 0
    start_offset: int = UNINITIALIZED_OFFSET
    """UNINITIALIZED_OFFSET: the leader has to choose one."""
    state_batches: Sequence[StateBatch] = ()
    """Ordered by offset; they do not overlap, and none is below start_offset."""


class SummaryRead(NamedTuple):
    """The result of ReadSummary."""

    topic_id: UUID
    partition: int
    error: ErrorCode
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNINITIALIZED_OFFSET
    delivery_complete_count: int = UNINITIALIZED_COUNT


Changed = Callable[[Sequence[StateChanged]], None]
"""Takes the results of one request."""


class Persister(Protocol):
    """Keeps the state of share partitions.  Safe to call from any thread.

    Each call carries the share partitions of one group.  `done` is called exactly once with one
    result for each, in the order of the call, from any thread and perhaps before the call returns;
    it must not wait.  Errors that another attempt may mend (a coordinator that moves, loads or does
    not answer) were tried again before they are reported.
    """

    def initialize(self, group_id: str, states: Sequence[InitializeState], done: Changed) -> None:
        """Begin to keep states, or begin again in the same or a later state epoch.  Errors:
        FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST, COORDINATOR_NOT_AVAILABLE
        and others of a coordinator."""

    def read(
        self,
        group_id: str,
        states: Sequence[ReadState],
        done: Callable[[Sequence[StateRead]], None],
    ) -> None:
        """Read states.  Errors: as initialize, and FENCED_LEADER_EPOCH; INVALID_REQUEST if a state
        is not kept: it was not initialized."""

    def write(self, group_id: str, states: Sequence[WriteState], done: Changed) -> None:
        """Change states.  Errors: as read."""

    def delete(self, group_id: str, states: Sequence[DeleteState], done: Changed) -> None:
        """Forget states; one that is not kept is no error.  Errors: as initialize."""

    def read_summary(
        self,
        group_id: str,
        states: Sequence[ReadSummary],
        done: Callable[[Sequence[SummaryRead]], None],
    ) -> None:
        """Read summaries; one that is not kept has start offset UNINITIALIZED_OFFSET and state
        epoch 0.  Errors: as initialize, but none of fencing."""
