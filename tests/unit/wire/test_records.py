"""Internal records: frames, types, versions; unknown ones are reported and not fatal."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafkalog.errors import ArgumentError, InvalidRequest, UnsupportedVersion
from kafkalog.wire import records

TOPIC_ID = UUID(int=7 << 64 | 9)


def test_a_metadata_record_has_its_frame() -> None:
    fields = {"name": "orders", "topic_id": TOPIC_ID}
    value = records.METADATA.encode("TopicRecord", 0, fields)
    assert value == b"\x01\x02\x00\x07orders" + TOPIC_ID.bytes + b"\x00"
    name, version, found = records.METADATA.decode(value)
    assert (name, version, found.name, found.topic_id) == ("TopicRecord", 0, "orders", TOPIC_ID)


@pytest.mark.parametrize("kind", sorted(records.METADATA.kinds))
def test_every_metadata_record_comes_back(kind: int) -> None:
    message = records.METADATA.kinds[kind]
    for version in message.versions:
        assert not records.METADATA.unknown(1, kind, version)
        value = records.METADATA.encode(message.title, version, {})
        name, found_version, found = records.METADATA.decode(value)
        assert (name, found_version) == (message.title, version)
        assert records.METADATA.encode(name, version, found) == value
    assert "known: 0 to" in records.METADATA.unknown(1, kind, version + 1)


def test_an_unknown_metadata_record_is_named() -> None:
    name, version, found = records.METADATA.decode(b"\x01\xc8\x01\x03rest")
    assert (name, version) == ("200", 3)
    assert isinstance(found, records.Unknown)
    assert found.data == b"rest"
    assert records.METADATA.unknown(1, 200, 0) == "record 200 version 0 (known: records 0 to 29)"


@pytest.mark.parametrize(
    "value",
    [b"", b"\x01", b"\x01\x02", b"\x02\x02\x00", b"\x01\x02\x00", b"\x01\x02\x00\x01" + b"\0" * 18],
    ids=bytes.hex,
)
def test_invalid_metadata_records_are_refused(value: bytes) -> None:
    with pytest.raises(InvalidRequest):
        records.METADATA.decode(value)


def test_a_newer_version_of_a_known_record_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="TopicRecord: version 9, known are 0 to 0"):
        records.METADATA.decode(b"\x01\x02\x09")
    with pytest.raises(ArgumentError):
        records.METADATA.encode("NoSuchRecord", 0, {})


def test_a_committed_offset() -> None:
    key = records.OFFSETS.encode_key("OffsetCommit", {"group": "g", "topic": "t", "partition": 3})
    assert key == b"\0\x01" + b"\0\x01g" + b"\0\x01t" + b"\0\0\0\x03"
    name, kind, found = records.OFFSETS.decode_key(key)
    assert (name, kind, found.group, found.topic, found.partition) == (
        "OffsetCommit",
        1,
        "g",
        "t",
        3,
    )
    value = records.OFFSETS.encode_value("OffsetCommit", 3, {"offset": 5, "commit_timestamp": 8})
    assert value == b"\0\x03" + (5).to_bytes(8, "big") + b"\xff" * 4 + b"\0\0" + (8).to_bytes(
        8, "big"
    )
    version, fields = records.OFFSETS.decode_value(name, value)
    assert (version, fields.offset, fields.leader_epoch, fields.metadata) == (3, 5, -1, "")


@pytest.mark.parametrize("keyed", [records.OFFSETS, records.TRANSACTIONS], ids=lambda k: k.topic)
def test_every_kind_of_a_coordinator_comes_back(keyed: records.KeyedRecords) -> None:
    for kind, (_, value_message) in keyed.kinds.items():
        name = value_message.title.removesuffix("Value")
        key = keyed.encode_key(name, {})
        assert keyed.decode_key(key)[:2] == (name, kind)
        for version in value_message.versions:
            value = keyed.encode_value(name, version, {})
            found_version, found = keyed.decode_value(name, value)
            assert found_version == version
            assert keyed.encode_value(name, version, found) == value


def test_an_unknown_kind_of_a_group_is_named() -> None:
    name, kind, found = records.OFFSETS.decode_key(b"\x00\x63rest")
    assert (name, kind, found.data) == ("99", 99, b"rest")
    assert records.OFFSETS.decode_value(name, b"anything")[1].data == b"anything"
    with pytest.raises(ArgumentError):
        records.OFFSETS.encode_key(name, {})


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\x01", b"\0\x01\0\x01g\0\x01t\0\0\0\0\0"])
def test_invalid_keys_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        records.OFFSETS.decode_key(data)


def test_a_commit_marker() -> None:
    """The bytes of the format's golden marker."""
    key, value = records.CONTROL.encode("Commit", 0, {"coordinator_epoch": 3})
    assert (key.hex(), value.hex()) == ("00000001", "000000000003")
    name, found = records.CONTROL.decode(key, value)
    assert (name, found.coordinator_epoch) == ("Commit", 3)
    assert records.CONTROL.decode(b"\0\0\0\0", value)[0] == "Abort"


@pytest.mark.parametrize("name", [name for name, _ in records.CONTROL.kinds.values()])
def test_every_control_record_comes_back(name: str) -> None:
    found_name, found = records.CONTROL.decode(*records.CONTROL.encode(name, 0, {}))
    assert (found_name, found.version) == (name, 0)
    with pytest.raises(InvalidRequest):
        records.CONTROL.decode(b"\0\0", b"\0\0")


def test_a_newer_subscription_is_read_as_the_newest_known() -> None:
    fields = {"topics": ["a", "b"], "generation_id": 4, "rack_id": "r"}
    data = records.CONSUMER_PROTOCOL.encode_subscription(3, fields)
    version, found = records.CONSUMER_PROTOCOL.decode_subscription(b"\0\x09" + data[2:] + b"more")
    assert (version, found.topics, found.generation_id, found.rack_id) == (9, ["a", "b"], 4, "r")
    assigned = {"assigned_partitions": [{"topic": "a", "partitions": [0, 1]}]}
    data = records.CONSUMER_PROTOCOL.encode_assignment(1, assigned)
    version, found = records.CONSUMER_PROTOCOL.decode_assignment(data)
    assert [(p.topic, p.partitions) for p in found.assigned_partitions] == [("a", [0, 1])]
    for wrong in (b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\x09"):
        with pytest.raises(InvalidRequest):
            records.CONSUMER_PROTOCOL.decode_assignment(wrong)
