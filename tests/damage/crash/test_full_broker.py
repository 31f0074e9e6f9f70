"""A whole broker on a disk that really is full.

It starts and serves reads.  It answers writes at once, with an error that clients retry.  Deleting
records makes room, and everything goes on without a restart.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Broker, KafkalogError
from kafkalog.client.producer.producer import Producer
from kafkalog.clock import ManualClock
from kafkalog.directory.manager import Manager
from kafkalog.disk.space import RESERVE, Reserve
from kafkalog.inspect.verify.files import verify
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.smalldisks import Ballast, mounted
from tests.support.waiting import wait_for
from tests.unit.server.transactions.test_transactions import Client

ROOT = Path(__file__).parents[3]
OK, FULL = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR
AGAIN = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE,
         ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # fmt: skip
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "log.initial.task.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "log.segment.bytes": 1 << 20,
    "log.retention.check.interval.ms": 50,
    "auto.create.topics.enable": False,
}
VALUE = bytes(range(256)) * 16
AT_ONCE_S = 25.0
"""Less than the 30 s or more that a timeout would take."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(params=[pytest.param("tmpfs", marks=pytest.mark.long), "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with mounted(request.param, tmp_path, 12 if request.param == "tmpfs" else 24) as path:
        yield path


def opened(disk: Path, **config: Any) -> Broker:
    more = {name.replace("_", "."): value for name, value in config.items()}
    return Broker(disk / "data", config={**SETTINGS, **more})


@pytest.fixture
def broker(disk: Path) -> Iterator[Broker]:
    with opened(disk) as broker:
        yield broker


def fill(raw: Raw, disk: Path, *topics: str) -> dict[str, int]:
    """Produce until every topic refuses; returns the number of records that each topic took."""
    taken = dict.fromkeys(topics, 0)
    for topic in topics:
        for _ in range(4):
            assert raw.produce(topic, VALUE).error_code == OK
            taken[topic] += 1
    Ballast(disk).fill()
    for topic in topics:
        taken[topic] += fill_up(raw, topic)
    return taken


def fill_up(raw: Raw, topic: str) -> int:
    """Fill the space that was allocated before, too; returns the number of records."""
    taken = 0
    while (answer := raw.produce(topic, VALUE)).error_code == OK:
        taken += 1
    assert answer.error_code == FULL and "/" not in (answer.error_message or "")
    return taken


def count(raw: Raw, topic: str) -> int:
    """The records between start and end, as a client sees them."""
    return int(raw.offsets(topic, -1).offset - raw.offsets(topic, -2).offset)


def goes_on(raw: Raw, topic: str) -> None:
    """It takes records, perhaps after the time that a removal takes."""
    wait_for(lambda: raw.produce(topic, VALUE).error_code == OK, f"{topic} takes records")


# ---- reading and writing ---------------------------------------------------------------------


def test_it_reads_and_refuses_and_goes_on(disk: Path, broker: Broker) -> None:
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.create("a", 2).error_code == OK
        taken = fill(raw, disk, "a")["a"]
        for _ in range(3):
            begun = time.monotonic()
            assert raw.produce("a", VALUE).error_code == FULL
            assert raw.produce("a", VALUE, partition=1).error_code in (OK, FULL)
            assert time.monotonic() - begun < AT_ONCE_S
            assert count(raw, "a") == taken
            assert raw.fetch("a").records
            (topic,) = raw.call(apis.METADATA, topics=[{"name": "a"}]).topics
            assert [(p.error_code, p.leader_id) for p in topic.partitions] == [(OK, 1)] * 2
        Ballast(disk).drop()
        assert raw.produce("a", VALUE).error_code == OK
        assert count(raw, "a") == taken + 1
        assert raw.produce("a", VALUE, partition=1).error_code == OK
    broker.close()
    assert verify([str(disk / "data")]).clean


def test_a_partition_that_was_never_opened(disk: Path, broker: Broker) -> None:
    """Its first record is refused, and a while later it is accepted."""
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.create("a").error_code == OK
        assert raw.create("b").error_code == OK
        fill(raw, disk, "a")
        for _ in range(3):
            assert raw.produce("b", VALUE).error_code == FULL
            assert count(raw, "b") == 0
        Ballast(disk).drop()
        assert raw.produce("b", VALUE).error_code == OK, "it was not retried for a while"


def test_all_that_is_open_is_told_once(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Jobs that cannot write report it in one line, without a traceback."""
    caplog.set_level(logging.INFO)
    names = ("replica.high.watermark", "log.flush.offset", "log.flush.start.offset")
    often = {f"{name}.checkpoint.interval.ms": 20 for name in names}
    with opened(disk, **often) as broker, Raw(broker.bootstrap_servers) as raw:
        assert raw.create("a").error_code == OK
        jobs, tries = ("high watermarks", "recovery points"), 0

        def failing() -> bool:
            return all(any(job in line for line in broker._manager.problems) for job in jobs)

        def told(job: str) -> list[logging.LogRecord]:
            return [one for one in caplog.records if f"job {job} failed" in one.getMessage()]

        def stuck() -> bool:
            """A thread that got the very last block has nothing left to write: then try again."""
            nonlocal tries
            tries += 1
            Ballast(disk).drop()
            fill(raw, disk, "a")
            with contextlib.suppress(AssertionError):
                wait_for(failing, "both fail", 1)
            return failing()

        wait_for(stuck, "both jobs fail")
        before = {job: len(told(job)) for job in jobs}
        for _ in range(3):
            assert raw.produce("a", VALUE).error_code == FULL
        assert {job: len(told(job)) for job in jobs} == before
        assert max(before.values()) <= tries, "once each time that the disk was full"
        Ballast(disk).drop()
        goes_on(raw, "a")
        wait_for(lambda: not broker._manager.problems, "the jobs do their work")
    assert not [one for one in caplog.records if "failed" in one.getMessage() and one.exc_info]
    assert all("No space left on device" in one.getMessage() for one in told(jobs[0]))


# ---- making space ----------------------------------------------------------------------------


def test_delete_records_makes_room(disk: Path, broker: Broker) -> None:
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.create("a").error_code == OK
        taken = fill(raw, disk, "a")["a"]
        partition = {"partition_index": 0, "offset": -1}
        topics = [{"name": "a", "partitions": [partition]}]
        (topic,) = raw.call(apis.DELETE_RECORDS, topics=topics, timeout_ms=30_000).topics
        (found,) = topic.partitions
        assert (found.error_code, found.low_watermark) == (OK, taken)
        goes_on(raw, "a")
        assert raw.offsets("a", -2).offset == taken


def test_a_setting_lets_retention_make_room(disk: Path, broker: Broker) -> None:
    """The change itself must be written, and is."""
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.create("a").error_code == OK
        fill(raw, disk, "a")
        assert raw.alter(2, "a", retention_ms="1000").error_code == OK
        goes_on(raw, "a")


def test_deleting_a_topic_makes_room(disk: Path, broker: Broker) -> None:
    """At once, though file.delete.delay.ms is a minute."""
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.create("a").error_code == OK
        assert raw.create("b").error_code == OK
        taken = fill(raw, disk, "a", "b")["b"]
        found = raw.call(apis.DELETE_TOPICS, topics=[{"name": "a"}], timeout_ms=30_000)
        assert found.responses[0].error_code == OK
        goes_on(raw, "b")
        assert count(raw, "b") == taken + 1
    broker.close()
    with opened(disk) as again, Raw(again.bootstrap_servers) as raw:
        assert {t.name for t in raw.call(apis.METADATA, topics=None).topics} == {"b"}


# ---- changes of the metadata -----------------------------------------------------------------


def test_a_topic_that_cannot_be_made_is_not_there(disk: Path, broker: Broker) -> None:
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.create("a").error_code == OK
        fill(raw, disk, "a")
        for _ in range(3):
            made = raw.create("b", 3)
            assert made.error_code == FULL and made.error_message
        assert {t.name for t in raw.call(apis.METADATA, topics=None).topics} == {"a"}
        assert not list((disk / "data").glob("b-*[0-9]"))
        Ballast(disk).drop()
        assert raw.create("b", 3).error_code == OK
        assert raw.produce("b", VALUE, partition=2).error_code == OK


@pytest.mark.parametrize("ended", ["closed", "killed"])
@pytest.mark.parametrize("reserve", ["kept", "gone"])
def test_it_starts_on_a_full_disk(disk: Path, ended: str, reserve: str) -> None:
    """Also repeatedly, and after a kill; records are there, deletion makes space."""
    with opened(disk) as broker, Raw(broker.bootstrap_servers) as raw:
        assert raw.create("a").error_code == OK
        assert raw.create("b").error_code == OK
        taken = fill(raw, disk, "a", "b")
        if ended == "killed":
            image = disk.parent / "left"
            subprocess.run(["cp", "-a", str(disk / "data"), str(image)], check=True)
    if ended == "killed":  # restore the state when it was full instead of what the close left
        Ballast(disk).drop()
        subprocess.run(["rm", "-r", str(disk / "data")], check=True)
        subprocess.run(["cp", "-a", "--sparse=never", str(image), str(disk / "data")], check=True)
    if reserve == "gone":
        (disk / "data" / RESERVE).unlink()
    for _ in range(3):
        Ballast(disk).fill()
        with opened(disk) as broker, Raw(broker.bootstrap_servers) as raw:
            assert {name: count(raw, name) for name in taken} == taken
            taken["a"] += fill_up(raw, "a")  # the close freed little
    Ballast(disk).fill()
    with opened(disk) as broker, Raw(broker.bootstrap_servers) as raw:
        topics = [{"name": "a", "partitions": [{"partition_index": 0, "offset": -1}]}]
        found = raw.call(apis.DELETE_RECORDS, topics=topics, timeout_ms=30_000)
        assert found.topics[0].partitions[0].error_code == OK
        goes_on(raw, "b")
        Ballast(disk).drop()
        assert raw.create("c").error_code == OK
        assert raw.produce("c", VALUE).error_code == OK
    with opened(disk) as broker, Raw(broker.bootstrap_servers) as raw:
        assert [count(raw, name) for name in "abc"] == [0, taken["b"] + 1, 1]
    assert verify([str(disk / "data")]).clean


def test_a_snapshot_waits_for_room(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One line, however often it is tried; changes go on."""
    often, clock = {"metadata.log.max.record.bytes.between.snapshots": 1}, ManualClock()
    manager = Manager(disk / "data", often, clock=clock)
    with manager, MetadataLog.open(manager) as metadata:
        Reserve(str(disk / "data")).give()
        Ballast(disk).fill()
        for _ in range(5):
            metadata.write([("NoOpRecord", {})])
            clock.advance(60_000)
        assert caplog.text.count("no snapshot") == 1
        Ballast(disk).drop()
        metadata.write([("NoOpRecord", {})])
        assert list((disk / "data" / "__cluster_metadata-0").glob("*.checkpoint"))


# ---- coordinators ----------------------------------------------------------------------------


def commit(raw: Raw, group: str, offset: int) -> int:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    topics = [{"name": "a", "partitions": [partition]}]
    found = raw.call(apis.OFFSET_COMMIT, 8, group_id=group, topics=topics)
    return int(found.topics[0].partitions[0].error_code)


def committed(raw: Raw, group: str) -> int:
    topics = [{"name": "a", "partition_indexes": [0]}]
    found = raw.call(apis.OFFSET_FETCH, 5, group_id=group, topics=topics)
    return -1 if found.error_code else int(found.topics[0].partitions[0].committed_offset)


def test_commits_of_groups(disk: Path, broker: Broker) -> None:
    """Clients look for the coordinator again, and commit when there is space."""
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.create("a").error_code == OK
        raw.call(apis.FIND_COORDINATOR, key_type=0, coordinator_keys=["g"])
        wait_for(lambda: commit(raw, "g", 1) == OK, "a commit")
        fill(raw, disk, "a")
        offset = 1
        while (code := commit(raw, "g", offset + 1)) == OK:
            offset += 1
        for _ in range(3):
            assert code in AGAIN
            assert committed(raw, "g") == offset
            code = commit(raw, "g", offset + 1)
        Ballast(disk).drop()
        assert commit(raw, "g", 1000) == OK
        assert committed(raw, "g") == 1000
    broker.close()
    with opened(disk) as again, Raw(again.bootstrap_servers) as raw:
        wait_for(lambda: committed(raw, "g") == 1000, "the commit is there")


@pytest.mark.long
def test_transactions(disk: Path, broker: Broker) -> None:
    """Its parts are refused with retriable codes; then the transaction continues and ends."""
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.create("a").error_code == OK
        assert raw.create("b").error_code == OK
        client = Client(raw, "t")
        assert client.add("a", 0) == [OK]
        fill(raw, disk, "a", "b")
        # The blocks that the journal allocated ahead are used up first.
        again = {*AGAIN, FULL}
        named = {"transactional_id": "t2", "transaction_timeout_ms": 60_000}

        def init() -> int:
            return int(raw.call(apis.INIT_PRODUCER_ID, 4, **named).error_code)

        wait_for(lambda: init() in AGAIN, "the journal is full")
        ended = raw.call(apis.END_TXN, 3, **client.who, committed=True)
        assert ended.error_code in again
        Ballast(disk).drop()
        wait_for(lambda: init() == OK, "a new id")
        wait_for(lambda: raw.call(apis.END_TXN, 3, **client.who, committed=True).error_code
                 in (OK, ErrorCode.INVALID_TXN_STATE), "the end")  # fmt: skip
        assert client.add("a", 0) == [OK]


# ---- the client ------------------------------------------------------------------------------


def test_the_producer_gives_up_soon_and_says_why(disk: Path, broker: Broker) -> None:
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.create("a").error_code == OK
        fill(raw, disk, "a")
        begun = time.monotonic()
        patience = {"kafkalog.storage.timeout.ms": 500}
        with (
            pytest.raises(KafkalogError, match=r"KAFKA_STORAGE_ERROR.*No space left") as told,
            Producer(broker.bootstrap_servers, config=patience) as producer,
        ):
            producer.send("a", VALUE).result()
        assert time.monotonic() - begun < AT_ONCE_S
        assert str(disk) not in str(told.value), "clients must not learn where the data is"
        Ballast(disk).drop()
        with Producer(broker.bootstrap_servers, config=patience) as producer:
            producer.send("a", VALUE).result()


def test_the_command_says_why_and_returns(disk: Path, broker: Broker) -> None:
    with Raw(broker.bootstrap_servers) as raw:
        assert raw.create("a").error_code == OK
        fill(raw, disk, "a")
    for words in (
        ["produce", "-", "--topic", "a"],
        ["produce", "-", "--topic", "a", "--no-idempotence", "--acks", "1"],
        ["topics", "create", "b"],
    ):
        ran = subprocess.run(
            [sys.executable, "-m", "kafkalog", *words, "--bootstrap-server",
             broker.bootstrap_servers],
            input="x" * 5000 + "\n", capture_output=True, text=True, timeout=AT_ONCE_S * 3,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert ran.returncode == 1, ran
        assert "KAFKA_STORAGE_ERROR" in ran.stderr
