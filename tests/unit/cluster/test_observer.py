"""An observer's decisions: real answers, as bytes, and no socket."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafkalog.client.link.transport import Address
from kafkalog.cluster.quorum.observer import (
    METADATA_TOPIC_ID,
    Append,
    Discard,
    Diverge,
    Download,
    End,
    Identity,
    Observer,
    Refuse,
    Store,
    Wait,
    fetch_body,
    fetched,
    lost,
    snapshot_body,
    snapshot_fetched,
    target,
)
from kafkalog.kraft.snapshots import SnapshotName
from kafkalog.wire.apis import FETCH, FETCH_SNAPSHOT
from kafkalog.wire.error_codes import ErrorCode

FIRST, SECOND, LEADER = Address("a", 1), Address("b", 2), Address("c", 3)
NEW = Observer((FIRST, SECOND), {})
FOLLOWING = NEW._replace(epoch=5, leader=7, address=LEADER)
WHO = Identity("cluster", 2, UUID(int=9))
SNAPSHOT = SnapshotName(100, 4)
VERSIONS = (17, 18)


def answered(version: int = 17, code: int = 0, leader: tuple[int, int] = (7, 5), **row: Any) -> Any:
    """A Fetch response; `leader`: id and epoch, whose address it has."""
    one = {"partition_index": 0, "error_code": code, "high_watermark": -1,
           "current_leader": {"leader_id": leader[0], "leader_epoch": leader[1]},
           **row}  # fmt: skip
    places = [{"node_id": leader[0], "host": LEADER.host, "port": LEADER.port}]
    data = FETCH.encode_response(version, {
        "responses": [{"topic_id": METADATA_TOPIC_ID, "partitions": [one]}],
        "node_endpoints": places if leader[0] >= 0 else [],
    })  # fmt: skip
    return FETCH.decode_response(version, data)


def piece(code: int = 0, leader: tuple[int, int] = (0, 0), **row: Any) -> Any:
    """A FetchSnapshot response."""
    one = {"index": 0, "error_code": code, "snapshot_id": {"end_offset": 100, "epoch": 4},
           "size": 8, "position": 0, "unaligned_records": b"",
           "current_leader": {"leader_id": leader[0], "leader_epoch": leader[1]},
           **row}  # fmt: skip
    data = FETCH_SNAPSHOT.encode_response(1, {
        "topics": [{"name": "__cluster_metadata", "partitions": [one]}], "node_endpoints": [],
    })  # fmt: skip
    return FETCH_SNAPSHOT.decode_response(1, data)


def test_controllers_are_asked_in_turn_until_one_names_the_leader() -> None:
    assert [target(NEW), target(lost(NEW)), target(lost(lost(NEW)))] == [FIRST, SECOND, FIRST]
    code = ErrorCode.FENCED_LEADER_EPOCH
    after, action = fetched(NEW, answered(code=code))
    assert action == Wait(pause=False), "the leader is asked at once"
    assert (after.epoch, after.leader, target(after)) == (5, 7, LEADER)


def test_a_controller_that_knows_no_leader_is_not_asked_again_at_once() -> None:
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    after, action = fetched(NEW, answered(code=code, leader=(-1, 6)))
    assert action == Wait(pause=True)
    assert (after.epoch, target(after)) == (6, SECOND)


def test_static_voters_have_addresses_of_their_own() -> None:
    """Before KIP-853 an answer names the leader only by its id."""
    answer = answered(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    answer.node_endpoints = []
    after, _ = fetched(NEW._replace(voters={7: SECOND}), answer)
    assert target(after) == SECOND


@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_the_leader_are_appended(version: int) -> None:
    after, action = fetched(FOLLOWING, answered(version, records=b"batch", high_watermark=41))
    assert (after, action) == (FOLLOWING, Append(b"batch", 41, 5))
    _, nothing = fetched(FOLLOWING, answered(version, high_watermark=41))
    assert nothing == Append(None, 41, 5)


def test_records_of_another_epoch_are_not_appended() -> None:
    """They answer a request that named another leader epoch."""
    later, action = fetched(FOLLOWING, answered(leader=(8, 6), records=b"batch"))
    assert action == Wait(pause=False)
    assert (later.epoch, later.leader) == (6, 8)
    earlier, action = fetched(FOLLOWING, answered(leader=(7, 4), records=b"batch"))
    assert action == Wait(pause=True)
    assert (earlier.epoch, earlier.leader) == (5, -1)


def test_two_leaders_of_one_epoch_are_not_followed() -> None:
    after, action = fetched(FOLLOWING, answered(leader=(8, 5), records=b"batch"))
    assert action == Wait(pause=True)
    assert after.leader == -1


def test_an_epoch_never_goes_back() -> None:
    state = FOLLOWING
    for epoch in (5, 9, 7, 3, 9):
        state, _ = fetched(state, answered(leader=(7, epoch)))
    assert state.epoch == 9


def test_a_diverging_log_is_truncated() -> None:
    row = {"diverging_epoch": {"epoch": 4, "end_offset": 30}}
    assert fetched(FOLLOWING, answered(**row))[1] == Diverge(4, 30)


def test_a_snapshot_is_fetched_piece_by_piece() -> None:
    row = {"snapshot_id": {"end_offset": 100, "epoch": 4}}
    assert fetched(FOLLOWING, answered(**row))[1] == Download(SNAPSHOT)
    found = piece(size=8, unaligned_records=b"12345")
    assert snapshot_fetched(FOLLOWING, SNAPSHOT, 0, found) == (FOLLOWING, Store(0, b"12345", 8))
    body = snapshot_body(FOLLOWING, WHO, SNAPSHOT, 5)
    asked = FETCH_SNAPSHOT.decode_request(1, FETCH_SNAPSHOT.encode_request(1, body))
    (partition,) = asked.topics[0].partitions
    assert (partition.position, partition.snapshot_id.end_offset) == (5, 100)
    assert partition.replica_directory_id == WHO.directory_id


@pytest.mark.parametrize(
    "answer",
    [
        piece(code=ErrorCode.SNAPSHOT_NOT_FOUND),
        piece(code=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=(8, 6)),
        piece(size=8, position=3, unaligned_records=b"123"),
        piece(size=8, unaligned_records=b"123456789"),
        piece(size=8),
        piece(size=8, unaligned_records=b"1", snapshot_id={"end_offset": 200, "epoch": 4}),
    ],
    ids=["gone", "another leader", "another position", "too long", "empty", "another snapshot"],
)
def test_a_snapshot_that_does_not_fit_is_discarded(answer: Any) -> None:
    assert snapshot_fetched(FOLLOWING, SNAPSHOT, 0, answer)[1] == Discard()


def test_another_cluster_is_refused() -> None:
    data = FETCH.encode_response(17, {"error_code": ErrorCode.INCONSISTENT_CLUSTER_ID})
    _, action = fetched(FOLLOWING, FETCH.decode_response(17, data))
    assert isinstance(action, Refuse)
    assert "another cluster" in action.why


@pytest.mark.parametrize("version", VERSIONS)
def test_the_request_names_its_broker_and_the_end_of_its_log(version: int) -> None:
    body = fetch_body(FOLLOWING, WHO, End(42, 4, 40))
    asked = FETCH.decode_request(version, FETCH.encode_request(version, body))
    (topic,) = asked.topics
    (partition,) = topic.partitions
    assert (asked.cluster_id, asked.replica_state.replica_id) == ("cluster", 2)
    assert topic.topic_id == METADATA_TOPIC_ID
    assert (partition.fetch_offset, partition.last_fetched_epoch) == (42, 4)
    assert (partition.current_leader_epoch, partition.replica_directory_id) == (5, UUID(int=9))
    if version >= 18:
        assert partition.high_watermark == 40
