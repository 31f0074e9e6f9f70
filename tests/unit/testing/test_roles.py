"""A role that a disk refuses is taken once it can be: the controller sends it only once."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.inspect.repair import apply, plan
from kafkalog.inspect.verify.files import verify
from kafkalog.log.log import handle_of
from kafkalog.testing.cluster import TestCluster
from kafkalog.wire.apis import METADATA
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import STOP_REPLICA
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Session
from tests.support import apache
from tests.support.raw import Raw
from tests.support.zookeeper import ZooKeeper

pytestmark = pytest.mark.kafkalog(zookeeper=True)

NODES = [1, 2, 3]
EPOCHS = "leader-epoch-checkpoint.tmp"
"""The first file that a leader writes; a folder of that name blocks it."""


def folder(cluster: TestCluster, node: int) -> Path:
    return Path(cluster.nodes[node].path) / "t-0"


def append(cluster: TestCluster, *values: bytes) -> None:
    with kafkalog.Producer(cluster.bootstrap_servers, acks="all") as producer:
        for value in values:
            producer.send("t", value, partition=0).result(60)


def in_sync(cluster: TestCluster, nodes: list[int]) -> None:
    cluster.wait_until(lambda: cluster.in_sync("t") == nodes, f"{nodes} are in sync")


def test_a_node_leads_once_it_can(kafkalog_cluster: TestCluster) -> None:
    """No other node would lead: this one is alive and in sync."""
    cluster = kafkalog_cluster
    cluster.create_topic("t")
    append(cluster, b"1")
    in_sync(cluster, NODES)
    first = cluster.leader("t")
    others = [node for node in NODES if node != first]
    for node in others:
        (folder(cluster, node) / EPOCHS).mkdir()
    cluster.kill(first)
    cluster.wait_until(lambda: cluster.leader("t") in others, "another one must lead")
    for node in others:
        (folder(cluster, node) / EPOCHS).rmdir()
    append(cluster, b"2")
    cluster.start(first)
    in_sync(cluster, NODES)
    assert [one.value for one in cluster.wait_for_records("t", 2)] == [b"1", b"2"]


def test_a_node_follows_once_it_can(kafkalog_cluster: TestCluster) -> None:
    """Its folder cannot be created; the others continue without it."""
    cluster = kafkalog_cluster
    for node in NODES[1:]:
        folder(cluster, node).write_bytes(b"in its way")
    with kafkalog.Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([kafkalog.NewTopic("t", assignment=[NODES])]).check()
    cluster.wait_until(lambda: cluster.leader("t") == NODES[0], "the first one must lead")
    for node in NODES[1:]:
        folder(cluster, node).unlink()
    append(cluster, b"1", b"2")
    in_sync(cluster, NODES)
    assert [one.value for one in cluster.wait_for_records("t", 2)] == [b"1", b"2"]


def fail(cluster: TestCluster, node: int, hooks: Any) -> None:
    """Let a sync of a node's log fail, which takes the log offline for good."""
    handle = handle_of(cluster.nodes[node].broker._node.partitions.log("t", 0))
    hooks.kl_io_fail(b"fdatasync", 1, errno.EIO, 1, 0)
    try:
        with pytest.raises(kafkalog.KafkalogError):
            handle.flush()
    finally:
        hooks.kl_io_reset()


def others_lead(cluster: TestCluster, hooks: Any) -> None:
    """The leader's log goes offline, then that of its successor."""
    cluster.create_topic("t", config={"min.insync.replicas": "1"})
    append(cluster, b"1")
    in_sync(cluster, NODES)
    left, values = list(NODES), [b"1"]
    for value in (b"2", b"3"):
        first = cluster.leader("t")
        fail(cluster, first, hooks)
        left.remove(first)
        cluster.wait_until(lambda: cluster.leader("t") in left, "another one leads")
        in_sync(cluster, left)
        append(cluster, value)
        values.append(value)
        for node in NODES:
            cluster.wait_until(lambda node=node: knows(cluster, node, left), f"node {node} says so")
    for node in NODES:
        if node not in left:
            cluster.kill(node)  # a close would raise the failure
            cluster.start(node)
    in_sync(cluster, NODES)
    assert [one.value for one in cluster.wait_for_records("t", 3)] == values


def knows(cluster: TestCluster, node: int, left: list[int]) -> bool:
    """True if a node reports the leader and the offline replicas to clients."""
    with Raw(cluster.nodes[node].bootstrap_servers) as raw:
        (topic,) = raw.call(METADATA, 12, topics=[{"name": "t"}]).topics
    (row,) = topic.partitions
    offline = [one for one in NODES if one not in left]
    return (row.leader_id, row.offline_replicas) == (cluster.leader("t"), offline)


@pytest.mark.kafkalog(config={"kafkalog.durability": "os"})
def test_a_log_that_goes_offline_while_it_is_led(
    kafkalog_cluster: TestCluster, native_test: tuple[Any, Any]
) -> None:
    """Its node reports that by itself, and a replica that can lead takes over."""
    others_lead(kafkalog_cluster, native_test[1])


@pytest.mark.slow
@pytest.mark.java
def test_the_same_with_a_real_zookeeper(tmp_path: Path, native_test: tuple[Any, Any]) -> None:
    pytest.importorskip("kazoo")
    try:
        with (
            ZooKeeper(tmp_path / "zookeeper") as zookeeper,
            TestCluster(
                tmp_path / "nodes", zookeeper.hosts, config={"kafkalog.durability": "os"}
            ) as cluster,
        ):
            others_lead(cluster, native_test[1])
            with Session(zookeeper.hosts, lambda _: None) as session:
                assert session.children(tree.LOG_DIR_EVENTS) == []
    except apache.Unavailable as reason:
        pytest.skip(f"ZooKeeper cannot run here: {reason}")


@pytest.mark.kafkalog(config={"kafkalog.durability": "os"})
def test_a_full_disk_costs_no_lead(
    kafkalog_cluster: TestCluster, native_test: tuple[Any, Any]
) -> None:
    """The condition passes, and the leader still leads."""
    cluster, hooks = kafkalog_cluster, native_test[1]
    cluster.create_topic("t")
    append(cluster, b"1")
    in_sync(cluster, NODES)
    node = cluster.nodes[cluster.leader("t")].broker._node
    before = node.image.partition("t", 0)
    failed = int(hooks.kl_logs_failed())
    log = node.partitions.log("t", 0)
    hooks.kl_io_fail(b"pwrite", 1, errno.ENOSPC, 1, 0)
    try:
        with pytest.raises(kafkalog.errors.NoSpace):
            log.append(b"no room")
    finally:
        hooks.kl_io_reset()
    append(cluster, b"2")
    in_sync(cluster, NODES)
    assert int(hooks.kl_logs_failed()) == failed
    assert node.image.partition("t", 0) == before
    assert [one.value for one in cluster.wait_for_records("t", 2)] == [b"1", b"2"]


def test_a_failed_deletion_is_reported(
    kafkalog_cluster: TestCluster, native_test: tuple[Any, Any]
) -> None:
    """Otherwise the controller would consider the replica deleted, and the topic's name free."""
    cluster, hooks = kafkalog_cluster, native_test[1]
    cluster.create_topic("t")
    append(cluster, b"1")
    in_sync(cluster, NODES)
    follower = next(node for node in NODES if node != cluster.leader("t"))
    member = cluster.nodes[follower].broker._node.partitions._member

    def stop() -> int:
        row = {"partition_index": 0, "leader_epoch": -2, "delete_partition": True}
        fields = {"controller_id": member.controller, "controller_epoch": member.image.epoch,
                  "broker_epoch": -1, "topic_states": [
                      {"topic_name": "t", "partition_states": [row]}]}  # fmt: skip
        version = STOP_REPLICA.max_version
        data = STOP_REPLICA.encode_request(version, fields)
        answer = member.obey(STOP_REPLICA, STOP_REPLICA.decode_request(version, data))
        assert answer["error_code"] == ErrorCode.NONE
        return int(answer["partition_errors"][0]["error_code"])

    hooks.kl_io_fail(b"renameat", 1, errno.ENOSPC, 1, 0)
    try:
        assert stop() == ErrorCode.UNKNOWN_SERVER_ERROR  # the disk is full, not broken
        assert folder(cluster, follower).exists()
    finally:
        hooks.kl_io_reset()
    assert stop() == ErrorCode.NONE
    assert not folder(cluster, follower).exists()


@pytest.mark.kafkalog(config={"kafkalog.durability": "os"})
def test_a_log_that_is_offline_is_led_by_another(
    kafkalog_cluster: TestCluster,
    native_test: tuple[Any, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A follower that was in sync does not lead when the leader dies.  A client that fetches from
    it anyway causes no traceback in the log."""
    cluster = kafkalog_cluster
    cluster.create_topic("t")
    append(cluster, b"1")
    in_sync(cluster, NODES)
    first = cluster.leader("t")
    state = cluster.nodes[first].broker._node.image.partition("t", 0)
    assert state is not None
    second, third = (node for node in state.replicas if node != first)
    fail(cluster, second, native_test[1])
    cluster.kill(first)
    cluster.wait_until(lambda: cluster.leader("t") == third, "the one that can leads")
    cluster.start(first)
    append(cluster, b"2")
    assert [one.value for one in cluster.wait_for_records("t", 2)] == [b"1", b"2"]
    assert not [one.getMessage() for one in caplog.records if one.exc_info]
    cluster.kill(second)  # a close would raise the failure


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_a_replica_without_its_log_does_not_return_empty(
    kafkalog_cluster: TestCluster, leads: bool
) -> None:
    """It is out of sync and leads nothing until repair allows it to fetch again."""
    cluster = kafkalog_cluster
    cluster.create_topic("t")
    append(cluster, b"1", b"2")
    in_sync(cluster, NODES)
    first = cluster.leader("t")
    lost = first if leads else next(node for node in NODES if node != first)
    others = [node for node in NODES if node != lost]
    path = folder(cluster, lost)
    cluster.stop(lost)
    (path / f"{0:020}.log").unlink()
    cluster.start(lost)
    append(cluster, b"3")
    cluster.wait_until(lambda: knows(cluster, lost, others), "its replica is reported as offline")
    assert cluster.in_sync("t") == others
    assert not (path / f"{0:020}.log").exists()
    cluster.stop(lost)
    apply(plan(verify(path.parent)))
    cluster.start(lost)
    in_sync(cluster, NODES)
    assert [one.value for one in cluster.wait_for_records("t", 3)] == [b"1", b"2", b"3"]
    with kafkalog.Log(path, mode="r") as log:
        assert [one.value for one in log.read()] == [b"1", b"2", b"3"]
