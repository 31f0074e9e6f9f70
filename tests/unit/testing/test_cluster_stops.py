"""A node of `kafkalog_cluster` shuts down in order under load: nothing that was acknowledged is
lost."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

import kafkalog
from kafkalog.server import broker
from kafkalog.server.broker import node_of
from kafkalog.server.replica_manager import ReplicaManager
from kafkalog.testing.cluster import TestCluster
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support.hasty import Hasty
from tests.support.raw import Raw

pytestmark = pytest.mark.kafkalog(zookeeper=True)

ROUNDS = 2


def all_shown(cluster: TestCluster, partition: int) -> bool:
    """True if a reader sees all records of the leader: acks=1 is answered before."""
    leader = cluster.nodes[cluster.leader("t", partition)].broker
    log = node_of(leader).partitions.log("t", partition)
    return log.high_watermark == log.end_offset


@pytest.mark.parametrize("here", [False, True], ids=["controller-elsewhere", "controller-here"])
def test_an_orderly_stop_loses_nothing_of_acks_1(kafkalog_cluster: TestCluster, here: bool) -> None:
    """Clients write to every partition before, during and after it, round by round."""
    cluster = kafkalog_cluster
    cluster.create_topic("t", partitions=3)
    with ExitStack() as writing:
        loads = [
            writing.enter_context(Hasty(cluster.bootstrap_servers, "t", partition))
            for partition in range(3)
        ]
        for _ in range(ROUNDS):
            for n in range(3):
                cluster.wait_until(lambda n=n: cluster.in_sync("t", n) == [1, 2, 3], "in sync")
            for load in loads:
                load.more()
            led = {cluster.leader("t", n) for n in range(3)}
            others = sorted(led - {cluster.controller})
            node = cluster.controller if here else others[0]
            cluster.stop(node)
            for load in loads:
                load.more()
            cluster.start(node)
    cluster.wait_until(lambda: all(all_shown(cluster, n) for n in range(3)), "all is shown")
    found = cluster.records("t")
    assert [load.lost(found) for load in loads] == [[], [], []]


def led_apart(cluster: TestCluster) -> tuple[int, int, int]:
    """A partition whose leader is not the controller, that leader, and the third node."""
    for n in range(3):
        leader = cluster.leader("t", n)
        if leader != cluster.controller:
            return n, leader, 6 - leader - cluster.controller
    raise AssertionError("the controller leads all")


@pytest.mark.kafkalog(config={"replica.lag.time.max.ms": 600_000})
def test_a_follower_that_does_not_catch_up_delays_a_stop_for_so_long(
    kafkalog_cluster: TestCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = kafkalog_cluster
    monkeypatch.setattr(broker, "HAND_OVER_S", 0.1)
    cluster.create_topic("t", partitions=3)
    partition, leader, third = led_apart(cluster)
    cluster.wait_until(lambda: cluster.in_sync("t", partition) == [1, 2, 3], "in sync")
    cluster.partition(leader, third)
    with kafkalog.Producer(cluster.bootstrap_servers, acks=1) as producer:
        producer.send("t", b"x", partition=partition).result(60)
    cluster.stop(leader)
    assert f"hands over 1 partitions, first t-{partition}, before all replicas" in caplog.text
    cluster.wait_until(lambda: cluster.leader("t", partition) not in (leader, -1), "led elsewhere")


def test_a_replica_that_joins_during_a_stop_has_everything(kafkalog_cluster: TestCluster) -> None:
    """The leader, alone in sync, takes acks=1 until then."""
    cluster = kafkalog_cluster
    cluster.create_topic("t")
    leader, tp = cluster.leader("t"), TopicPartition("t", 0)
    others = [node for node in (1, 2, 3) if node != leader]
    for node in others:
        cluster.stop(node)
    cluster.wait_until(lambda: cluster.in_sync("t") == [leader], "it is alone")
    replicas = node_of(cluster.nodes[leader].broker).partitions
    assert isinstance(replicas, ReplicaManager)

    def knows_it() -> bool:
        isr = replicas.led.isr(tp)
        return isr is not None and len(isr.maximal) == 1

    cluster.wait_until(knows_it, "the leader knows that it is alone")
    assert replicas.hand_over(0) == []
    with Raw(cluster.nodes[leader].bootstrap_servers) as raw:
        assert raw.produce("t", b"alone", acks=1).error_code == ErrorCode.NONE
        for node in others:
            cluster.start(node)
        cluster.wait_until(lambda: cluster.in_sync("t") == [1, 2, 3], "all are in sync")
        refused = raw.produce("t", b"late", acks=1)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert raw.produce("t", b"safe", acks=-1).error_code == ErrorCode.NONE
    assert replicas.joining_offset(tp) >= 1
    cluster.stop(leader)
    cluster.wait_until(lambda: cluster.leader("t") in others, "another leads")
    assert [one.value for one in cluster.wait_for_records("t", 2)] == [b"alone", b"safe"]
