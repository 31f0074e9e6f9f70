"""The core's messages as Kafka's requests and responses, and its control records as Kafka's.

All requests are of the metadata log, so each has one topic with one partition.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.errors import InvalidRequest
from kafkalog.raft.log import Control, LeaderChange, OffsetAndEpoch, VersionChange
from kafkalog.raft.messages import (
    NOT_SAID,
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumResponse,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
    VoterResponse,
)
from kafkalog.raft.replicas import NO_DIRECTORY, ReplicaKey, Voter, Voters, voters_of
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONTROL
from kafkalog.wire.tables.later.quorum import (
    ADD_RAFT_VOTER,
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH_SNAPSHOT,
    REMOVE_RAFT_VOTER,
    UPDATE_RAFT_VOTER,
    VOTE,
)
from kafkalog.wire.tables.partitions import FETCH

__all__ = [
    "API_OF",
    "FETCH_BYTES",
    "FETCH_WAIT_MS",
    "control_of",
    "control_record",
    "request_fields",
    "request_of",
    "response_fields",
    "response_of",
]

TOPIC_ID = uuid.UUID(int=1)
"""Kafka's reserved id of the metadata topic."""
FETCH_WAIT_MS = 500
"""How long the leader may wait for records, as in Kafka."""
FETCH_BYTES = 8 << 20
"""The most bytes of one answer; Kafka's limit for the metadata log."""
VOTERS_MAX = 1_000
"""The most voters of a request or a record; Kafka's quorums have three to seven."""
Fields = dict[str, Any]

API_OF: dict[type[Any], Api] = {
    VoteRequest: VOTE,
    BeginQuorumEpochRequest: BEGIN_QUORUM_EPOCH,
    EndQuorumEpochRequest: END_QUORUM_EPOCH,
    FetchRequest: FETCH,
    FetchSnapshotRequest: FETCH_SNAPSHOT,
    AddRaftVoterRequest: ADD_RAFT_VOTER,
    RemoveRaftVoterRequest: REMOVE_RAFT_VOTER,
    UpdateRaftVoterRequest: UPDATE_RAFT_VOTER,
}
"""The API of each request."""


# ---- requests --------------------------------------------------------------------------------


def request_fields(
    message: Any, cluster_id: str, listeners: Iterable[tuple[str, str, int]] = ()
) -> Fields:
    """The fields of a request.

    `listeners`: the sender's name, host and port of each, for a leader's requests.
    """
    fields = _REQUESTS[type(message)](message)
    if isinstance(message, BeginQuorumEpochRequest | EndQuorumEpochRequest):
        fields["leader_endpoints"] = _endpoints(listeners)
    return {"cluster_id": cluster_id, **fields}


def _topics(partition: Fields, **topic: Any) -> Fields:
    return {"topics": [{**(topic or {"topic_name": METADATA_TOPIC}), "partitions": [partition]}]}


def _vote(message: VoteRequest) -> Fields:
    return {
        "voter_id": message.voter.id,
        **_topics({
            "partition_index": 0, "replica_epoch": message.replica_epoch,
            "replica_id": message.replica.id,
            "replica_directory_id": message.replica.directory_id,
            "voter_directory_id": message.voter.directory_id,
            "last_offset_epoch": message.last_offset_epoch, "last_offset": message.last_offset,
            "pre_vote": message.pre_vote,
        }),
    }  # fmt: skip


def _begin(message: BeginQuorumEpochRequest) -> Fields:
    return {
        "voter_id": message.voter.id,
        **_topics({
            "partition_index": 0, "voter_directory_id": message.voter.directory_id,
            "leader_id": message.leader_id, "leader_epoch": message.leader_epoch,
        }),
    }  # fmt: skip


def _end(message: EndQuorumEpochRequest) -> Fields:
    return _topics({
        "partition_index": 0, "leader_id": message.leader_id, "leader_epoch": message.leader_epoch,
        "preferred_successors": [one.id for one in message.preferred_candidates],
        "preferred_candidates": [
            {"candidate_id": one.id, "candidate_directory_id": one.directory_id}
            for one in message.preferred_candidates
        ],
    })  # fmt: skip


def _fetch(message: FetchRequest) -> Fields:
    partition = {
        "partition": 0, "current_leader_epoch": message.current_leader_epoch,
        "fetch_offset": message.fetch_offset, "last_fetched_epoch": message.last_fetched_epoch,
        "partition_max_bytes": FETCH_BYTES, "replica_directory_id": message.replica.directory_id,
        "high_watermark": message.high_watermark,
    }  # fmt: skip
    return {
        "replica_id": message.replica.id,
        "replica_state": {"replica_id": message.replica.id, "replica_epoch": -1},
        "max_wait_ms": FETCH_WAIT_MS, "min_bytes": 0, "max_bytes": FETCH_BYTES,
        "isolation_level": 0, "session_id": 0, "rack_id": "",
        "forgotten_topics_data": [],
        **_topics(partition, topic=METADATA_TOPIC, topic_id=TOPIC_ID),
    }  # fmt: skip


def _fetch_snapshot(message: FetchSnapshotRequest) -> Fields:
    offset, epoch = message.snapshot
    partition = {
        "partition": 0, "current_leader_epoch": message.current_leader_epoch,
        "snapshot_id": {"end_offset": offset, "epoch": epoch}, "position": message.position,
        "replica_directory_id": message.replica.directory_id,
    }  # fmt: skip
    return {"replica_id": message.replica.id, **_topics(partition, name=METADATA_TOPIC)}


def _voter(voter: Voter) -> Fields:
    return {
        "voter_id": voter.key.id, "voter_directory_id": voter.key.directory_id,
        "listeners": _endpoints(voter.endpoints),
    }  # fmt: skip


def _add(message: AddRaftVoterRequest) -> Fields:
    wait = message.ack_when_committed
    return {"timeout_ms": 30_000, "ack_when_committed": wait, **_voter(message.voter)}


def _remove(message: RemoveRaftVoterRequest) -> Fields:
    return {"voter_id": message.voter.id, "voter_directory_id": message.voter.directory_id}


def _update(message: UpdateRaftVoterRequest) -> Fields:
    return {
        "current_leader_epoch": message.current_leader_epoch, **_voter(message.voter),
        "kraft_version_feature": _range(message.voter),
    }  # fmt: skip


def _range(voter: Voter) -> Fields:
    low, high = voter.versions
    return {"min_supported_version": low, "max_supported_version": high}


def _endpoints(listeners: Iterable[tuple[str, str, int]]) -> list[Fields]:
    return [{"name": name, "host": host, "port": port} for name, host, port in listeners]


_REQUESTS: dict[type[Any], Callable[[Any], Fields]] = {
    VoteRequest: _vote,
    BeginQuorumEpochRequest: _begin,
    EndQuorumEpochRequest: _end,
    FetchRequest: _fetch,
    FetchSnapshotRequest: _fetch_snapshot,
    AddRaftVoterRequest: _add,
    RemoveRaftVoterRequest: _remove,
    UpdateRaftVoterRequest: _update,
}


def request_of(api: Api, body: Any, version: int, me: int) -> Any:
    """The core's message for a decoded request.

    `version`: of the request; `me`: this node's id, which early versions leave out.

    Raises: InvalidRequest: it is not of the metadata log's only partition, or names too many.
    """
    if api in (ADD_RAFT_VOTER, REMOVE_RAFT_VOTER, UPDATE_RAFT_VOTER):
        return _change_of(api, body)
    one = _partition(api, body)
    if api is VOTE:
        return VoteRequest(
            _key(me if version < 1 else body.voter_id, one.voter_directory_id), one.replica_epoch,
            ReplicaKey(one.replica_id, one.replica_directory_id), one.last_offset_epoch,
            one.last_offset, version >= 2 and one.pre_vote,
        )  # fmt: skip
    if api is BEGIN_QUORUM_EPOCH:
        voter = _key(me if version < 1 else body.voter_id, one.voter_directory_id)
        return BeginQuorumEpochRequest(voter, one.leader_id, one.leader_epoch)
    if api is END_QUORUM_EPOCH:
        return EndQuorumEpochRequest(one.leader_id, one.leader_epoch, _candidates(one, version))
    if api is FETCH:
        replica_id = body.replica_id if version < 15 else body.replica_state.replica_id
        return FetchRequest(
            _key(replica_id, one.replica_directory_id), one.current_leader_epoch, one.fetch_offset,
            one.last_fetched_epoch, one.high_watermark if version >= 18 else NOT_SAID,
        )  # fmt: skip
    snapshot = OffsetAndEpoch(one.snapshot_id.end_offset, one.snapshot_id.epoch)
    return FetchSnapshotRequest(
        _key(body.replica_id, one.replica_directory_id), one.current_leader_epoch, snapshot,
        one.position,
    )  # fmt: skip


def _partition(api: Api, body: Any) -> Any:
    if len(body.topics) != 1 or len(body.topics[0].partitions) != 1:
        raise InvalidRequest(f"{api.name}: found other partitions, wanted {METADATA_TOPIC}-0 alone")
    topic = body.topics[0]
    one = topic.partitions[0]
    names = [getattr(topic, field, None) for field in ("topic_name", "name", "topic")]
    number = one.partition_index if hasattr(one, "partition_index") else one.partition
    known = METADATA_TOPIC in names or getattr(topic, "topic_id", None) == TOPIC_ID
    if not known or number:
        raise InvalidRequest(f"{api.name}: found another partition, wanted {METADATA_TOPIC}-0")
    return one


def _key(node_id: int, directory_id: uuid.UUID) -> ReplicaKey:
    return ReplicaKey(node_id, directory_id)


def _candidates(one: Any, version: int) -> tuple[ReplicaKey, ...]:
    if version < 1:
        found = tuple(ReplicaKey(node, NO_DIRECTORY) for node in one.preferred_successors)
    else:
        found = tuple(
            ReplicaKey(c.candidate_id, c.candidate_directory_id) for c in one.preferred_candidates
        )
    if len(found) > VOTERS_MAX:
        raise InvalidRequest(f"EndQuorumEpoch: found {len(found)} candidates, at most {VOTERS_MAX}")
    return found


def _change_of(api: Api, body: Any) -> Any:
    key = ReplicaKey(body.voter_id, body.voter_directory_id)
    if api is REMOVE_RAFT_VOTER:
        return RemoveRaftVoterRequest(key)
    endpoints = tuple((one.name, one.host, one.port) for one in body.listeners)
    if len(endpoints) > VOTERS_MAX:
        raise InvalidRequest(f"{api.name}: found {len(endpoints)} listeners, at most {VOTERS_MAX}")
    if api is ADD_RAFT_VOTER:
        return AddRaftVoterRequest(Voter(key, endpoints), body.ack_when_committed)
    found = body.kraft_version_feature
    versions = found.min_supported_version, found.max_supported_version
    return UpdateRaftVoterRequest(body.current_leader_epoch, Voter(key, endpoints, versions))


# ---- responses -------------------------------------------------------------------------------


def response_fields(api: Api, message: Any) -> Fields:
    """The fields of a response; the records of a Fetch, and the bytes of a snapshot, are bytes."""
    leader = -1 if message.leader_id is None else message.leader_id
    current = {"leader_id": leader, "leader_epoch": message.leader_epoch}
    if isinstance(message, VoterResponse):
        why = message.error_message
        fields = {"throttle_time_ms": 0, "error_code": int(message.error_code)}
        if api is UPDATE_RAFT_VOTER:
            return {**fields, "current_leader": {**current, "host": "", "port": 0}}
        return {**fields, "error_message": why}
    one: Fields = {"error_code": int(message.error_code), "partition_index": 0}
    if isinstance(message, QuorumResponse):
        one |= current
        if api is VOTE:
            one["vote_granted"] = message.vote_granted
        return {"error_code": 0, **_topics(one)}
    if isinstance(message, FetchSnapshotResponse):
        offset, epoch = message.snapshot or (-1, -1)
        one = {
            "index": 0, "error_code": int(message.error_code), "current_leader": current,
            "snapshot_id": {"end_offset": offset, "epoch": epoch}, "size": message.size,
            "position": message.position, "unaligned_records": message.records or b"",
        }  # fmt: skip
        return {"throttle_time_ms": 0, "error_code": 0, **_topics(one, name=METADATA_TOPIC)}
    one |= {
        "current_leader": current, "high_watermark": message.high_watermark,
        "aborted_transactions": [], "records": message.records or b"",
    }  # fmt: skip
    if message.diverging is not None:
        offset, epoch = message.diverging
        one["diverging_epoch"] = {"end_offset": offset, "epoch": epoch}
    if message.snapshot is not None:
        offset, epoch = message.snapshot
        one["snapshot_id"] = {"end_offset": offset, "epoch": epoch}
    topics = _topics(one, topic=METADATA_TOPIC, topic_id=TOPIC_ID)["topics"]
    return {"throttle_time_ms": 0, "error_code": 0, "session_id": 0, "responses": topics}


def response_of(api: Api, body: Any) -> Any:
    """The core's message for a decoded response.

    Raises: InvalidRequest: it is not of the metadata log.
    """
    if api in (ADD_RAFT_VOTER, REMOVE_RAFT_VOTER, UPDATE_RAFT_VOTER):
        current = getattr(body, "current_leader", None)
        epoch, leader = (-1, None) if current is None else _leader(current)
        return VoterResponse(
            _error(body.error_code), epoch, leader, getattr(body, "error_message", None)
        )
    if body.error_code:
        return QuorumResponse(_error(body.error_code), -1, None)
    topics = body.responses if api is FETCH else body.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise InvalidRequest(f"{api.name}: found other partitions, wanted {METADATA_TOPIC}-0 alone")
    one = topics[0].partitions[0]
    error = _error(one.error_code)
    if api is FETCH:
        epoch, leader = _leader(one.current_leader)
        return FetchResponse(
            error, epoch, leader, one.high_watermark, _place(one.diverging_epoch),
            _place(one.snapshot_id), one.records or b"",
        )  # fmt: skip
    if api is FETCH_SNAPSHOT:
        epoch, leader = _leader(one.current_leader)
        return FetchSnapshotResponse(
            error, epoch, leader, one.size, one.position, bytes(one.unaligned_records),
            _place(one.snapshot_id),
        )  # fmt: skip
    epoch, leader = _leader(one)
    return QuorumResponse(error, epoch, leader, api is VOTE and one.vote_granted)


def _error(number: int) -> ErrorCode:
    """An error code; one that a newer node has and this one does not know is an unknown error."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _leader(found: Any) -> tuple[int, int | None]:
    return found.leader_epoch, None if found.leader_id < 0 else found.leader_id


def _place(found: Any) -> OffsetAndEpoch | None:
    return OffsetAndEpoch(found.end_offset, found.epoch) if found.end_offset >= 0 else None


# ---- control records -------------------------------------------------------------------------


def control_record(control: Control, version: int) -> tuple[bytes, bytes]:
    """Key and value of a control record; `version`: kraft.version, on which none depends now."""
    if isinstance(control, VersionChange):
        return CONTROL.encode("KRaftVersion", 0, {"kraft_version": control.version})
    if isinstance(control, LeaderChange):
        # Never version 1, which has directory ids: Kafka 4.4 writes 0, and reads all as 0.
        return CONTROL.encode("LeaderChange", 0, {
            "leader_id": control.leader_id,
            "voters": [_named(one) for one in control.voters],
            "granting_voters": [_named(one) for one in control.granting],
        })  # fmt: skip
    return CONTROL.encode("KRaftVoters", 0, {
        "voters": [
            {
                **_named(one.key), "endpoints": _endpoints(one.endpoints),
                "kraft_version_feature": _range(one),
            }
            for one in control
        ],
    })  # fmt: skip


def _named(key: ReplicaKey) -> Fields:
    return {"voter_id": key.id, "voter_directory_id": key.directory_id}


def control_of(key: bytes, value: bytes) -> Control | None:
    """The control record; None: it is of a kind that does not matter to the quorum.

    Raises: InvalidRequest.
    """
    name, found = CONTROL.decode(key, value)
    if name == "KRaftVersion":
        return VersionChange(found.kraft_version)
    if name == "LeaderChange":
        return LeaderChange(found.leader_id, _keys(found.voters), _keys(found.granting_voters))
    return _voters(found) if name == "KRaftVoters" else None


def _keys(found: Any) -> tuple[ReplicaKey, ...]:
    return tuple(ReplicaKey(one.voter_id, one.voter_directory_id) for one in found)


def _voters(found: Any) -> Voters:
    if len(found.voters) > VOTERS_MAX:
        raise InvalidRequest(f"VotersRecord: found {len(found.voters)}, at most {VOTERS_MAX}")
    return voters_of(
        Voter(
            ReplicaKey(one.voter_id, one.voter_directory_id),
            tuple((end.name, end.host, end.port) for end in one.endpoints),
            (
                one.kraft_version_feature.min_supported_version,
                one.kraft_version_feature.max_supported_version,
            ),
        )
        for one in found.voters
    )
