"""Transactions over the wire, in both versions: what is written, visible, and refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pytest

from kafkalog.clock import ManualClock
from kafkalog.coordinator.core import LOAD_AGAIN_MS
from kafkalog.coordinator.partitions import partition_for
from kafkalog.coordinator.step import Producer
from kafkalog.errors import Closed, IoFailed
from kafkalog.server.broker import Broker
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.batches import Row, batch
from tests.support.raw import Raw
from tests.support.waiting import LIMIT_S
from tests.unit.server.conftest import MakeBroker
from tests.unit.server.test_offline_logs import folder_for_file, heal

Wait = Callable[..., None]
OK = ErrorCode.NONE
ONE_PARTITION = {"transaction_state_log_num_partitions": 2, "offsets_topic_num_partitions": 2}


class Client:
    """A transactional producer, request by request."""

    def __init__(self, raw: Raw, name: str = "t", timeout_ms: int = 60_000) -> None:
        self.raw, self.name = raw, name
        (found,) = raw.call(apis.FIND_COORDINATOR, key_type=1, coordinator_keys=[name]).coordinators
        assert found.error_code == OK
        reply = self.until(lambda: raw.call(
            apis.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout_ms=timeout_ms
        ))  # fmt: skip
        assert reply.error_code == OK
        self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
        self.sequence = 0

    @staticmethod
    def until(call: Callable[[], Any]) -> Any:
        """Retry as clients do while the coordinator loads or ends an earlier transaction."""
        again = (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        )  # fmt: skip
        while (reply := call()).error_code in again:
            pass
        return reply

    @property
    def who(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.producer_id,
                "producer_epoch": self.epoch}  # fmt: skip

    def add(self, topic: str, *partitions: int) -> list[ErrorCode]:
        def call() -> Any:
            reply = self.raw.call(
                apis.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer_id, v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[{"name": topic, "partitions": list(partitions)}],
            )  # fmt: skip
            (found,) = reply.results_by_topic_v3_and_below
            codes = [ErrorCode(one.partition_error_code) for one in found.results_by_partition]
            return type("Reply", (), {"error_code": codes[0], "codes": codes})

        return list(self.until(call).codes)

    def produce_body(
        self, topic: str, *values: bytes, partition: int = 0, version: int = 11, acks: int = -1,
        sequence: int | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The fields of a Produce request."""
        data = batch(
            [Row(value, b"k") for value in values], producer_id=self.producer_id,
            producer_epoch=self.epoch, transactional=True,
            base_sequence=self.sequence if sequence is None else sequence,
        )  # fmt: skip
        entry: dict[str, Any] = {"partition_data": [{"index": partition, "records": data}]}
        entry["topic_id" if version >= 13 else "name"] = topic
        return {"transactional_id": self.name, "acks": acks, "timeout_ms": 30_000,
                "topic_data": [entry]}  # fmt: skip

    def write(
        self, topic: str, *values: bytes, partition: int = 0, version: int = 11, acks: int = -1,
        sequence: int | None = None,
    ) -> Any:  # fmt: skip
        def call() -> Any:
            body = self.produce_body(topic, *values, partition=partition, version=version,
                                     acks=acks, sequence=sequence)  # fmt: skip
            reply = self.raw.call(apis.PRODUCE, version, **body)
            return reply.responses[0].partition_responses[0]

        found = self.until(call)
        if found.error_code == OK and sequence is None:
            self.sequence += len(values)
        return found

    def end(self, commit: bool = True, version: int = 4) -> Any:
        reply = self.until(
            lambda: self.raw.call(apis.END_TXN, version, committed=commit, **self.who)
        )
        if version >= 5 and reply.error_code == OK:
            self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
            self.sequence = 0
        return reply

    def offsets_body(self, offset: int) -> dict[str, Any]:
        """The fields of a TxnOffsetCommit request."""
        topics = [{"name": "t", "partitions": [
            {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""},
        ]}]  # fmt: skip
        return {"group_id": "g", "topics": topics, **self.who}

    def commit_offsets(self, offset: int, version: int = 3, **more: Any) -> ErrorCode:
        reply = self.raw.call(apis.TXN_OFFSET_COMMIT, version, **self.offsets_body(offset), **more)
        return ErrorCode(reply.topics[0].partitions[0].error_code)

    def state(self) -> str:
        (found,) = self.raw.call(
            apis.DESCRIBE_TRANSACTIONS, transactional_ids=[self.name]
        ).transaction_states
        return str(found.transaction_state)


@pytest.fixture
def broker(make_broker: MakeBroker) -> Broker:
    return make_broker(**ONE_PARTITION)


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    with Raw(broker.bootstrap_servers) as connection:
        connection.create("t", 3)
        yield connection


def ends(raw: Raw, partition: int = 0) -> tuple[int, int]:
    """The last stable offset and the high watermark."""
    stable = raw.offsets("t", -1, partition, isolation_level=1).offset
    return stable, raw.offsets("t", -1, partition).offset


def aborted(raw: Raw, partition: int = 0) -> list[tuple[int, int]]:
    found = raw.fetch("t", 0, partition, isolation_level=1)
    return [(one.producer_id, one.first_offset) for one in found.aborted_transactions or ()]


def committed(raw: Raw, stable: bool = False) -> Any:
    fields = {"groups": [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]}
    (group,) = raw.call(apis.OFFSET_FETCH, 9, require_stable=stable, **fields).groups
    return group.topics[0].partitions[0]


def ready(raw: Raw, wait_until: Wait) -> None:
    """Wait until the group coordinator has loaded."""
    raw.call(apis.FIND_COORDINATOR, key_type=0, coordinator_keys=["g"])
    fields = {"groups": [{"group_id": "g", "topics": None}]}
    wait_until(
        lambda: raw.call(apis.OFFSET_FETCH, 9, **fields).groups[0].error_code == OK, "groups"
    )


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_shown_when_it_is_committed(
    raw: Raw, wait_until: Wait, commit: bool
) -> None:
    client = Client(raw)
    assert client.add("t", 0, 1) == [OK, OK]
    for partition in (0, 1):
        client.sequence = 0
        assert client.write("t", b"a", b"b", partition=partition).error_code == OK
    assert client.write("t", b"c", partition=1).base_offset == 2
    assert ends(raw, 0) == (0, 2)
    assert client.end(commit).error_code == OK
    wait_until(lambda: ends(raw, 0) == (3, 3) and ends(raw, 1) == (4, 4), "markers")
    wait_until(lambda: client.state() == f"Complete{'Commit' if commit else 'Abort'}", "its end")
    assert aborted(raw, 0) == ([] if commit else [(client.producer_id, 0)])


def test_a_partition_that_did_not_join_is_not_written(raw: Raw) -> None:
    """Nor without an open transaction; the error is one that the client's version knows."""
    client = Client(raw)
    for version, code in ((10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)):
        assert client.write("t", b"x", version=version).error_code == code
    assert client.add("t", 1) == [OK]
    assert client.write("t", b"x").error_code == ErrorCode.TRANSACTION_ABORTABLE
    stranger = Client(raw, "other")
    stranger.name = "t"
    assert stranger.write("t", b"x").error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert ends(raw) == (0, 0)


@pytest.mark.parametrize("stranger_first", [True, False])
def test_rights_of_one_producer_do_not_extend_to_another(
    broker: Broker, raw: Raw, wait_until: Wait, stranger_first: bool
) -> None:
    """Nobody would end the transaction that it begins."""
    client, stranger = Client(raw), Client(raw, "other")
    client.add("t", 0)
    body = client.produce_body("t", b"a")
    entries = body["topic_data"][0]["partition_data"]
    (other,) = stranger.produce_body("t", b"b")["topic_data"][0]["partition_data"]
    entries.insert(0 if stranger_first else 1, other)
    reply = raw.call(apis.PRODUCE, 11, **body).responses[0].partition_responses
    codes = [OK, ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert [one.error_code for one in reply] == (codes[::-1] if stranger_first else codes)
    assert client.end().error_code == OK
    wait_until(lambda: ends(raw) == (2, 2), "the marker")
    assert not broker._node.guards.any()


@pytest.mark.parametrize("version", [11, 12])
def test_a_partition_that_is_not_there_keeps_nothing(
    broker: Broker, raw: Raw, version: int
) -> None:
    client = Client(raw)
    for topic, partition in (("t", 9), ("none", 0)):
        found = client.write(topic, b"x", partition=partition, version=version)
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not broker._node.guards.any()


def test_batches_that_overtake_the_first_one_are_retriable(raw: Raw) -> None:
    """Version 2 sequences begin at 0 in each epoch: accepted, it would block the first batch."""
    client = Client(raw)
    late = client.write("t", b"b", version=12, sequence=1)
    assert late.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [client.write("t", value, version=12).base_offset for value in (b"a", b"b")] == [0, 1]


def test_a_refused_write_begins_no_transaction(raw: Raw) -> None:
    """Version 2: a transaction without a partition would stay open until its timeout."""
    client = Client(raw)
    found = client.write("none", b"x", version=12)
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.state() == "Empty"


def test_writes_after_the_end_are_refused(raw: Raw, wait_until: Wait) -> None:
    client = Client(raw)
    client.add("t", 0)
    assert client.write("t", b"a").error_code == OK
    client.end()
    wait_until(lambda: client.state() == "CompleteCommit", "its end")
    assert client.write("t", b"b").error_code == ErrorCode.TRANSACTION_ABORTABLE
    assert ends(raw) == (2, 2)


def test_a_newer_client_fences_the_old_one(raw: Raw, wait_until: Wait) -> None:
    old = Client(raw)
    old.add("t", 0)
    old.write("t", b"a")
    new = Client(raw)
    assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 2)
    assert ends(raw) == (2, 2)
    assert aborted(raw) == [(old.producer_id, 0)]
    assert old.write("t", b"b").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.add("t", 0) == [ErrorCode.PRODUCER_FENCED]
    assert old.end().error_code == ErrorCode.PRODUCER_FENCED
    assert old.commit_offsets(5) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert ends(raw) == (2, 2)


def test_with_version_2_a_partition_joins_by_being_written(raw: Raw, wait_until: Wait) -> None:
    """Each end raises the epoch, so that late batches have an old one."""
    client = Client(raw)
    for number in range(3):
        assert client.epoch == number
        assert client.write("t", b"a", version=12).error_code == OK
        assert client.end(version=5).error_code == OK
    wait_until(lambda: ends(raw) == (6, 6), "markers")
    wait_until(lambda: client.state() == "CompleteCommit", "its end")
    client.epoch -= 1
    late = client.write("t", b"late", version=12)
    assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert ends(raw) == (6, 6)


def test_the_next_transaction_waits_for_the_markers_of_the_last_one(
    broker: Broker, raw: Raw, wait_until: Wait
) -> None:
    """These are not taken for its own: its records and offsets are written after them."""
    ready(raw, wait_until)
    client = Client(raw)
    assert client.write("t", b"a", version=12).error_code == OK
    assert client.commit_offsets(1, version=5) is OK
    node = broker._node
    held = node.guards.begin(TopicPartition("t", 0), client.producer_id, client.epoch)
    with Raw(broker.bootstrap_servers) as one, Raw(broker.bootstrap_servers) as two:
        with node.guards.writing(held):  # until then no marker is written
            assert client.end(version=5).error_code == OK
            assert client.state() == "PrepareCommit"
            one.send(apis.PRODUCE, 12, client.produce_body("t", b"b"))
            two.send(apis.TXN_OFFSET_COMMIT, 5, client.offsets_body(2))
            wait_until(lambda: waiting(broker) == 2, "both wait")
        written = one.receive(apis.PRODUCE, 12).responses[0].partition_responses[0]
        assert (written.error_code, written.base_offset) == (OK, 2)
        offsets = two.receive(apis.TXN_OFFSET_COMMIT, 5).topics[0].partitions[0]
        assert offsets.error_code == OK
    assert client.end(version=5).error_code == OK
    wait_until(lambda: ends(raw) == (4, 4), "the marker")
    wait_until(lambda: committed(raw, stable=True).committed_offset == 2, "the offsets")
    assert not node.guards.any()


def waiting(broker: Broker) -> int:
    """The number of requests that wait for the end of a transaction."""
    shards = list(broker._node.transactions.core.shards.values())
    return sum(len(one.waiting) for shard in shards for one in list(shard.ids.values()))


@pytest.mark.parametrize("version", [1, 2])
def test_late_batches_of_an_old_transaction(raw: Raw, wait_until: Wait, version: int) -> None:
    """A batch that its producer has given up arrives during the next transaction.  Version 1 takes
    it for a part of that; version 2 recognizes its epoch."""
    client = Client(raw)
    late = Client.__new__(Client)
    late.__dict__.update(client.__dict__)
    produce, end = (11, 4) if version == 1 else (12, 5)
    if version == 1:
        client.add("t", 0, 1)
    client.write("t", b"in time", partition=1, version=produce)
    assert client.end(False, end).error_code == OK
    if version == 1:
        client.add("t", 0)
    else:
        client.write("t", b"next", version=produce)
    found = late.write("t", b"late", version=produce)
    assert found.error_code == (OK if version == 1 else ErrorCode.INVALID_PRODUCER_EPOCH)
    assert client.end(True, end).error_code == OK
    end_offset = 3 if version == 1 else 2  # its partition has the first one's marker
    wait_until(lambda: ends(raw) == (end_offset, end_offset), "the marker")
    assert aborted(raw) == []


def test_topics_are_named_by_id(broker: Broker, raw: Raw, wait_until: Wait) -> None:
    """Produce 13, on the fast path and on the slow one."""
    found = raw.call(apis.METADATA, topics=[{"name": "t"}]).topics[0]
    client = Client(raw)
    assert client.write(found.topic_id, b"a", version=13).base_offset == 0
    assert client.write(found.topic_id, b"b", version=13).base_offset == 1
    client.end(version=5)
    wait_until(lambda: ends(raw) == (3, 3), "the marker")
    for data in (batch([Row(b"x")]), batch([Row(b"x" * 99)] * 9, codec="gzip")):
        for topic_id, code in ((found.topic_id, OK), (UUID(int=7), ErrorCode.UNKNOWN_TOPIC_ID)):
            entry = {"topic_id": topic_id, "partition_data": [{"index": 0, "records": data}]}
            reply = raw.call(apis.PRODUCE, 13, acks=1, timeout_ms=1000, topic_data=[entry])
            assert reply.responses[0].topic_id == topic_id
            assert reply.responses[0].partition_responses[0].error_code == code


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_are_part_of_a_transaction(
    raw: Raw, wait_until: Wait, commit: bool, version: int
) -> None:
    ready(raw, wait_until)
    client = Client(raw)
    if version < 5:
        assert client.commit_offsets(7) is ErrorCode.INVALID_TXN_STATE
        assert raw.call(apis.ADD_OFFSETS_TO_TXN, 3, group_id="g", **client.who).error_code == OK
    assert client.commit_offsets(7, version) is OK
    assert committed(raw).committed_offset == -1
    assert committed(raw, stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert client.end(commit, version=4 if version < 5 else 5).error_code == OK
    wait_until(lambda: committed(raw, stable=True).error_code == OK, "the marker")
    assert committed(raw).committed_offset == (7 if commit else -1)
    wait_until(lambda: client.state().startswith("Complete"), "its end")
    assert client.commit_offsets(9, 3) is ErrorCode.INVALID_TXN_STATE


def test_the_topic_of_offsets_is_deleted_in_the_middle(raw: Raw, wait_until: Wait) -> None:
    ready(raw, wait_until)
    client = Client(raw)
    assert client.commit_offsets(7, 5) is OK
    topics = [{"name": "__consumer_offsets", "topic_id": UUID(int=0)}]
    (found,) = raw.call(apis.DELETE_TOPICS, topics=topics).responses
    assert found.error_code == OK
    assert client.end(version=5).error_code == OK
    wait_until(lambda: client.state() == "CompleteCommit", "its end")


def test_a_generation_that_is_over_commits_nothing(raw: Raw, wait_until: Wait) -> None:
    ready(raw, wait_until)
    client = Client(raw)
    found = client.commit_offsets(7, 5, generation_id_or_member_epoch=3, member_id="gone")
    assert found is ErrorCode.ILLEGAL_GENERATION
    assert committed(raw).committed_offset == -1


def test_a_transaction_that_takes_too_long_ends(make_broker: MakeBroker, wait_until: Wait) -> None:
    clock = ManualClock()
    broker = make_broker(clock, **ONE_PARTITION)
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t", 1)
        client = Client(raw, timeout_ms=5_000)
        client.add("t", 0)
        client.write("t", b"a")
        clock.advance(20_000)
        wait_until(lambda: ends(raw) == (2, 2), "the abort")
        assert client.end().error_code == ErrorCode.PRODUCER_FENCED


def test_a_restart_finds_open_and_decided_transactions(
    make_broker: MakeBroker, wait_until: Wait
) -> None:
    with make_broker(**ONE_PARTITION) as broker, Raw(broker.bootstrap_servers) as raw:
        raw.create("t", 1)
        ready(raw, wait_until)
        client = Client(raw)
        client.add("t", 0)
        client.write("t", b"a")
        raw.call(apis.ADD_OFFSETS_TO_TXN, 3, group_id="g", **client.who)
        assert client.commit_offsets(7) is OK
    broker = make_broker(**ONE_PARTITION)
    with Raw(broker.bootstrap_servers) as client.raw:
        raw = client.raw
        assert ends(raw) == (0, 1)
        wait_until(lambda: client.state() == "Ongoing", "loaded")
        assert client.write("t", b"b").error_code == OK
        assert client.end().error_code == OK
        wait_until(lambda: ends(raw) == (3, 3), "the marker")
        ready(raw, wait_until)
        wait_until(lambda: committed(raw, stable=True).committed_offset == 7, "the offsets")


def test_a_coordinator_with_an_unopened_log_comes_back(
    make_broker: MakeBroker, wait_until: Wait
) -> None:
    """Transactions left open are then ended, without a restart."""
    one_each = dict.fromkeys(ONE_PARTITION, 1)
    with make_broker(**one_each) as first, Raw(first.bootstrap_servers) as raw:
        raw.create("t", 1)
        client = Client(raw)
        client.add("t", 0)
        client.write("t", b"a")
        folder = Path(first.path) / "__transaction_state-0"
    folder_for_file(folder)
    clock = ManualClock()
    broker = make_broker(clock, **one_each)
    timers = broker._node.transactions.core.timers
    with Raw(broker.bootstrap_servers) as raw:
        wait_until(lambda: ("load", 0, "", "") in timers, "the log is offline")
        ask = {"committed": True, **client.who}
        assert raw.call(apis.END_TXN, 4, **ask).error_code == ErrorCode.NOT_COORDINATOR
        heal(folder)
        clock.advance(LOAD_AGAIN_MS)
        wait_until(lambda: raw.call(apis.END_TXN, 4, **ask).error_code == OK, "its end")
        wait_until(lambda: ends(raw) == (2, 2), "the marker")


def test_an_administrator_ends_hanging_transactions(raw: Raw, wait_until: Wait) -> None:
    """WriteTxnMarkers works for a transaction unknown to its coordinator."""
    client = Client(raw)
    client.add("t", 0)
    client.write("t", b"a")
    asked = [{"name": "t", "partition_indexes": [0, 9, 9]}]
    here, *_ = raw.call(apis.DESCRIBE_PRODUCERS, topics=asked).topics[0].partitions
    (one,) = here.active_producers
    assert (one.producer_id, one.current_txn_start_offset) == (client.producer_id, 0)
    marker = {"producer_id": one.producer_id, "producer_epoch": one.producer_epoch,
              "transaction_result": False, "coordinator_epoch": 0, "topics": asked}  # fmt: skip
    (found,) = raw.call(apis.WRITE_TXN_MARKERS, markers=[marker]).markers
    codes = [part.error_code for part in found.topics[0].partitions]
    assert codes == [OK, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2]
    assert ends(raw) == (2, 2)
    assert aborted(raw) == [(client.producer_id, 0)]


def test_an_earlier_coordinator_is_refused(broker: Broker, raw: Raw, wait_until: Wait) -> None:
    """Its marker is refused, and does not count as the one our coordinator decided on."""
    client = Client(raw)
    client.add("t", 0)
    client.write("t", b"a")
    asked = [{"name": "t", "partition_indexes": [0]}]
    fields = {"producer_id": client.producer_id, "producer_epoch": client.epoch,
              "transaction_result": False, "topics": asked}  # fmt: skip

    def mark(coordinator_epoch: int) -> ErrorCode:
        marker = {**fields, "coordinator_epoch": coordinator_epoch}
        (found,) = raw.call(apis.WRITE_TXN_MARKERS, markers=[marker]).markers
        return ErrorCode(found.topics[0].partitions[0].error_code)

    assert mark(7) is OK
    assert mark(6) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert ends(raw) == (2, 2)
    assert client.end(False).error_code == OK
    timers = broker._node.transactions.core.timers
    key = ("marker", partition_for("t", 2), "t", "0 t")
    wait_until(lambda: key in timers, "it is tried again")
    assert client.state() == "PrepareAbort"
    assert ends(raw) == (2, 2)
    broker.abandon()  # a close would wait for that marker


def test_ends_do_not_wait_for_a_log_that_is_being_opened(
    make_broker: MakeBroker, wait_until: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery of one partition delays only its own markers, and keeps their order."""
    with make_broker(**ONE_PARTITION) as first, Raw(first.bootstrap_servers) as raw:
        raw.create("t", 3)
        slow, quick = Client(raw, "slow"), Client(raw, "quick")
        for client, partition in ((slow, 1), (quick, 0)):
            client.add("t", partition)
            client.write("t", b"a", partition=partition)
    broker = make_broker(**ONE_PARTITION)
    node = broker._node
    begun, go_on = Event(), Event()
    get = node.manager.get

    def held(topic: str, partition: int) -> Any:
        if (topic, partition) == ("t", 1):
            begun.set()
            assert go_on.wait(LIMIT_S)
        return get(topic, partition)

    monkeypatch.setattr(node.manager, "get", held)
    with Raw(broker.bootstrap_servers) as raw:
        slow.raw = quick.raw = raw
        assert slow.end().error_code == OK
        assert begun.wait(LIMIT_S)
        assert quick.end(False).error_code == OK
        wait_until(lambda: quick.state() == "CompleteAbort", "the quick one ends")
        assert slow.state() == "PrepareCommit"
        told: list[ErrorCode] = []
        again = Producer(slow.producer_id, slow.epoch, True, 0)
        node.markers.write(TopicPartition("t", 1), again, told.append)
        assert told == []
        go_on.set()
        wait_until(lambda: slow.state() == "CompleteCommit", "the slow one ends")
        wait_until(lambda: told, "what came behind")
        assert (told, ends(raw, 1)) == ([OK], (3, 3))


def test_a_marker_that_finds_no_log_is_not_done(
    broker: Broker, raw: Raw, wait_until: Wait, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """While a broker closes, partitions exist whose logs are closed.  What blocks a marker is
    logged once, and once more when nothing does."""
    client = Client(raw)
    client.add("t", 0)
    client.write("t", b"a")
    caplog.set_level(logging.INFO, "kafkalog.server.transactions.markers")
    node = broker._node
    log, tries = node.partitions.log, 0
    failures = [Closed("closed")] * 2 + [RuntimeError("odd")] * 3 + [IoFailed("of the disk")]

    def fails(topic: str, partition: int) -> Any:
        nonlocal tries
        if topic != "t" or tries == len(failures):
            return log(topic, partition)
        tries += 1
        raise failures[tries - 1]

    monkeypatch.setattr(node.partitions, "log", fails)
    assert client.end().error_code == OK
    wait_until(lambda: client.state() == "CompleteCommit", "its end")
    assert (tries, ends(raw)) == (len(failures), (2, 2))
    said = [
        one.message for one in caplog.records if one.name == "kafkalog.server.transactions.markers"
    ]
    assert said == [
        "t-0: a transaction is not ended yet: RuntimeError: odd",
        "t-0: a transaction is not ended yet: IoFailed: of the disk",
        "t-0: transactions can be ended again",
    ]


def test_transactions_are_listed(raw: Raw) -> None:
    client = Client(raw)
    client.add("t", 0)
    Client(raw, "idle")
    states = raw.call(apis.LIST_TRANSACTIONS, state_filters=["Ongoing", "Odd"])
    assert [one.transactional_id for one in states.transaction_states] == ["t"]
    assert states.unknown_state_filters == ["Odd"]
    assert len(raw.call(apis.LIST_TRANSACTIONS).transaction_states) == 2
