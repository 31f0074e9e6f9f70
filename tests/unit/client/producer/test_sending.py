"""Records sent to a scripted broker: batches, order, retries, and final failures."""

from __future__ import annotations

import itertools
import random
import re
import zlib
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.batch.partitioner import partition_for_key
from kafkalog.client.buffer.accumulator import FIRST_BYTES
from kafkalog.client.buffer.delivery import Delivery
from kafkalog.client.buffer.rows import PART_BYTES, PART_ROWS, ListRows, rows_of
from kafkalog.client.producer.producer import OutgoingRecord, Producer
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import SILENCE, STALL, Peer, produced
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.client.producer.producing import batches, make, single, wide


def test_records_arrive_as_they_were(broker: Peer) -> None:
    headers = [("h", b"1"), ("h", None), ("naïve", b"")]
    with make(broker, linger_ms=1_000_000) as producer:
        producer.send("t", b"value", b"key", partition=1, timestamp_ms=1234, headers=headers)
        producer.send("t", None, partition=1, timestamp_ms=1235)
        producer.send("t", bytearray(b""), memoryview(b""), partition=1, timestamp_ms=1233)
    (batch,) = batches(broker)
    assert [(r.key, r.value, r.timestamp_ms, r.headers) for r in batch.records] == [
        (b"key", b"value", 1234, tuple(headers)),
        (None, None, 1235, ()),
        (b"", b"", 1233, ()),
    ]
    assert (batch.partition, batch.producer, batch.sequence) == (1, (4000, 3), 0)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed(broker: Peer, codec: str) -> None:
    with make(broker, compression=codec, linger_ms=1_000_000) as producer:
        for _ in range(100):
            producer.send("t", b"over and over", partition=0)
        producer.flush()
        producer.send("t", b"\x17", partition=0)  # compression would not shrink it
    first, second = batches(broker)
    assert first.values() == [b"over and over"] * 100
    assert first.codec == ("none", "gzip", "snappy", "lz4", "zstd").index(codec)
    assert (second.codec, second.values()) == (0, [b"\x17"])


def test_batches_close_when_they_are_full(broker: Peer) -> None:
    done: list[Delivery] = []
    with make(broker, batch_bytes=1000, on_delivery=done.append) as producer:
        for i in range(100):
            producer.send("t", b"%050d" % i, partition=0)
    found = batches(broker)
    assert [v for batch in found for v in batch.values()] == [b"%050d" % i for i in range(100)]
    sizes = [len(r.topic_data[0].partition_data[0].records) for r in broker.sent(apis.PRODUCE)]
    assert max(sizes) <= 1000
    assert sum(d.count for d in done) == 100
    assert sum(d.record_bytes for d in done) == 5000
    assert all(d.seconds >= 0 for d in done)


def test_a_partitions_batches_grow_while_they_are_filled(broker: Peer) -> None:
    """Small at first, as the whole allocation counts: small batches for many partitions fit."""
    with make(broker, linger_ms=1_000_000, buffer_bytes=1 << 20) as producer:
        assert producer.config.batch_size > 256 << 10
        for _ in range(400):
            producer.send("t", b"x" * 1000, partition=0)
        producer.flush()
        for partition in (0, 1, 0, 1):  # with little data, the allocation shrinks again
            producer.send("t", b"y", partition=partition)
            producer.flush()
            assert producer._waiting.used == 0
        producer.send("t", b"y", partition=0)
        producer.send("t", b"y", partition=1)
        assert producer._waiting.used == 2 * FIRST_BYTES
    sizes = [len(batch.records) for batch in batches(broker)]
    assert sizes[:4] == [16, 64, 259, 61]


def test_batches_grow_to_their_share_of_the_buffer(broker: Peer) -> None:
    """Two partitions, eight batches in 256 KiB."""
    with make(broker, linger_ms=1_000_000, buffer_bytes=256 << 10) as producer:
        for number in range(400):
            producer.send("t", b"x" * 1000, partition=number % 2)
    by_partition = [[len(b.records) for b in batches(broker) if b.partition == p] for p in (0, 1)]
    assert [max(sizes) for sizes in by_partition] == [32, 32]
    assert [sum(sizes) for sizes in by_partition] == [200, 200]


def test_sequences_follow_each_other_in_each_partition(broker: Peer) -> None:
    with single(broker) as producer:
        for i in range(10):
            producer.send("t", wide(i), partition=i % 2)
    found = batches(broker)
    for partition in (0, 1):
        assert [b.sequence for b in found if b.partition == partition] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "options", [{"idempotent": False}, {"acks": 1}, {"acks": 0}], ids=["off", "1", "0"]
)
def test_without_idempotence_there_is_no_producer_id(broker: Peer, options: Any) -> None:
    if options.get("acks") == 0:
        broker.on(apis.PRODUCE, SILENCE)
    with make(broker, **options) as producer:
        future = producer.send("t", b"x", partition=0)
        assert future.result(LIMIT_S).offset == (-1 if "acks" in options and not options["acks"]
                                                 else 0)  # fmt: skip
        wait_for(lambda: broker.count(apis.PRODUCE) == 1, "the record has come")
    assert (batches(broker)[0].producer, batches(broker)[0].sequence) == ((-1, -1), -1)
    assert broker.count(apis.INIT_PRODUCER_ID) == 0
    assert broker.sent(apis.PRODUCE)[0].acks == options.get("acks", -1)


def test_a_broker_without_producer_ids_is_fine(broker: Peer) -> None:
    broker.versions = {apis.INIT_PRODUCER_ID: (0, -1)}
    with make(broker) as producer:
        producer.send("t", b"x", partition=0)
    assert batches(broker)[0].producer == (-1, -1)


# ---- futures -------------------------------------------------------------------------------


def test_a_future_tells_where_its_record_is(broker: Peer) -> None:
    broker.on(apis.PRODUCE, produced([], [1_000]))
    with make(broker, linger_ms=1_000_000) as producer:
        futures = [producer.send("t", b"x", partition=1, timestamp_ms=i) for i in range(3)]
        told: list[Any] = []
        futures[1].add_done_callback(told.append)
        assert [f.result(LIMIT_S) for f in futures] == [("t", 1, 1_000 + i, i) for i in range(3)]
        wait_for(lambda: told, "the callback was called")
        assert told == [futures[1]]
        assert futures[0].done()
        assert futures[0].exception() is None
        futures[0].add_done_callback(told.append)  # called immediately
        assert told == [futures[1], futures[0]]


def test_waiting_for_a_result_ends_the_linger(broker: Peer) -> None:
    with make(broker, linger_ms=1_000_000) as producer:
        assert producer.send("t", b"x", partition=0).result(LIMIT_S).offset == 0


def test_a_future_has_patience_of_its_own(broker: Peer) -> None:
    broker.on(apis.PRODUCE, STALL)
    producer = make(broker, request_timeout_ms=60_000)
    with pytest.raises(errors.Timeout, match=r"t-0: not acknowledged in 0\.01 s"):
        producer.send("t", b"x", partition=0).result(0.01)
    future = producer.send("t", b"x", partition=0)
    for words in ({"timeout_ms": 10}, {"timeout": 0.01}):
        with pytest.raises(errors.Timeout, match="not all was acknowledged in 10 ms"):
            producer.flush(**words)
    for words in ({"timeout_ms": 10, "timeout": 1}, {"timeout_ms": -1}, {"timeout": "1"}):
        for call in (producer.flush, producer.close):
            with pytest.raises(errors.ArgumentError, match="timeout"):
                call(**words)  # type: ignore[operator]
    with pytest.raises(errors.Timeout):
        producer.close(timeout_ms=10)
    with pytest.raises(errors.Closed, match="before this was acknowledged"):
        future.result()


def test_a_callback_that_fails_harms_nobody(broker: Peer, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("mine")

    with make(broker) as producer:
        future = producer.send("t", b"x", partition=0)
        future.add_done_callback(fail)
        producer.flush(LIMIT_S)
        wait_for(lambda: "mine" in caplog.text, "it is logged")
        producer.send("t", b"x", partition=0).result(LIMIT_S)


def test_a_callback_cannot_wait_for_the_producer(broker: Peer) -> None:
    found: list[BaseException] = []

    def wait(_: Any) -> None:
        try:
            producer.flush()
        except errors.ArgumentError as problem:
            found.append(problem)

    with make(broker, linger_ms=1_000_000) as producer:
        future = producer.send("t", b"x", partition=0)
        future.add_done_callback(wait)
        producer.flush(LIMIT_S)
        wait_for(lambda: found, "it was refused")


def test_interceptors_see_records_and_results(broker: Peer) -> None:
    class Seen:
        def __init__(self) -> None:
            self.acked: list[Any] = []

        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            return record._replace(value=b"<" + (record.value or b"") + b">")

        def on_ack(self, metadata: Any, error: Any) -> None:
            self.acked.append((metadata and metadata.offset, error))

    class Half:
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            return record._replace(headers=(("by", b"half"),))

    seen = Seen()
    with make(broker, interceptors=[seen, Half()]) as producer:
        producer.send("t", b"a", partition=0).result(LIMIT_S)
        broker.on(apis.PRODUCE, produced([ErrorCode.MESSAGE_TOO_LARGE]))
        bad = producer.send("t", b"b", partition=0)
        assert bad.exception(LIMIT_S) is not None
        with pytest.raises(errors.MessageTooLarge):
            producer.flush(LIMIT_S)
        wait_for(lambda: len(seen.acked) == 2, "both were reported")
    first, second = batches(broker)
    assert (first.values(), second.values()) == ([b"<a>"], [b"<b>"])
    assert first.records[0].headers == (("by", b"half"),)
    assert seen.acked == [(0, None), (None, bad.exception())]


# ---- choosing partitions -------------------------------------------------------------------


def test_keys_go_where_other_clients_send_them(broker: Peer) -> None:
    keys = [b"key %d" % i for i in range(50)]
    for kind, wanted in (
        ("murmur2", partition_for_key), ("crc32", crc32), ("consistent_random", crc32),
        ("murmur2_random", partition_for_key), ("consistent", crc32),
    ):  # fmt: skip
        with make(broker, partitioner=kind) as producer:
            assert [producer.send("t", b"", k).partition for k in keys] == [
                wanted(k, 2) for k in keys
            ], kind


def crc32(key: bytes, partitions: int) -> int:
    return zlib.crc32(key) % partitions


JAVAS = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
         b"a-little-bit-longer-string": -1486304829, b"abc": 479470107,
         b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971}  # fmt: skip
"""The results of Kafka's Utils.murmur2 (UtilsTest)."""


def test_murmur2_is_javas(broker: Peer) -> None:
    broker.on(apis.METADATA, broker.metadata({"t": 1_000}))
    with make(broker) as producer:
        for key, value in JAVAS.items():
            wanted = (value & 0x7FFFFFFF) % 1_000
            assert producer.send("t", b"", key).partition == wanted == partition_for_key(key, 1_000)


def test_every_length_of_key_is_hashed_as_in_python(broker: Peer, rng: random.Random) -> None:
    broker.on(apis.METADATA, broker.metadata({"t": 997}))
    keys = [rng.randbytes(i % 40) for i in range(200)]
    with make(broker) as producer:
        assert [producer.send("t", b"", k).partition for k in keys] == [
            partition_for_key(k, 997) for k in keys
        ]


@pytest.mark.parametrize("kind", ["crc32", "murmur2_random", "consistent"])
def test_keys_that_are_none(broker: Peer, kind: str) -> None:
    """librdkafka: `consistent` treats no key as an empty one, `consistent_random` the reverse."""
    with make(broker, partitioner=kind, linger_ms=0, batch_bytes=200) as producer:
        null = {producer.send("t", b"x" * 50).partition for _ in range(200)}
        empty = {producer.send("t", b"x" * 50, b"").partition for _ in range(200)}
    assert null == ({0} if kind == "consistent" else {0, 1})
    assert len(empty) == (2 if kind == "crc32" else 1)


def test_in_turn_at_random_and_by_the_users_own(broker: Peer) -> None:
    with make(broker, partitioner="round_robin") as producer:
        assert [producer.send("t", b"x").partition for _ in range(6)] == [0, 1, 0, 1, 0, 1]
    with make(broker, partitioner="random") as producer:
        assert {producer.send("t", b"x", b"same").partition for _ in range(100)} == {0, 1}
    asked = []

    def mine(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        asked.append((topic, key, value, count))
        return len(value or b"")

    with make(broker, partitioner=mine) as producer:
        assert producer.send("t", b"1", b"k").partition == 1
        assert asked == [("t", b"k", b"1", 2)]
        with pytest.raises(errors.ArgumentError, match="partitioner: found 2, wanted 0 to 1"):
            producer.send("t", b"22")


def test_records_without_a_key_change_over_with_a_batchs_bytes(broker: Peer) -> None:
    with make(broker, batch_bytes=1000) as producer:
        places = [producer.send("t", b"x" * 50).partition for _ in range(2000)]
    assert {*places} == {0, 1}
    runs = [len(list(some)) for _, some in itertools.groupby(places)]
    assert min(runs[:-1]) >= 15  # KIP-794: by bytes, whether its batch was sent or not


def test_a_partition_that_is_not_there(broker: Peer) -> None:
    with make(broker) as producer:
        for partition in (2, -1):
            with pytest.raises(errors.UnknownTopicOrPartition, match="it has 2"):
                producer.send("t", b"x", partition=partition)


def test_more_partitions_are_seen(broker: Peer) -> None:
    with make(broker, {"metadata.max.age.ms": 1}) as producer:
        assert producer.partitions("t") == 2
        broker.on(apis.METADATA, broker.metadata({"t": 3}))
        wait_for(lambda: producer.partitions("t") == 3, "it asked again")
        assert producer.send("t", b"x", partition=2).result(LIMIT_S).partition == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"acks": 2}, "acks: found '2', wanted one of 0, 1, -1, all"),
        ({"compression": "zip"}, "compression.type: found 'zip'"),
        ({"partitioner": "murmur3"}, "partitioner: found 'murmur3'"),
        ({"config": {"linger": 5}}, "linger is not a producer setting; the nearest is linger.ms"),
        ({"acks": 1, "transactional_id": "x"}, "acks: found 1, wanted all for transactional.id"),
        ({"acks": 1, "idempotent": True}, "acks: found 1, wanted all for enable.idempotence"),
    ],
)
def test_options_that_are_none(broker: Peer, options: dict[str, Any], told: str) -> None:
    with pytest.raises(errors.InvalidSetting, match=re.escape(told)):
        Producer(broker.servers, **options)


@pytest.mark.parametrize(
    "record",
    [{"value": "text"}, {"value": 1}, {"value": b"", "key": "text"},
     {"value": b"", "timestamp_ms": -1}, {"value": b"", "timestamp_ms": 1.5},
     {"value": b"", "headers": [("a", "text")]}, {"value": b"", "headers": {"a": b""}}],
    ids=str,
)  # fmt: skip
def test_records_that_are_none(broker: Peer, record: dict[str, Any]) -> None:
    with make(broker) as producer:
        with pytest.raises(errors.ArgumentError, match=next(n for n in record if n != "value"
                           or len(record) == 1)):  # fmt: skip
            producer.send("t", partition=0, **record)
        producer.send("t", b"fine", partition=0)
    assert [b.values() for b in batches(broker)] == [[b"fine"]]


# ---- send_many -----------------------------------------------------------------------------


def test_send_many_equals_single_sends(broker: Peer, rng: random.Random) -> None:
    values = [None if i % 9 == 0 else rng.randbytes(i % 50) for i in range(3_000)]
    keys = [None if i % 7 == 0 else b"key %d" % (i % 31) for i in range(3_000)]
    times = list(range(3_000))
    with make(broker, batch_bytes=4_000) as producer:
        pieces = producer.send_many("t", values, keys, timestamps_ms=times).result(LIMIT_S)
    found = [(r.timestamp_ms, r.key, r.value, b.partition) for b in batches(broker)
             for r in b.records]  # fmt: skip
    assert sorted(f[:1] for f in found) == [(i,) for i in times]
    for time_ms, key, value, partition in found:
        assert (key, value) == (keys[time_ms], values[time_ms])
        assert key is None or partition == partition_for_key(key, 2)
    for partition in (0, 1):
        times_there = [f[0] for f in found if f[3] == partition]
        assert times_there == sorted(times_there)
    assert sum(p.last_offset - p.first_offset + 1 for p in pieces) == 3_000


def test_a_long_list_is_sent_whole_and_in_order(broker: Peer) -> None:
    """It is joined in parts."""
    values = [None if i % 9 == 0 else b"%d" % i for i in range(2 * PART_ROWS + 7)]
    keys = [b"%d" % (i % 31) for i in range(len(values))]
    with make(broker, linger_ms=1_000_000) as producer:
        producer.send_many("t", values, partition=1)
        producer.send_many("t", tuple(values), keys, partition=1)
    found = [record for batch in batches(broker) for record in batch.records]
    assert [record.value for record in found] == 2 * values
    assert [record.key for record in found] == [None] * len(values) + keys


def test_a_part_of_a_list_is_bounded_in_bytes() -> None:
    rows = rows_of([bytes(PART_BYTES // 4)] * 9, [b"k"] * 9, None, 1)
    assert isinstance(rows, ListRows)
    assert [len(values) for values, _ in rows._parts] == [3, 3]  # one is joined


def test_of_a_list_with_a_row_that_is_none_nothing_is_sent(broker: Peer) -> None:
    rows: list[Any] = [b"x"] * (PART_ROWS + 3)
    rows[PART_ROWS + 1] = "text"
    with make(broker) as producer:
        with pytest.raises(errors.ArgumentError, match=rf"values\[{PART_ROWS + 1}\]: found str"):
            producer.send_many("t", rows)
        with pytest.raises(errors.ArgumentError, match=rf"keys\[{PART_ROWS + 1}\]: found str"):
            producer.send_many("t", [b"x"] * len(rows), rows)
        with pytest.raises(errors.ArgumentError, match="values: found NoneType"):
            producer.send_many("t", None, rows[:3])
    assert broker.count(apis.PRODUCE) == 0


def test_the_row_of_a_long_list_that_is_too_large_is_named(broker: Peer) -> None:
    rows = [b"x"] * (PART_ROWS + 3)
    rows[PART_ROWS + 1] = bytes(30_000)
    refused = pytest.raises(errors.MessageTooLarge, match=rf"^row {PART_ROWS + 1}: about")
    with make(broker, {"max.request.size": 20_000}) as producer, refused:
        producer.send_many("t", rows, partition=0)
    assert [v for b in batches(broker) for v in b.values()] == [b"x"] * (PART_ROWS + 1)


def test_many_of_arrow_and_numpy(broker: Peer) -> None:
    np = pytest.importorskip("numpy")
    pa = pytest.importorskip("pyarrow")
    with make(broker, linger_ms=1_000_000) as producer:
        producer.send_many("t", pa.array([b"a", None, b"c"]), partition=1)
        producer.send_many("t", np.array([b"12", b"34"]), np.array([b"k", b"k"]), partition=1)
        producer.send_many("t", [b"h"], headers=[[("n", b"v")]], partition=1)
    (batch,) = batches(broker)
    assert batch.values() == [b"a", None, b"c", b"12", b"34", b"h"]
    assert [r.key for r in batch.records] == [None, None, None, b"k", b"k", None]
    assert batch.records[-1].headers == (("n", b"v"),)


def test_many_by_a_partitioner_of_ones_own(broker: Peer) -> None:
    with make(broker, partitioner="round_robin", linger_ms=1_000_000) as producer:
        pieces = producer.send_many("t", [b"%d" % i for i in range(6)]).result(LIMIT_S)
    assert sorted(p[:2] for p in pieces) == [("t", 0), ("t", 1)]
    assert sorted(b.values() for b in batches(broker)) == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]


def test_none_are_fine(broker: Peer) -> None:
    told: list[Any] = []
    with make(broker) as producer:
        future = producer.send_many("t", [])
        assert future.result() == []
        future.add_done_callback(told.append)
        assert told == [future]


def test_columns_that_differ_are_refused(broker: Peer) -> None:
    with make(broker) as producer, pytest.raises(errors.ArgumentError, match="wanted 2"):
        producer.send_many("t", [b"a", b"b"], [b"k"])
