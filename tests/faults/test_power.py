"""The power of nodes is cut while clients produce with acks=all and `kafkalog.durability=fsync`.

Each node has its own disk; unsynced data is lost.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.damage.powercut import disks
from tests.faults import nemeses, network
from tests.faults.cluster import Cluster
from tests.faults.running import told
from tests.faults.workloads.queue import ENOUGH, TOPIC, Queue
from tests.support import apache

pytest.importorskip("kazoo")

RECORDS = 100
"""This many more records are acknowledged in each partition before the next step."""


@pytest.fixture
def cluster(memory: Path) -> Iterator[Cluster]:
    if reason := network.why_not() or disks.why_not("ext4"):
        pytest.skip(f"no node can lose its power here: {reason}")
    try:
        apache.jars_with_zookeeper()
    except apache.Unavailable as missing:
        pytest.skip(f"there is no ZooKeeper: {missing}")
    home = memory / "power"
    home.mkdir()
    settings = {"kafkalog.durability": "fsync", "auto.leader.rebalance.enable": "false"}
    with network.Network() as hosts, Cluster(home, hosts, disks=True, settings=settings) as made:
        yield made


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_power_is_cut(cluster: Cluster, tmp_path: Path, rng: random.Random) -> None:
    """Power of a leader; of the same node again, now only a follower; of all nodes at once."""
    partitions = Queue.topics[TOPIC]
    cluster.topic(TOPIC, partitions)
    try:
        with Queue(cluster.bootstrap, libraries=["librdkafka"]) as queue:
            queue.go_on(RECORDS)
            number = cluster.leader(TOPIC, 0)
            for _ in ("it leads", "it follows"):
                cluster.nodes[number].cut_power()
                queue.go_on(RECORDS)
                cluster.heal()
                cluster.in_sync()
                assert number not in {cluster.leader(TOPIC, n) for n in range(partitions)}
                queue.go_on(RECORDS)
            nemeses.cut_all_power(cluster, rng)
            cluster.heal()
            queue.go_on(RECORDS)
            queue.stop()
            cluster.whole()
            queue.settle()
            assert not (found := queue.judge(ENOUGH)), told({"queue": found})
        cluster.end()
        assert not (differ := cluster.copies_differ()), differ
    except BaseException:
        cluster.keep(tmp_path)
        raise
    print(queue.figures())
