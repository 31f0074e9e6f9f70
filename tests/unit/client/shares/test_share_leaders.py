"""A share consumer of three brokers, whose leaders and coordinators go."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalog
from kafkalog import ShareConsumer, TopicPartition
from kafkalog.testing.cluster import TestCluster as Cluster
from tests.support.waiting import LIMIT_S, wait_for

QUICK = {
    "group.share.min.heartbeat.interval.ms": 50,
    "group.share.heartbeat.interval.ms": 50,
    "group.share.assignment.interval.ms": 0,
    "share.coordinator.state.topic.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
}
EXPLICIT = {"share.acknowledgement.mode": "explicit", "fetch.max.wait.ms": 50}
TP = TopicPartition("t", 0)


def fill(cluster: Cluster, first: int, count: int) -> None:
    with kafkalog.Producer(cluster.bootstrap_servers) as producer:
        values = [b"%d" % number for number in range(first, first + count)]
        producer.send_many("t", values, partition=0).result(LIMIT_S)


@pytest.mark.long
def test_work_goes_on_at_the_next_leader(tmp_path: Path) -> None:
    """Accepted records do not come again; those that were held do."""
    with Cluster(tmp_path, config=QUICK) as cluster:
        cluster.create_topic("t", 1)
        with kafkalog.Admin(cluster.bootstrap_servers) as admin:
            admin.alter_configs({("group", "g"): {"share.auto.offset.reset": "earliest"}}).check()
        fill(cluster, 0, 10)
        with ShareConsumer(cluster.bootstrap_servers, "t", group="g", config=EXPLICIT) as one:
            records = wait_for(lambda: one.poll(100), "records")
            assert len(records) == 10
            for record in records[:5]:
                one.acknowledge(record)
            assert one.commit().check() == {TP: [0, 1, 2, 3, 4]}
            cluster.kill(cluster.leader("t"))
            for record in records[5:]:
                one.acknowledge(record)
            assert one.commit(5_000).errors.keys() == {TP}
            fill(cluster, 10, 5)
            done: list[int] = []

            def work() -> bool:
                for record in one.poll(100):
                    one.acknowledge(record)
                    done.append(int(record.value or b""))
                return len(done) >= 10

            wait_for(work, "the rest")
            assert one.commit().check().keys() <= {TP}
            assert sorted(done) == list(range(5, 15))
