"""A node that is silent, like a stopped process: its connections stay open."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

import kafkalog
from kafkalog.client.link.connection import Connection, answering
from kafkalog.client.link.transport import Address
from kafkalog.cluster.node import controller_connection
from kafkalog.testing.cluster import TestCluster
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kafkalog(zookeeper=True)

IO_THREADS = 3
"""I/O threads of a node of the fixture."""
TRANSACTIONS = {"key_type": 1, "coordinator_keys": ["id"]}
PLAIN_ID = {"transactional_id": None, "transaction_timeout_ms": 60_000}


def new(name: str) -> dict[str, Any]:
    row = {"name": name, "num_partitions": 1, "replication_factor": 1}
    return {"topics": [row], "timeout_ms": 30_000, "validate_only": False}


@pytest.mark.kafkalog(topics={"orders": 3})
def test_requests_for_a_silent_controller_hold_up_nobody(
    kafkalog_cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics, producer ids, coordinators: more requests of each than a node has threads, and still
    it answers clients that need none of them."""
    monkeypatch.setattr(controller_connection, "ANSWER_MS", 3_600_000)
    cluster = kafkalog_cluster
    controller = cluster.controller
    number = next(n for n in range(3) if cluster.leader("orders", n) != controller)
    asked = cluster.leader("orders", number)
    host, port = cluster.nodes[asked].broker.bootstrap_servers.split(":")
    place = Address(host, int(port))
    silent = cluster.nodes[controller].broker
    with ExitStack() as closing:

        def connection() -> Connection:
            made = Connection(place)
            closing.callback(made.close)
            return made

        def each(api: Any, body: Any) -> list[Connection]:
            made = [connection() for _ in range(2 * IO_THREADS)]
            for one in made:
                one.send(api, body)
            return made

        silent.pause()
        try:
            forwarded = each(apis.CREATE_TOPICS, new("forwarded"))
            ids = each(apis.INIT_PRODUCER_ID, PLAIN_ID)
            found = each(apis.FIND_COORDINATOR, TRANSACTIONS)
            used = each(apis.METADATA, {"topics": [{"name": "used"}],
                                        "allow_auto_topic_creation": True})  # fmt: skip
            for one in ids:
                assert one.receive().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            for one in found:
                (row,) = one.receive().coordinators
                assert row.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            for one in used:
                (topic,) = one.receive().topics
                assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            with kafkalog.Producer(str(place), acks=1, idempotent=False) as producer:
                producer.send("orders", b"x" * 900_000, partition=number).result(60)
            assert not answering(forwarded, 0)
        finally:
            silent.resume()
        codes = {one.receive(60_000).topics[0].error_code for one in forwarded}
        assert codes == {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
    tp = TopicPartition("used", 0)
    wait_for(lambda: cluster.nodes[asked].broker._node.image.partition(*tp), "it is created, too")
