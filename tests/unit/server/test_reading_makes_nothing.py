"""Reading creates no file, no folder and no topic: all APIs and commands that read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkalog.cli import main
from kafkalog.directory.jobs.cleaner import Cleaner
from kafkalog.directory.jobs.retention import retain
from kafkalog.directory.manager import Manager
from kafkalog.disk.checkpoint import CLEAN_MARKER
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.log.log import Log
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.server.conftest import MakeBroker

OFFSETS = "__consumer_offsets"
NEVER_MS = 86_400_000


def tree(path: str | os.PathLike[str]) -> set[str]:
    """Every file and folder below `path`."""
    return {os.path.join(at, name) for at, folders, files in os.walk(path)
            for name in (*folders, *files)}  # fmt: skip


@pytest.fixture
def make_broker(make_broker: MakeBroker) -> MakeBroker:
    """Without the job that writes every topic's high watermark into a file, read or not."""
    return partial(make_broker, replica_high_watermark_checkpoint_interval_ms=NEVER_MS)


@pytest.fixture(params=["new", "killed"])
def started(
    make_broker: MakeBroker, request: pytest.FixtureRequest
) -> Iterator[tuple[Broker, Raw]]:
    """A broker with topics that were never written, and a connection; one group was looked up.
    After a kill every leader epoch has changed."""
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("a", 3)
        raw.create("kept", 2, cleanup_policy="compact")
        raw.call(apis.FIND_COORDINATOR, 0, key="g")
        if request.param == "new":
            yield broker, raw
            return
    broker.close()
    (Path(broker.path) / CLEAN_MARKER).unlink()
    before = tree(broker.path)
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        found = raw.call(apis.LIST_GROUPS, 4)
        while found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            found = raw.call(apis.LIST_GROUPS, 4)
        made = {os.path.relpath(path, broker.path) for path in tree(broker.path) - before}
        assert {path for path in made if not path.startswith(METADATA_TOPIC)} <= {".lock"}
        yield broker, raw


@pytest.fixture
def fresh(started: tuple[Broker, Raw]) -> Raw:
    """The connection."""
    return started[1]


def places(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"partition": p, "partition_index": p, **fields} for p in range(count)]


def body(api: Api, version: int, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """A request about partitions, with the given fields that it has."""
    topics = next(f for f in api.request.fields if f.name == "topics")
    inner = next(f for f in topics.fields if f.name == "partitions")
    known = {f.name for f in inner.fields if version in f.versions}
    name = next(f.name for f in topics.fields if f.name in ("name", "topic"))
    return {"topics": [
        {name: topic, "partitions": [{k: v for k, v in one.items() if k in known}
                                     for one in entries[:count]]}
        for topic, count in (("a", 3), ("kept", 2), (OFFSETS, 50))
    ]}  # fmt: skip


TIMES = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, 0: 1}
"""Special timestamps of ListOffsets, and the first version that has each."""


def looks() -> Iterator[tuple[Api, int, dict[str, Any]]]:
    """Every request that only reads, in every version."""
    for version in apis.LIST_OFFSETS.served or ():
        for time, since in TIMES.items():
            if version >= since:
                entries = places(50, timestamp=time, current_leader_epoch=-1)
                yield apis.LIST_OFFSETS, version, body(apis.LIST_OFFSETS, version, entries)
    for version in apis.OFFSET_FOR_LEADER_EPOCH.served or ():
        for epoch in (0, 1, 3):
            entries = places(50, leader_epoch=epoch, current_leader_epoch=-1)
            asked = body(apis.OFFSET_FOR_LEADER_EPOCH, version, entries)
            yield apis.OFFSET_FOR_LEADER_EPOCH, version, asked
    many = [{"name": t, "partition_indexes": list(range(50))} for t in ("a", "kept", OFFSETS)]
    yield apis.DESCRIBE_PRODUCERS, 0, {"topics": many}
    for version in apis.METADATA.served or ():
        if version:
            yield apis.METADATA, version, {"topics": None}
        if version >= 4:  # earlier versions create the topic where that is allowed
            yield apis.METADATA, version, {"topics": [{"name": "b"}, {"name": "__b"}],
                                           "allow_auto_topic_creation": False}  # fmt: skip
    for version in apis.FETCH.served or ():
        entries = places(50, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=-1,
                         last_fetched_epoch=-1)  # fmt: skip
        if version < 13:
            yield apis.FETCH, version, {"session_epoch": -1, **body(apis.FETCH, version, entries)}
    wanted = [{"group_id": "g", "topics": [{"name": "a", "partition_indexes": [0]}]}]
    plain: tuple[tuple[Api, dict[str, Any]], ...] = (
        (apis.DESCRIBE_TOPIC_PARTITIONS, {"topics": [{"name": "a"}, {"name": "b"}],
                                          "response_partition_limit": 9}),
        (apis.DESCRIBE_LOG_DIRS, {"topics": None}),
        (apis.DESCRIBE_CONFIGS, {"resources": [{"resource_type": 2, "resource_name": "a"}]}),
        (apis.LIST_CONFIG_RESOURCES, {}),
        (apis.GET_TELEMETRY_SUBSCRIPTIONS, {}),
        (apis.PUSH_TELEMETRY, {"metrics": b""}),
        (apis.DESCRIBE_CLUSTER, {}),
        (apis.DESCRIBE_QUORUM, {}),
        (apis.LIST_PARTITION_REASSIGNMENTS, {"topics": None}),
        (apis.LIST_GROUPS, {}),
        (apis.DESCRIBE_GROUPS, {"groups": ["g", "other"]}),
        (apis.OFFSET_FETCH, {"group_id": "g", "topics": wanted[0]["topics"]}),
        (apis.OFFSET_FETCH, {"groups": wanted}),
        (apis.HEARTBEAT, {"group_id": "g", "member_id": "m"}),
        (apis.API_VERSIONS, {"client_software_name": "a", "client_software_version": "1"}),
        (apis.FIND_COORDINATOR, {"key": "g", "coordinator_keys": ["g", "h"]}),
    )  # fmt: skip
    for api, fields in plain:
        for version in api.served or ():
            known = {f.name for f in api.request.fields if version in f.versions}
            if fields.keys() - known and api is apis.OFFSET_FETCH:
                continue
            yield api, version, {name: value for name, value in fields.items() if name in known}


def test_requests_that_look_make_nothing(fresh: Raw, broker_path: Path) -> None:
    before = tree(broker_path)
    for api, version, fields in looks():
        fresh.call(api, version, **fields)
        assert tree(broker_path) == before, (api, version)


@pytest.fixture
def broker_path(tmp_path: Path) -> Path:
    return tmp_path / "data"


def fetched(raw: Raw, place: tuple[str, int], **fields: Any) -> Any:
    asked = {"partition": place[1], "fetch_offset": 0, "partition_max_bytes": 1000, **fields}
    found = raw.call(apis.FETCH, 12, replica_id=-1, max_wait_ms=0, session_epoch=-1, topics=[
        {"topic": place[0], "partitions": [asked]}])  # fmt: skip
    return found.responses[0].partitions[0]


def test_an_unwritten_partition_answers_as_an_opened_one(
    started: tuple[Broker, Raw],
) -> None:
    """The answers are the same before and after the log is opened."""
    broker, fresh = started

    def answers() -> list[Any]:
        return [
            (api.name, version, fields, dict(fresh.call(api, version, **fields)))
            for api, version, fields in looks()
            if api in (apis.LIST_OFFSETS, apis.OFFSET_FOR_LEADER_EPOCH, apis.DESCRIBE_PRODUCERS)
        ] + [
            (fields, dict(fetched(fresh, (topic, 0), **fields)))
            for topic in ("a", "kept")
            for fields in (
                {}, {"fetch_offset": 1}, {"fetch_offset": -1},
                *({"last_fetched_epoch": epoch} for epoch in (0, 1, 9)),
                *({"current_leader_epoch": epoch} for epoch in (0, 1, 9)),
                {"last_fetched_epoch": 0, "fetch_offset": 3},
            )
        ]  # fmt: skip

    before = answers()
    for topic, count in (("a", 3), ("kept", 2), (OFFSETS, 50)):
        for partition in range(count):
            broker._node.partitions.log(topic, partition)
    assert answers() == before


@pytest.mark.parametrize("how", ["produce", "log", "directory"])
def test_a_fetch_of_an_unwritten_partition_is_woken(make_broker: MakeBroker, how: str) -> None:
    """By a producer, and by a `Log` in this process that the broker did not open."""
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw, Raw(broker.bootstrap_servers) as other:
        raw.create("a", 2)
        before = tree(broker.path)
        raw.send(apis.FETCH, 12, {
            "replica_id": -1, "max_wait_ms": 30_000, "min_bytes": 1, "max_bytes": 1000,
            "session_epoch": 0, "topics": [{"topic": "a", "partitions": [
                {"partition": p, "fetch_offset": 0, "partition_max_bytes": 1000} for p in (0, 1)]}],
        })  # fmt: skip
        wait_for(lambda: broker._node.reactor.stats().parked == 1, "it waits")
        assert tree(broker.path) == before
        if how == "produce":
            assert other.produce("a", b"v").error_code == 0
        elif how == "log":
            with Log(os.path.join(broker.path, "a-0")) as log:
                log.append(b"v")
        else:
            broker._manager.get("a", 0).append(b"v")
        found = raw.receive(apis.FETCH, 12).responses[0].partitions
        assert [(p.high_watermark, bool(p.records)) for p in found] == [(1, True), (0, False)]
        assert raw.produce("a", b"w").error_code == 0
        assert fetched(raw, ("a", 0), fetch_offset=1).high_watermark == 2


def test_a_log_that_cannot_be_opened_is_told_though_it_was_read_as_empty(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("a", 1)
        assert fetched(raw, ("a", 0)).error_code == 0
        folder = Path(broker.path) / "a-0"
        (folder / "00000000000000000000.log").mkdir()
        assert raw.produce("a", b"v").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert fetched(raw, ("a", 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_records_below_0_can_be_deleted_where_there_are_none(fresh: Raw, broker_path: Path) -> None:
    before = tree(broker_path)
    for offset, code in ((-1, 0), (0, 0), (1, ErrorCode.OFFSET_OUT_OF_RANGE)):
        entries = [{"partition_index": 0, "offset": offset}]
        found = fresh.call(apis.DELETE_RECORDS, topics=[{"name": "a", "partitions": entries}])
        assert found.topics[0].partitions[0].error_code == code
    assert tree(broker_path) == before


def test_a_restart_creates_nothing(make_broker: MakeBroker) -> None:
    """Neither the coordinator that loads its topic, nor retention, nor the cleaner."""
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("a", 3, retention_ms="1")
        raw.create("kept", 2, cleanup_policy="compact")
        raw.create(OFFSETS, 4, cleanup_policy="compact")
    broker.close()
    before = tree(broker.path)
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        wait_for(lambda: raw.call(apis.LIST_GROUPS, 4).error_code == 0, "the groups are read")
    broker.close()
    with Manager(broker.path, mode="w") as manager:
        MetadataLog.open(manager).close()
        retain(manager)
        Cleaner(manager).run()
        assert not manager.problems
    made = {os.path.relpath(path, broker.path) for path in tree(broker.path) - before}
    # The metadata's own log notes the broker's start.
    assert {path for path in made if not path.startswith(METADATA_TOPIC)} <= {CLEAN_MARKER}


COMMANDS = [
    ["topics"], ["topics", "--internal"], ["topics", "list"], ["topics", "describe", "a", "--json"],
    ["offsets"], ["offsets", "--time", "0"], ["offsets", "a", "--time", "latest"],
    ["groups"], ["groups", "list", "--state"], ["groups", "describe", "g"],
    ["groups", "describe", "--all-groups", "--members"],
    ["configs", "describe", "--topic", "a", "--all"], ["configs", "describe", "--broker-defaults"],
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_that_look_make_nothing(fresh: Raw, broker_path: Path, words: list[str]) -> None:
    host, port = fresh.socket.getpeername()[:2]
    before = tree(broker_path)
    main([*words, "--bootstrap-server", f"{host}:{port}"])
    assert tree(broker_path) == before


@pytest.mark.parametrize(
    "words",
    [["topics"], ["topics", "--json"], ["offsets"], ["offsets", "--time", "0"], ["verify"],
     ["consume", "--topic", "a"], ["compact"], ["repair"], ["dump", "a-0"]],
    ids=" ".join,
)  # fmt: skip
def test_commands_that_look_into_a_directory_make_nothing(
    make_broker: MakeBroker, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker: Broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("a", 2)
        raw.produce("a", b"v")
    broker.close()
    monkeypatch.chdir(broker.path)
    before = tree(broker.path)
    given = ["."] if words[0] in ("verify", "repair") else ["--dir", "."]
    main([*words, *([] if words[0] == "dump" else given)])
    with Log("a-0", mode="r") as log:
        assert [record.value for record in log] == [b"v"]
    assert tree(broker.path) == before
