"""The metrics of the nodes of a cluster, under controllers and on ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkalog.server.broker import node_of
from kafkalog.testing.cluster import TestCluster
from tests.support.waiting import wait_for

pytestmark = pytest.mark.long
REPLICAS = "kafka_server_replicamanager_"
TOPICS = "kafka_server_brokertopicmetrics_"
CONTROLLER = "kafka_controller_kafkacontroller_"
FEW = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


@pytest.fixture(scope="module", params=[None, True], ids=["quorum", "zookeeper"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
            ) -> Iterator[TestCluster]:  # fmt: skip
    path = tmp_path_factory.mktemp("cluster")
    with TestCluster(path, request.param, config=FEW) as made:
        made.create_topic("t", 1)
        made.fill("t", ["x"] * 10)
        yield made


def read(cluster: TestCluster, node: int) -> dict[str, float]:
    return cluster.nodes[node].broker.metrics()


def leader_of(cluster: TestCluster) -> int:
    """It may move while the nodes settle."""
    for one in cluster.nodes.values():
        if one.running and (found := node_of(one.broker).image.partition("t", 0)):
            return found.leader
    raise AssertionError


def total(cluster: TestCluster, name: str) -> float:
    return sum(read(cluster, node)[name] for node in cluster.nodes)


def lags(cluster: TestCluster) -> list[float | None]:
    """The lag of each follower, as the leader sees it."""
    leader = leader_of(cluster)
    found = read(cluster, leader) if leader in cluster.nodes else {}
    followers = sorted(cluster.nodes.keys() - {leader})
    return [found.get(f'kafkalog_follower_lag_records{{broker="{one}"}}') for one in followers]


def test_replication_is_counted_on_both_sides(cluster: TestCluster) -> None:
    wait_for(lambda: lags(cluster) == [0, 0], "the followers have everything")
    size = read(cluster, leader_of(cluster))['kafka_log_log_size{topic="t",partition="0"}']
    for name in ("replicationbytesin_total", "replicationbytesout_total"):
        wait_for(lambda name=name: total(cluster, TOPICS + name) >= 2 * size, name)
    assert total(cluster, f'{TOPICS}bytesout_total{{topic="t"}}') == 0
    assert total(cluster, f'{TOPICS}messagesin_total{{topic="t"}}') == 10
    wait_for(lambda: total(cluster, "kafkalog_ready") == 3, "all are ready")


def test_a_follower_that_is_gone_is_seen_by_its_leader(cluster: TestCluster) -> None:
    under = f"{REPLICAS}underreplicatedpartitions"
    wait_for(lambda: read(cluster, leader_of(cluster))[under] == 0, "all are in sync")
    leader = leader_of(cluster)
    gone = next(n for n in cluster.nodes if n != leader)
    before = read(cluster, leader)
    cluster.nodes[gone].stop()
    wait_for(lambda: read(cluster, leader)[under] >= 1, "its replicas leave the ISR")
    shrinks = f"{REPLICAS}isrshrinks_total"
    wait_for(lambda: read(cluster, leader)[shrinks] > before[shrinks], "they are counted")
    found = read(cluster, leader)
    assert found[f"{REPLICAS}atminisrpartitioncount"] >= 1
    wait_for(lambda: read(cluster, leader)[f"{CONTROLLER}activebrokercount"] == 2, "it is known")
    assert found["kafka_controller_controllerstats_uncleanleaderelections_total"] == 0
