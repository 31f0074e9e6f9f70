"""The state of one share partition, and how records change it.

Pure.  A state is the sum of its records: the coordinator applies each record that it has written,
and a loader applies the same records.  Source: Kafka's ShareCoordinatorShard, ShareGroupOffset and
PersisterStateBatchCombiner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple
from uuid import UUID

from kafkalog.coordinator.share_state.persister import (
    NO_EPOCH,
    UNINITIALIZED_COUNT,
    UNINITIALIZED_OFFSET,
    StateBatch,
)
from kafkalog.disk.layout import parse_uuid, uuid_text

__all__ = [
    "BATCHES_MAX",
    "Change",
    "Kept",
    "SharePartition",
    "ShareState",
    "Snapshot",
    "Update",
    "applied",
    "combined",
    "initial",
]

BATCHES_MAX = 10_000
"""State batches of a share partition: a snapshot of them fits into a batch of the journal.  More
offsets than that may be in flight, as whole batches of the log are acquired; leaders refuse
acknowledgements that would divide them into so many pieces."""
_Ordered = tuple[int, int, int, int]
"""First and last offset, delivery count, delivery state: batches in Kafka's order."""


class SharePartition(NamedTuple):
    """A partition of a topic in one share group."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def key(self) -> str:
        """The key by which its coordinator is found."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"

    @classmethod
    def of(cls, key: str) -> SharePartition:
        """The share partition of a key; a group id may have colons.

        Raises: ValueError.
        """
        group_id, *rest = key.rsplit(":", 2)
        if len(rest) < 2 or not group_id.strip():
            raise ValueError(f"key: found {key!r}, wanted GROUP:TOPIC_ID:PARTITION")
        return cls(group_id, parse_uuid(rest[0]), int(rest[1]))


class ShareState(NamedTuple):
    """The state of a share partition."""

    snapshot_epoch: int
    """Raised by each snapshot."""
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...]
    """Ordered by offset, without overlaps."""
    created_ms: int
    """When it was last written because of a request."""
    written_ms: int
    """When it was last written."""


class Snapshot(NamedTuple):
    """A record with the whole state."""

    state: ShareState


class Update(NamedTuple):
    """A record with what has changed since the snapshot."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...]


Change = Snapshot | Update | None
"""A record's value; None: the state is forgotten."""


class Kept(NamedTuple):
    """All that is kept of a share partition."""

    state: ShareState
    leader_epoch: int
    """The highest one seen: earlier ones are fenced."""
    state_epoch: int
    """The highest one of a snapshot: earlier ones are fenced; NO_EPOCH: there was none."""
    updates: int
    """Updates since the last snapshot that was due."""


def applied(kept: Kept | None, change: Change, updates_max: int) -> Kept | None:
    """All that is kept after a record.

    `updates_max`: after so many updates a snapshot is due.
    """
    if change is None:
        return None
    if isinstance(change, Snapshot):
        state = change.state
        if kept is None:
            return Kept(state, state.leader_epoch, state.state_epoch, 0)
        return Kept(
            state, max(kept.leader_epoch, state.leader_epoch),
            max(kept.state_epoch, state.state_epoch),
            0 if kept.updates >= updates_max else kept.updates,
        )  # fmt: skip
    if kept is None:  # its snapshot is lost
        epoch, leader_epoch, start_offset, count, batches = change
        state = ShareState(epoch, 0, leader_epoch, start_offset, count, batches, 0, 0)
        return Kept(state, leader_epoch, NO_EPOCH, 1)
    return Kept(
        _merged(kept.state, change), max(kept.leader_epoch, change.leader_epoch), kept.state_epoch,
        kept.updates + 1,
    )  # fmt: skip


def _merged(state: ShareState, update: Update) -> ShareState:
    start = update.start_offset
    start = state.start_offset if start == UNINITIALIZED_OFFSET else start
    leader = update.leader_epoch
    return state._replace(
        start_offset=start,
        leader_epoch=state.leader_epoch if leader == NO_EPOCH else leader,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=combined(state.state_batches, update.state_batches, start),
    )


def combined(
    before: Iterable[StateBatch], more: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Batches from `start_offset` on, without overlaps: of several states of an offset the one
    with the higher delivery count holds, and among these the higher delivery state.

    UNINITIALIZED_OFFSET: nothing is too low.  Neighbours in the same state become one batch, except
    where Kafka leaves them apart.
    """
    cut = start_offset != UNINITIALIZED_OFFSET
    found = [
        (max(one.first_offset, start_offset) if cut else one.first_offset, one.last_offset,
         one.delivery_count, one.delivery_state)
        for batches in (before, more)
        for one in batches
        if not cut or one.last_offset >= start_offset
    ]  # fmt: skip
    if len(found) > 1:
        found = _disjoint(found)
    return tuple(StateBatch(first, last, state, count) for first, last, count, state in found)


def _disjoint(found: Sequence[_Ordered]) -> list[_Ordered]:
    waiting = list(set(found))
    heapify(waiting)
    done: list[_Ordered] = []
    one = heappop(waiting)
    while waiting:
        other = waiting[0]
        same = one[2:] == other[2:]
        if other[0] <= one[1] or (same and one[1] + 1 == other[0]):
            heappop(waiting)
            for piece in _pieces(one, other, same):
                heappush(waiting, piece)
            one = heappop(waiting)
        else:
            done.append(one)
            one = heappop(waiting)
    return [*done, one]


def _pieces(one: _Ordered, other: _Ordered, same: bool) -> list[_Ordered]:
    """The rest of two that meet, `one` first."""
    first, last, *info = one
    if same:
        return [(first, max(last, other[1]), one[2], one[3])]
    if other[2:] < one[2:]:
        return [one, (last + 1, *other[1:])] if other[1] > last else [one]
    left: list[_Ordered] = [other]
    if first < other[0]:
        left.append((first, other[0] - 1, info[0], info[1]))
    if last > other[1]:
        left.append((other[1] + 1, last, info[0], info[1]))
    return left


def initial(epoch: int, state_epoch: int, start_offset: int, wall_ms: int) -> ShareState:
    """The state of a share partition from which nothing was delivered.  `epoch`: the snapshot's."""
    known = start_offset != UNINITIALIZED_OFFSET
    count = 0 if known else UNINITIALIZED_COUNT
    return ShareState(epoch, state_epoch, 0, start_offset, count, (), wall_ms, wall_ms)
