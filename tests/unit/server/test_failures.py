"""A client's answer when a handler fails or a version is not served: an error response if the API
has one, and its connection stays open."""

from __future__ import annotations

import logging
import os
import random
import struct
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.server.broker import Broker
from kafkalog.server.failed_answers import failed_answer
from kafkalog.server.handlers import ROUTES
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.notation import Field
from tests.support.raw import Raw
from tests.unit.wire.strategies import random_fields

CODE = ErrorCode.UNKNOWN_SERVER_ERROR
CODES = ("error_code", "partition_error_code")
VALUES: dict[str, Any] = {"bool": True, "uuid": uuid.UUID(int=7), "f64": 1.0,
                          "bytes": b"b", "records": b"b"}  # fmt: skip


def filled(fields: Iterable[Field], version: int, text: str = "n") -> dict[str, Any]:
    """A message with one item in every list."""
    found: dict[str, Any] = {}
    for field in fields:
        if version in field.versions:
            if field.kind == "struct":
                value: Any = filled(field.fields, version, text)
            else:
                value = text if field.kind == "str" else VALUES.get(field.kind, 3)
            found[field.name] = [value] if field.array else value
    return found


def nulls(fields: Iterable[Field], version: int) -> dict[str, Any]:
    """A message with null wherever it may be, and empty lists elsewhere."""
    return {
        field.name: None
        for field in fields
        if version in field.versions and version in field.nullable
    }


def codes(struct: Any, fields: Iterable[Field], version: int) -> Iterator[int]:
    """Every error code in a response."""
    for field in fields:
        if version in field.versions:
            value = getattr(struct, field.name)
            if field.name in CODES:
                yield value
            if field.kind == "struct" and field.array:
                for one in value or ():
                    yield from codes(one, field.fields, version)


def answered(api: Api, version: int, fields: dict[str, Any]) -> Any:
    """The answer as the client decodes it; None if it gets none."""
    body = api.decode_request(version, api.encode_request(version, fields))
    answer = failed_answer(api, version, body, CODE, "why")
    if answer is None:
        return None
    decoded = api.decode_response(version, api.encode_response(version, answer))
    assert set(codes(decoded, api.response.fields, version)) <= {CODE}, decoded
    return decoded


EVERY = [(api, version) for _, api in sorted(apis.BY_KEY.items()) for version in api.versions]


@pytest.mark.parametrize(("api", "version"), EVERY, ids=lambda x: getattr(x, "name", x))
def test_every_api_can_say_that_it_failed(api: Api, version: int) -> None:
    """Every API of Kafka in each version; each item has the name that the request gave."""
    decoded = answered(api, version, filled(api.request.fields, version))
    assert CODE in set(codes(decoded, api.response.fields, version))
    for items in (value for _, value in decoded if isinstance(value, list)):
        for item in items:
            for key in ("name", "topic", "group_id", "key", "resource_name", "transactional_id"):
                wanted = {"n", ""} if api.name == "Metadata" else {"n"}
                assert getattr(item, key, None) in {None, "", *wanted}


WITHOUT = {
    *((name, version) for name, versions in {
        "Metadata": range(13), "DescribeTopicPartitions": [0], "ElectLeaders": [0],
    }.items() for version in versions)
}  # fmt: skip
"""A request for everything cannot report a failure here: an empty answer would look complete."""


@pytest.mark.parametrize(("api", "version"), EVERY, ids=lambda x: getattr(x, "name", x))
def test_empty_requests_are_answered_and_null_is_not_answered_empty(api: Api, version: int) -> None:
    """Empty lists get empty lists or the error; null, "everything", gets the error or a closed
    connection."""
    empty = answered(api, version, {})
    everything = answered(api, version, nulls(api.request.fields, version))
    if (api.name, version) in WITHOUT:
        assert everything is None
    else:
        assert everything is not None
        assert empty is not None
    top = {f.name for f in api.response.fields if version in f.versions}
    if "error_code" in top:
        assert empty.error_code == everything.error_code == CODE


@pytest.mark.parametrize("seed", [1, 7_110_317])
def test_whatever_was_asked_an_error_can_be_encoded(seed: int) -> None:
    """Random requests for every API: nulls, names of every length, ids, ends of ranges."""
    rng = random.Random(seed)
    for api, version in EVERY:
        for _ in range(6):
            fields = random_fields(rng, api.request.fields, version)
            decoded = answered(api, version, fields)
            items = [one for _, value in decoded or () if isinstance(value, list) for one in value]
            if any(hasattr(one, "error_code") for one in items):
                assert CODE in set(codes(decoded, api.response.fields, version)), (
                    seed,
                    api,
                    version,
                    fields,
                )


def test_an_error_does_not_repeat_the_request() -> None:
    """Neither a password nor a producer id: in a response they would look like a result."""
    secret = {"auth_bytes": b"\0user\0password"}
    assert answered(apis.SASL_AUTHENTICATE, 2, secret).auth_bytes == b""
    producer = {"transactional_id": "t", "producer_id": 5, "producer_epoch": 2}
    assert answered(apis.INIT_PRODUCER_ID, 4, producer).producer_id == -1
    partitions = [{"partition_index": 0, "timestamp": 77}]
    (topic,) = answered(
        apis.LIST_OFFSETS, 7, {"topics": [{"name": "t", "partitions": partitions}]}
    ).topics
    assert topic.partitions[0].timestamp == -1


def test_each_user_of_a_password_change_is_answered_once() -> None:
    change = {"name": "a", "mechanism": 1}
    new = [{**change, "name": name, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
           for name in ("b", "a")]  # fmt: skip
    found = answered(
        apis.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [change], "upsertions": new}
    )
    assert [(one.user, one.error_code) for one in found.results] == [("a", CODE), ("b", CODE)]


def test_items_keep_their_names_and_numbers() -> None:
    topics = [{"topic": "a", "partitions": [{"partition": 4}, {"partition": 5}]}, {"topic": "b"}]
    body = apis.FETCH.decode_request(6, apis.FETCH.encode_request(6, {"topics": topics}))
    answer = failed_answer(apis.FETCH, 6, body, CODE, "")
    decoded = apis.FETCH.decode_response(6, apis.FETCH.encode_response(6, answer or {}))
    found = [(t.topic, [(p.partition_index, p.error_code) for p in t.partitions])
             for t in decoded.responses]  # fmt: skip
    assert found == [("a", [(4, CODE), (5, CODE)]), ("b", [])]
    groups = apis.DESCRIBE_GROUPS.encode_request(5, {"groups": ["x", "y"]})
    described = failed_answer(
        apis.DESCRIBE_GROUPS, 5, apis.DESCRIBE_GROUPS.decode_request(5, groups), CODE, ""
    )
    assert described is not None
    assert [g["group_id"] for g in described["groups"]] == ["x", "y"]


def test_a_handler_that_fails_is_answered_and_logged_once_with_its_request(
    broker: Broker, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    """Its directory is away for a moment: DescribeLogDirs cannot ask its disk."""
    path = Path(broker.path)
    away = path.with_name("away")
    os.rename(path, away)
    try:
        found = raw.call(apis.DESCRIBE_LOG_DIRS, 4, topics=None)
    finally:
        os.rename(away, path)
    assert found.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert raw.call(apis.DESCRIBE_LOG_DIRS, 4, topics=None).error_code == ErrorCode.NONE
    assert caplog.text.count("Traceback") == 1
    (line,) = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert "DescribeLogDirs v4 of 'raw' at /127.0.0.1" in line.getMessage()
    assert line.exc_info


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        (apis.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, 0, {"group_id": "g"}),
        (apis.BROKER_HEARTBEAT, 0, {}),
    ],
    ids=["topologies", "controllers"],
)  # fmt: skip
def test_known_unserved_requests_are_answered(
    raw: Raw, caplog: pytest.LogCaptureFixture, api: Api, version: int, body: dict[str, Any]
) -> None:
    """The client gets the error immediately on this connection; the operator sees it in the log."""
    with caplog.at_level(logging.WARNING, "kafkalog.server"):
        assert raw.call(api, version, **body).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert f"{api.name} v{version}" in caplog.text
    assert raw.call(apis.API_VERSIONS, 0).error_code == ErrorCode.NONE


def test_names_as_long_as_can_be_sent_are_answered(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """An error message with a name never exceeds what a response can hold."""
    for key in sorted(ROUTES):
        api = apis.BY_KEY[key]
        with Raw(broker.bootstrap_servers) as raw:
            for version in set(api.served or ()) & set(api.versions):
                raw.call(api, version, **filled(api.request.fields, version, "x" * 32_767))
    assert not [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]


def test_a_version_that_nobody_knows_closes_the_connection_with_a_word(
    broker: Broker, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    with Raw(broker.bootstrap_servers) as bad, caplog.at_level(logging.WARNING, "kafkalog"):
        bad.send_bytes(apis.METADATA, 99, b"")
        with pytest.raises(ConnectionError):
            bad.receive_frame()
    assert "Metadata v99 of 'raw'" in caplog.text


@pytest.mark.parametrize(
    ("problem", "wanted"),
    [
        (errors.NoSpace("/srv/data of mine/t-0/0.log: No space left on device"), "disk is full"),
        (errors.IoFailed("/srv/data/t-0/0.log: write failed"), "A system call failed"),
        (errors.CorruptLog("log /srv/data/t-0: offset 7: crc"), "log t-0: offset 7: crc"),
        (errors.InvalidSetting("a: found '/x', wanted 1/s"), "a: found '/x', wanted 1/s"),
        (errors.TopicExists("/srv/d/t-0 already exists"), "t-0 already exists"),
        (FileNotFoundError(2, "No such file", "/srv/data/x"), "An error of the broker."),
        (KeyError("/srv/data"), "An error of the broker."),
    ],
    ids=lambda x: type(x).__name__,
)
def test_no_client_learns_where_the_data_lies(problem: Exception, wanted: str) -> None:
    told = errors.for_clients(problem)
    assert wanted in told
    assert "/srv" not in told


def test_every_failure_of_a_disk_has_a_sentence_for_clients() -> None:
    for kind in (getattr(errors, name) for name in errors.__all__ if name[0].isupper()):
        if issubclass(kind, OSError):
            assert errors.for_clients(kind("/srv/x")).endswith(".") or ":" in kind.__doc__


def test_a_topic_that_cannot_follow_a_change_keeps_no_other_from_it(
    broker: Broker, raw: Raw
) -> None:
    """The data plane does not know it: its removal fails there, but not the other one's."""
    for topic in ("a", "b"):
        raw.create(topic)
        assert raw.produce(topic, b"v").error_code == 0
    broker._node.reactor.remove_topic("a")
    found = raw.call(apis.DELETE_TOPICS, 5, topic_names=["a", "b"], timeout_ms=1000)
    assert [one.error_code for one in found.responses] == [0, 0]
    for topic in ("a", "b"):
        raw.create(topic)
        produced = raw.produce(topic, b"v")
        assert (produced.error_code, produced.base_offset) == (0, 0)


def joining(raw: Raw, version: int = 5, client_id: bytes | None = None) -> Any:
    """The answer to a JoinGroup once its coordinator is loaded."""
    api, protocols = apis.JOIN_GROUP, [{"name": "range", "metadata": b""}]
    body = api.encode_request(
        version,
        {"group_id": "g", "session_timeout_ms": 10_000, "protocol_type": "consumer",
         "protocols": protocols, "rebalance_timeout_ms": 10_000, "member_id": ""},
    )  # fmt: skip
    head = struct.pack(">hhi", api.key, version, 1)
    while True:
        if client_id is None:
            raw.send_bytes(api, version, body)
        else:
            frame = head + struct.pack(">h", len(client_id)) + client_id + body
            raw.socket.sendall(struct.pack(">i", len(frame)) + frame)
        found = raw.receive(api, version)
        if found.error_code not in LOADING:
            return found


LOADING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)  # fmt: skip


def coordinated(raw: Raw) -> None:
    raw.call(apis.FIND_COORDINATOR, 3, key="g", key_type=0)


@pytest.mark.parametrize("client_id", [b"c" * 32_767, b"\xff" * 32_767, b"\xff" * 20_000])
def test_client_ids_that_no_member_can_have(
    raw: Raw, caplog: pytest.LogCaptureFixture, client_id: bytes
) -> None:
    """Member ids are made of them, and bytes that are no UTF-8 take three when they are sent."""
    coordinated(raw)
    for version in (3, 5):
        assert joining(raw, version, client_id).error_code == ErrorCode.INVALID_REQUEST
    assert joining(raw).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert not [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]


def test_an_answer_that_cannot_be_encoded_is_an_error(
    broker: Broker, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    coordinated(raw)
    joining(raw)
    for shard in broker._node.coordinator.core.shards.values():
        shard.new_id = lambda: "x" * 40_000
    assert joining(raw).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    (line,) = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert "JoinGroup v5 of 'raw' at /127.0.0.1: its answer cannot be" in line.getMessage()
