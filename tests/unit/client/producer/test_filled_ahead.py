"""Columns without keys: each batch is filled before other threads can see it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import crc32c
import pytest

from kafkalog import errors
from kafkalog.batch.columns import Columns
from kafkalog.client.buffer.accumulator import TURN_BYTES
from kafkalog.client.buffer.rows import ColumnRows
from kafkalog.client.producer.producer import Producer
from kafkalog.wire import apis
from tests.support.scripted import Peer
from tests.support.waiting import LIMIT_S
from tests.unit.client.producer.producing import batches, make

pa = pytest.importorskip("pyarrow")
LATER = 1_000_000
"""A linger in milliseconds in which no batch is sent by itself."""


def column(count: int, first: int = 0) -> Any:
    return pa.array([b"%060d" % i for i in range(first, first + count)], pa.binary())


def numbers(broker: Peer, partition: int) -> list[int]:
    found = [b for b in batches(broker) if b.partition == partition]
    return [int(value or b"-1") for batch in found for value in batch.values()]


def check_sums(broker: Peer) -> None:
    for request in broker.sent(apis.PRODUCE):
        for row in (row for topic in request.topic_data for row in topic.partition_data):
            data = bytes(row.records)
            assert int.from_bytes(data[17:21], "big") == crc32c.crc32c(data[21:])


class Watched(ColumnRows):
    """Calls `before` when a batch is about to be filled."""

    def __init__(self, rows: Any, before: Callable[[], object]) -> None:
        super().__init__(Columns(rows, None, default_timestamp_ms=1))
        self.before = before

    def fill(self, *args: Any) -> bool:
        self.before()
        return super().fill(*args)


def put(producer: Producer, rows: Watched) -> Any:
    return producer._put_all("t", rows, 0, producer._waiting.turn)


def test_each_partition_gets_its_rows_whole_and_in_order(broker: Peer) -> None:
    with make(broker, batch_bytes=30_000) as producer:
        pieces = producer.send_many("t", column(20_000)).result(LIMIT_S)
        there = producer.send_many("t", column(5_000, 20_000), partition=1).result(LIMIT_S)
    first, second = numbers(broker, 0), numbers(broker, 1)
    assert first == sorted(first)
    assert second == sorted(second)
    assert sorted(first + second) == list(range(25_000))
    assert [sum(p.last_offset - p.first_offset + 1 for p in some) for some in (pieces, there)] == [
        20_000, 5_000
    ]  # fmt: skip
    check_sums(broker)


def test_a_record_goes_behind_the_rows_of_its_batch(broker: Peer) -> None:
    with make(broker, linger_ms=LATER) as producer:
        producer.send("t", b"%060d" % 0, partition=0)
        some = producer.send_many("t", column(300, 1), partition=0)  # passes the first batch's end
        behind = producer.send("t", b"%060d" % 301, partition=0)
        more = producer.send_many("t", column(20, 302), partition=0)
        assert behind.result(LIMIT_S).offset >= 0
        producer.flush(LIMIT_S)
    assert numbers(broker, 0) == list(range(322))
    assert [len(f.result()) for f in (some, more)] == [2, 1]
    check_sums(broker)


def test_others_send_while_a_batch_is_filled(broker: Peer) -> None:
    """No lock is held, and records sent in between come first."""

    def other() -> None:
        thread = threading.Thread(
            target=lambda: producer.send("t", b"%060d" % 0, partition=0), daemon=True
        )
        thread.start()
        thread.join(LIMIT_S)
        assert not thread.is_alive()

    with make(broker, linger_ms=LATER) as producer:
        producer.partitions("t")
        future = put(producer, Watched(column(50, 1), other))
        assert len(future.result(LIMIT_S)) == 1
    assert numbers(broker, 0) == list(range(51))


@pytest.mark.parametrize("end", ["hold", "refuse", "fail"])
def test_batches_filled_too_late_are_not_sent(broker: Peer, end: str) -> None:
    """A transaction has ended, the producer was closed, or the rows were invalid."""

    def before() -> None:
        if end == "hold":
            producer._waiting.hold("no transaction is open")
        elif end == "refuse":
            producer._waiting.refuse(errors.Closed("the producer is closed"))
        else:
            raise RuntimeError("mine")

    wanted = {"hold": errors.InvalidTxnState, "refuse": errors.Closed, "fail": RuntimeError}
    producer = make(broker, linger_ms=LATER)
    producer.partitions("t")
    with pytest.raises(wanted[end]):
        put(producer, Watched(column(50), before))
    assert producer._waiting.used == 0
    assert producer._waiting.pending() == []
    producer.close()
    assert batches(broker) == []


def test_of_few_bytes_each_partition_gets_some(broker: Peer) -> None:
    """A turn is shorter than a batch may be."""
    settings: dict[str, object] = {"partitioner.adaptive.partitioning.enable": False}
    with make(broker, settings, linger_ms=LATER) as producer:
        assert producer.config.batch_size > 2 * TURN_BYTES
        producer.send_many("t", column(3 * TURN_BYTES // 60))
    places = {n: p for p in (0, 1) for n in numbers(broker, p)}
    runs = [len(list(some)) for _, some in itertools.groupby(places[n] for n in sorted(places))]
    assert len(places) == 3 * TURN_BYTES // 60
    assert all(run <= TURN_BYTES // 60 for run in runs)
    assert len(runs) >= 3
