"""Java's share consumers at our broker: each record is accepted by one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.testing.cluster import TestCluster
from tests.kafka.clients.verifiable import Worker, fill
from tests.support import apache
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

COUNT = 3_000
PARTITIONS = 3


def work(servers: str, output: Path, mode: str) -> Worker:
    """Start a share consumer; `mode`: auto, sync or async: how it acknowledges."""
    return Worker(
        "VerifiableShareConsumer", servers, output, "--topic", "jobs", "--group-id", "workers",
        "--acknowledgement-mode", mode, "--offset-reset-strategy", "earliest",
    )  # fmt: skip


def accepted(worker: Worker) -> int:
    """Records whose acknowledgement the broker has taken."""
    return sum(one["count"] for one in worker.told("offsets_acknowledged"))


@pytest.fixture(autouse=True)
def jars() -> None:
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(f"there is no Apache Kafka: {reason}")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[kafkalog.Broker]:
    """With a topic of COUNT records."""
    with kafkalog.Broker(tmp_path / "data", "127.0.0.1:0") as found:
        with kafkalog.Admin(found.bootstrap_servers) as admin:
            admin.create_topics([("jobs", PARTITIONS)]).check()
        fill(found.bootstrap_servers, "jobs", PARTITIONS, COUNT)
        yield found


@pytest.mark.parametrize("mode", ["auto", "sync"])
def test_two_workers_share_the_records_of_a_topic(
    broker: kafkalog.Broker, tmp_path: Path, mode: str
) -> None:
    workers = [work(broker.bootstrap_servers, tmp_path / f"worker{n}", mode) for n in range(2)]
    try:
        wait_for(lambda: sum(accepted(one) for one in workers) >= COUNT, "all is accepted", 120)
    finally:
        for one in workers:
            one.stop()
    times = Counter(record for one in workers for record in one.records())
    assert len(times) == COUNT and set(times.values()) == {1}
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        (group,) = (one for one in admin.list_groups() if one.group == "workers")
        assert (group.kind, group.state) == ("share", "Empty")
        assert sum(one.lag or 0 for one in admin.list_share_group_offsets("workers").values()) == 0


def test_the_records_of_a_killed_worker_go_to_the_other(
    broker: kafkalog.Broker, tmp_path: Path
) -> None:
    killed = work(broker.bootstrap_servers, tmp_path / "killed", "sync")
    try:
        wait_for(lambda: killed.records(), "it has records", 120)
    finally:
        killed.kill()
    other = work(broker.bootstrap_servers, tmp_path / "other", "sync")
    try:
        wait_for(
            lambda: len({*killed.records(), *other.records()}) == COUNT
            and accepted(killed) + accepted(other) >= COUNT, "all is accepted", 200,
        )  # fmt: skip
    finally:
        other.stop()


def test_workers_go_on_while_nodes_die(tmp_path: Path) -> None:
    """The coordinators and the leaders of three nodes move: each record is accepted, and none is
    lost or delivered more often than the limit allows."""
    limit = 10
    config = {"group.share.delivery.count.limit": limit}
    with TestCluster(tmp_path / "cluster", config=config) as cluster:
        cluster.create_topic("jobs", PARTITIONS)
        workers = [work(cluster.bootstrap_servers, tmp_path / f"worker{n}", "sync")
                   for n in range(2)]  # fmt: skip
        try:
            for round_, node in enumerate((1, 2, 3)):
                fill(cluster.bootstrap_servers, "jobs", PARTITIONS, COUNT)
                delivered(workers, round_ * COUNT + 1)
                cluster.kill(node)
                delivered(workers, (round_ + 1) * COUNT)
                cluster.start(node)
                cluster.wait_until(
                    lambda: all(len(cluster.in_sync("jobs", n)) == 3 for n in range(PARTITIONS)),
                    "the node is back",
                )
            wait_for(lambda: _lag(cluster.bootstrap_servers) == 0, "all is accepted", 200)
        finally:
            for one in workers:
                one.stop()
        times = Counter(record for one in workers for record in one.records())
        assert len(times) == 3 * COUNT and max(times.values()) <= limit


def delivered(workers: list[Worker], count: int) -> None:
    """Wait until the workers have got so many different records."""
    wait_for(lambda: len({record for one in workers for record in one.records()}) >= count,
             f"{count} records are delivered", 200)  # fmt: skip


def _lag(servers: str) -> int:
    """Records that no worker has accepted."""
    with kafkalog.Admin(servers) as admin:
        found = admin.list_share_group_offsets("workers")
    return sum(COUNT if one.lag is None else one.lag for one in found.values())
