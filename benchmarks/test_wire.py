"""The wire codec in Python: what the control plane costs, without sockets.

Large: a Metadata response (version 12) of 100 topics of 100 partitions with three replicas; a
unit is a partition.  Small: a Heartbeat request (version 4); a unit is a message.  Records:
PartitionRecord of the metadata log, as it is replayed at start.  kafka-python's codec is compiled
from a schema to Python as ours is; kio's is an extension in Rust.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from typing import Any
from uuid import UUID

from benchmarks.measure import Side, Want, scaled
from kafkalog.wire import apis, records

OURS = "kafkalog"
THEIRS = "kafka-python"
VERSION = 12
HEARTBEATS = 20_000
RECORDS = 20_000


def large() -> tuple[dict[str, Any], int]:
    """Fields of a Metadata response, and how many partitions it names."""
    topics = scaled(100, 2)
    replicas = {"replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3], "offline_replicas": []}
    partitions = [
        {"partition_index": i, "leader_id": 1 + i % 3, "leader_epoch": i, **replicas}
        for i in range(100)
    ]
    brokers = [{"node_id": i, "host": f"broker-{i}", "port": 9092} for i in (1, 2, 3)]
    named = [
        {"name": f"topic-{i}", "topic_id": UUID(int=i + 1), "partitions": partitions}
        for i in range(topics)
    ]
    return {"brokers": brokers, "cluster_id": "cluster", "topics": named}, topics * 100


def kafka_python(name: str) -> Any:
    return getattr(importlib.import_module("kafka.protocol.metadata"), name)


def kio(side: str, key: int, version: int) -> Any:
    return getattr(importlib.import_module("kio.index"), f"load_{side}_schema")(key, version)


def repeated(name: str, count: int, run: Callable[[], object]) -> Side:
    """The same small message `count` times; the loop is included."""

    def loop() -> None:
        for _ in range(count):
            run()

    return Side(name, count, loop)


def test_wire_decode(measure: Any) -> None:
    fields, partitions = large()
    data = apis.METADATA.encode_response(VERSION, fields)
    theirs = kafka_python("MetadataResponse")
    read = importlib.import_module("kio.serial").entity_reader(kio("response", 3, VERSION))
    assert len(theirs.decode(data, version=VERSION).topics) == partitions // 100
    assert read(data, 0)[1] == len(data)
    sides = [
        Side(OURS, partitions, lambda: apis.METADATA.decode_response(VERSION, data)),
        Side(THEIRS, partitions, lambda: theirs.decode(data, version=VERSION)),
        Side("kio (Rust)", partitions, lambda: read(data, 0)),
    ]
    wants = [Want(OURS, than=THEIRS)]
    measure("wire-decode", "Read a Metadata response, partitions", sides, wants)


def test_wire_encode(measure: Any) -> None:
    fields, partitions = large()
    data = apis.METADATA.encode_response(VERSION, fields)
    theirs = kafka_python("MetadataResponse").decode(data, version=VERSION)
    theirs._header = None  # it has one when it came with one
    kind = kio("response", 3, VERSION)
    serial = importlib.import_module("kio.serial")
    rust, write = serial.entity_reader(kind)(data, 0)[0], serial.entity_writer(kind)
    assert bytes(theirs.encode(version=VERSION)) == data
    sides = [
        Side(OURS, partitions, lambda: apis.METADATA.encode_response(VERSION, fields)),
        Side(THEIRS, partitions, lambda: theirs.encode(version=VERSION)),
        Side("kio (Rust)", partitions, lambda: write(io.BytesIO(), rust)),
    ]
    wants = [Want(OURS, than=THEIRS)]
    measure("wire-encode", "Write a Metadata response, partitions", sides, wants)


def test_wire_small(measure: Any) -> None:
    fields = {"group_id": "group", "generation_id": 7, "member_id": "member-" + "0" * 36}
    data = apis.HEARTBEAT.encode_request(4, fields)
    group = importlib.import_module("kafka.protocol.consumer.group")
    read = importlib.import_module("kio.serial").entity_reader(kio("request", 12, 4))
    count = scaled(HEARTBEATS, 100)
    sides = [
        repeated(OURS, count, lambda: apis.HEARTBEAT.decode_request(4, data)),
        repeated(THEIRS, count, lambda: group.HeartbeatRequest.decode(data, version=4)),
        repeated("kio (Rust)", count, lambda: read(data, 0)),
    ]
    wants = [Want(OURS, than=THEIRS)]
    measure("wire-small", "Read a Heartbeat request", sides, wants)


def test_wire_records(measure: Any) -> None:
    record = {
        "partition_id": 3, "topic_id": UUID(int=77), "replicas": [1, 2, 3], "isr": [1, 2, 3],
        "leader": 1, "leader_epoch": 5, "partition_epoch": 6, "directories": [UUID(int=9)] * 3,
    }  # fmt: skip
    value = records.METADATA.encode("PartitionRecord", 1, record)
    count = scaled(RECORDS, 100)
    side = repeated(OURS, count, lambda: records.METADATA.decode(value))
    measure("wire-records", "Replay PartitionRecords", [side])
