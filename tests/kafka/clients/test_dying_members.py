"""Java's consumers with `group.protocol=consumer` go on when nodes or members die."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import kafkalog
from kafkalog.testing.broker import TestBroker
from kafkalog.testing.cluster import TestCluster
from tests.kafka.clients.verifiable import Worker, fill
from tests.support import apache
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

COUNT = 3_000
PARTITIONS = 3
GROUP = "members"
QUICK = {
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.session.timeout.ms": 1_000,
}
WAIT_S = 200.0


@pytest.fixture(autouse=True)
def jars() -> None:
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(f"there is no Apache Kafka: {reason}")


def join(servers: str, output: Path) -> Worker:
    return Worker(
        "VerifiableConsumer", servers, output, "--topic", "t", "--group-id", GROUP,
        "--group-protocol", "consumer", "--reset-policy", "earliest",
    )  # fmt: skip


def test_members_keep_their_partitions_while_nodes_die(tmp_path: Path) -> None:
    """The coordinator of the group and the leaders move: each record arrives, and once, as no
    member loses a partition; its commits arrive, too."""
    with TestCluster(tmp_path / "cluster", config=QUICK) as cluster:
        cluster.create_topic("t", PARTITIONS)
        members = [join(cluster.bootstrap_servers, tmp_path / f"member{n}") for n in range(2)]

        def arrived(count: int) -> None:
            wait_for(lambda: sum(len(one.records()) for one in members) >= count,
                     f"{count} records arrive", WAIT_S)  # fmt: skip

        try:
            wait_for(lambda: shared_out(members), "both members have partitions", WAIT_S)
            before = [changes(one) for one in members]
            for round_, node in enumerate((1, 2, 3)):
                fill(cluster.bootstrap_servers, "t", PARTITIONS, COUNT)
                arrived(round_ * COUNT + 1)
                cluster.kill(node)
                arrived((round_ + 1) * COUNT)
                cluster.start(node)
                cluster.wait_until(
                    lambda: all(len(cluster.in_sync("t", n)) == 3 for n in range(PARTITIONS)),
                    "the node is back",
                )
            wait_for(
                lambda: committed(cluster.bootstrap_servers) == 3 * COUNT,
                "all is committed",
                WAIT_S,
            )
            assert [changes(one) for one in members] == before
        finally:
            for one in members:
                one.stop()
        times = Counter(record for one in members for record in one.records())
        assert len(times) == 3 * COUNT and set(times.values()) == {1}


def changes(member: Worker) -> int:
    """The number of times that it was given or lost partitions."""
    return len(member.told("partitions_assigned", "partitions_revoked"))


def held(member: Worker) -> set[int]:
    """The partitions that it has."""
    found: set[int] = set()
    for event in member.told("partitions_assigned", "partitions_revoked"):
        parts = {one["partition"] for one in event["partitions"]}
        found = found | parts if event["name"] == "partitions_assigned" else found - parts
    return found


def shared_out(members: list[Worker]) -> bool:
    """True if both have partitions, and each partition has one member."""
    first, second = map(held, members)
    return bool(first and second) and not first & second and len(first | second) == PARTITIONS


def committed(servers: str) -> int:
    """The sum of the group's committed offsets."""
    with kafkalog.Admin(servers) as admin:
        found = admin.list_group_offsets(GROUP)
    return sum(one.offset for one in found.values())


def test_the_partitions_of_a_killed_member_go_to_the_other(tmp_path: Path) -> None:
    """After its session; the other goes on where it has committed."""
    config = {**QUICK, "group.consumer.session.timeout.ms": 3_000}
    with TestBroker(tmp_path / "broker", config=config) as broker:
        broker.create_topic("t", PARTITIONS)
        members = [join(broker.bootstrap_servers, tmp_path / f"member{n}") for n in range(2)]
        killed, other = members
        try:
            wait_for(lambda: shared_out(members), "both members have partitions", WAIT_S)
            fill(broker.bootstrap_servers, "t", PARTITIONS, COUNT)
            wait_for(lambda: killed.records(), "it has records", WAIT_S)
            lost = held(killed)
            killed.kill()
            fill(broker.bootstrap_servers, "t", PARTITIONS, COUNT)
            wait_for(lambda: len(held(other)) == PARTITIONS, "the other has all", WAIT_S)
            wait_for(lambda: committed(broker.bootstrap_servers) == 2 * COUNT, "all is committed",
                     WAIT_S)  # fmt: skip
        finally:
            for one in members:
                one.kill()
    first, second = Counter(killed.records()), Counter(other.records())
    assert len(first | second) == 2 * COUNT
    assert set(first.values()) | set(second.values()) == {1}
    assert {partition for partition, _ in first & second} <= lost
