"""Requests of Raft as they come in, and the answers to them as fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafkalog.client.link.transport import Address
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.raft.codec import API_OF, FETCH_BYTES, response_fields
from kafkalog.raft.log import version_of
from kafkalog.raft.replicas import ReplicaKey, is_voter
from kafkalog.raft.roles import Leader, Progress, same_replica
from kafkalog.raft.state import State
from kafkalog.wire.api import Api
from kafkalog.wire.apis import DESCRIBE_QUORUM, FETCH
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.later.quorum import (
    ADD_RAFT_VOTER,
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH_SNAPSHOT,
    REMOVE_RAFT_VOTER,
    UPDATE_RAFT_VOTER,
    VOTE,
)

__all__ = [
    "RAFT_APIS", "Ask", "Body", "answer_fields", "describe_quorum", "refusal", "refused",
]  # fmt: skip

Body = Mapping[str, Any]
SNAPSHOT_BYTES = 1 << 20
"""The most bytes of one piece of a snapshot."""
RAFT_APIS = frozenset(api.key for api in (*API_OF.values(), DESCRIBE_QUORUM))
"""The requests that Raft answers; all others are the active controller's."""


class Ask(NamedTuple):
    """A request without an answer."""

    api: Api
    request: Any
    version: int
    listener: str
    """The listener that it came by: the leader's address there is in the answer."""
    answer: Callable[[Any], None]

    @property
    def bytes_max(self) -> int:
        """How many bytes of the log or of a snapshot the answer may have."""
        if self.api is FETCH:
            one = self.request.topics[0].partitions[0]
            return int(max(1, min(self.request.max_bytes, one.partition_max_bytes, FETCH_BYTES)))
        return int(max(1, min(self.request.max_bytes, SNAPSHOT_BYTES)))


def refusal(api: Api, error: ErrorCode) -> Body:
    """The answer with an error for the whole request."""
    fields: dict[str, Any] = {"error_code": error}
    if api in (VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH):
        return {**fields, "topics": []}
    fields["throttle_time_ms"] = 0
    if api is FETCH:
        return {**fields, "session_id": 0, "responses": []}
    if api is FETCH_SNAPSHOT:
        return {**fields, "topics": []}
    return fields if api is UPDATE_RAFT_VOTER else {**fields, "error_message": None}


def refused(body: Any) -> str:
    """Why the controllers will never let a broker with this answer follow them; empty: they may."""
    code = getattr(body, "error_code", 0)
    if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
        return "its controllers belong to another cluster"
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return "its controllers do not authorize this broker (CLUSTER_ACTION)"
    return ""


def answer_fields(ask: Ask, message: Any, leader: Address | None) -> Body:
    """The answer to a request; `leader`: where the leader is that it names."""
    fields = response_fields(ask.api, message)
    changes = ask.api in (ADD_RAFT_VOTER, REMOVE_RAFT_VOTER)  # which name no leader
    if leader is None or message.leader_id is None or changes:
        return fields
    place = {"host": leader.host, "port": leader.port}
    if ask.api is UPDATE_RAFT_VOTER:
        return {**fields, "current_leader": {**fields["current_leader"], **place}}
    return {**fields, "node_endpoints": [{"node_id": message.leader_id, **place}]}


# ---- DescribeQuorum ----------------------------------------------------------------------------


def describe_quorum(state: State, request: Any, now_ms: float, wall_ms: int) -> Body:
    """The answer to DescribeQuorum.

    `now_ms`: of Raft's clock; `wall_ms`: the same moment since 1970.
    """
    quorum = _quorum(state, wall_ms - now_ms, wall_ms)
    topics = [
        {"topic_name": topic.topic_name,
         "partitions": [
             {**quorum, "partition_index": 0}
             if (topic.topic_name, one.partition_index) == (METADATA_TOPIC, 0)
             else _unknown(one.partition_index) for one in topic.partitions
         ]}
        for topic in request.topics
    ]  # fmt: skip
    nodes = [
        {"node_id": one.key.id, "listeners": [
            {"name": name, "host": host, "port": port} for name, host, port in one.endpoints
        ]}
        for one in state.voters
    ]  # fmt: skip
    led = isinstance(state.role, Leader)
    return {"error_code": ErrorCode.NONE, "error_message": "", "topics": topics,
            "nodes": nodes if led else []}  # fmt: skip


def _unknown(partition: int) -> dict[str, Any]:
    return {
        "partition_index": partition, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "error_message": "This server does not host this topic-partition.", "leader_id": -1,
        "leader_epoch": -1, "high_watermark": -1, "current_voters": [], "observers": [],
    }  # fmt: skip


def _quorum(state: State, offset_ms: float, wall_ms: int) -> dict[str, Any]:
    """The partition of the metadata log, without its number."""
    role = state.role
    if not isinstance(role, Leader):
        return {
            "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER,
            "error_message": "For requests intended only for the leader, this error indicates that "
            "the broker is not the current leader.",
            "leader_id": -1 if state.leader_id is None else state.leader_id,
            "leader_epoch": state.epoch, "high_watermark": -1, "current_voters": [],
            "observers": [],
        }  # fmt: skip
    voters = []
    for one in state.voters:
        if is_voter((one,), state.me):
            row = _row(state.me, state.log.end, wall_ms, wall_ms)
        else:
            found = [key for key in role.progress if same_replica(one.key, key)]
            progress = role.progress[found[0]] if found else Progress()
            row = _replica(one.key, progress, offset_ms)
        if version_of(state.log) == 0:
            row["replica_directory_id"] = one.key.directory_id
        voters.append(row)
    observers = [
        _replica(key, one, offset_ms) for key, one in role.progress.items()
        if not is_voter(state.voters, key)
    ]  # fmt: skip
    known = state.high_watermark > role.epoch_start
    return {
        "error_code": ErrorCode.NONE, "error_message": "", "leader_id": state.me.id,
        "leader_epoch": state.epoch, "high_watermark": state.high_watermark if known else -1,
        "current_voters": voters, "observers": observers,
    }  # fmt: skip


def _replica(key: ReplicaKey, one: Progress, offset_ms: float) -> dict[str, Any]:
    times = [
        -1 if at_ms is None else int(at_ms + offset_ms)
        for at_ms in (one.fetched_at_ms, one.caught_up_at_ms)
    ]
    return _row(key, one.end, *times)


def _row(key: ReplicaKey, end: int, fetched_ms: int, caught_up_ms: int) -> dict[str, Any]:
    return {
        "replica_id": key.id, "replica_directory_id": key.directory_id, "log_end_offset": end,
        "last_fetch_timestamp": fetched_ms, "last_caught_up_timestamp": caught_up_ms,
    }  # fmt: skip
