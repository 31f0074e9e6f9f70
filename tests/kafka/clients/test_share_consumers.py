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
from tests.support import apache
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

MAIN = "org.apache.kafka.tools.VerifiableShareConsumer"
COUNT = 3_000
PARTITIONS = 3


class Worker:
    """A VerifiableShareConsumer, which tells what it does in lines of JSON."""

    def __init__(self, broker: kafkalog.Broker, output: Path, mode: str) -> None:
        """`mode`: auto, sync or async: how it acknowledges."""
        command = apache.java(
            MAIN, "--bootstrap-server", broker.bootstrap_servers, "--topic", "jobs", "--group-id",
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


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[kafkalog.Broker]:
    """With a topic of COUNT records in all partitions."""
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(f"there is no Apache Kafka: {reason}")
    with kafkalog.Broker(tmp_path / "data", "127.0.0.1:0") as found:
        with kafkalog.Admin(found.bootstrap_servers) as admin:
            admin.create_topics([("jobs", PARTITIONS)]).check()
        with kafkalog.Producer(found.bootstrap_servers) as producer:
            for n in range(COUNT):
                producer.send("jobs", b"%d" % n, partition=n % PARTITIONS)
        yield found


@pytest.mark.parametrize("mode", ["auto", "sync"])
def test_two_workers_share_the_records_of_a_topic(
    broker: kafkalog.Broker, tmp_path: Path, mode: str
) -> None:
    workers = [Worker(broker, tmp_path / f"worker{n}", mode) for n in range(2)]
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
    killed = Worker(broker, tmp_path / "killed", "sync")
    try:
        wait_for(lambda: killed.records(), "it has records", 120)
    finally:
        killed.kill()
    other = Worker(broker, tmp_path / "other", "sync")
    try:
        wait_for(
            lambda: len({*killed.records(), *other.records()}) == COUNT
            and killed.accepted() + other.accepted() >= COUNT, "all is accepted", 200,
        )  # fmt: skip
    finally:
        other.stop()
