"""Records into a scripted broker: batches, order, retries, and what cannot be helped."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from kafkalog import errors
from kafkalog._native import lib
from kafkalog.batch.decode import batch_records
from kafkalog.batch.partitioner import partition_for_key
from kafkalog.batch.walk import whole_batches
from kafkalog.client.cluster import Cluster
from kafkalog.client.failures import failure_class
from kafkalog.client.producer import Delivery, ProduceOptions, Producer
from kafkalog.types import Record
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import CLOSE, SILENCE, STALL, Peer, produced

PRODUCER_ID = {"producer_id": 4000, "producer_epoch": 3}


@pytest.fixture
def broker(peer: Peer) -> Peer:
    """It takes everything, for topic t of two partitions."""
    peer.on(apis.METADATA, peer.metadata({"t": 2}))
    peer.on(apis.INIT_PRODUCER_ID, PRODUCER_ID)
    peer.on(apis.PRODUCE, produced([]))
    return peer


class Batch:
    """What one partition of a request held."""

    def __init__(self, partition: int, data: bytes) -> None:
        self.partition = partition
        ((header, whole),) = whole_batches(data)
        self.records: list[Record] = batch_records(header, whole, "t", partition)
        self.producer = header.producer_id, header.producer_epoch
        self.sequence = header.base_sequence
        self.codec = header.attributes & lib.KL_CODEC_MASK

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]


def batches(peer: Peer) -> list[Batch]:
    """Every batch that came, in order."""
    return [
        Batch(row.index, bytes(row.records))
        for request in peer.sent(apis.PRODUCE)
        for topic in request.topic_data
        for row in topic.partition_data
    ]


def small(**options: Any) -> ProduceOptions:
    """One record of ten bytes a batch."""
    return ProduceOptions(**{"batch_bytes": 80, **options})


def test_records_arrive_as_they_were(broker: Peer, scripted: Cluster) -> None:
    headers = [("h", b"1"), ("h", None), ("naïve", b"")]
    with Producer(scripted) as producer:
        producer.send("t", b"value", b"key", partition=1, timestamp_ms=1234, headers=headers)
        producer.send("t", None, partition=1, timestamp_ms=1235)
        producer.send("t", b"", b"", partition=1, timestamp_ms=1233)
    (batch,) = batches(broker)
    assert [(r.key, r.value, r.timestamp_ms, r.headers) for r in batch.records] == [
        (b"key", b"value", 1234, tuple(headers)),
        (None, None, 1235, ()),
        (b"", b"", 1233, ()),
    ]
    assert (batch.partition, batch.producer, batch.sequence) == (1, (4000, 3), 0)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed(broker: Peer, scripted: Cluster, codec: str) -> None:
    with Producer(scripted, ProduceOptions(compression=codec)) as producer:
        for _ in range(100):
            producer.send("t", b"over and over", partition=0)
        producer.flush()
        producer.send("t", b"\x17", partition=0)  # would not become smaller
    first, second = batches(broker)
    assert first.values() == [b"over and over"] * 100
    assert first.codec == ("none", "gzip", "snappy", "lz4", "zstd").index(codec)
    assert (second.codec, second.values()) == (0, [b"\x17"])


def test_batches_close_when_they_are_full(broker: Peer, scripted: Cluster) -> None:
    done: list[Delivery] = []
    with Producer(scripted, ProduceOptions(batch_bytes=1000), done.append) as producer:
        for i in range(100):
            producer.send("t", b"%050d" % i, partition=0)
    found = batches(broker)
    assert [v for batch in found for v in batch.values()] == [b"%050d" % i for i in range(100)]
    assert len(found) > 5
    sizes = [len(r.topic_data[0].partition_data[0].records) for r in broker.sent(apis.PRODUCE)]
    assert max(sizes) <= 1000
    assert sum(d.count for d in done) == 100
    assert sum(d.record_bytes for d in done) == 5000
    assert all(d.seconds >= 0 for d in done)


def test_sequences_follow_each_other_in_each_partition(broker: Peer, scripted: Cluster) -> None:
    with Producer(scripted, small()) as producer:
        for i in range(10):
            producer.send("t", b"0123456789", partition=i % 2)
    found = batches(broker)
    for partition in (0, 1):
        assert [b.sequence for b in found if b.partition == partition] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "options", [small(idempotent=False), small(acks=1), small(acks=0)], ids=["off", "1", "0"]
)
def test_without_idempotence_there_is_no_producer_id(
    broker: Peer, scripted: Cluster, options: ProduceOptions, wait_until: Callable[..., None]
) -> None:
    if options.acks == 0:
        broker.on(apis.PRODUCE, SILENCE)
    with Producer(scripted, options) as producer:
        producer.send("t", b"x", partition=0)
        producer.flush()
        wait_until(lambda: broker.count(apis.PRODUCE) == 1, "the record has come")
    assert (batches(broker)[0].producer, batches(broker)[0].sequence) == ((-1, -1), -1)
    assert broker.count(apis.INIT_PRODUCER_ID) == 0
    assert broker.sent(apis.PRODUCE)[0].acks == options.acks


def test_a_broker_without_producer_ids_is_fine(broker: Peer, scripted: Cluster) -> None:
    broker.versions = {apis.INIT_PRODUCER_ID: (0, -1)}
    with Producer(scripted) as producer:
        producer.send("t", b"x", partition=0)
    assert batches(broker)[0].producer == (-1, -1)


# ---- where they go -------------------------------------------------------------------------


def test_keys_go_where_other_clients_send_them(broker: Peer, scripted: Cluster) -> None:
    keys = [b"key %d" % i for i in range(50)]
    with Producer(scripted) as java, Producer(scripted, ProduceOptions(partitioner="crc32")) as c:
        assert [java.send("t", b"", k)[1] for k in keys] == [partition_for_key(k, 2) for k in keys]
        assert [c.send("t", b"", k).partition for k in keys] == [zlib.crc32(k) % 2 for k in keys]


def test_records_without_a_key_change_over_with_the_batch(broker: Peer, scripted: Cluster) -> None:
    with Producer(scripted, ProduceOptions(batch_bytes=1000)) as producer:
        places = [producer.send("t", b"x" * 50).partition for _ in range(2000)]
    assert {*places} == {0, 1}
    changes = sum(a != b for a, b in itertools.pairwise(places))
    assert changes < 200  # not more often than batches close


def test_a_partition_that_is_not_there(broker: Peer, scripted: Cluster) -> None:
    with (
        Producer(scripted) as producer,
        pytest.raises(errors.UnknownTopicOrPartition, match="no partition 2: it has 2"),
    ):
        producer.send("t", b"x", partition=2)


@pytest.mark.parametrize(
    "options", [{"acks": 2}, {"compression": "zip"}, {"partitioner": "murmur3"}]
)
def test_options_that_are_none(scripted: Cluster, options: dict[str, Any]) -> None:
    with pytest.raises(errors.KafkalogError, match="wanted"):
        Producer(scripted, ProduceOptions(**options))


# ---- again ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        produced([ErrorCode.NOT_LEADER_OR_FOLLOWER]),
        produced([ErrorCode.NOT_ENOUGH_REPLICAS]),
        produced([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        CLOSE,
        STALL,
    ],
    ids=["leader", "replicas", "unknown", "close", "stall"],
)
def test_what_failed_is_sent_again_in_order(broker: Peer, scripted: Cluster, trouble: Any) -> None:
    """The same bytes with the same sequences; nothing overtakes them."""
    done: list[Delivery] = []
    broker.on(apis.PRODUCE, produced([]), trouble, produced([]))
    values = [b"value %04d" % i for i in range(12)]
    with Producer(scripted, small(in_flight=1), done.append) as producer:
        for value in values:
            producer.send("t", value, partition=0)
    found = batches(broker)
    assert [b.sequence for b in found] == [0, 1, 1, *range(2, 12)]
    assert found[1].values() == found[2].values() == [values[1]]
    assert sum(d.count for d in done) == 12


def strict(trouble: list[int]) -> Any:
    """A broker that checks sequences, and fails some requests before it looks at them."""
    wanted = [0]

    def answer(request: Any, version: int) -> Any:
        row = request.topic_data[0].partition_data[0]
        batch = Batch(row.index, bytes(row.records))
        if trouble and (code := trouble.pop(0)):
            return produced([code])(request, version)
        if batch.sequence != wanted[0]:
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            return produced([code])(request, version)
        wanted[0] += len(batch.records)
        taken.extend(batch.values())
        return produced([])(request, version)

    taken: list[bytes | None] = []
    answer.taken = taken  # type: ignore[attr-defined]
    return answer


@pytest.mark.parametrize("trouble", [[6], [0, 19, 0, 0, 0, 7, 6], [0, 0, 2, 0, 2, 2]], ids=str)
def test_what_was_behind_a_failure_is_sent_again_behind_it(
    broker: Peer, scripted: Cluster, trouble: list[int]
) -> None:
    """Several on their way: one fails, so the broker refuses those that follow it."""
    judge = strict(trouble)
    broker.on(apis.PRODUCE, judge)
    values = [b"value %04d" % i for i in range(20)]
    with Producer(scripted, small(in_flight=3)) as producer:
        for value in values:
            producer.send("t", value, partition=0)
    assert judge.taken == values


def test_a_duplicate_is_a_success(broker: Peer, scripted: Cluster) -> None:
    """The answer was lost, not the batch."""
    done: list[Delivery] = []
    broker.on(apis.PRODUCE, CLOSE, produced([ErrorCode.DUPLICATE_SEQUENCE_NUMBER]))
    with Producer(scripted, ProduceOptions(), done.append) as producer:
        producer.send("t", b"x", partition=0)
    assert [d.count for d in done] == [1]


def test_patience_ends(broker: Peer, scripted: Cluster) -> None:
    broker.on(apis.PRODUCE, produced([]), produced([ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000))
    producer = Producer(scripted, ProduceOptions(delivery_timeout_ms=50))
    producer.send("t", b"x", partition=1)
    producer.flush()
    producer.send("t", b"x", partition=1)
    with pytest.raises(failure_class(7), match="t-1: 1 records not taken in 50 ms"):
        producer.flush()
    producer.close()


def test_what_keeps_records_back_is_told_at_once(
    broker: Peer, scripted: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk, say: not only when patience ends, and then again; once, not at each try."""
    broker.on(apis.PRODUCE, produced([ErrorCode.KAFKA_STORAGE_ERROR] * 10_000))
    producer = Producer(scripted, ProduceOptions(delivery_timeout_ms=50))
    producer.send("t", b"x", partition=1)
    with pytest.raises(failure_class(7), match="50 ms: t-1: KAFKA_STORAGE_ERROR"):
        producer.flush()
    (line,) = [one for one in caplog.messages if "KAFKA_STORAGE_ERROR" in one]
    assert line == "t-1: KAFKA_STORAGE_ERROR; trying again for up to 0.05 s"
    producer.close()


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, "MESSAGE_TOO_LARGE"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, "INVALID_PRODUCER_EPOCH"),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "OUT_OF_ORDER"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_a_refusal_is_told(broker: Peer, scripted: Cluster, code: int, name: str) -> None:
    broker.on(apis.PRODUCE, produced([code]))
    producer = Producer(scripted)
    producer.send("t", b"x", partition=0)
    with pytest.raises(errors.KafkalogError, match=f"t-0: {name}"):
        producer.flush()
    with pytest.raises(errors.KafkalogError, match=name):
        producer.flush()
    producer.close()


def test_an_answer_that_leaves_a_partition_out(broker: Peer, scripted: Cluster) -> None:
    broker.on(apis.PRODUCE, {"responses": []})
    producer = Producer(scripted)
    producer.send("t", b"x", partition=0)
    with pytest.raises(errors.BadAnswer, match="says nothing of t-0"):
        producer.flush()
    producer.close()


def test_a_failed_block_sends_nothing_more(broker: Peer, scripted: Cluster) -> None:
    """The context manager flushes only when all is well."""
    with pytest.raises(RuntimeError, match="mine"), Producer(scripted) as producer:
        producer.send("t", b"x", partition=0)
        raise RuntimeError("mine")
    assert broker.count(apis.PRODUCE) == 0


def test_a_record_larger_than_a_batch_goes_alone(broker: Peer, scripted: Cluster) -> None:
    with Producer(scripted, ProduceOptions(batch_bytes=100)) as producer:
        producer.send("t", b"x" * 10, partition=0)
        producer.send("t", b"y" * 10_000, partition=0)
        producer.send("t", b"z" * 10, partition=0)
    sizes = [[len(v or b"") for v in b.values()] for b in batches(broker)]
    assert sizes == [[10], [10_000], [10]]


def test_sequences_wrap_as_kafkas_do(broker: Peer, scripted: Cluster) -> None:
    with Producer(scripted, small()) as producer:
        producer.send("t", b"x", partition=0)
        producer.flush()
        (tp,) = producer._sequences
        producer._sequences[tp] = 2**31 - 1
        producer.send("t", b"0123456789", partition=0)
        producer.send("t", b"0123456789", partition=0)
    assert [b.sequence for b in batches(broker)] == [0, 2**31 - 1, 0]
