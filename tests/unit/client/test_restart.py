"""A broker restarts: its clients continue, and nothing is lost or repeated."""

from __future__ import annotations

from pathlib import Path

from kafkalog import Broker
from kafkalog.client.calls import topics
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.producer.producer import Producer
from kafkalog.types import TopicPartition
from tests.support.apache import free_port
from tests.support.waiting import LIMIT_S

CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "kafkalog.durability": "os",
}


def test_clients_go_on_after_a_restart(tmp_path: Path) -> None:
    """A producer, a reader and a group member survive three brokers."""
    where = f"127.0.0.1:{free_port()}"

    def broker() -> Broker:
        return Broker(tmp_path / "d", listeners=f"PLAINTEXT://{where}", config=CONFIG)

    tp = TopicPartition("t", 0)
    read: list[int] = []
    shared: list[int] = []
    with Cluster(where) as cluster:
        producer = Producer(where, batch_bytes=120)
        fetcher = Fetcher(cluster, {tp: 0})
        member = Consumer(
            where, "t", group="g", heartbeat_ms=100, auto_offset_reset="earliest",
            auto_commit_interval_ms=1,
        )  # fmt: skip
        for turn in range(3):
            with broker():
                if turn == 0:
                    topics.create_topic(cluster, "t", 1)
                for i in range(10):
                    producer.send("t", b"%d" % (10 * turn + i), partition=0)
                producer.flush()
                wanted = 10 * (turn + 1)
                while len(read) < wanted:
                    read += [int(r.value or b"") for b in fetcher.poll() for r in b.records()]
                while len(shared) < wanted:
                    shared += [int(r.value or b"") for r in member.poll()]
                member.commit()
        with broker():
            assert topics.list_topics(cluster) == ["t"]
            member.close()
        fetcher.close()
        producer.close()
    assert read == [*range(30)]
    # If a broker stops before a commit, records are read again, never lost.
    assert sorted(set(shared)) == [*range(30)]


def test_a_producer_neither_loses_nor_repeats_nor_reorders(tmp_path: Path) -> None:
    """It keeps sending while brokers stop."""
    where = f"127.0.0.1:{free_port()}"

    def broker() -> Broker:
        return Broker(tmp_path / "d", listeners=f"PLAINTEXT://{where}", config=CONFIG)

    count = 0
    with broker():
        with Cluster(where) as cluster:
            topics.create_topic(cluster, "t", 1)
        producer = Producer(where, batch_bytes=120, linger_ms=0, config={"retry.backoff.ms": 5})
        producer.send("t", b"%d" % count, partition=0).result(LIMIT_S)
    for _ in range(3):
        with broker():
            for _ in range(300):  # the broker stops while the last of them are in flight
                count += 1
                producer.send("t", b"%d" % count, partition=0)
    with broker() as last:
        producer.close()
        (log,) = last.store["t"]
        assert [int(r.value or b"") for r in log] == [*range(count + 1)]
