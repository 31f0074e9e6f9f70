"""Whatever can be encoded is decoded unchanged, in every version of every message."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import ArgumentError, UnsupportedVersion
from kafkalog.wire import apis
from kafkalog.wire.message import LARGE_BYTES, Message
from kafkalog.wire.notation import Field
from kafkalog.wire.runtime import uvarint, uvarint_bytes
from kafkalog.wire.values import ZERO_UUID, mapped
from tests.unit.wire.strategies import plain, random_fields, values
from tests.unit.wire.test_declared import RECORDS

MESSAGES = [*(m for api in apis.BY_KEY.values() for m in (api.request, api.response)), *RECORDS]
VERSIONS = [(message, version) for message in MESSAGES for version in message.versions]


@given(st.data())
def test_encoding_round_trip(data: st.DataObject) -> None:
    message, version = data.draw(st.sampled_from(VERSIONS))
    comes_back(message, version, data.draw(values(message, version)))


def test_every_version_of_every_message_comes_back(rng: random.Random) -> None:
    for message, version in VERSIONS:
        comes_back(message, version, random_fields(rng, message.fields, version))


def comes_back(message: Message, version: int, fields: dict[str, Any]) -> None:
    encoded = message.encode(version, fields)
    found, end = message.decode(version, encoded)
    assert end == len(encoded)
    assert plain(found, message.fields, version) == fields
    assert message.encode(version, found) == encoded
    assert message.encode(version, mapped(found)) == encoded
    assert b"".join(message.encode_parts(version, found)) == encoded
    assert message.decode(version, memoryview(b"ab" + encoded), 2) == (found, end + 2)


@pytest.mark.parametrize("version", apis.PRODUCE.versions)
def test_large_fields_are_not_copied(version: int) -> None:
    large, room = b"r" * LARGE_BYTES, bytearray(LARGE_BYTES + 1)
    records = (large, b"small", memoryview(room), large[1:])
    rows = [{"index": number, "records": one} for number, one in enumerate(records)]
    body = {"topic_data": [{"name": "t", "partition_data": rows}]}
    parts = apis.PRODUCE.encode_request_parts(version, body)
    assert b"".join(parts) == apis.PRODUCE.encode_request(version, body)
    assert [part.obj for part in parts[1::2]] == [large, room]
    assert parts[1].obj is large
    assert parts[3].obj is room


def smallest(fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    """One struct in each array of structs, with every field as short as possible."""
    return {
        f.name: _smallest(f, version)
        for f in fields
        if version in f.versions and f.kind in ("struct", "records")
    }


def _smallest(field: Field, version: int) -> Any:
    if field.kind == "records":
        return b""
    if field.array:
        return [smallest(field.fields, version)] * 3
    return None if version in field.nullable else smallest(field.fields, version)


def test_the_smallest_elements_are_not_too_many() -> None:
    """A count is believed if that many elements of minimal size would fit."""
    for message, version in VERSIONS:
        data = message.encode(version, smallest(message.fields, version))
        found, end = message.decode(version, data)
        assert end == len(data)
        assert message.encode(version, found) == data


@given(st.integers(0, (1 << 32) - 1))
def test_varints_come_back(value: int) -> None:
    data = uvarint_bytes(value)
    assert uvarint(data + b"\xff", 0) == (value, len(data))


def test_absent_fields_have_their_default() -> None:
    """In a version that lacks them: numbers, strings, ids, arrays, structs, null."""
    request = apis.FETCH.decode_request(4, apis.FETCH.encode_request(4, {"max_wait_ms": 1}))
    assert (request.session_epoch, request.rack_id, request.cluster_id) == (-1, "", None)
    assert (request.replica_state.replica_id, request.forgotten_topics_data) == (-1, [])
    response = apis.CREATE_TOPICS.decode_response(
        2, apis.CREATE_TOPICS.encode_response(2, {"topics": [{"name": "t"}]})
    )
    assert (response.topics[0].topic_id, response.topics[0].num_partitions) == (ZERO_UUID, -1)


def test_defaults_of_two_messages_are_not_one_list() -> None:
    first, second = (apis.FETCH.decode_request(4, bytes(21)) for _ in range(2))
    first.forgotten_topics_data.append("changed")
    assert second.forgotten_topics_data == []
    assert apis.FETCH.decode_request(4, bytes(21)) == second != first


def test_a_tagged_field_is_left_out_when_it_is_the_default() -> None:
    encode = apis.API_VERSIONS.encode_response
    bare = encode(3, {})
    assert bare[-1] == 0
    assert encode(3, {"finalized_features_epoch": -1, "supported_features": []}) == bare
    both = encode(3, {"finalized_features_epoch": 7, "zk_migration_ready": True})
    assert both == bare[:-1] + b"\x02" + b"\x01\x08" + (7).to_bytes(8, "big") + b"\x03\x01\x01"


def test_a_field_that_the_version_has_not_is_left_out() -> None:
    encode = apis.METADATA.encode_request
    assert encode(0, {"topics": [], "allow_auto_topic_creation": False}) == encode(0, {})


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"topicz": []}, TypeError, "Metadata response v9: fields: there is no field 'topicz'"),
    ({"topics": [{}, {"nme": 1}]}, TypeError, r"topics\[1\]: there is no field 'nme'"),
    ({"topics": {}}, TypeError, "topics: found {}, wanted a list"),
    ({"topics": [3]}, TypeError, r"topics\[0\]: found 3, wanted a mapping or Struct"),
    ({"topics": [{"name": None}]}, TypeError, r"topics\[0\].name: found None"),
    ({"topics": [{"name": 5}]}, TypeError, r"topics\[0\].name: "),
    ({"topics": [{"name": "\ud800"}]}, ArgumentError, r"topics\[0\].name: "),
    ({"controller_id": "x"}, TypeError, "controller_id: found 'x'"),
    ({"controller_id": 1 << 31}, ArgumentError, "controller_id: found 2147483648"),
    ({"topics": [{"topic_id": "x"}]}, TypeError, r"topics\[0\].topic_id: "),
    (
        {"topics": [{"partitions": [{}, {"error_code": 0, "leader_id": 1 << 40}]}]},
        ArgumentError,
        r"topics\[0\].partitions\[1\].leader_id: found 1099511627776",
    ),
    (
        {"topics": [{"partitions": [{"isr_nodes": [1, "a"]}]}]},
        TypeError,
        r"topics\[0\].partitions\[0\].isr_nodes: ",
    ),
]


@pytest.mark.parametrize(("fields", "kind", "text"), WRONG, ids=lambda x: str(x)[:50])
def test_unencodable_values_are_named(
    fields: dict[str, Any], kind: type[Exception], text: str
) -> None:
    version = 10 if "topic_id" in str(fields) else 9
    with pytest.raises(kind, match=text):
        apis.METADATA.encode_response(version, fields)


@pytest.mark.parametrize("version", [8, 9])
def test_a_string_of_more_than_32_767_bytes_is_refused(version: int) -> None:
    """Even if the length field allows more: Kafka reads no longer string."""
    longest = "\u00e9" * 16_383 + "x"
    data = apis.METADATA.encode_response(version, {"cluster_id": longest})
    assert apis.METADATA.decode_response(version, data).cluster_id == longest
    with pytest.raises(ArgumentError, match=f"Metadata response v{version}: cluster_id: "):
        apis.METADATA.encode_response(version, {"cluster_id": longest + "x"})
    names = {"groups": ["a", longest + "x"]}
    with pytest.raises(ArgumentError, match=r"groups\[1\]: "):
        apis.DESCRIBE_GROUPS.encode_request(5 if version == 9 else 4, names)


def test_a_version_that_is_not_known_is_named() -> None:
    for message in (apis.METADATA.request, apis.METADATA.response):
        for version in (-1, 14):
            with pytest.raises(UnsupportedVersion, match=f"version {version}, known are 0 to 13"):
                message.encode(version, {})
            with pytest.raises(UnsupportedVersion):
                message.decode(version, b"")


def test_threads_that_use_a_message_first_share_its_classes() -> None:
    text = "Name:str, Inner[]{A:i32, B:str}"
    data = Message("Shared request", "0-9", 5, text).encode(7, {"inner": [{}]})
    for _ in range(20):
        message = Message("Shared request", "0-9", 5, text)
        start = threading.Barrier(4)
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(start.wait, 10) for _ in range(4)]
            assert all(one.exception() is None for one in waiting)
            found = list(pool.map(lambda v, m=message: m.decode(v, data)[0], [5, 6, 7, 7]))
        assert len({type(struct) for struct in found}) == 1
        assert found[0] == found[3]
