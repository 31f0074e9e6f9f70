"""A group's member against a scripted coordinator: joining, beating, being told off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog.client.cluster import Cluster
from kafkalog.client.consumer import GroupConsumer, GroupOptions
from kafkalog.client.failures import failure_class
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL
from tests.support.scripted import CLOSE, Peer

OPTIONS = GroupOptions(heartbeat_ms=0, commit_ms=0, metadata_ms=1_000_000)
ZERO = TopicPartition("t", 0)


class Coordinator:
    """Node 1 coordinates group g; the only member leads it, and gets what it shares out."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.generation = 0
        self.shared: dict[str, bytes] = {}
        where = {"key": "g", "node_id": 1, "host": "127.0.0.1", "port": peer.port}
        peer.on(apis.METADATA, peer.metadata({"t": 2}))
        peer.on(apis.FIND_COORDINATOR, {"coordinators": [where]})
        peer.on(apis.JOIN_GROUP, self.join)
        peer.on(apis.SYNC_GROUP, self.sync)
        peer.on(apis.HEARTBEAT, {})
        peer.on(apis.LEAVE_GROUP, {"members": []})
        peer.on(apis.OFFSET_FETCH, {"groups": [{"group_id": "g", "topics": []}]})
        peer.on(apis.LIST_OFFSETS, self.offsets)
        peer.on(apis.FETCH, {"responses": []})
        peer.on(apis.OFFSET_COMMIT, self.commit)

    def join(self, request: Any, version: int) -> Any:
        if not request.member_id:
            return {"error_code": ErrorCode.MEMBER_ID_REQUIRED, "member_id": "m"}
        self.generation += 1
        me = request.member_id
        member = {"member_id": me, "metadata": request.protocols[0].metadata}
        return {
            "generation_id": self.generation, "protocol_name": "range", "leader": me,
            "member_id": me, "members": [member],
        }  # fmt: skip

    def sync(self, request: Any, version: int) -> Any:
        self.shared = {a.member_id: a.assignment for a in request.assignments}
        return {"assignment": self.shared[request.member_id]}

    def offsets(self, request: Any, version: int) -> Any:
        rows = [{"partition_index": p.partition_index, "offset": 0}
                for p in request.topics[0].partitions]  # fmt: skip
        return {"topics": [{"name": "t", "partitions": rows}]}

    def commit(self, request: Any, version: int) -> Any:
        return commit_answer(request, 0)


def commit_answer(request: Any, code: int) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": p.partition_index, "error_code": code}
                    for p in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


@pytest.fixture
def coordinator(peer: Peer) -> Coordinator:
    return Coordinator(peer)


@pytest.fixture
def member(coordinator: Coordinator, scripted: Cluster) -> Iterator[GroupConsumer]:
    """A member that has joined."""
    made = GroupConsumer(scripted, "g", ["t"], OPTIONS)
    made.poll(0)
    yield made
    made.close()


def ids(peer: Peer) -> list[str]:
    """With which member ids it asked to join."""
    return [request.member_id for request in peer.sent(apis.JOIN_GROUP)]


def test_it_asks_again_with_the_id_that_it_was_given(
    coordinator: Coordinator, peer: Peer, member: GroupConsumer
) -> None:
    assert ids(peer) == ["", "m"]
    assert member.assignment == [ZERO, TopicPartition("t", 1)]
    assert member.fetcher.positions == {ZERO: 0, TopicPartition("t", 1): 0}
    _, subscription = CONSUMER_PROTOCOL.decode_subscription(
        peer.sent(apis.JOIN_GROUP)[0].protocols[0].metadata
    )
    assert list(subscription.topics) == ["t"]


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, ["m"]),
        (ErrorCode.ILLEGAL_GENERATION, ["m"]),
        (ErrorCode.UNKNOWN_MEMBER_ID, ["", "m"]),
    ],
)
def test_a_heartbeat_may_send_it_back(
    peer: Peer, member: GroupConsumer, code: int, asked: list[str]
) -> None:
    """It joins again, as itself unless nobody knows it any more."""
    peer.on(apis.HEARTBEAT, {"error_code": code}, {})
    member.poll(0)
    assert ids(peer)[2:] == asked
    assert member.membership.generation == 2


def test_a_new_coordinator_keeps_the_generation(peer: Peer, member: GroupConsumer) -> None:
    peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.NOT_COORDINATOR}, CLOSE, {})
    before = peer.count(apis.FIND_COORDINATOR)
    while peer.count(apis.HEARTBEAT) < 3:
        member.poll(0)
    assert peer.count(apis.FIND_COORDINATOR) == before + 2
    assert (member.membership.generation, len(ids(peer))) == (1, 2)


def test_a_fenced_member_is_told(peer: Peer, member: GroupConsumer) -> None:
    peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.FENCED_INSTANCE_ID})
    with pytest.raises(failure_class(ErrorCode.FENCED_INSTANCE_ID)):
        member.poll(0)


def test_what_cannot_be_joined_is_told(
    coordinator: Coordinator, peer: Peer, scripted: Cluster
) -> None:
    peer.on(apis.JOIN_GROUP, {"error_code": ErrorCode.INCONSISTENT_GROUP_PROTOCOL})
    consumer = GroupConsumer(scripted, "g", ["t"], OPTIONS)
    with pytest.raises(failure_class(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), match="group 'g'"):
        consumer.poll(0)
    consumer.close()
    assert peer.count(apis.LEAVE_GROUP) == 0


def test_what_is_done_is_committed_before_partitions_are_given_back(
    peer: Peer, member: GroupConsumer
) -> None:
    member.done(ZERO, 7)
    peer.on(apis.HEARTBEAT, {"error_code": ErrorCode.REBALANCE_IN_PROGRESS}, {})
    member.poll(0)
    request = peer.sent(apis.OFFSET_COMMIT)[0]
    assert request.member_id == "m"
    rows = {p.partition_index: p.committed_offset for p in request.topics[0].partitions}
    assert rows == {0: 7, 1: 0}


def test_a_commit_of_a_generation_that_has_ended_counts_for_nothing(
    peer: Peer, member: GroupConsumer
) -> None:
    """Somebody else reads these records: it joins again, and begins where the group is."""
    peer.on(
        apis.OFFSET_COMMIT,
        lambda request, version: commit_answer(request, ErrorCode.ILLEGAL_GENERATION),
        lambda request, version: commit_answer(request, 0),
    )
    member.done(ZERO, 7)
    member.commit()
    assert not member.membership.joined
    member.poll(0)
    assert member.membership.joined
    assert member.fetcher.positions[ZERO] == 0


def test_it_says_goodbye_unless_it_is_expected_back(
    coordinator: Coordinator, peer: Peer, scripted: Cluster
) -> None:
    for instance_id, count in (("i", 0), (None, 1)):
        options = OPTIONS._replace(instance_id=instance_id)
        consumer = GroupConsumer(scripted, "g", ["t"], options)
        consumer.poll(0)
        consumer.close()
        assert peer.count(apis.LEAVE_GROUP) == count
    assert [m.member_id for m in peer.sent(apis.LEAVE_GROUP)[0].members] == ["m"]


def test_a_coordinator_that_is_gone_does_not_stop_the_goodbye(
    peer: Peer, member: GroupConsumer
) -> None:
    peer.on(apis.LEAVE_GROUP, CLOSE)
    member.close()
    assert not member.membership.joined


def test_nothing_to_read_is_no_busy_loop(
    coordinator: Coordinator, peer: Peer, scripted: Cluster
) -> None:
    """More members than partitions: one of them waits, and beats."""
    peer.on(apis.SYNC_GROUP, {"assignment": b""})
    consumer = GroupConsumer(scripted, "g", ["t"], OPTIONS)
    for _ in range(3):
        assert consumer.poll(20) == []
    assert consumer.assignment == []
    assert peer.count(apis.HEARTBEAT) >= 2
    assert peer.count(apis.FETCH) == 0
    consumer.close()
