"""Brokers that cannot be reached are left alone for a while; idle connections are closed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog import Consumer, TopicPartition, errors
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connecting import RESTS_MAX, Rests
from kafkalog.client.link.transport import Address, Options
from kafkalog.clock import ManualClock
from kafkalog.wire import apis
from tests.support.scripted import SILENCE, Peer
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.consumer.members import OPTIONS as MEMBER
from tests.unit.client.consumer.members import Coordinator
from tests.unit.client.producer.producing import make

LONG_MS = 3_600_000
"""Longer than any test."""
LONG = {"reconnect.backoff.ms": LONG_MS, "reconnect.backoff.max.ms": LONG_MS}
AT = Address("h", 1)
GONE = errors.PeerGone("h:1: connection refused")


class Rude:
    """A listener that accepts connections and closes them immediately."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                made, _ = self._listener.accept()
            except OSError:
                return
            self.count += 1
            made.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(LIMIT_S)


@pytest.fixture
def rude() -> Iterator[Rude]:
    made = Rude()
    yield made
    made.close()


def led_by(peer: Peer, rude: Rude) -> dict[str, Any]:
    """Metadata in which node 2 is the leader."""
    found = peer.metadata({"t": 1}, leader=2)
    found["brokers"].append({"node_id": 2, "host": "127.0.0.1", "port": rude.port})
    return found


def hang_up(peer: Peer) -> None:
    """The broker closes every connection."""
    for one in list(peer._open):
        one.shutdown(socket.SHUT_RDWR)
    wait_for(lambda: not peer.open, "all are closed")


# ---- a broker that is away ---------------------------------------------------------------------


def test_pauses_double_up_to_the_longest_and_end_with_a_success() -> None:
    """A fifth is random.  Pauses are hours, so that a slow machine makes no difference."""
    rests = Rests(LONG_MS, 3 * LONG_MS)
    hours = []
    for _ in range(5):
        rests.failed(AT, GONE)
        hours.append(rests.left_s(AT) * 1000 / LONG_MS)
    for found, wanted in zip(hours, (1, 2, 3, 3, 3), strict=True):
        assert 0.75 * wanted <= found <= 1.2 * wanted
    assert len(set(hours[2:])) == 3
    assert rests.left_s(Address("h", 2)) == 0
    rests.reached(AT)
    assert rests.left_s(AT) == 0
    rests.failed(AT, GONE)
    assert rests.left_s(AT) * 1000 <= 1.2 * LONG_MS


def test_a_bounded_number_of_them_is_remembered() -> None:
    rests = Rests(LONG_MS, LONG_MS)
    for port in range(RESTS_MAX + 10):
        rests.failed(Address("h", port), GONE)
    assert rests.left_s(Address("h", 9)) == 0
    assert rests.left_s(Address("h", 10)) > 0
    assert len(rests._rests) == RESTS_MAX


def test_a_call_waits_for_the_pause_and_no_longer_than_its_time(rude: Rude) -> None:
    """It raises the original failure, not the wait."""
    options = Options(reconnect_backoff_ms=LONG_MS, reconnect_backoff_max_ms=LONG_MS)
    with Cluster(f"127.0.0.1:{rude.port}", options) as cluster:
        with pytest.raises(errors.PeerGone) as first:
            cluster.refresh([])
        for _ in range(3):
            with cluster.within(10), pytest.raises(errors.PeerGone) as found:
                cluster.refresh([])
            assert str(found.value) == str(first.value)
    assert rude.count == 1


def test_after_the_pause_it_is_asked_again(rude: Rude) -> None:
    with Cluster(f"127.0.0.1:{rude.port}", Options(reconnect_backoff_ms=1)) as cluster:
        for _ in range(3):
            with pytest.raises(errors.PeerGone):
                cluster.refresh([])
    assert rude.count == 3


def test_another_broker_is_asked_in_the_time(peer: Peer, rude: Rude) -> None:
    options = Options(reconnect_backoff_ms=LONG_MS, reconnect_backoff_max_ms=LONG_MS)
    with Cluster(f"127.0.0.1:{rude.port},{peer.servers}", options) as cluster:
        for _ in range(3):
            cluster.refresh([])
            hang_up(peer)
    assert (rude.count, peer.connections) == (1, 3)


def test_a_producer_asks_it_once_a_pause(broker: Peer, rude: Rude) -> None:
    broker.on(apis.METADATA, led_by(broker, rude))
    with make(broker, config={**LONG, "delivery.timeout.ms": 300}) as producer:
        with pytest.raises(errors.KafkalogError, match="not taken in 300 ms"):
            producer.send("t", b"x", partition=0).result(LIMIT_S)
        with pytest.raises(errors.KafkalogError):
            producer.flush(LIMIT_S)
    assert rude.count == 1


def test_a_producer_goes_to_the_next_leader_in_the_time(broker: Peer, rude: Rude) -> None:
    """Records that wait for an unreachable broker are not bound to it."""
    broker.on(apis.METADATA, led_by(broker, rude))
    with make(broker, config=LONG) as producer:
        future = producer.send("t", b"x", partition=0)
        wait_for(lambda: rude.count, "it was tried")
        broker.on(apis.METADATA, broker.metadata({"t": 1}))
        assert future.result(LIMIT_S).offset == 0
        found = producer.metrics()
        assert (found["record-send-total"], found["record-retry-total"]) == (1, 0)
    assert rude.count == 1


def test_a_consumer_asks_it_once_a_pause(peer: Peer, rude: Rude) -> None:
    peer.on(apis.METADATA, led_by(peer, rude))
    peer.on(apis.LIST_OFFSETS, {"topics": []})
    config = {**MEMBER["config"], **LONG}
    with Consumer(peer.servers, config=config) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 0)
        wait_for(lambda: consumer.poll(1) or rude.count, "it was tried")
        for _ in range(20):
            assert consumer.poll(5) == []
    assert rude.count == 1


# ---- idle connections --------------------------------------------------------------------------


def test_one_that_the_broker_has_closed_is_opened_again_without_an_error(peer: Peer) -> None:
    peer.on(apis.METADATA, peer.metadata({"t": 1}))
    with Cluster(peer.servers) as cluster:
        cluster.refresh([])
        for find in (cluster.any, lambda: cluster.connect(1)):
            before = find()
            hang_up(peer)
            after = find()
            assert after is not before and before.closed
            after.call(apis.METADATA, {"topics": [], "allow_auto_topic_creation": False})


@pytest.mark.parametrize("acks", ["all", 0])
def test_a_producer_sends_once_after_an_idle_time(
    broker: Peer, caplog: pytest.LogCaptureFixture, acks: str | int
) -> None:
    """With acks=0 it would otherwise be lost."""
    if acks == 0:
        broker.on(apis.PRODUCE, SILENCE)
    with make(broker, acks=acks) as producer:
        for count in (1, 2, 3):
            producer.send("t", b"x", partition=0).result(LIMIT_S)
            wait_for(lambda count=count: broker.count(apis.PRODUCE) == count, "it has come")
            hang_up(broker)
    assert not caplog.records


def test_a_producer_closes_idle_connections(broker: Peer) -> None:
    with make(broker, config={"connections.max.idle.ms": 1}) as producer:
        for _ in range(2):
            producer.send("t", b"x", partition=0).result(LIMIT_S)
            leaders = list(producer._sender._flights._connections.values())
            wait_for(lambda some=leaders: all(one.closed for one in some), "it was closed")
        wait_for(lambda: not broker.open, "those for metadata, too")


def test_a_consumer_closes_idle_connections(peer: Peer) -> None:
    peer.on(apis.METADATA, peer.metadata({"t": 1}))
    peer.on(apis.FETCH, {"responses": []})
    config = {**MEMBER["config"], "connections.max.idle.ms": 1}
    with Consumer(peer.servers, config=config) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 0)
        first = consumer._cluster.any()
        wait_for(lambda: consumer.poll(1) or first.closed, "it was closed")
        fetches = peer.count(apis.FETCH)
        wait_for(lambda: consumer.poll(1) or peer.count(apis.FETCH) > fetches + 1, "it reads on")


def test_a_consumers_threads_close_idle_connections(peer: Peer) -> None:
    """The committer had nothing to do for a while."""
    clock = ManualClock()
    Coordinator(peer)
    config = {**MEMBER["config"], "connections.max.idle.ms": 1}
    with Consumer(peer.servers, group="g", auto_commit=False, config=config, clock=clock) as one:
        one.assign([TopicPartition("t", 0)])
        one.commit({TopicPartition("t", 0): 1}, wait=False)
        cluster = one._committer.cluster
        wait_for(lambda: one._committer.finished(), "it is committed")
        made = list(cluster._open.values())
        assert made

        def closed() -> bool:
            clock.advance(60_000)
            return all(connection.closed for connection in made)

        wait_for(closed, "they are closed")


def test_never_is_never(peer: Peer) -> None:
    with Cluster(peer.servers, Options(idle_ms=-1)) as cluster:
        found = cluster.any()
        found.close_idle(float("inf"))
        assert found.usable() and cluster.any() is found
