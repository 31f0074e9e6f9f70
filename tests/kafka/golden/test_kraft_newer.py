"""A directory that Apache Kafka 4.4 formatted and wrote (metadata.version 33): read, extended,
opened again, from the log and from our snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkalog.directory.manager import Manager
from kafkalog.disk.layout import uuid_text
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.kraft.records import decode
from kafkalog.kraft.snapshots import read_snapshot
from kafkalog.metadata.image import INTERNAL_TOPICS
from tests.support import kafka_data, trees
from tests.support.answers import read_all
from tests.unit.kraft.story import create

CASE = "kraft-4.4"
LEVELS = {
    "metadata.version": 33, "eligible.leader.replicas.version": 1, "group.version": 1,
    "share.version": 2, "streams.version": 1, "transaction.version": 2,
}  # fmt: skip


@pytest.fixture
def kraft(kafka_cases: Path, tmp_path: Path) -> Path:
    """A copy of Kafka's directory."""
    given = kafka_cases / CASE
    if not given.is_dir():
        pytest.skip(f"{kafka_cases} has no {CASE}")
    copy: Path = trees.copy_tree(given / "log", tmp_path / "log")
    return copy


@pytest.fixture
def expected(kafka_cases: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((kafka_cases / CASE / "expected/metadata.json").read_text())
    return found


def check(manager: Manager, metadata: MetadataLog, expected: dict[str, Any], more: int) -> None:
    """It is complete, with `more` more records in each partition and, if any, one more topic."""
    image = metadata.image
    assert image.features == LEVELS
    assert {
        name: {"partitions": len(topic.partitions), "topic_id": uuid_text(topic.id),
               "internal": False}
        for name, topic in image.topics.items() if name not in (*INTERNAL_TOPICS, "ours")
    } == expected["topics"]  # fmt: skip
    assert dict(image.config(2, "events")) == {"cleanup.policy": "compact,delete"}
    assert dict(image.config(4, "1")) == expected["broker_configs"]
    everybody = {**expected["default_broker_configs"], "min.insync.replicas": "1"}
    assert dict(image.config(4, "")) == everybody
    assert ("ours" in image.topics) is bool(more)
    assert list(image.controllers) == [1]
    assert not metadata.problems
    assert not image.foreign
    read = 0
    for partition in kafka_data.partitions():
        if partition.case == CASE:
            kafkas = kafka_data.expected_records(partition)
            found = read_all(manager.get(partition.topic, partition.number))
            assert found[: len(kafkas)] == kafkas
            assert [record.value for record in found[len(kafkas) :]] == [b"more"] * more
            read += len(kafkas)
    assert read == 60


def test_it_is_read_written_on_and_opened_again(kraft: Path, expected: dict[str, Any]) -> None:
    with Manager(kraft, mode="r") as manager, MetadataLog.open(manager) as metadata:
        check(manager, metadata, expected, 0)
    for more in range(3):
        with Manager(kraft) as manager, MetadataLog.open(manager) as metadata:
            check(manager, metadata, expected, more)
            if not more:
                create(metadata, "ours", 1)
            metadata.register([("PLAINTEXT", "127.0.0.1", 9092, 0)])
            for topic, partition in metadata.image.partitions():
                if topic.name in INTERNAL_TOPICS:
                    continue
                log = manager.get(topic.name, partition.partition)
                metadata.lead(log)
                log.append(b"more", key=b"k")
            name = metadata.take_snapshot() if more else None
    assert name is not None
    raws = read_snapshot(str(kraft / "__cluster_metadata-0" / name.file()))
    entries = [decode(raw.value) for raw in raws if raw.control is None]
    versions = {entry.name: entry.version for entry in entries if not isinstance(entry, str)}
    assert versions["RegisterBrokerRecord"] == 4
    assert "RegisterControllerRecord" in versions
