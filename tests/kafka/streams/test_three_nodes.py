"""A join of two streams on three of our nodes, which die in turn: the coordinators of its group and
of its transactions move, and every pair comes out once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.testing.cluster import TestCluster
from tests.kafka.clients import programs
from tests.kafka.streams.application import STREAMS, WAIT_S, Application
from tests.kafka.streams.conftest import SETTINGS
from tests.kafka.streams.pairs import PARTITIONS, TOPICS, Fed, has_all, joined, placed
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]

OF_ONE_NODE = (".replication.factor", ".min.isr")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TestCluster]:
    """With the topics of the join."""
    config = {name: value for name, value in SETTINGS.items() if not name.endswith(OF_ONE_NODE)}
    with TestCluster(tmp_path / "cluster", config=config) as made:
        for topic in TOPICS:
            made.create_topic(topic, PARTITIONS)
        yield made


@pytest.fixture
def instances(cluster: TestCluster, tmp_path: Path) -> Iterator[list[Application]]:
    """Two, which are running, with standbys for each other's tasks."""
    settings = {**STREAMS, "replication.factor": "3"}
    made = [
        Application("streams-join", cluster.bootstrap_servers, tmp_path / f"instance{n}", settings)
        for n in range(2)
    ]
    with kafkalog.Admin(cluster.bootstrap_servers) as admin:
        group = ("group", made[0].group)
        admin.alter_configs({group: {"streams.num.standby.replicas": "1"}}).check()
    try:
        for one in made:
            one.start()
    except programs.Unavailable as reason:
        pytest.skip(str(reason))
    yield made
    for one in made:
        one.kill()


def test_pairs_come_out_once_while_nodes_die(
    cluster: TestCluster, instances: list[Application], rng: random.Random
) -> None:
    fed = Fed(cluster.bootstrap_servers, rng)

    def until_joined() -> None:
        least = fed.pairs().total()
        wait_for(
            lambda: joined(cluster.bootstrap_servers).total() >= least, "all pairs come out", WAIT_S
        )

    wait_for(lambda: placed(instances), "all tasks have a place and a standby", WAIT_S)
    for node in (1, 2, 3):
        fed.more()
        cluster.kill(node)
        fed.more()
        until_joined()
        cluster.start(node)
        cluster.wait_until(
            lambda: all(
                len(cluster.in_sync(topic, n)) == 3 for topic in TOPICS for n in range(PARTITIONS)
            ),
            "the node is back",
        )
    instances[0].kill()
    fed.more()
    until_joined()
    wait_for(lambda: has_all(instances[1]), "the other has its tasks", WAIT_S)
    assert joined(cluster.bootstrap_servers) == fed.pairs()
