"""Clients start again from bootstrap.servers, as metadata.recovery.strategy says."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.client.consumer.settings import client_options
from kafkalog.client.link.cluster import Cluster
from kafkalog.clock import ManualClock
from kafkalog.config.admin import AdminConfig
from kafkalog.testing.broker import TestBroker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import Peer, produced
from tests.support.waiting import LIMIT_S, wait_for

STALE: dict[str, Any] = {"error_code": ErrorCode.REBOOTSTRAP_REQUIRED, "brokers": [], "topics": []}
NAME, TRIGGER_MS = "bootstrap.test", 300_000
SOON = {"reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 5, "retry.backoff.ms": 1}


@pytest.fixture
def pair() -> Iterator[tuple[Peer, Peer]]:
    """The first server, which names one other node and leaves the cluster, and that node."""
    with Peer() as server, Peer() as node:
        join(server, node)
        yield server, node


def join(server: Peer, node: Peer) -> None:
    place = {"node_id": 2, "host": "127.0.0.1", "port": node.port}
    for peer in (server, node):
        peer.on(apis.METADATA, {**server.metadata({"t": 1}, leader=2), "brokers": [place]})


def hang_up(peer: Peer) -> None:
    for one in list(peer._open):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
    wait_for(lambda: not peer._open, "it has hung up")


def cluster_of(server: Peer, clock: ManualClock | None = None, **settings: object) -> Cluster:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Cluster(server.servers, client_options(AdminConfig.of({**SOON, **named})), clock)


# ---- all brokers move --------------------------------------------------------------------------


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The address of the bootstrap server's name: a port of this machine, or nothing yet."""
    ports: dict[str, int] = {}
    really = socket.getaddrinfo

    def found(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if host == NAME:
            return really("127.0.0.1", ports[NAME], *rest, **more)
        return really(host, port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return ports


def test_clients_follow_a_cluster_that_moves_as_a_whole(
    tmp_path: Path, resolve: dict[str, int]
) -> None:
    """Every broker has a new address, so the clients' metadata is useless; they resolve their
    bootstrap server's name again."""

    def serve(stack: ExitStack) -> TestBroker:
        broker = stack.enter_context(TestBroker(tmp_path / "node"))
        resolve[NAME] = int(broker.bootstrap_servers.rpartition(":")[2])
        return broker

    servers = f"{NAME}:9092"
    with ExitStack() as clients, ExitStack() as first, ExitStack() as second:
        serve(first).create_topic("t")
        producer = clients.enter_context(kafkalog.Producer(servers, config=SOON))
        admin = clients.enter_context(kafkalog.Admin(servers, config=SOON))
        reset = {**SOON, "auto.offset.reset": "earliest"}
        consumer = clients.enter_context(kafkalog.Consumer(servers, "t", group="g", config=reset))
        producer.send("t", b"one").result(LIMIT_S)
        assert [row.value for row in polled(consumer, 1)] == [b"one"]
        commit(consumer)
        assert admin.list_topics() == ["t"]
        before = resolve[NAME]
        first.close()
        with socket.socket() as taken:  # nobody listens there now
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", before))
            serve(second)
            assert resolve[NAME] != before
            producer.send("t", b"two").result(LIMIT_S)
            assert [row.value for row in polled(consumer, 1)] == [b"two"]
            commit(consumer)
            assert admin.list_topics() == ["t"]
            assert [at.port for at in admin.describe_cluster().nodes] == [resolve[NAME]]


def polled(consumer: kafkalog.Consumer, count: int) -> list[kafkalog.Record]:
    found: list[kafkalog.Record] = []

    def so() -> bool:
        found.extend(consumer.poll(100))
        return len(found) >= count

    wait_for(so, "records come")
    return found


def commit(consumer: kafkalog.Consumer) -> None:
    """Commit in the background, over separate connections."""
    ended: list[BaseException | None] = []
    consumer.commit(wait=False, callback=lambda _offsets, problem: ended.append(problem))

    def so() -> bool:
        consumer.poll(10)
        return bool(ended)

    wait_for(so, "it is answered")
    assert ended == [None]


# ---- what makes a client start again -----------------------------------------------------------


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
def test_no_known_broker_can_be_reached(strategy: str) -> None:
    """The first server is asked again only with rebootstrapping."""
    with Peer() as server, cluster_of(server, metadata_recovery_strategy=strategy) as cluster:
        with Peer() as node:
            join(server, node)
            cluster.refresh(["t"])
            assert set(cluster.nodes) == {2}
        hang_up(server)
        if strategy == "none":
            with pytest.raises(errors.PeerGone, match=f"127.0.0.1:{node.port}"):
                cluster.refresh_once(["t"])
        else:
            cluster.refresh_once(["t"])
        assert server.count(apis.METADATA) == (1 if strategy == "none" else 2)


def test_without_rebootstrapping_a_server_is_asked_once(pair: tuple[Peer, Peer]) -> None:
    """Also for a coordinator, before metadata is needed, and over an open connection."""
    server, node = pair
    place = {"node_id": 2, "host": "127.0.0.1", "port": node.port}
    for peer in pair:
        peer.on(apis.FIND_COORDINATOR, {"coordinators": [{"key": "g", **place}]})
    with cluster_of(server, metadata_recovery_strategy="none") as cluster:
        assert cluster.coordinator("g") == 2
        cluster.refresh(["t"])
    assert (server.count(apis.METADATA), server.count(apis.FIND_COORDINATOR)) == (1, 0)
    assert (node.count(apis.METADATA), node.count(apis.FIND_COORDINATOR)) == (1, 1)


def test_a_rebootstrap_answer_drops_the_metadata(pair: tuple[Peer, Peer]) -> None:
    """The metadata is dropped, connections are closed, and the first server is asked."""
    server, node = pair
    with cluster_of(server) as cluster:
        cluster.refresh(["t"])
        before = cluster.connect(2)
        hang_up(server)
        node.on(apis.METADATA, STALE)
        cluster.refresh(["t"])
        assert before.closed and cluster.nodes and cluster.topics
    assert (server.count(apis.METADATA), node.count(apis.METADATA)) == (2, 1)


def test_without_rebootstrapping_another_known_broker_is_asked(pair: tuple[Peer, Peer]) -> None:
    """The metadata is kept."""
    server, node = pair
    with cluster_of(server, metadata_recovery_strategy="none") as cluster:
        cluster.refresh(["t"])
        node.on(apis.METADATA, STALE)
        with pytest.raises(errors.KafkalogError, match="REBOOTSTRAP_REQUIRED"):
            cluster.refresh_once(["t"])
        assert set(cluster.nodes) == {2} and set(cluster.topics) == {"t"}
    assert (server.count(apis.METADATA), node.count(apis.METADATA)) == (1, 1)


def test_metadata_could_not_be_had_for_so_long(pair: tuple[Peer, Peer]) -> None:
    """By then it starts again even though a connection works."""
    server, node = pair
    nothing = {**server.metadata({}), "brokers": []}
    node.on(apis.METADATA, nothing)
    clock = ManualClock()
    with cluster_of(server, clock) as cluster:
        cluster.refresh_once(["t"])
        for wait_ms in (0, TRIGGER_MS):
            clock.advance(wait_ms)
            hang_up(server)
            cluster.connect(2)
            with pytest.raises(errors.PeerGone, match="found no node"):
                cluster.refresh_once(["t"])
        assert (server.count(apis.METADATA), node.count(apis.METADATA)) == (1, 2)
        clock.advance(1)
        hang_up(server)
        before = cluster.connect(2)
        cluster.refresh_once(["t"])
        assert before.closed and set(cluster.nodes) == {2}
        assert (server.count(apis.METADATA), node.count(apis.METADATA)) == (2, 2)


def sends(servers: str) -> None:
    with kafkalog.Producer(servers, config=SOON) as producer:
        producer.send("t", b"x", partition=0).result(LIMIT_S)


def looks(servers: str) -> None:
    with kafkalog.Consumer(servers, config=SOON) as consumer:
        assert len(consumer.partitions("t")) == 2


def lists(servers: str) -> None:
    with kafkalog.Admin(servers, config=SOON) as admin:
        assert admin.list_topics() == ["t"]


@pytest.mark.parametrize("client", [sends, looks, lists])
def test_every_client_begins_again(broker: Peer, client: Callable[[str], None]) -> None:
    broker.on(apis.METADATA, STALE, STALE, broker.metadata({"t": 2}))
    broker.on(apis.PRODUCE, produced([]))
    client(broker.servers)
    assert broker.count(apis.METADATA) >= 3
