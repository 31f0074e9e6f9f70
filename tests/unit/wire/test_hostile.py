"""Bytes from outside give a value or InvalidRequest, in bounded memory, and nothing else."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest

from kafkalog.errors import InvalidRequest, UnsupportedVersion
from kafkalog.wire import apis, records
from kafkalog.wire.message import Message
from kafkalog.wire.runtime import uvarint_bytes
from tests.unit.wire.strategies import random_fields
from tests.unit.wire.test_round_trip import VERSIONS

LARGE = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x7f\xff", b"\xff" * 10, b"\x80" * 10]


def survives(message: Message, version: int, data: bytes) -> bool:
    """True if it was accepted as a message."""
    try:
        message.decode(version, data)
    except InvalidRequest as error:
        text = str(error)
        assert text.startswith(f"{message.title} v{version}: "), text
        assert ": found " in text and ", wanted " in text, text
        return False
    return True


def test_truncated_at_every_byte(rng: random.Random) -> None:
    """No version of any message reads past its end, and no prefix is accepted as the whole."""
    for message, version in VERSIONS:
        data = message.encode(version, random_fields(rng, message.fields, version))
        for size in range(len(data)) if len(data) < 400 else rng.sample(range(len(data)), 100):
            assert not survives(message, version, data[:size])


def test_random_bytes_are_survived(rng: random.Random) -> None:
    for message, version in VERSIONS:
        for _ in range(5):
            survives(message, version, rng.randbytes(rng.choice([1, 8, 30, 200])))
            survives(message, version, bytes(rng.choices([0, 1, 2, 127, 128, 255], k=40)))


def test_changed_messages_are_survived(rng: random.Random) -> None:
    for message, version in VERSIONS:
        data = bytearray(message.encode(version, random_fields(rng, message.fields, version)))
        for _ in range(4):
            pos = rng.randrange(len(data) + 1)
            large = rng.choice(LARGE)
            survives(message, version, bytes(data[:pos] + large + data[pos:]))
            survives(message, version, bytes(data[:pos] + large + data[pos + len(large) :]))
            if pos < len(data):
                data[pos] ^= 1 << rng.randrange(8)
                survives(message, version, bytes(data))


def peak_bytes(message: Message, version: int, data: bytes) -> int:
    """The peak memory of decoding."""
    survives(message, version, data)  # so that the codec exists
    tracemalloc.start()
    try:
        survives(message, version, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_count_allocates_nothing_before_it_is_checked() -> None:
    """The twenty bytes that kill other decoders: an array of 2**31-1 elements."""
    for version in range(9):
        data = struct.pack(">i", 0x7FFFFFFF) + bytes(16)
        assert peak_bytes(apis.METADATA.request, version, data) < 100_000
    for version in range(9, 14):
        data = uvarint_bytes(0xFFFFFFFF) + bytes(16)
        assert peak_bytes(apis.METADATA.request, version, data) < 100_000


def test_every_count_and_length_is_checked(rng: random.Random) -> None:
    """Whatever they claim, allocations stay near the size of the message."""
    for message, version in rng.sample(VERSIONS, 60):
        data = message.encode(version, random_fields(rng, message.fields, version))
        for _ in range(5):
            pos = rng.randrange(len(data) + 1)
            changed = data[:pos] + rng.choice(LARGE) + data[pos + 4 :]
            assert peak_bytes(message, version, changed) < 200_000 + 100 * len(changed)


def test_small_elements_cannot_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Structs of three bytes become hundreds: the memory of a decoded message is limited."""
    count = 100_000
    data = uvarint_bytes(count + 1) + b"\1\1\0" * count + bytes(8)
    message = apis.CREATE_TOPICS.request
    with pytest.raises(InvalidRequest, match=r"topics: found count"):
        message.decode(5, data)  # each takes at least nine
    data = uvarint_bytes(count + 1) + (b"\1" + bytes(6) + b"\1\1\0") * count + bytes(8)
    assert len(message.decode(5, data)[0].topics) == count
    monkeypatch.setattr("kafkalog.wire.message.MEMORY_BYTES_MAX", 10 << 20)
    with pytest.raises(InvalidRequest, match="topics: found 100000 more elements"):
        message.decode(5, data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "topics: found 0 bytes, wanted 1"),
        (b"\x02", r"topics: found count 1, wanted at most 0"),
        (b"\x02\x09ab\0\0\0\0", r"topics\[0\].name: found length 8, wanted at most the 6"),
        (b"\x02\x00\0\0\0\0\0\0", r"topics\[0\].name: found null, wanted a value"),
        (b"\x02\x03\xff\xfe\0\0\0\0", r"topics\[0\].name: found bytes .*, wanted UTF-8"),
        (b"\x00\x01\x00", "include_topic_authorized_operations: found 0 bytes, wanted 1"),
        (b"\x00\x01\x00\x00\x01\x05\x09", "tagged fields: found length 9"),
        (b"\x00\x01\x00\x00" + b"\xff" * 6, "tagged fields: found varint of more than 5 bytes"),
    ],
)
def test_errors_name_place_and_reason(data: bytes, text: str) -> None:
    with pytest.raises(InvalidRequest, match=f"Metadata request v9: {text}"):
        apis.METADATA.decode_request(9, data)


def test_bytes_behind_a_request_are_ignored() -> None:
    """As in Kafka: some clients send them."""
    data = apis.METADATA.encode_request(9, {"topics": [{"name": "a"}]})
    assert apis.METADATA.decode_request(9, data + b"more") == apis.METADATA.decode_request(9, data)


def test_unknown_tagged_fields_are_skipped() -> None:
    """At every level, in any number (KIP-482)."""
    topic = b"\x02a" + b"\x02" + b"\x05\x03abc" + b"\xc8\x01\x00"
    data = b"\x02" + topic + b"\x01\x00\x00" + b"\x01" + b"\x07\x01x"
    found = apis.METADATA.decode_request(9, data)
    assert [t.name for t in found.topics] == ["a"]
    assert apis.METADATA.encode_request(9, found) == b"\x02\x02a\x00\x01\x00\x00\x00"


def test_known_tagged_fields_among_unknown_ones() -> None:
    tags = b"\x03" + b"\x01\x08" + (7).to_bytes(8, "big") + b"\x09\x02ab" + b"\x03\x01\x01"
    found = apis.API_VERSIONS.decode_response(3, b"\0\0\x01\0\0\0\0" + tags)
    assert (found.finalized_features_epoch, found.zk_migration_ready) == (7, True)


@pytest.mark.parametrize("size", [0, 7, 9, 200])
def test_a_tagged_field_of_another_size_is_refused(size: int) -> None:
    tag = b"\x01\x01" + uvarint_bytes(size) + bytes(20)
    with pytest.raises(InvalidRequest, match="ApiVersions response v3: "):
        apis.API_VERSIONS.decode_response(3, b"\0\0\x01\0\0\0\0" + tag)


def test_a_string_of_more_than_32_767_bytes_is_refused() -> None:
    """If its length has variable size: 16 bits cannot express more."""
    string = uvarint_bytes(32_768 + 1) + b"x" * 32_768
    with pytest.raises(InvalidRequest, match=r"name: found a string of 32768 bytes, wanted one of"):
        apis.METADATA.request.decode(9, b"\x02" + string + bytes(10))
    with pytest.raises(InvalidRequest, match=r"groups\[0\]: found a string of 32768 bytes"):
        apis.DESCRIBE_GROUPS.request.decode(5, b"\x02" + string + bytes(10))


def test_records_survive_anything(rng: random.Random) -> None:
    """The decoders of internal records, which wrap messages."""
    decoders = [
        records.METADATA.decode,
        records.OFFSETS.decode_key,
        lambda data: records.OFFSETS.decode_value("GroupMetadata", data),
        lambda data: records.OFFSETS.decode_value("OffsetCommit", data),
        lambda data: records.TRANSACTIONS.decode_value("TransactionLog", data),
        records.TRANSACTIONS.decode_key,
        lambda data: records.CONTROL.decode(data[:4], data[4:]),
        records.CONSUMER_PROTOCOL.decode_subscription,
        records.CONSUMER_PROTOCOL.decode_assignment,
    ]
    taken = 0
    for _ in range(3000):
        data = bytes(rng.choices([0, 0, 0, 1, 2, 3, 5, 127, 128, 255], k=rng.randrange(40)))
        try:
            rng.choice(decoders)(data)
            taken += 1
        except (InvalidRequest, UnsupportedVersion):
            continue
    assert taken
