"""The core's messages on the wire, in every version that carries them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.batch.control import control_key
from kafkalog.errors import InvalidRequest
from kafkalog.kraft.batches import LEADER_CHANGE, kraft_version_value, leader_change_value
from kafkalog.raft import codec
from kafkalog.raft.log import LeaderChange, OffsetAndEpoch, VersionChange
from kafkalog.raft.messages import (
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
from kafkalog.raft.replicas import ReplicaKey
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.later.quorum import (
    ADD_RAFT_VOTER,
    FETCH_SNAPSHOT,
    UPDATE_RAFT_VOTER,
    VOTE,
)
from kafkalog.wire.tables.partitions import FETCH
from tests.unit.raft.replica import key, voter, voters

REQUESTS = [
    VoteRequest(key(1), 5, key(2), 4, 17, True),
    BeginQuorumEpochRequest(key(1), 2, 5),
    EndQuorumEpochRequest(2, 5, (key(1), key(3))),
    FetchRequest(key(2), 5, 17, 4),
    FetchSnapshotRequest(key(2), 5, OffsetAndEpoch(9, 3), 4096),
    AddRaftVoterRequest(voter(4), False),
    RemoveRaftVoterRequest(key(3)),
    UpdateRaftVoterRequest(5, voter(3)),
]


@pytest.mark.parametrize("message", REQUESTS, ids=lambda one: type(one).__name__)
def test_a_request_on_the_wire(message: Any) -> None:
    """In its newest version nothing is lost."""
    api = codec.API_OF[type(message)]
    version = api.versions.stop - 1
    fields = codec.request_fields(message, "cluster", voter(2).endpoints)
    body = api.decode_request(version, api.encode_request(version, fields))
    assert body.cluster_id == "cluster" or api in (FETCH,)
    assert codec.request_of(api, body, version, 1) == message


def test_the_first_version_of_vote_names_no_voter() -> None:
    fields = codec.request_fields(REQUESTS[0], "cluster")
    body = VOTE.decode_request(0, VOTE.encode_request(0, fields))
    found = codec.request_of(VOTE, body, 0, 1)
    assert found.voter.id == 1 and found.replica.id == 2 and not found.pre_vote


RESPONSES = [
    (VOTE, QuorumResponse(ErrorCode.NONE, 5, 2, True)),
    (VOTE, QuorumResponse(ErrorCode.FENCED_LEADER_EPOCH, 5, None)),
    (FETCH, FetchResponse(ErrorCode.NONE, 5, 2, 12, OffsetAndEpoch(3, 1), None, b"")),
    (FETCH, FetchResponse(ErrorCode.NONE, 5, 2, 12, None, OffsetAndEpoch(9, 3), b"")),
    (
        FETCH_SNAPSHOT,
        FetchSnapshotResponse(ErrorCode.NONE, 5, 2, 100, 7, b"abc", OffsetAndEpoch(9, 3)),
    ),
    (UPDATE_RAFT_VOTER, VoterResponse(ErrorCode.NONE, 5, 2)),
]


@pytest.mark.parametrize(("api", "message"), RESPONSES)
def test_a_response_on_the_wire(api: Any, message: Any) -> None:
    version = api.versions.stop - 1
    data = api.encode_response(version, codec.response_fields(api, message))
    assert codec.response_of(api, api.decode_response(version, data)) == message


def numbered(fields: Any, number: int) -> Any:
    """The fields with another error code where they have one."""
    if isinstance(fields, list):
        return [numbered(one, number) for one in fields]
    if not isinstance(fields, dict):
        return fields
    return {
        name: number if name == "error_code" else numbered(one, number)
        for name, one in fields.items()
    }


@pytest.mark.parametrize(("api", "message"), RESPONSES)
def test_an_error_of_a_newer_node_is_an_unknown_error(api: Any, message: Any) -> None:
    version = api.versions.stop - 1
    fields = codec.response_fields(api, message)
    of_all = numbered(fields, 9_999)
    of_one = {**of_all, "error_code": 0}
    for wrong in (of_all, of_all if isinstance(message, VoterResponse) else of_one):
        body = api.decode_response(version, api.encode_response(version, wrong))
        found = codec.response_of(api, body)
        assert found.error_code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_fetch_waits_for_records_and_takes_them() -> None:
    version = FETCH.versions.stop - 1
    fields = codec.request_fields(FetchRequest(key(2), 5, 17, 4), "cluster")
    body = FETCH.decode_request(version, FETCH.encode_request(version, fields))
    (topic,) = body.topics
    assert body.max_wait_ms == 500
    assert body.max_bytes == topic.partitions[0].partition_max_bytes == 8 << 20


def test_an_administrator_learns_why() -> None:
    message = VoterResponse(ErrorCode.DUPLICATE_VOTER, 5, 2, "node 3 has a voter already")
    fields = codec.response_fields(ADD_RAFT_VOTER, message)
    body = ADD_RAFT_VOTER.decode_response(1, ADD_RAFT_VOTER.encode_response(1, fields))
    assert (body.error_code, body.error_message) == (126, "node 3 has a voter already")


def test_requests_of_other_partitions_are_refused() -> None:
    fields = codec.request_fields(REQUESTS[0], "cluster")
    for wrong in (
        [], fields["topics"] * 2, [{**fields["topics"][0], "topic_name": "orders"}],
        [{"topic_name": "__cluster_metadata", "partitions": []}],
    ):  # fmt: skip
        body = VOTE.decode_request(2, VOTE.encode_request(2, {**fields, "topics": wrong}))
        with pytest.raises(InvalidRequest, match=r"__cluster_metadata-0"):
            codec.request_of(VOTE, body, 2, 1)


@pytest.mark.parametrize(
    "control",
    [VersionChange(1), voters(1, 2, 3), LeaderChange(2, (ReplicaKey(1), ReplicaKey(2)), ())],
    ids=["version", "voters", "leader"],
)
def test_control_records(control: Any) -> None:
    assert codec.control_of(*codec.control_record(control, 1)) == control


def test_control_records_have_the_bytes_of_the_log_of_one_voter() -> None:
    """The same formats as in `kafkalog/kraft/batches.py`, which Kafka reads."""
    alone = LeaderChange(1, (key(1),), (key(1),))
    for version in (0, 1):  # Kafka 4.4 reads every LeaderChange in version 0
        assert codec.control_record(alone, version)[1] == leader_change_value(1)
    assert codec.control_record(VersionChange(1), 1)[1] == kraft_version_value(1)
    assert codec.control_record(alone, 1)[0] == control_key(LEADER_CHANGE)
