"""Internal records that Apache Kafka wrote: we decode the same values, and encode them again."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkalog import Log
from kafkalog.coordinator.transactions.transaction import State
from kafkalog.wire import records
from kafkalog.wire.message import Message
from kafkalog.wire.tables.other_records import CONSUMER_ASSIGNMENT, CONSUMER_SUBSCRIPTION
from tests.support import kafka_data
from tests.unit.wire.strategies import as_json, found_in, plain

INTERNAL = ("__cluster_metadata", "__consumer_offsets", "__transaction_state")
RECORD = re.compile(r"\| offset: (\d+) .*? headerKeys: \[\] (?:key: (\{.*?\}) )?payload: (.*)")
DELETED = "<DELETE>"


class Dumped(NamedTuple):
    """DumpLogSegments' output for a record, in JSON."""

    key: dict[str, Any] | None
    value: dict[str, Any] | None


def dumps(directory: Path) -> Iterator[tuple[Path, dict[int, Dumped]]]:
    """Folder and records of each internal partition whose first segment was dumped."""
    for text in sorted((directory.parent / "expected").glob("dump*.txt")):
        found: dict[int, Dumped] = {}
        for line in text.read_text().splitlines():
            if line.startswith("Dumping "):
                path = directory / line.removeprefix("Dumping ").removeprefix("log/")
                found = {}
                internal = path.parent.name.rpartition("-")[0] in INTERNAL
                if internal and path.name == f"{0:020}.log":
                    yield path.parent, found
            elif match := RECORD.fullmatch(line):
                key = json.loads(match[2]) if match[2] else None
                value = None if match[3] == DELETED else json.loads(match[3])
                found[int(match[1])] = Dumped(key, value)


PARTITIONS = [
    pytest.param(path, dumped, id=f"{case}:{path.name}")
    for case, directory in kafka_data.data_directories()
    for path, dumped in list(dumps(directory))
]


def holds(found: records.Struct, message: Message, version: int, said: dict[str, Any]) -> None:
    """Check that we decode what Kafka printed."""
    ours = as_json(plain(found, message.fields, version), message.fields, version)
    if ours.get("protocolType") == "consumer":
        for member in ours["members"]:
            member.update(opened(member))
    if isinstance(said.get("transactionStatus"), str):  # since Kafka 4.4
        ours["transactionStatus"] = State(ours["transactionStatus"]).title
    assert found_in(said, ours), f"{message.title} v{version}: {ours}"


def opened(member: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """A classic member's subscription and assignment, which Kafka's dump decodes, too."""
    decode = records.CONSUMER_PROTOCOL
    for field, function, message in (
        ("subscription", decode.decode_subscription, CONSUMER_SUBSCRIPTION),
        ("assignment", decode.decode_assignment, CONSUMER_ASSIGNMENT),
    ):
        if data := base64.b64decode(member[field]):
            version, found = function(data)
            version = min(version, 3)
            fields = plain(found, message.fields, version)
            yield field, as_json(fields, message.fields, version)


@pytest.mark.parametrize(("path", "dumped"), PARTITIONS)
def test_records_of_a_real_directory(path: Path, dumped: dict[int, Dumped]) -> None:
    topic = path.name.rpartition("-")[0]
    seen = 0
    with Log(path, mode="r") as log:
        for record in log[log.start_offset : log.end_offset]:
            if record.offset not in dumped:
                continue
            seen += 1
            said = dumped[record.offset]
            if topic == "__cluster_metadata":
                metadata_record(record.value, said)
            else:
                keyed = records.OFFSETS if topic == "__consumer_offsets" else records.TRANSACTIONS
                keyed_record(keyed, record.key, record.value, said)
    assert seen == len(dumped)


def metadata_record(value: bytes, said: Dumped) -> None:
    assert said.value is not None
    name, version, found = records.METADATA.decode(value)
    assert version == said.value["version"]
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
    assert said.value["type"] == kind
    message = next(m for m in records.METADATA.kinds.values() if m.title == name)
    holds(found, message, version, said.value["data"])
    assert records.METADATA.encode(name, version, found) == value


def keyed_record(
    keyed: records.KeyedRecords, key: bytes, value: bytes | None, said: Dumped
) -> None:
    assert said.key is not None
    name, kind, found_key = keyed.decode_key(key)
    assert kind == int(said.key["type"])
    key_message, value_message = keyed.kinds[kind]
    holds(found_key, key_message, 0, said.key["data"])
    assert keyed.encode_key(name, found_key) == key
    if value is None or said.value is None:
        assert value is said.value is None
        return
    version, found = keyed.decode_value(name, value)
    assert version == int(said.value["version"])
    holds(found, value_message, version, said.value["data"])
    assert keyed.encode_value(name, version, found) == value
