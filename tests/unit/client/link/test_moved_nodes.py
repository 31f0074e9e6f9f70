"""Nodes with a new address: requests go to the node that answers there now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.calls.groups import committed_offsets
from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.transport import Address
from kafkalog.client.producer.producer import Producer
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.batches import Row, batch
from tests.support.scripted import Peer, produced
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.conftest import QUICK, PassingClock

ZERO = TopicPartition("t", 0)


@pytest.fixture
def three() -> Iterator[list[Peer]]:
    """The first server, which stays, and two brokers; node 2 moves from one to the other."""
    with ExitStack() as stack:
        yield [stack.enter_context(Peer()) for _ in range(3)]


def led_by(server: Peer, at: Peer) -> dict[str, Any]:
    """Node 2 is at this address, and leads t."""
    metadata = server.metadata({"t": 1}, leader=2)
    metadata["brokers"].append({"node_id": 2, "host": "127.0.0.1", "port": at.port})
    return metadata


def coordinated_by(at: Peer) -> Any:
    def answer(request: Any, version: int) -> Any:
        row = {"node_id": 2, "host": "127.0.0.1", "port": at.port}
        return {"coordinators": [{"key": request.coordinator_keys[0], **row}]}

    return answer


def test_a_coordinator_is_where_the_answer_says(three: list[Peer]) -> None:
    """Not at the node's first known address, where it no longer answers."""
    server, old, new = three
    none = {"groups": [{"group_id": "g", "topics": []}]}
    old.on(apis.OFFSET_FETCH, {"groups": [{"group_id": "g", "error_code": 16}]})
    new.on(apis.OFFSET_FETCH, none)
    server.on(apis.FIND_COORDINATOR, coordinated_by(old), coordinated_by(new))
    with Cluster(server.servers, QUICK) as cluster:
        assert committed_offsets(cluster, "g") == {}
    assert (old.count(apis.OFFSET_FETCH), new.count(apis.OFFSET_FETCH)) == (1, 1)


def test_a_connection_to_the_old_place_is_not_used(three: list[Peer]) -> None:
    """The old address may still answer, as another node."""
    server, old, new = three
    server.on(apis.METADATA, led_by(server, old))
    with Cluster(server.servers, QUICK) as cluster:
        cluster.topic("t")
        before = cluster.connect(2)
        assert cluster.learn_leader(ZERO, 2, 5, Address("127.0.0.1", new.port))
        assert cluster.connect(2).address.port == new.port
        assert before.closed and cluster.connect(2) is cluster.connect(2)


def test_a_producer_leaves_the_old_place(three: list[Peer]) -> None:
    """Another broker is there now, which answers that it is not the leader."""
    server, old, new = three
    server.on(apis.METADATA, led_by(server, old))
    server.on(apis.INIT_PRODUCER_ID, {"producer_id": 1, "producer_epoch": 0})

    def moved(request: Any, version: int) -> Any:
        server.on(apis.METADATA, led_by(server, new))
        return produced([ErrorCode.NOT_LEADER_OR_FOLLOWER])(request, version)

    old.on(apis.PRODUCE, moved)
    new.on(apis.PRODUCE, produced([]))
    with Producer(server.servers, config={"retry.backoff.ms": 1}) as producer:
        producer.send("t", b"x", partition=0).result(LIMIT_S)
    assert (old.count(apis.PRODUCE), new.count(apis.PRODUCE)) == (1, 1)


def test_a_consumer_leaves_the_old_place(three: list[Peer]) -> None:
    """The old place goes on answering: without records, as a broker that is no leader here."""
    server, old, new = three
    server.on(apis.METADATA, led_by(server, old))
    data = batch([Row(b"x")] * 3)

    def served(records: bytes) -> dict[str, Any]:
        row = {"partition_index": 0, "error_code": 0, "high_watermark": 3, "records": records}
        return {"responses": [{"topic": "t", "partitions": [row]}]}

    old.on(apis.FETCH, served(b""))
    new.on(apis.FETCH, served(data))
    with Cluster(server.servers, QUICK) as cluster:
        fetcher = Fetcher(cluster, {ZERO: 0}, FetchOptions(max_wait_ms=10))
        assert fetcher.poll(100) == [] and old.count(apis.FETCH) >= 1
        assert cluster.learn_leader(ZERO, 2, 5, Address("127.0.0.1", new.port))
        wait_for(lambda: fetcher.poll(100) != [], "records of the new place")
        assert fetcher.positions == {ZERO: 3}
        fetcher.close()


def test_a_broker_that_knows_no_node_is_left(three: list[Peer]) -> None:
    """It has just started: another one is asked, and the metadata stays."""
    server, other, _ = three
    found = other.metadata({"t": 1})
    server.on(apis.METADATA, found, {**found, "brokers": [], "topics": []})
    other.on(apis.METADATA, found)
    with Cluster(f"{server.servers},{other.servers}", QUICK) as cluster:
        cluster.topic("t")
        with pytest.raises(errors.PeerGone, match="found no node"):
            cluster.refresh_once(["t"])
        assert "t" in cluster.topics and 1 in cluster.nodes
        cluster.refresh(["t"])
    assert (server.count(apis.METADATA), other.count(apis.METADATA)) == (2, 1)


def test_a_throttled_creation_is_retriable(peer: Peer, scripted: Cluster) -> None:
    """A quota delays its creation: the error is retriable, not a topic without partitions."""
    coming = peer.metadata({"t": 0}, error=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    peer.on(apis.METADATA, coming, peer.metadata({"t": 2}))
    assert list(scripted.topic("t", create=True).partitions) == [0, 1]


def test_a_search_that_failed_is_another_one_the_next_time(peer: Peer) -> None:
    """Its timeout does not run while nobody looks for the topic."""
    clock = PassingClock()
    refused = peer.metadata({"t": 0}, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    absent = peer.metadata({"t": 0}, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    peer.on(apis.METADATA, refused, absent, peer.metadata({"t": 1}))
    with Cluster(peer.servers, QUICK, clock) as cluster:
        with pytest.raises(errors.KafkalogError, match="TOPIC_AUTHORIZATION_FAILED"):
            cluster.topic("t")
        clock.advance(60_000)
        assert list(cluster.topic("t").partitions) == [0]
