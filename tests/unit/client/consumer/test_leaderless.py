"""Each partition has its own result: one without a leader, or refused, holds up no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Consumer, TopicPartition, errors
from kafkalog.client.calls.offsets import EARLIEST, find_offsets, find_starts
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import failure_class
from kafkalog.log.log import Log
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import Peer
from tests.unit.client.conftest import PassingClock
from tests.unit.client.consumer.members import ONE, OPTIONS, ZERO, Coordinator
from tests.unit.client.link.test_cluster import offsets_answer

TEN = [b"%d" % i for i in range(10)]


@pytest.fixture
def data(tmp_path: Path) -> bytes:
    with Log(tmp_path / "t-0") as log:
        log.append_many(TEN)
        return log.read_batches(0, 1 << 20)


class Half:
    """A broker of t-0 and t-1, of which t-1 has no leader until `heal`."""

    def __init__(self, peer: Peer, data: bytes) -> None:
        Coordinator(peer)
        self.peer, self.data = peer, data
        self.metadata = peer.metadata({"t": 2})
        self.metadata["topics"][0]["partitions"][1]["leader_id"] = -1
        self.refused: dict[int, int] = {}
        """Codes of ListOffsets by partition."""
        peer.on(apis.METADATA, self.metadata)
        peer.on(apis.LIST_OFFSETS, self.offsets)
        peer.on(apis.FETCH, self.fetch)

    def heal(self) -> None:
        self.peer.on(apis.METADATA, self.peer.metadata({"t": 2}))
        self.refused.clear()

    def offsets(self, request: Any, version: int) -> Any:
        some = [row.partition_index for row in request.topics[0].partitions]
        return offsets_answer({p: (self.refused.get(p, 0), 0) for p in some})

    def fetch(self, request: Any, version: int) -> Any:
        """An offset above 10 is out of range."""
        rows = []
        for row in (row for topic in request.topics for row in topic.partitions):
            code = ErrorCode.OFFSET_OUT_OF_RANGE if row.fetch_offset > 10 else 0
            records = self.data if row.fetch_offset == 0 else b""
            rows.append({"partition_index": row.partition, "error_code": code,
                         "records": None if code else records, "high_watermark": 10})  # fmt: skip
        return {"responses": [{"topic": "t", "partitions": rows}]}


@pytest.fixture
def half(peer: Peer, data: bytes) -> Half:
    return Half(peer, data)


@pytest.fixture
def consumer(peer: Peer, half: Half) -> Iterator[Consumer]:
    with Consumer(peer.servers, auto_offset_reset="earliest", config=OPTIONS["config"]) as made:
        yield made


def read(consumer: Consumer, count: int) -> dict[int, list[bytes | None]]:
    """The values by partition, once there are so many."""
    found: dict[int, list[bytes | None]] = {}
    while sum(map(len, found.values())) < count:
        for record in consumer.poll(50):
            found.setdefault(record.partition, []).append(record.value)
    return found


def read_and_raised(
    consumer: Consumer, count: int, *, errors_wanted: int
) -> tuple[dict[int, list[bytes | None]], set[int | None]]:
    """The values by partition and the codes raised, once there are so many of both.

    A start that was asked for before the partition healed may be refused after it, so a caller
    who needs no error bears one.
    """
    found: dict[int, list[bytes | None]] = {}
    raised: list[int | None] = []
    while sum(map(len, found.values())) < count or len(raised) < errors_wanted:
        try:
            for record in consumer.poll(50):
                found.setdefault(record.partition, []).append(record.value)
        except errors.KafkalogError as problem:
            raised.append(problem.code)
    return found, set(raised)


# ---- no leader -------------------------------------------------------------------------------


def test_partitions_without_positions_are_read(half: Half, consumer: Consumer) -> None:
    consumer.assign([ZERO, ONE])
    assert read(consumer, 10) == {0: TEN}
    half.heal()
    assert read(consumer, 10) == {1: TEN}


def test_a_group_reads_the_others(peer: Peer, half: Half) -> None:
    with Consumer(peer.servers, "t", **OPTIONS) as consumer:
        assert read(consumer, 10) == {0: TEN}
        half.heal()
        assert read(consumer, 10) == {1: TEN}


def test_a_position_does_not_wait_for_another(half: Half, consumer: Consumer) -> None:
    consumer.assign([ONE, ZERO])
    assert consumer.position(ZERO) == 0
    with pytest.raises((failure_class(ErrorCode.LEADER_NOT_AVAILABLE), errors.Timeout)):
        consumer.position(ONE, timeout_ms=20)


def test_offsets_of_a_leader_are_found(peer: Peer, half: Half) -> None:
    """They are found in any order of the question."""
    with Cluster(peer.servers, clock=PassingClock()) as cluster:
        for some in ([ZERO, ONE], [ONE, ZERO]):
            found = find_offsets(cluster, dict.fromkeys(some, EARLIEST))
            assert (list(found.done), list(found.errors)) == ([ZERO], [ONE])
            starts = find_starts(cluster, some, "latest")
            assert (list(starts.done), list(starts.errors)) == ([ZERO], [ONE])


# ---- refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize("move", ["seek_to_beginning", "seek_to_end", "seek_to_committed"])
def test_a_seek_moves_the_others(peer: Peer, half: Half, move: str) -> None:
    half.heal()
    half.refused = {1: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    with Consumer(peer.servers, **OPTIONS) as consumer:
        consumer.assign([ZERO, ONE])
        for tp in (ZERO, ONE):
            consumer.seek(tp, 7)
        with pytest.raises(failure_class(ErrorCode.TOPIC_AUTHORIZATION_FAILED), match="t-1"):
            getattr(consumer, move)(ZERO, ONE)
        assert (consumer.position(ZERO), consumer.position(ONE)) == (0, 7)


def test_a_lost_position_is_reset_without_the_others(half: Half, consumer: Consumer) -> None:
    """Both are out of range; the leader says only of one where it continues."""
    half.heal()
    half.refused = {1: ErrorCode.KAFKA_STORAGE_ERROR}
    consumer.assign([ZERO, ONE])
    for tp in (ZERO, ONE):
        consumer.seek(tp, 99)
    assert read(consumer, 10) == {0: TEN}
    half.heal()
    assert read(consumer, 10) == {1: TEN}


def test_a_refused_start_is_raised_and_the_others_are_read(half: Half, consumer: Consumer) -> None:
    half.heal()
    half.refused = {1: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    consumer.assign([ZERO, ONE])
    found, codes = read_and_raised(consumer, 10, errors_wanted=1)
    assert (found, codes) == ({0: TEN}, {ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    half.heal()
    found, codes = read_and_raised(consumer, 10, errors_wanted=0)
    assert found == {1: TEN} and codes <= {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("sought", [False, True], ids=["no position", "a position"])
def test_a_refused_topic_is_raised_and_the_others_are_read(
    peer: Peer, half: Half, consumer: Consumer, sought: bool
) -> None:
    """Metadata refuses it by name."""
    metadata = peer.metadata({"t": 2})
    denied = peer.metadata({"u": 1}, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)["topics"]
    peer.on(apis.METADATA, {**metadata, "topics": denied + metadata["topics"]})
    there = TopicPartition("u", 0)
    consumer.assign([there, ZERO])
    for tp in [there, ZERO] if sought else ():
        consumer.seek(tp, 0)
    found, codes = read_and_raised(consumer, 10, errors_wanted=1)
    assert (found, codes) == ({0: TEN}, {ErrorCode.TOPIC_AUTHORIZATION_FAILED})
