"""kill -9 of a broker under load: acknowledged records survive, no value occurs twice.

Apache Kafka then opens the directory and serves the same records.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from tests.kafka.clients import servers
from tests.kafka.clients.agent import Agent, Member, Record
from tests.kafka.clients.conftest import Admin
from tests.kafka.clients.servers import Server
from tests.support.effort import LONG

# The long form also tests durability `os`, and kills more often.
KILLS = 6 if LONG else 2
MORE = 1_000
"""Acknowledged values between two kills, at least."""
PARTITIONS = 3
WAIT_S = 90.0
CODEC = {"confluent": "lz4", "java": "zstd", "kafka-python": "gzip", "franz-go": "snappy"}

Wait = Callable[..., None]
pytestmark = [pytest.mark.long]


@pytest.fixture(params=["os", "fsync"] if LONG else ["fsync"])
def broker(request: Any, side: str, tmp_path: Path) -> Iterator[Server]:
    """A broker as a separate process, with each durability."""
    settings = {}
    if side == "kafkalog":
        settings["kafkalog.durability"] = str(request.param)
    elif request.param == "fsync":
        settings["log.flush.interval.messages"] = "1"
    try:
        with servers.SIDES[side](tmp_path / "data", settings) as made:
            yield made
    except servers.Unavailable as reason:
        pytest.skip(str(reason))


def acked(producer: Agent) -> int:
    return len(producer.ask("acked")["acked"])


def committed(member: Member, group: str, topic: str) -> list[int]:
    """Commit and read the offsets; retried while the broker is away."""
    member.commit()
    return member.agent.committed(group, topic, range(PARTITIONS))


def read_all(reader: Agent, topic: str) -> dict[int, list[Record]]:
    found = {}
    for partition in range(PARTITIONS):
        end = reader.offset_at(topic, 1 << 52, partition)
        found[partition] = reader.consume(topic, end, partition=partition)
    return found


def number_of(record: Record) -> int:
    return int((record.value or b"").partition(b":")[0])


def check(found: dict[int, list[Record]], said: dict[str, Any]) -> None:
    """Every acknowledged value is at its reported place; nothing is duplicated or out of order."""
    for partition, records in found.items():
        numbers = [number_of(record) for record in records]
        assert numbers == sorted(set(numbers)), f"partition {partition}"
    for number, partition, offset in said["acked"]:
        if offset >= 0:
            assert number_of(found[partition][offset]) == number
    everything = {number_of(record) for records in found.values() for record in records}
    assert {number for number, _, _ in said["acked"]} <= everything


def test_kill_under_load(
    broker: Server, side: str, new_agent: Callable[..., Agent], rng: random.Random,
    wait_until: Wait, tmp_path: Path,
) -> None:  # fmt: skip
    producers = {name: new_agent(name, broker.bootstrap) for name in CODEC}
    wait_until(broker.answers, "the broker takes connections", WAIT_S)
    admin = Admin(broker.bootstrap)
    admin.until_ready()
    for name, producer in producers.items():
        admin.create(name, PARTITIONS, {"segment.bytes": "1048576"})
        producer.ask(
            "stream", topic=name, partitions=PARTITIONS, start=0, codec=CODEC[name], acks="all",
            idempotent=True,
        )  # fmt: skip
    reader = new_agent("confluent", broker.bootstrap)
    member = reader.join("readers", ["java"], session_ms=20_000)

    kept = [-1] * PARTITIONS
    for _ in range(KILLS):
        goals = {name: acked(producer) + MORE for name, producer in producers.items()}
        for name, producer in producers.items():
            wait_until(lambda p=producer, n=goals[name]: acked(p) >= n, f"{name} goes on", WAIT_S)
        wait_until(lambda: member.state().seen, "the group reads", WAIT_S)
        found = committed(member, "readers", "java")
        assert all(now >= before for now, before in zip(found, kept, strict=True))
        kept = found
        broker.kill()
        broker.start()
        wait_until(broker.answers, "the broker is back", WAIT_S)
    said = {name: producer.ask("stop") for name, producer in producers.items()}
    after = reader.committed("readers", "java", range(PARTITIONS))
    assert all(now >= before for now, before in zip(after, kept, strict=True))
    found = {name: read_all(reader, name) for name in producers}
    for name, records in found.items():
        assert not said[name]["failed"], name
        check(records, said[name])
    broker.stop()
    if side == "kafkalog":
        check_the_files(broker.directory, found)
        check_under_kafka(broker.directory, found, kept, new_agent, wait_until)


def check_the_files(directory: Path, found: dict[str, dict[int, list[Record]]]) -> None:
    for folder in sorted(directory.glob("*-*")):
        if (folder / "partition.metadata").exists():
            with kafkalog.Log(folder, mode="r") as log:
                assert log.verify().clean, folder.name
    for topic, partitions in found.items():
        for partition, records in partitions.items():
            with kafkalog.Log(directory / f"{topic}-{partition}", mode="r") as log:
                assert [record.value for record in log.read()] == [r.value for r in records]


def check_under_kafka(
    directory: Path, found: dict[str, dict[int, list[Record]]], kept: list[int],
    new_agent: Callable[..., Agent], wait_until: Wait,
) -> None:  # fmt: skip
    kafka = servers.SIDES["kafka"](directory)
    try:
        with kafka:
            wait_until(kafka.answers, "Apache Kafka takes connections", WAIT_S)
            Admin(kafka.bootstrap).until_ready()
            reader = new_agent("confluent", kafka.bootstrap)
            for topic, partitions in found.items():
                assert read_all(reader, topic) == partitions
            after = reader.committed("readers", "java", range(PARTITIONS))
            assert all(now >= before for now, before in zip(after, kept, strict=True))
    except servers.Unavailable as reason:
        pytest.skip(f"everything but the last is checked; {reason}")
