"""The number of names in one request is limited while decoding, before any code loops over them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog.errors import InvalidRequest
from kafkalog.server import handlers
from kafkalog.wire import api as wire_api
from kafkalog.wire import apis
from kafkalog.wire.api import REQUEST_NAMES_MAX, Api
from kafkalog.wire.notation import Field
from kafkalog.wire.runtime import uvarint_bytes
from kafkalog.wire.values import ZERO_UUID
from tests.support import batches
from tests.support.raw import Raw

SERVED = [(apis.BY_KEY[key], version) for key, own in apis.SERVED.items() for version in own]
PLAIN: dict[str, Any] = {"str": "x", "bytes": b"", "records": b""}
"""An array element of each kind that is not a number."""


def arrays(fields: tuple[Field, ...], version: int) -> Iterator[tuple[Field, ...]]:
    """The paths to all arrays of a message."""
    for field in fields:
        if version not in field.versions:
            continue
        if field.array:
            yield (field,)
        if field.kind == "struct":
            for inner in arrays(field.fields, version):
                yield (field, *inner)


def filled(field: Field, version: int) -> Any:
    """An element of an array; members of structs without a default are filled, too."""
    if field.kind == "uuid":
        return ZERO_UUID
    if field.kind != "struct":
        return PLAIN.get(field.kind, 0)
    return {
        one.name: filled(one, version)
        for one in field.fields
        if one.kind == "struct" and not one.array and version in one.versions
        and version not in one.nullable
    }  # fmt: skip


def with_elements(way: tuple[Field, ...], version: int, count: int) -> dict[str, Any]:
    """A message whose array at the end of `way` has `count` elements, spread over structs."""
    field, *rest = way
    if not rest:
        return {field.name: [filled(field, version) for _ in range(count)]}
    inner = tuple(rest)
    if not field.array:
        return {field.name: {**filled(field, version), **with_elements(inner, version, count)}}
    parts = [count // 2, count - count // 2]
    return {
        field.name: [
            {**filled(field, version), **with_elements(inner, version, part)} for part in parts
        ]
    }


@pytest.mark.parametrize(("api", "version"), SERVED, ids=lambda one: getattr(one, "name", one))
def test_every_array_of_every_request_is_counted(
    monkeypatch: pytest.MonkeyPatch, api: Api, version: int
) -> None:
    """Over all structs that contain it: two topics with six partitions each are twelve."""
    assert api.key in handlers.ROUTES
    monkeypatch.setattr(wire_api, "REQUEST_NAMES_MAX", 11)
    for way in arrays(api.request.fields, version):
        fields = with_elements(way, version, 11)
        api.decode_request(version, api.encode_request(version, fields))
        name = ".".join(rf"{field.name}(\[1\])?" for field in way)
        wanted = rf"{api.name} request v{version}: {name}: found \d+ more elements, wanted at most"
        with pytest.raises(InvalidRequest, match=wanted):
            fields = with_elements(way, version, 12)
            api.decode_request(version, api.encode_request(version, fields))


NAMES = [str(number) for number in range(REQUEST_NAMES_MAX + 1)]
ASKED: list[tuple[Api, int, dict[str, Any]]] = [
    (apis.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": NAMES}),
    (apis.METADATA, 9, {"topics": [{"name": name} for name in NAMES]}),
    (apis.DESCRIBE_PRODUCERS, 0,
     {"topics": [{"name": "t", "partition_indexes": list(range(len(NAMES)))}]}),
    (apis.DELETE_TOPICS, 5, {"topic_names": NAMES}),
]  # fmt: skip


@pytest.mark.parametrize(("api", "version", "fields"), ASKED, ids=[api.name for api, *_ in ASKED])
def test_requests_beyond_the_limit_close_their_connection(
    raw: Raw, caplog: pytest.LogCaptureFixture, api: Api, version: int, fields: dict[str, Any]
) -> None:
    """And the log gives the reason."""
    caplog.set_level("INFO", "kafkalog.server.dispatch")
    raw.send(api, version, fields)
    with pytest.raises(ConnectionError):
        raw.receive(api, version)
    assert re.search(r"wanted at most 100000 more in one message; its connection is closed",
                     caplog.text)  # fmt: skip


FETCH = {"max_wait_ms": 0, "session_id": 0, "session_epoch": -1, "rack_id": ""}
PRODUCE = {"acks": -1, "timeout_ms": 1_000, "topic_data": []}


@pytest.mark.parametrize(("bytes_", "answered"), [(32_767, True), (32_768, False)])
def test_the_data_plane_takes_no_longer_strings(raw: Raw, bytes_: int, answered: bool) -> None:
    """Not longer than Kafka does, though the length field allows more: a rack, an id."""
    string = uvarint_bytes(bytes_ + 1) + b"x" * bytes_
    fetch = apis.FETCH.encode_request(12, FETCH).removesuffix(b"\1\0") + string + b"\0"
    produce = string + apis.PRODUCE.encode_request(9, PRODUCE).removeprefix(b"\0")
    for api, version, data in ((apis.FETCH, 12, fetch), (apis.PRODUCE, 9, produce)):
        with Raw(raw.address) as other:
            other.send_bytes(api, version, data)
            if answered:
                assert list(other.receive(api, version).responses) == []
            else:
                with pytest.raises(ConnectionError):
                    other.receive(api, version)


# ---- repeated names --------------------------------------------------------------------------


def test_repeated_names_are_handled_once(raw: Raw) -> None:
    """A partition takes few bytes to name, but its answer may be long, or cost disk reads."""
    raw.create("t")
    raw.produce_batch(
        "t",
        batches.batch([batches.Row(b"v")], producer_id=7, producer_epoch=0, base_sequence=0),
    )
    often = [0] * 1_000
    asked = [{"name": "t", "partition_indexes": often}] * 2
    (topic,) = raw.call(apis.DESCRIBE_PRODUCERS, topics=asked).topics
    assert [len(one.active_producers) for one in topic.partitions] == [1]
    named = [{"topic": "t", "partitions": often}] * 2
    (found,) = raw.call(apis.DESCRIBE_LOG_DIRS, topics=named).results
    assert [len(topic.partitions) for topic in found.topics] == [1]
    offsets = [{"partition_index": 0, "offset": offset} for offset in (99, 1, 0)]
    (topic,) = raw.call(apis.DELETE_RECORDS, topics=[{"name": "t", "partitions": offsets}]).topics
    assert [(one.error_code, one.low_watermark) for one in topic.partitions] == [(0, 0)]
