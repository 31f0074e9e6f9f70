"""A directory changes hands between kafkalog and a running Apache Kafka, including its metadata."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

from kafkalog.directory.manager import Manager
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from tests.support import apache
from tests.support.waiting import wait_for
from tests.unit.metadata.conftest import request

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

ENDPOINT = ("PLAINTEXT", "127.0.0.1", 9092, 0)
CODECS = ("zstd", "snappy", "lz4", "gzip", None)
SERVED = {"listeners": "PLAINTEXT://127.0.0.1:0", "offsets.topic.num.partitions": "1"}
Wait = Callable[..., None]


@contextlib.contextmanager
def running(directory: Path) -> Iterator[tuple[apache.Broker, Any]]:
    """Apache Kafka on the directory, and an admin client."""
    try:
        broker = apache.Broker(directory)
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    with broker:
        client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        try:
            yield broker, client
        finally:
            client.close()


@contextlib.contextmanager
def ours(directory: Path) -> Iterator[tuple[Manager, MetadataLog]]:
    with Manager(directory) as manager, MetadataLog.open(manager) as metadata:
        metadata.register([ENDPOINT])
        yield manager, metadata


def make(metadata: MetadataLog, name: str, count: int, **configs: str) -> None:
    settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    asked = {"name": name, "num_partitions": count, "replication_factor": 1, "configs": settings}
    (result,) = metadata.create_topics(request(apis.CREATE_TOPICS, topics=[asked]))
    assert result["error_code"] == 0, result


def append(manager: Manager, metadata: MetadataLog, topic: str, values: list[bytes]) -> None:
    log = manager.get(topic, 0)
    metadata.lead(log)
    for value in values:
        log.append(value, key=b"k")


def values(manager: Manager, topic: str) -> list[bytes | None]:
    return [record.value for record in manager.get(topic, 0).read()]


def consumed(broker: Any, topic: str, count: int) -> list[bytes]:
    """All records, at least `count`."""
    partition = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found: list[bytes] = []

    def read() -> bool:
        for records in consumer.poll(200).values():
            found.extend(record.value for record in records)
        return bool(consumer.position(partition) >= consumer.end_offsets([partition])[partition])

    wait_for(read, f"{topic} is read to its end")
    consumer.close()
    assert len(found) >= count
    return found


def send(broker: Any, topic: str, data: list[bytes]) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, acks="all", enable_idempotence=True
    )
    for value in data:
        producer.send(topic, value, key=b"k", partition=0)
    producer.flush()
    producer.close()


def theirs(broker: Any, admin: Any, wait_until: Wait, **configs: str) -> None:
    """Let Kafka create the topic `theirs`, with a record."""
    admin.create_topics([NewTopic("theirs", 2, 1, topic_configs=configs)])
    # A kafka-python that sees a topic before Kafka's own metadata has it may wait a minute.
    wait_until(lambda: "theirs" in admin.list_topics(), "Kafka has the topic")
    send(broker, "theirs", [b"x"])


def ids(admin: Any, names: list[str]) -> dict[str, uuid.UUID]:
    return {t["name"]: uuid.UUID(str(t["topic_id"])) for t in admin.describe_topics(names)}


def topic_settings(admin: Any, topic: str) -> dict[str, str]:
    """The settings of the topic itself, as Kafka has them."""
    found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    text = str(found)
    assert topic in text
    return _own(found)


def _own(found: Any) -> dict[str, str]:
    own: dict[str, str] = {}

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("config_source") in (1, "DYNAMIC_TOPIC_CONFIG", "TOPIC_CONFIG"):
                own[node["name"]] = node["value"]
            for key, child in node.items():
                if isinstance(child, dict) and "config_source" in child and "name" not in child:
                    child = {"name": key, **child}
                walk(child)
        elif isinstance(node, (list, tuple)):
            for child in node:
                walk(child)

    walk(found)
    return own


@pytest.mark.parametrize("starts", [1, pytest.param(2, marks=pytest.mark.long)])
def test_kafka_starts_on_our_directory_and_we_go_on_with_it(
    starts: int, tmp_path: Path, wait_until: Wait
) -> None:
    """Offsets that a group committed to one are known to the other.

    `starts`: how often Kafka starts in a row, as its own log must open again, too.  After two it
    starts once more, on what we wrote last.
    """
    directory = tmp_path / "data"
    with ours(directory) as (manager, metadata):
        make(metadata, "orders", 3, retention_ms="-1", cleanup_policy="compact")
        make(metadata, "doomed", 2)
        make(metadata, "plain.topic", 1)
        append(manager, metadata, "orders", [b"one", b"two"])
        asked = {"topics": [{"name": "doomed", "topic_id": uuid.UUID(int=0)}]}
        metadata.delete_topics(request(apis.DELETE_TOPICS, **asked))
        cluster = metadata.image.cluster_id
        known = {topic.name: topic.id for topic in metadata.image.topics.values()}
        metadata.take_snapshot()
        make(metadata, "late", 1, flush_ms="1000")
        known["late"] = metadata.image.topics["late"].id
        block = metadata.allocate_producer_ids()
    with Broker(directory, config=SERVED) as mine:
        assert committed(mine.bootstrap_servers, "billing", 2) == 2
    for start in range(starts):
        with running(directory) as (broker, admin):
            assert admin.describe_cluster()["cluster_id"] == cluster
            names = ["late", "orders", "plain.topic"]
            assert sorted(n for n in admin.list_topics() if not n.startswith("__")) == names
            assert ids(admin, names) == known
            assert topic_settings(admin, "orders") == {
                "retention.ms": "-1", "cleanup.policy": "compact",
            }  # fmt: skip
            assert topic_settings(admin, "late") == {"flush.ms": "1000"}
            assert consumed(broker, "orders", 2)[:2] == [b"one", b"two"]
            assert committed(broker.bootstrap_servers, "billing") == 2
            send(broker, "orders", [b"three", b"four"])
            if start == starts - 1:
                assert committed(broker.bootstrap_servers, "shipping", 1) == 1
                theirs(broker, admin, wait_until, preallocate="true")
            assert "ERROR" not in broker.output(), broker.output()[-4000:]
    with ours(directory) as (manager, metadata):
        image = metadata.image
        assert {n: t.id for n, t in image.topics.items() if n in known} == known
        assert image.config(2, "theirs") == {"preallocate": "true"}
        assert manager.topic_config("theirs").preallocate
        assert values(manager, "orders") == [b"one", b"two", *[b"three", b"four"] * starts]
        assert values(manager, "theirs") == [b"x"]
        assert metadata.allocate_producer_ids().start > block.start
        append(manager, metadata, "orders", [b"five"])
        make(metadata, "last", 1)
    with Broker(directory, config=SERVED) as mine:
        assert committed(mine.bootstrap_servers, "billing") == 2
        assert committed(mine.bootstrap_servers, "shipping") == 1
    if starts > 1:
        with running(directory) as (broker, admin):
            assert consumed(broker, "orders", 3 + 2 * starts)[-1] == b"five"
            assert "last" in admin.list_topics()


@pytest.mark.long
def test_kafka_starts_on_a_directory_that_we_left_by_a_kill(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    program = f"""
import os, signal
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.directory.manager import Manager
from tests.kafka.referee.test_metadata_live import append, make
manager = Manager({str(directory)!r})
metadata = MetadataLog.open(manager)
metadata.register([("PLAINTEXT", "127.0.0.1", 9092, 0)])
make(metadata, "orders", 1)
append(manager, metadata, "orders", [b"one", b"two"])
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    with running(directory) as (broker, _):
        assert consumed(broker, "orders", 2) == [b"one", b"two"]
        send(broker, "orders", [b"three"])
    with ours(directory) as (manager, _):
        assert values(manager, "orders") == [b"one", b"two", b"three"]


@pytest.mark.long
def test_a_directory_of_kafkas_goes_from_kill_to_kill(tmp_path: Path, wait_until: Wait) -> None:
    """Kafka formats it and is killed on it, as we are; each continues with what the other left,
    under Kafka's own metadata.version."""
    directory = tmp_path / "data"
    with running(directory) as (broker, admin):
        theirs(broker, admin, wait_until)
        admin.close()
        broker.kill()
    program = f"""
import os, signal
from pathlib import Path
from tests.kafka.referee.test_metadata_live import append, make, ours, values
with ours(Path({str(directory)!r})) as (manager, metadata):
    assert metadata.image.features["metadata.version"] == 33
    assert metadata.image.config(4, "") == {{"min.insync.replicas": "1"}}
    assert values(manager, "theirs") == [b"x"]
    append(manager, metadata, "theirs", [b"y"])
    make(metadata, "ours", 1)
    assert metadata.take_snapshot() is not None
    append(manager, metadata, "ours", [b"one"])
    os.kill(os.getpid(), signal.SIGKILL)
"""
    ran = subprocess.run([sys.executable, "-c", program], check=False)
    assert ran.returncode == -signal.SIGKILL
    with running(directory) as (broker, admin):
        assert consumed(broker, "theirs", 2) == [b"x", b"y"]
        assert consumed(broker, "ours", 1) == [b"one"]
        send(broker, "ours", [b"two"])
        assert "ERROR" not in broker.output(), broker.output()[-4000:]
        admin.close()
        broker.kill()
    with ours(directory) as (manager, _):
        assert values(manager, "theirs") == [b"x", b"y"]
        assert values(manager, "ours") == [b"one", b"two"]


def test_kafkas_directory_comes_home(kafka_cases: Path, tmp_path: Path) -> None:
    """Kafka wrote it earlier; we change it, and Kafka opens it again."""
    directory = tmp_path / "data"
    shutil.copytree(kafka_cases / "kraft" / "log", directory)
    for folder, _, names in os.walk(directory):
        os.chmod(folder, 0o700)
        for name in names:
            os.chmod(os.path.join(folder, name), 0o600)
    expected = json.loads((kafka_cases / "kraft" / "expected" / "metadata.json").read_text())
    with ours(directory) as (manager, metadata):
        make(metadata, "ours", 1)
        append(manager, metadata, "ours", [b"one"])
        for codec in CODECS:
            many = [b"many, %d " % i * 20 for i in range(100)]
            manager.get("ours", 0).append_many(many, compression=codec, batch_bytes=5000)
        written = values(manager, "ours")
        assert len(written) == 1 + 100 * len(CODECS)
        append(manager, metadata, "orders-s1", [b"more"])
        metadata.take_snapshot()
    with running(directory) as (broker, admin):
        topics = {**expected["topics"], "ours": {"configs": {}}}
        assert set(admin.list_topics()) >= set(topics)
        for name, topic in topics.items():
            assert topic_settings(admin, name) == topic["configs"]
        assert "Recovering unflushed segment" not in broker.output()
        assert consumed(broker, "ours", 1) == written
        send(broker, "ours", [b"theirs"])
        assert consumed(broker, "orders-s1", 20)  # some are markers or aborted
        assert "12" in str(admin.list_group_offsets("billing-s1"))
        assert "ERROR" not in broker.output(), broker.output()[-4000:]
    with ours(directory) as (manager, _):
        assert values(manager, "ours") == [*written, b"theirs"]
        assert manager.get("ours", 0).verify().clean


def committed(bootstrap: str, group: str, offset: int | None = None) -> int | None:
    """The group's offset in orders-0, after committing `offset` if there is one."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
    )
    partition = kafka.TopicPartition("orders", 0)
    consumer.assign([partition])
    if offset is not None:
        consumer.commit({partition: kafka.structs.OffsetAndMetadata(offset, "", -1)})
    found: int | None = consumer.committed(partition)
    consumer.close()
    return found


@pytest.mark.long
def test_a_quorum_with_voters_of_its_own(tmp_path: Path) -> None:
    """Formatted with --standalone (KIP-853): voters and kraft.version are records, and stay."""
    directory = tmp_path / "data"
    try:
        broker = apache.Broker(directory)
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    properties = tmp_path / "server.properties"
    text = properties.read_text()
    dynamic = text.replace("controller.quorum.voters=1@", "controller.quorum.bootstrap.servers=")
    assert dynamic != text
    properties.write_text(dynamic)
    cluster = "A" * 21 + "Q"
    tool = ["kafka.tools.StorageTool", "format", "--standalone", "-t", cluster]
    apache.ask(*tool, "-c", str(properties))
    with ours(directory) as (manager, metadata):
        assert metadata.image.cluster_id == cluster
        make(metadata, "first", 1)
        append(manager, metadata, "first", [b"one"])
        assert metadata.take_snapshot() is not None
    state = json.loads((directory / "__cluster_metadata-0" / "quorum-state").read_text())
    assert state["data_version"] == 1
    assert state["votedDirectoryId"]
    with broker:
        assert consumed(broker, "first", 1) == [b"one"]
        send(broker, "first", [b"two"])
        assert "ERROR" not in broker.output(), broker.output()[-4000:]
    with ours(directory) as (manager, metadata):
        assert values(manager, "first") == [b"one", b"two"]


def test_kafkas_tools_read_our_metadata(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with ours(directory) as (_, metadata):
        make(metadata, "orders", 2, retention_ms="5")
        metadata.take_snapshot()
    folder = directory / "__cluster_metadata-0"
    files = [*sorted(folder.glob("*.log")), *sorted(folder.glob("*.checkpoint"))]
    tool = [apache.DUMP, "--cluster-metadata-decoder", "--files"]
    try:
        said = apache.ask(*tool, ",".join(map(str, files)))
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    assert said.count('"type":"PARTITION_RECORD","version":2') == 4
    assert said.count('"type":"TOPIC_RECORD"') == 2
    assert "LeaderChange" in said
    assert "SnapshotHeader" in said
    assert "SnapshotFooter" in said
    assert "isvalid: false" not in said
