"""A directory that Apache Kafka 4.1 wrote opens with all its metadata."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalog.cli import main
from kafkalog.directory.manager import Manager
from kafkalog.disk.layout import uuid_text
from kafkalog.errors import ArgumentError, CorruptLog
from kafkalog.kraft.kraftlog import MetadataLog


@pytest.fixture
def kraft(kafka_cases: Path, tmp_path: Path) -> Path:
    """A copy of Kafka's directory."""
    directory = tmp_path / "log"
    shutil.copytree(kafka_cases / "kraft" / "log", directory)
    for folder, _, files in os.walk(directory):
        os.chmod(folder, 0o700)
        for name in files:
            os.chmod(os.path.join(folder, name), 0o600)
    return directory


@pytest.fixture(scope="session")
def expected(kafka_cases: Path) -> dict[str, Any]:
    text = (kafka_cases / "kraft" / "expected" / "metadata.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def told(metadata: MetadataLog) -> dict[str, Any]:
    """The topics as Kafka's admin client would describe them."""
    image = metadata.image
    return {
        topic.name: {
            "configs": dict(image.config(2, topic.name)),
            "internal": topic.name.startswith("__"),
            "partitions": len(topic.partitions),
            "topic_id": uuid_text(topic.id).replace("-", "+").replace("_", "/"),
        }
        for topic in image.topics.values()
    }


def check(metadata: MetadataLog, expected: dict[str, Any]) -> None:
    image = metadata.image
    assert told(metadata) == expected["topics"]
    assert dict(image.config(4, "1")) == expected["broker_configs"]
    assert dict(image.config(4, "")) == expected["default_broker_configs"]
    assert image.features["metadata.version"] == 27
    assert image.next_producer_id == 1000
    assert sorted(acl.name for acl in image.acls.values()) == ["*", "orders-s1"]
    assert {
        name: [("", "SCRAM_SHA_256", "SCRAM_SHA_512")[kind], one.iterations]
        for (name, kind), one in image.scram.items()
    } == {name: found[0] for name, found in expected["scram"].items()}
    assert image.quotas == {
        (("user", "alice"),): {"consumer_byte_rate": 2097152.0, "producer_byte_rate": 1048576.0},
        (("client-id", None),): {"request_percentage": 50.0},
    }
    for topic, partition in image.partitions():
        assert (partition.leader, partition.isr) == (1, (1,)), topic.name
    assert not image.foreign


def files(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_all_that_kafka_knew_is_there(kraft: Path, expected: dict[str, Any]) -> None:
    with Manager(kraft) as manager, MetadataLog.open(manager) as metadata:
        check(metadata, expected)
        assert not metadata.problems
        for topic, ends in expected["ends"].items():
            for number, (start, end) in enumerate(ends):
                log = manager.get(topic, number)
                # Kafka's clean stop left epoch 3 for most, and electing a leader raises it.
                assert metadata.lead(log) == metadata.image.topics[topic].partitions[
                    number].leader_epoch  # fmt: skip
                assert (log.start_offset, log.end_offset) == (start, end)
        assert manager.topic_config("orders-s1").compression_type == "zstd"
        assert manager.topic_config("orders-s1").max_message_bytes == 2_000_000
        assert manager.topic_config("late-s1").max_message_bytes == 123_456


def test_it_opens_again_from_our_log_and_from_our_snapshot(
    kraft: Path, expected: dict[str, Any]
) -> None:
    epochs = []
    for _ in range(3):
        with Manager(kraft) as manager, MetadataLog.open(manager) as metadata:
            check(metadata, expected)
            epochs.append(metadata.image.epoch)
            metadata.register([("PLAINTEXT", "127.0.0.1", 9092, 0)])
            name = metadata.take_snapshot()
            assert name is not None
    assert epochs == [3, 4, 5]


def test_without_snapshots_the_log_says_the_same(kraft: Path, expected: dict[str, Any]) -> None:
    for path in (kraft / "__cluster_metadata-0").glob("*.checkpoint"):
        path.unlink()
    with Manager(kraft) as manager, MetadataLog.open(manager) as metadata:
        check(metadata, expected)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_snapshot_is_named_and_the_one_before_it_used(
    kraft: Path, expected: dict[str, Any], damage: str
) -> None:
    newest = sorted((kraft / "__cluster_metadata-0").glob("*.checkpoint"))[-1]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes({"flip": data, "cut": data[:-1], "empty": b""}[damage])
    with Manager(kraft) as manager, MetadataLog.open(manager) as metadata:
        check(metadata, expected)
        assert len(metadata.problems) == 1
        assert newest.name in metadata.problems[0]


def test_reading_writes_nothing(kraft: Path, expected: dict[str, Any]) -> None:
    before = files(kraft)
    with Manager(kraft, mode="r") as manager, MetadataLog.open(manager) as metadata:
        assert told(metadata) == expected["topics"]
        assert manager.get("orders-s1", 0).end_offset == 32
    assert files(kraft) == before


def test_a_log_that_lost_its_beginning_is_refused(kraft: Path) -> None:
    with Manager(kraft) as manager, MetadataLog.open(manager) as metadata:
        metadata.take_snapshot()
        log = manager.get("__cluster_metadata", 0)
        log.roll()
        log.delete_before(log.end_offset)
    for path in (kraft / "__cluster_metadata-0").glob("*.checkpoint"):
        path.unlink()
    with Manager(kraft) as manager, pytest.raises(CorruptLog, match="no complete snapshot"):
        MetadataLog.open(manager)


def test_a_member_of_a_cluster_is_refused(kraft: Path) -> None:
    state = kraft / "__cluster_metadata-0" / "quorum-state"
    state.write_text(
        '{"leaderId":2,"leaderEpoch":7,"currentVoters":[{"voterId":1},{"voterId":2}],'
        '"data_version":0}'
    )
    with Manager(kraft) as manager, pytest.raises(ArgumentError, match="cluster"):
        MetadataLog.open(manager)


def test_dump_reads_the_records(kraft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kraft / "__cluster_metadata-0"
    assert main(["dump", str(folder), "--records"]) == 0
    out = capsys.readouterr().out
    assert "TopicRecord v0 name=orders-s1 topic_id=HMDg-BMTSJO-8vQL1NwjZg" in out
    assert "FeatureLevelRecord v0 name=metadata.version feature_level=27" in out
    assert "LEADER_CHANGE" in out
    assert "UserScramCredentialRecord v0 name=bob mechanism=2 salt=64 bytes" in out
    assert "unreadable" not in out
