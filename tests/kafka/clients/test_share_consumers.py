"""Java's share consumers at our broker: each record is accepted by one of them."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.testing.cluster import TestCluster
from tests.support import apache
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

MAIN = "org.apache.kafka.tools.VerifiableShareConsumer"
COUNT = 3_000
PARTITIONS = 3


class Worker:
    """A VerifiableShareConsumer, which tells what it does in lines of JSON."""

    def __init__(self, servers: str, output: Path, mode: str) -> None:
        """`mode`: auto, sync or async: how it acknowledges."""
        command = apache.java(
            MAIN, "--bootstrap-server", servers, "--topic", "jobs", "--group-id",
            "workers", "--acknowledgement-mode", mode, "--offset-reset-strategy", "earliest",
            "--verbose",
        )  # fmt: skip
        self._output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)

    def told(self, name: str) -> list[dict[str, Any]]:
        """Its events of a kind."""
        lines = self._output.read_text().splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [one for one in events if one["name"] == name]

    def records(self) -> list[tuple[int, int]]:
        """Partition and offset of each record that it got."""
        return [(one["partition"], one["offset"]) for one in self.told("record_data")]

    def accepted(self) -> int:
        """Records whose acknowledgement the broker has taken."""
        return sum(one["count"] for one in self.told("offsets_acknowledged"))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@pytest.fixture(autouse=True)
def jars() -> None:
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(f"there is no Apache Kafka: {reason}")


def fill(servers: str) -> None:
    """Produce COUNT records, some in each partition."""
    with kafkalog.Producer(servers) as producer:
        for n in range(COUNT):
            producer.send("jobs", b"%d" % n, partition=n % PARTITIONS)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[kafkalog.Broker]:
    """With a topic of COUNT records."""
    with kafkalog.Broker(tmp_path / "data", "127.0.0.1:0") as found:
        with kafkalog.Admin(found.bootstrap_servers) as admin:
            admin.create_topics([("jobs", PARTITIONS)]).check()
        fill(found.bootstrap_servers)
        yield found


@pytest.mark.parametrize("mode", ["auto", "sync"])
def test_two_workers_share_the_records_of_a_topic(
    broker: kafkalog.Broker, tmp_path: Path, mode: str
) -> None:
    workers = [Worker(broker.bootstrap_servers, tmp_path / f"worker{n}", mode) for n in range(2)]
    try:
        wait_for(lambda: sum(one.accepted() for one in workers) >= COUNT, "all is accepted", 120)
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
    killed = Worker(broker.bootstrap_servers, tmp_path / "killed", "sync")
    try:
        wait_for(lambda: killed.records(), "it has records", 120)
    finally:
        killed.kill()
    other = Worker(broker.bootstrap_servers, tmp_path / "other", "sync")
    try:
        wait_for(
            lambda: len({*killed.records(), *other.records()}) == COUNT
            and killed.accepted() + other.accepted() >= COUNT, "all is accepted", 200,
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
        workers = [Worker(cluster.bootstrap_servers, tmp_path / f"worker{n}", "sync")
                   for n in range(2)]  # fmt: skip
        try:
            for round_, node in enumerate((1, 2, 3)):
                fill(cluster.bootstrap_servers)
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
