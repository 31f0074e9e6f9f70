"""Three nodes in this process, each a broker and a controller."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafkalog import Admin, Consumer, Producer
from kafkalog.server.broker import Broker, node_of
from kafkalog.types import TopicPartition
from tests.support.apache import free_port
from tests.support.controller_nodes import combined, formatted
from tests.support.waiting import wait_for

FAST = {
    "controller.quorum.fetch.timeout.ms": 800, "controller.quorum.election.timeout.ms": 200,
    "controller.quorum.request.timeout.ms": 800, "replica.lag.time.max.ms": 2_000,
    "replica.fetch.wait.max.ms": 100, "replica.fetch.backoff.ms": 50,
    "controlled.shutdown.retry.backoff.ms": 100, "broker.session.timeout.ms": 1_500,
}  # fmt: skip


class Cluster:
    def __init__(self, home: Path, settings: dict[str, object] | None = None) -> None:
        """`settings`: beyond those of every cluster."""
        self.home, self.settings = home, settings or {}
        self.ports = {node: free_port() for node in (1, 2, 3)}
        self.voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in self.ports.items())
        for node in self.ports:
            formatted(home / str(node), node)
        with ThreadPoolExecutor() as pool:  # each waits for an active controller
            self.nodes = dict(zip(self.ports, pool.map(self.started, self.ports), strict=True))

    def started(self, node: int) -> Broker:
        settings = combined(node, self.voters, self.ports[node])
        return Broker(self.home / str(node), config={**settings, **FAST, **self.settings})

    def leader(self) -> int:
        """The active controller that all living nodes know."""

        def agreed() -> int:
            known = {one._controllers.replica.seen()[0] for one in self.nodes.values()
                     if one._controllers is not None}  # fmt: skip
            (found,) = known if len(known) == 1 else (0,)
            return max(found, 0)

        return int(wait_for(agreed, "all know the leader"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    for one in made.nodes.values():
        one.abandon()


@pytest.mark.long
def test_the_node_that_is_controller_and_leader_dies(cluster: Cluster) -> None:
    """Others take over both, with every acknowledged record, and it comes back."""
    gone = cluster.leader()
    others = [node for node in cluster.ports if node != gone]
    servers = ",".join(cluster.nodes[node].bootstrap_servers for node in others)
    with Admin(servers) as admin:
        admin.create_topics([("orders", -1, -1, {}, ([gone, *others],))]).check()
    with Producer(servers) as producer:
        for n in range(10):
            producer.send("orders", b"%d" % n).result()
        cluster.nodes.pop(gone).abandon()
        for n in range(10, 20):
            producer.send("orders", b"%d" % n).result()
    assert cluster.leader() != gone
    with Admin(servers) as admin:
        admin.create_topics([("later", -1, -1, {}, (others,))]).check()
    cluster.nodes[gone] = cluster.started(gone)
    image = lambda: node_of(cluster.nodes[gone]).image  # noqa: E731
    wait_for(lambda: len(image().topics["orders"].partitions[0].isr) == 3, "all are in sync")
    with Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        found: list[bytes] = []
        wait_for(lambda: found.extend(one.value for one in consumer.poll(200)) or len(found) >= 20,
                 "all records")  # fmt: skip
    assert found == [b"%d" % n for n in range(20)]
