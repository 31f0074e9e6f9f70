"""`Producer.send_batches` copies the records of whole batches, unchanged, into new batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crc32c
import pytest

import kafkalog
from kafkalog import errors
from kafkalog.client.producer.producer import OutgoingRecord
from tests.support.batches import HEADER_BYTES, Row, batch
from tests.support.waiting import wait_for

ROWS = 500
START_MS = 1_735_689_600_000
Seen = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


def rows_of(log: kafkalog.Log) -> list[Seen]:
    return [(r.key, r.value, r.timestamp_ms, tuple(r.headers)) for r in log.read()]


@pytest.fixture(params=[None, "gzip", "snappy", "lz4", "zstd"], ids=str)
def source(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[kafkalog.Log]:
    """Records with and without keys, values and headers, unordered times, small batches."""
    headers: list[list[tuple[str, bytes | None]]] = [
        [] if i % 3 else [("name", b"%d" % i), ("", None)] for i in range(ROWS)
    ]
    with kafkalog.Log(tmp_path / "source") as log:
        log.append_many(
            [None if i % 11 == 0 else b"v" * (i % 97) for i in range(ROWS)],
            [None if i % 5 == 0 else b"key %d" % (i % 40) for i in range(ROWS)],
            [START_MS + (i * 7919) % 100_000 for i in range(ROWS)],
            headers,
            compression=request.param,
            batch_bytes=2_000,
        )
        yield log


def batches(log: kafkalog.Log) -> bytes:
    return log.read_batches(0, 1 << 30)


def test_records_stay_as_they_are(tmp_path: Path, source: kafkalog.Log) -> None:
    """Keys, values, times and headers, also nulls, in order."""
    with kafkalog.Store(tmp_path / "store") as store:
        with kafkalog.Producer(store) as producer:
            pieces = producer.send_batches("t", memoryview(batches(source))).result()
        assert sum(p.last_offset - p.first_offset + 1 for p in pieces) == ROWS
        assert rows_of(store["t"][0]) == rows_of(source)


def test_keys_find_the_partitions_that_they_find_with_send(
    tmp_path: Path, source: kafkalog.Log
) -> None:
    with kafkalog.Store(tmp_path / "store", config={"num.partitions": 7}) as store:
        with kafkalog.Producer(store) as producer:
            producer.send_batches("whole", batches(source))
            for key, value, at_ms, _ in rows_of(source):
                if key is not None:
                    producer.send("each", value, key, timestamp_ms=at_ms)
        for number in range(7):
            found = [(k, v) for k, v, *_ in rows_of(store["whole"][number]) if k is not None]
            assert found == [(k, v) for k, v, *_ in rows_of(store["each"][number])]


def test_a_partition_of_ones_own(tmp_path: Path, source: kafkalog.Log) -> None:
    with kafkalog.Store(tmp_path / "store", config={"num.partitions": 3}) as store:
        with kafkalog.Producer(store) as producer:
            producer.send_batches("t", batches(source), partition=2)
            with pytest.raises(errors.UnknownTopicOrPartition, match="no partition 3"):
                producer.send_batches("t", batches(source), partition=3)
        assert [len(rows_of(store["t"][n])) for n in range(3)] == [0, 0, ROWS]


@pytest.mark.parametrize("kind", ["partitioner", "interceptor"])
def test_partitioners_and_interceptors_see_each_record(
    tmp_path: Path, source: kafkalog.Log, kind: str
) -> None:
    """A partitioner or interceptor in Python gets each record."""
    seen: list[Any] = []

    class Interceptor:
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            seen.append(record.key)
            return record

    def choose(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        seen.append(key)
        return 0

    named: dict[str, Any] = {"partitioner": choose}
    if kind == "interceptor":
        named = {"interceptors": [Interceptor()]}
    with kafkalog.Store(tmp_path / "store") as store:
        with kafkalog.Producer(store, **named) as producer:
            pieces = producer.send_batches("t", batches(source)).result()
        assert sum(p.last_offset - p.first_offset + 1 for p in pieces) == ROWS
        assert rows_of(store["t"][0]) == rows_of(source)
    assert seen == [key for key, *_ in rows_of(source)]


def test_in_a_transaction(tmp_path: Path, source: kafkalog.Log) -> None:
    with kafkalog.Store(tmp_path / "store") as store:
        with kafkalog.Producer(store, transactional_id="one") as producer:
            with producer.transaction():
                producer.send_batches("t", batches(source))
            producer.begin_transaction()
            producer.send_batches("t", batches(source)).result()
            producer.abort_transaction()
        assert len(list(store["t"][0].read(isolation="read_committed"))) == ROWS
        assert len(rows_of(store["t"][0])) == 2 * ROWS


def test_a_log_that_set_the_time_set_it_for_all(tmp_path: Path) -> None:
    """Readers see such a batch's last time for every record."""
    config = {"message.timestamp.type": "LogAppendTime"}
    with (
        kafkalog.Log(tmp_path / "source", config=config) as source,
        kafkalog.Store(tmp_path / "store") as store,
    ):
        source.append_many([b"a", b"b"], timestamps_ms=[1, 2])
        with kafkalog.Producer(store) as producer:
            producer.send_batches("t", batches(source))
        assert rows_of(store["t"][0]) == rows_of(source)


# ---- what is refused -----------------------------------------------------------------------


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[bytes]:
    with kafkalog.Log(tmp_path / "plain") as log:
        log.append(b"a")
        log.append(b"b")
        yield batches(log)


@pytest.fixture
def producer(tmp_path: Path) -> Iterator[kafkalog.Producer]:
    with (
        kafkalog.Store(tmp_path / "store") as store,
        kafkalog.Producer(store, config={"max.request.size": 2_000}) as made,
    ):
        yield made


def test_nothing_at_all(producer: kafkalog.Producer) -> None:
    assert producer.send_batches("t", b"").result() == []


@pytest.mark.parametrize("wrong", [None, "text", 3, [b"a"], bytearray(b"a")], ids=repr)
def test_wrong_types_are_refused(producer: kafkalog.Producer, wrong: Any) -> None:
    with pytest.raises(errors.ArgumentError, match=r"batches: found .*, wanted bytes"):
        producer.send_batches("t", wrong)


def test_half_a_batch(producer: kafkalog.Producer, plain: bytes) -> None:
    """The records of whole batches before it are sent."""
    with pytest.raises(errors.ArgumentError, match="wanted whole batches"):
        producer.send_batches("t", plain[:-1])
    (piece,) = producer.send_batches("t", plain).result()
    assert (piece.first_offset, piece.last_offset) == (1, 2)


def test_a_damaged_batch(producer: kafkalog.Producer, plain: bytes) -> None:
    damaged = bytearray(plain)
    damaged[-1] ^= 1  # in the second batch
    with pytest.raises(errors.CorruptMessage):
        producer.send_batches("t", bytes(damaged))


def test_records_that_are_none(producer: kafkalog.Producer) -> None:
    """A correct checksum over a wrong length."""
    data = bytearray(batch([Row(b"value")]))
    data[HEADER_BYTES] += 2
    data[17:21] = crc32c.crc32c(bytes(data[21:])).to_bytes(4, "big")
    with pytest.raises(errors.CorruptMessage, match="records"):
        producer.send_batches("t", bytes(data))


def test_a_control_batch(producer: kafkalog.Producer, tmp_path: Path) -> None:
    with kafkalog.Store(tmp_path / "other") as store:
        with kafkalog.Producer(store, transactional_id="one") as other, other.transaction():
            other.send("t", b"value")
        # A commit is answered once it is decided; the marker follows.
        wait_for(lambda: store["t"][0].high_watermark == 2, "the marker")
        data = batches(store["t"][0])
    with pytest.raises(errors.ArgumentError, match="control batch at offset 1"):
        producer.send_batches("t", data)


def test_a_record_that_no_request_holds(producer: kafkalog.Producer, tmp_path: Path) -> None:
    """Headers count; the records before it are sent."""
    with kafkalog.Log(tmp_path / "large") as log:
        log.append(b"small")
        log.append(b"value", headers=[("h", bytes(3_000))])
        data = batches(log)
    with pytest.raises(errors.MessageTooLarge, match=r"offset 1.*max\.request\.size is 2000"):
        producer.send_batches("t", data)
    (piece,) = producer.send_many("t", [b"next"]).result()
    assert piece.first_offset == piece.last_offset == 1
