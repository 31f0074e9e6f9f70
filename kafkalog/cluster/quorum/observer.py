"""A broker's decisions as an observer of the metadata log: whom to fetch from, and what to do with
an answer.

Pure: a state and an answer in, the next state and an action out.  An observer follows the leader of
the quorum and has no vote.  Any voter answers with the leader that it knows (KIP-595, KIP-853).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from kafkalog.client.link.transport import Address
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.kraft.snapshots import SnapshotName
from kafkalog.quorum.identity import Identity
from kafkalog.raft.codec import FETCH_BYTES, FETCH_WAIT_MS
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "METADATA_TOPIC_ID", "Action", "Append", "Discard", "Diverge", "Download", "End", "Identity",
    "Observer", "Refuse", "Store", "Wait", "fetch_body", "fetched", "lost", "snapshot_body",
    "snapshot_fetched", "target",
]  # fmt: skip

METADATA_TOPIC_ID = UUID(int=1)
"""Kafka's reserved id of the metadata topic."""
NO_LEADER = -1
SNAPSHOT_BYTES = 1 << 20
"""The most bytes of one piece of a snapshot."""


class End(NamedTuple):
    """Where the local log ends."""

    offset: int
    epoch: int
    """The epoch of its last record, or of the snapshot that it continues; 0: it has neither."""
    high_watermark: int
    """-1: not known."""


class Observer(NamedTuple):
    """The quorum as an observer knows it."""

    bootstrap: tuple[Address, ...]
    """Where the controllers are, by the settings; never empty."""
    voters: dict[int, Address]
    """The same by node, if the settings say it."""
    epoch: int = 0
    """The highest leader epoch that was seen."""
    leader: int = NO_LEADER
    """The leader of that epoch."""
    address: Address | None = None
    """Where the leader is; None: not known."""
    turn: int = 0
    """Which of `bootstrap` is asked while there is no leader."""


class Append(NamedTuple):
    """Append these batches, then replay up to the high watermark."""

    records: Any
    high_watermark: int
    epoch: int
    """The leader's: it has no batches of later ones."""


class Diverge(NamedTuple):
    """Truncate to where the leader's log has this epoch, too; then fetch again."""

    epoch: int
    end_offset: int


class Download(NamedTuple):
    """Fetch this snapshot: the leader has no records for the fetch offset any more."""

    snapshot: SnapshotName


class Store(NamedTuple):
    """Write a piece of the snapshot at its position."""

    position: int
    data: bytes
    size: int
    """The size of the whole snapshot."""


class Discard(NamedTuple):
    """Forget the snapshot that was begun, and fetch again."""


class Wait(NamedTuple):
    """Fetch again, after a pause unless the leader has changed."""

    pause: bool


class Refuse(NamedTuple):
    """This cluster cannot be followed."""

    why: str


Action: TypeAlias = Append | Diverge | Download | Store | Discard | Wait | Refuse


def target(state: Observer) -> Address:
    """Where the next request goes."""
    if state.leader != NO_LEADER and state.address is not None:
        return state.address
    return state.bootstrap[state.turn % len(state.bootstrap)]


def lost(state: Observer) -> Observer:
    """After the target could not be reached, or was silent: the next controller is asked."""
    return state._replace(leader=NO_LEADER, address=None, turn=state.turn + 1)


# ---- Fetch -----------------------------------------------------------------------------------


def fetch_body(state: Observer, who: Identity, end: End) -> dict[str, Any]:
    """The Fetch request for the records after `end`."""
    partition = {
        "partition": 0, "current_leader_epoch": state.epoch, "fetch_offset": end.offset,
        "last_fetched_epoch": end.epoch, "log_start_offset": -1, "partition_max_bytes": FETCH_BYTES,
        "replica_directory_id": who.directory_id, "high_watermark": end.high_watermark,
    }  # fmt: skip
    return {
        "cluster_id": who.cluster_id,
        "replica_state": {"replica_id": who.node, "replica_epoch": -1},
        "max_wait_ms": FETCH_WAIT_MS,
        "min_bytes": 0,
        "max_bytes": FETCH_BYTES,
        "topics": [
            {"topic": METADATA_TOPIC, "topic_id": METADATA_TOPIC_ID, "partitions": [partition]}
        ],
    }


def fetched(state: Observer, answer: Any) -> tuple[Observer, Action]:
    """After the answer to a Fetch in `state.epoch`."""
    if (refused := _refused(answer.error_code)) is not None:
        return state, refused
    row = _only(answer.responses)
    if answer.error_code or row is None:
        return lost(state), Wait(pause=True)
    after = _with_leader(state, row.current_leader, getattr(answer, "node_endpoints", ()))
    if after is None:
        return lost(state), Wait(pause=True)
    if row.error_code:
        return _moved(state, after)
    if after.epoch != state.epoch or after.leader == NO_LEADER:
        return after, Wait(pause=after.leader == NO_LEADER)
    if row.diverging_epoch.end_offset >= 0:
        return after, Diverge(row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
    if row.snapshot_id.end_offset >= 0:
        return after, Download(SnapshotName(row.snapshot_id.end_offset, row.snapshot_id.epoch))
    return after, Append(row.records or None, row.high_watermark, after.epoch)


def _refused(code: int) -> Refuse | None:
    if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
        return Refuse("its controllers belong to another cluster")
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return Refuse("its controllers do not authorize this broker (CLUSTER_ACTION)")
    return None


def _only(topics: Sequence[Any]) -> Any:
    """The answer for the metadata log's partition; None: there is none."""
    partitions = [one for topic in topics for one in topic.partitions]
    return partitions[0] if len(partitions) == 1 else None


def _with_leader(state: Observer, told: Any, endpoints: Sequence[Any]) -> Observer | None:
    """The state with the leader that an answer names; None: the answer is older than the state, or
    contradicts it."""
    if told.leader_epoch < state.epoch:
        return None
    both_known = NO_LEADER not in (state.leader, told.leader_id)
    if told.leader_epoch == state.epoch and both_known and told.leader_id != state.leader:
        return None
    places = {one.node_id: Address(one.host, one.port) for one in endpoints}
    known = state.leader == told.leader_id and state.epoch == told.leader_epoch
    before = state.address if known else None
    place = places.get(told.leader_id) or before or state.voters.get(told.leader_id)
    return state._replace(epoch=told.leader_epoch, leader=told.leader_id, address=place)


def _moved(before: Observer, after: Observer) -> tuple[Observer, Action]:
    """After an error: the named leader is asked at once if the request went elsewhere."""
    if after.leader == NO_LEADER or after.address is None:
        return lost(after), Wait(pause=True)
    same = target(before) == target(after) and before.epoch == after.epoch
    return after, Wait(pause=same)


# ---- FetchSnapshot ---------------------------------------------------------------------------


def snapshot_body(
    state: Observer, who: Identity, snapshot: SnapshotName, position: int
) -> dict[str, Any]:
    """The FetchSnapshot request for the bytes from `position` on."""
    partition = {
        "partition": 0, "current_leader_epoch": state.epoch,
        "snapshot_id": {"end_offset": snapshot.offset, "epoch": snapshot.epoch},
        "position": position, "replica_directory_id": who.directory_id,
    }  # fmt: skip
    return {
        "cluster_id": who.cluster_id, "replica_id": who.node, "max_bytes": SNAPSHOT_BYTES,
        "topics": [{"name": METADATA_TOPIC, "partitions": [partition]}],
    }  # fmt: skip


def snapshot_fetched(
    state: Observer, snapshot: SnapshotName, position: int, answer: Any
) -> tuple[Observer, Action]:
    """After the answer to a FetchSnapshot from `position` on."""
    if (refused := _refused(answer.error_code)) is not None:
        return state, refused
    row = _only(answer.topics)
    if answer.error_code or row is None:
        return lost(state), Discard()
    if row.error_code:
        after = state
        if row.current_leader.leader_epoch:  # else it is not in the answer
            endpoints = getattr(answer, "node_endpoints", ())
            after = _with_leader(state, row.current_leader, endpoints) or lost(state)
        return after, Discard()
    data = bytes(row.unaligned_records or b"")
    right = (row.snapshot_id.end_offset, row.snapshot_id.epoch) == snapshot
    fits = row.position == position and 0 < len(data) <= row.size - position
    if not (right and fits):
        return lost(state), Discard()
    return state, Store(position, data, row.size)
