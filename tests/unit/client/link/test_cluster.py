"""A cluster as a client sees it: leaders, coordinators, and retries."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.calls import topics
from kafkalog.client.calls.groups import committed_offsets, describe_group
from kafkalog.client.calls.offsets import LATEST, list_offsets
from kafkalog.client.link.cluster import TRANSACTION, Backoff, Cluster
from kafkalog.client.link.failures import check_code, failure_class
from kafkalog.client.link.transport import Options
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import CLOSE, STALL, Peer
from tests.unit.client.conftest import QUICK, PassingClock

CREATED = {"topics": [{"name": "t", "error_code": 0}]}


def created(code: int) -> dict[str, Any]:
    return {"topics": [{"name": "t", "error_code": code, "error_message": "so it is"}]}


def test_every_error_has_one_class_with_its_number() -> None:
    for code in ErrorCode:
        if code == ErrorCode.NONE:
            continue
        cls = failure_class(code)
        assert issubclass(cls, errors.KafkalogError)
        assert cls.code == code
        assert failure_class(int(code)) is cls
        assert str(cls("it says so"))
    assert failure_class(3) is errors.UnknownTopicOrPartition
    assert failure_class(16).__name__ == "NotCoordinator"
    assert failure_class(16).retriable and not failure_class(68).retriable


def test_an_error_number_from_the_future_is_told() -> None:
    with pytest.raises(errors.KafkalogError, match="topic 't': error 999: what it is") as caught:
        check_code(999, "topic 't'", "what it is")
    assert caught.value.code == 999 and not caught.value.retriable


@pytest.mark.parametrize(
    "passing", [created(ErrorCode.NOT_CONTROLLER), created(ErrorCode.REQUEST_TIMED_OUT), CLOSE]
)
def test_retriable_errors_are_retried(peer: Peer, scripted: Cluster, passing: Any) -> None:
    peer.on(apis.CREATE_TOPICS, passing, passing, CREATED)
    topics.create_topic(scripted, "t")
    assert peer.count(apis.CREATE_TOPICS) == 3


def test_lasting_errors_are_raised_at_once(peer: Peer, scripted: Cluster) -> None:
    peer.on(apis.CREATE_TOPICS, created(ErrorCode.INVALID_REPLICATION_FACTOR))
    with pytest.raises(errors.KafkalogError, match="INVALID_REPLICATION_FACTOR: so it is"):
        topics.create_topic(scripted, "t", replication_factor=5)
    assert peer.count(apis.CREATE_TOPICS) == 1


def test_patience_has_an_end(peer: Peer) -> None:
    with Cluster(peer.servers, clock=PassingClock()) as cluster:
        peer.on(apis.CREATE_TOPICS, created(ErrorCode.NOT_CONTROLLER))
        with pytest.raises(failure_class(ErrorCode.NOT_CONTROLLER)):
            topics.create_topic(cluster, "t")
    assert peer.count(apis.CREATE_TOPICS) > 1


def test_a_stalled_broker_is_left_and_asked_again(peer: Peer, scripted: Cluster) -> None:
    peer.on(apis.CREATE_TOPICS, STALL, CREATED)
    scripted.options = QUICK._replace(request_timeout_ms=500)
    topics.create_topic(scripted, "t")
    assert peer.count(apis.CREATE_TOPICS) == 2


def test_pauses_grow_and_end_with_the_patience() -> None:
    clock = PassingClock()
    backoff = Backoff(Options(retry_backoff_ms=100, retry_backoff_max_ms=1_000), clock, 5_000)
    while not backoff.over():
        backoff.wait()
    pauses = clock.pauses_s
    assert 0.08 <= pauses[0] <= 0.12
    assert all(pause <= 1.2 for pause in pauses)
    assert pauses[3] > pauses[0] * 4
    assert 5 <= clock.monotonic_s() <= 5.1


def test_a_cluster_that_cannot_be_reached_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (
        Cluster(f"127.0.0.1:{port}", QUICK) as cluster,
        pytest.raises(errors.PeerGone, match="Connection refused"),
    ):
        topics.list_topics(cluster)


def test_the_first_server_that_answers_is_taken(peer: Peer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with Cluster(f"127.0.0.1:{port},{peer.servers}", QUICK) as cluster:
        assert topics.list_topics(cluster) == []
        assert cluster.cluster_id == "test"


def test_a_topic_that_does_not_exist_is_told_after_a_moment(
    peer: Peer,
) -> None:
    peer.on(apis.METADATA, peer.metadata({"t": 0}, error=3))
    wanted = pytest.raises(errors.UnknownTopicOrPartition, match="no topic 't'")
    with Cluster(peer.servers, clock=PassingClock()) as cluster, wanted:
        cluster.topic("t")
    assert peer.count(apis.METADATA) > 1
    assert not any(r.allow_auto_topic_creation for r in peer.sent(apis.METADATA))


def test_a_topic_that_comes_to_be_is_waited_for(peer: Peer, scripted: Cluster) -> None:
    absent = peer.metadata({"t": 0}, error=3)
    coming = peer.metadata({"t": 0}, error=5)
    peer.on(apis.METADATA, absent, coming, peer.metadata({"t": 2}))
    assert list(scripted.topic("t", create=True).partitions) == [0, 1]
    assert all(r.allow_auto_topic_creation for r in peer.sent(apis.METADATA))


def test_an_invalid_name_is_told(peer: Peer, scripted: Cluster) -> None:
    peer.on(apis.METADATA, peer.metadata({"a b": 0}, error=17))
    with pytest.raises(errors.InvalidTopic, match="'a b'"):
        scripted.topic("a b")


def test_a_partition_without_a_leader_is_waited_for(peer: Peer, scripted: Cluster) -> None:
    peer.on(apis.METADATA, peer.metadata({"t": 1}, leader=-1), peer.metadata({"t": 1}))
    peer.on(apis.LIST_OFFSETS, offsets_answer({0: (0, 42)}))
    tp = TopicPartition("t", 0)
    assert list_offsets(scripted, {tp: LATEST})[tp].offset == 42
    assert peer.count(apis.METADATA) == 2


def offsets_answer(rows: dict[int, tuple[int, int]]) -> dict[str, Any]:
    """(error, offset) by partition of topic t."""
    return {
        "topics": [
            {
                "name": "t",
                "partitions": [
                    {"partition_index": p, "error_code": code, "offset": offset, "timestamp": -1}
                    for p, (code, offset) in rows.items()
                ],
            }
        ]
    }


def test_only_failed_parts_are_retried(peer: Peer, scripted: Cluster) -> None:
    peer.on(apis.METADATA, peer.metadata({"t": 2}))
    peer.on(
        apis.LIST_OFFSETS,
        offsets_answer({0: (0, 7), 1: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)}),
        offsets_answer({1: (0, 9)}),
    )
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    found = list_offsets(scripted, dict.fromkeys(partitions, LATEST))
    assert [found[tp].offset for tp in partitions] == [7, 9]
    asked = [[p.partition_index for p in r.topics[0].partitions]
             for r in peer.sent(apis.LIST_OFFSETS)]  # fmt: skip
    assert asked == [[0, 1], [1]]
    assert peer.count(apis.METADATA) == 2


def test_an_answer_that_leaves_something_out_is_refused(peer: Peer, scripted: Cluster) -> None:
    peer.on(apis.METADATA, peer.metadata({"t": 2}))
    peer.on(apis.LIST_OFFSETS, offsets_answer({0: (0, 7)}))
    with pytest.raises(errors.BadAnswer, match="no answer for t-1"):
        list_offsets(scripted, {TopicPartition("t", p): LATEST for p in range(2)})
    peer.on(apis.CREATE_TOPICS, {"topics": []})
    with pytest.raises(errors.BadAnswer, match=r"no answer for .t.$"):
        topics.create_topic(scripted, "t")


def coordinator(peer: Peer, code: int = 0) -> dict[str, Any]:
    return {
        "coordinators": [
            {"key": "g", "node_id": 1, "host": "127.0.0.1", "port": peer.port, "error_code": code}
        ]
    }


def test_the_coordinator_is_asked_for_again_when_it_moves(peer: Peer, scripted: Cluster) -> None:
    peer.on(
        apis.FIND_COORDINATOR,
        coordinator(peer, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        coordinator(peer),
    )
    group = {"group_id": "g", "topics": []}
    peer.on(
        apis.OFFSET_FETCH,
        {"groups": [{**group, "error_code": ErrorCode.NOT_COORDINATOR}]},
        {"groups": [{**group, "error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}]},
        {"groups": [group]},
    )
    assert committed_offsets(scripted, "g") == {}
    assert peer.count(apis.FIND_COORDINATOR) == 4


def test_a_transactional_id_may_have_a_groups_name(peer: Peer, scripted: Cluster) -> None:
    """They have different coordinators, and each is looked up."""
    other = coordinator(peer)
    other["coordinators"][0]["node_id"] = 2
    peer.on(apis.FIND_COORDINATOR, coordinator(peer), other)
    for _ in range(2):
        assert (scripted.coordinator("g"), scripted.coordinator("g", TRANSACTION)) == (1, 2)
    assert [asked.key_type for asked in peer.sent(apis.FIND_COORDINATOR)] == [0, 1]
    scripted.forget_coordinator("g")
    assert (scripted.coordinator("g"), scripted.coordinator("g", TRANSACTION)) == (2, 2)
    assert peer.count(apis.FIND_COORDINATOR) == 3


def test_a_group_of_another_kind_has_no_readable_assignment(peer: Peer, scripted: Cluster) -> None:
    """Connect's groups use their own format there."""
    peer.on(apis.FIND_COORDINATOR, coordinator(peer))
    member = {"member_id": "m", "client_id": "c", "client_host": "/h", "member_assignment": b"\0"}
    peer.on(
        apis.DESCRIBE_GROUPS,
        {"groups": [{"group_id": "g", "group_state": "Stable", "protocol_type": "connect",
                     "members": [member]}]},
    )  # fmt: skip
    assert describe_group(scripted, "g").members[0].assignment == ()


def test_a_node_that_moved_gets_a_new_connection(scripted: Cluster, peer: Peer) -> None:
    with Peer() as other:
        scripted.refresh([])
        first = scripted.connect(1)
        moved = peer.metadata({})
        moved["brokers"][0]["port"] = other.port
        peer.on(apis.METADATA, moved)
        scripted.refresh([])
        assert first.closed
        assert scripted.connect(1).address.port == other.port


def test_nothing_is_asked_again_without_time_for_an_answer(scripted: Cluster) -> None:
    """A change without an answer would be in doubt for nothing."""
    scripted.refresh([])
    left_s: list[float] = []

    def step() -> None:
        left_s.append(scripted.patience.left_s())
        raise errors.PeerGone("the node is away")

    with pytest.raises(errors.PeerGone, match="the node is away"):
        scripted.retrying(step, 200)
    assert len(left_s) > 1 and min(left_s) > 0
