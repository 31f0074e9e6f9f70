"""A broker in this process, reached without a port."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import errors
from kafkalog.client.calls import topics
from kafkalog.client.calls.offsets import LATEST, list_offsets
from kafkalog.client.link.cluster import TRANSACTION, Cluster
from kafkalog.client.link.transport import Address
from kafkalog.server.broker import Broker
from kafkalog.types import TopicPartition
from tests.unit.server.conftest import CONFIG


def sockets() -> list[str]:
    """Names of this process's sockets, such as socket:[123]."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:  # it was the listing's own descriptor
            continue
    return [name for name in found if name.startswith("socket:")]


def listening() -> set[str]:
    """Inodes of this process's listening TCP sockets."""
    ours = {name[8:-1] for name in sockets()}
    rows = [line.split() for path in ("tcp", "tcp6")
            for line in Path(f"/proc/self/net/{path}").read_text().splitlines()[1:]]  # fmt: skip
    return {row[9] for row in rows if row[3] == "0A" and row[9] in ours}


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data", listeners=(), config=CONFIG) as broker:
        yield broker


def test_nobody_else_can_connect(tmp_path: Path) -> None:
    before = listening()  # other tests in this process have brokers, too
    with (
        Broker(tmp_path / "data", listeners=(), config=CONFIG) as alone,
        Cluster(alone) as cluster,
    ):
        assert alone.bootstrap_servers == ""
        assert "this process" in repr(alone)
        topics.create_topic(cluster, "t", 2)
        assert listening() <= before


def test_a_client_inside_sees_itself_and_no_address(alone: Broker) -> None:
    with Cluster(alone) as cluster:
        topics.create_topic(cluster, "t", 2)
        cluster.refresh(["t"])
        assert set(cluster.nodes.values()) == {Address("inside", 0)}
        partitions = [TopicPartition("t", p) for p in range(2)]
        found = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
        assert [found[tp].offset for tp in partitions] == [0, 0]
        for kind in (0, TRANSACTION):
            assert cluster.retrying(lambda k=kind: cluster.coordinator("x", k)) in cluster.nodes


def test_both_ways_at_once(tmp_path: Path) -> None:
    """Each client sees what the other creates, and gets addresses for its own way."""
    with (
        Broker(tmp_path / "data", config=CONFIG) as broker,
        Cluster(broker) as inner,
        Cluster(broker.bootstrap_servers) as outer,
    ):
        topics.create_topic(inner, "t", 1)
        assert topics.list_topics(outer) == topics.list_topics(inner) == ["t"]
        assert inner.nodes.keys() == outer.nodes.keys()
        assert set(inner.nodes.values()).isdisjoint(outer.nodes.values())


def test_a_closed_broker_is_told(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", listeners=(), config=CONFIG)
    cluster = Cluster(broker)
    topics.list_topics(cluster)
    broker.close()
    with pytest.raises(errors.Closed, match="data"):
        Cluster(broker)
    with pytest.raises(errors.PeerGone, match="closed"):
        cluster.transport.connect(Address("inside", 0), cluster.options)
    cluster.close()


def test_another_address_is_not_inside(alone: Broker) -> None:
    with Cluster(alone) as cluster, pytest.raises(errors.PeerGone, match="not inside"):
        cluster.transport.connect(Address("127.0.0.1", 9092), cluster.options)


def test_clients_are_closed_first_the_last_one_first(tmp_path: Path) -> None:
    order: list[str] = []

    class One:
        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            with Cluster(way) as cluster:
                order.append(f"{self.name} {topics.list_topics(cluster)}")

    broker = Broker(tmp_path / "data", listeners=(), config=CONFIG)
    way = broker.transport
    kept = [One("first"), One("second")]
    for one in kept:
        way.attach(one)
    way.attach(One("forgotten"))
    gc.collect()
    broker.close()
    assert order == ["second []", "first []"]
    with pytest.raises(errors.Closed):
        way.attach(kept[0])


def test_no_socket_is_left(tmp_path: Path) -> None:
    before = len(sockets())
    for _ in range(3):
        with Broker(tmp_path / "data", listeners=(), config=CONFIG) as broker, \
                Cluster(broker) as cluster:  # fmt: skip
            topics.list_topics(cluster)
    assert len(sockets()) == before
