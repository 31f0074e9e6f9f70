"""Batches larger than their topic allows: against Kafka, our broker, and ours in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.buffer.delivery import Delivery
from kafkalog.client.calls import topics
from kafkalog.client.calls.offsets import LATEST, list_offsets
from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.producer.producer import Producer
from kafkalog.types import Record, TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import Peer, produced
from tests.support.waiting import LIMIT_S
from tests.unit.client.producer.producing import Batch, batches, make, single, wide

WAIT_S = 60.0
MOST = 1000
"""The topic's max.message.bytes."""
COUNT = 400


@pytest.fixture
def topic(cluster: Cluster, unique: str) -> str:
    topics.create_topic(cluster, unique, 1, config={"max.message.bytes": str(MOST)})
    list_offsets(cluster, {TopicPartition(unique, 0): LATEST})
    return unique


def stored(cluster: Cluster, topic: str, last: int) -> list[Record]:
    """All records below offset `last`."""
    tp = TopicPartition(topic, 0)
    fetcher = Fetcher(cluster, {tp: 0}, FetchOptions(committed=True))
    found: list[Record] = []
    try:
        while fetcher.positions[tp] < last:
            for block in fetcher.poll():
                found += block.records()
    finally:
        fetcher.close()
    return found


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "compressed": {"compression": "gzip"},
    "not idempotent": {"idempotent": False, "in_flight": 1},
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_batches_are_split_until_the_topic_takes_them(
    cluster: Cluster, where: Any, topic: str, options: dict[str, Any]
) -> None:
    """Each record is stored once, in order, unchanged, at the offset its future reports."""
    done: list[Delivery] = []
    values = [b"%d " % i + i.to_bytes(4, "big") * 5 for i in range(COUNT)]
    told: list[int] = []
    with Producer(where, linger_ms=20, batch_bytes=6000, on_delivery=done.append,
                  **options) as producer:  # fmt: skip
        futures = []
        for i, value in enumerate(values):
            # Times decrease; some records have no headers or a null value.
            headers = [("n", b"%d" % i), ("none", None)] if i % 3 else []
            futures.append(producer.send(topic, value if i % 7 else None, b"k%d" % i,
                                         headers=headers, timestamp_ms=10**12 - i))  # fmt: skip
            futures[-1].add_done_callback(lambda f: told.append(f.result().offset))
        producer.flush(WAIT_S)
        assert [f.result(WAIT_S).offset for f in futures] == list(range(COUNT))
        assert [f.result().timestamp_ms for f in futures] == [10**12 - i for i in range(COUNT)]
        assert producer._waiting.used == 0 and not producer._waiting.unfinished
    assert sorted(told) == list(range(COUNT))
    assert sum(d.count for d in done) == COUNT and len(done) > 3
    for i, record in enumerate(stored(cluster, topic, COUNT)):
        assert (record.offset, record.key, record.timestamp_ms) == (i, b"k%d" % i, 10**12 - i)
        assert record.value == (values[i] if i % 7 else None)
        assert len(record.headers) == (2 if i % 3 else 0)
        assert not i % 3 or record.headers[0][1] == b"%d" % i


def test_pieces_of_send_many_are_those_of_the_parts(
    cluster: Cluster, where: Any, topic: str
) -> None:
    values = [b"%0100d" % i for i in range(50)]
    with Producer(where, batch_bytes=20_000) as producer:
        pieces = producer.send_many(topic, values).result(WAIT_S)
    assert len(pieces) > 4
    spans = [(p.first_offset, p.last_offset) for p in pieces]
    assert [n for first, last in spans for n in range(first, last + 1)] == list(range(50))
    assert [r.value for r in stored(cluster, topic, 50)] == values


def test_a_record_that_is_too_large_fails_alone(cluster: Cluster, where: Any, topic: str) -> None:
    """Records in its batch, and later ones in flight, are stored."""
    values = [b"%0100d" % i for i in range(60)]
    for i in (0, 17, 18, 59):
        values[i] = b"x" * (MOST + 1)
    with Producer(where, linger_ms=20, batch_bytes=3000) as producer:
        futures = [producer.send(topic, value) for value in values]
        with pytest.raises(errors.MessageTooLarge):
            producer.flush(WAIT_S)
        refused = [i for i, f in enumerate(futures) if f.exception(WAIT_S) is not None]
        assert refused == [0, 17, 18, 59]
        for i in refused:
            with pytest.raises(errors.MessageTooLarge):
                futures[i].result()
        good = [f.result().offset for i, f in enumerate(futures) if i not in refused]
        assert good == list(range(56))
        assert producer.send(topic, b"after").result(WAIT_S).offset == 56
    found = [r.value for r in stored(cluster, topic, 56)]
    assert found[:56] == [v for i, v in enumerate(values) if i not in refused]


def test_a_transaction_of_batches_that_are_split_is_committed(
    cluster: Cluster, where: Any, topic: str
) -> None:
    values = [b"%0100d" % i for i in range(50)]
    with Producer(where, transactional_id=topic, linger_ms=20) as producer:
        with producer.transaction():
            futures = [producer.send(topic, value) for value in values]
        assert [f.result().offset for f in futures] == list(range(50))
        with pytest.raises(errors.MessageTooLarge), producer.transaction():
            for _ in range(4):
                producer.send(topic, b"x" * (MOST + 1))
        with producer.transaction():
            last = producer.send(topic, b"fine").result(WAIT_S).offset
    found = [r.value for r in stored(cluster, topic, last + 1)]
    assert found == [*values, b"fine"]


def sized(most: int, never: Sequence[bytes] = ()) -> Any:
    """A broker with a limit of `most` records per batch that checks sequences as Kafka does."""
    wanted: dict[tuple[int, int], int] = {}
    taken: list[bytes | None] = []

    def answer(request: Any, version: int) -> Any:
        row = request.topic_data[0].partition_data[0]
        batch = Batch(row.index, bytes(row.records))
        if len(batch.records) > most or set(never) & set(batch.values()):
            return produced([ErrorCode.MESSAGE_TOO_LARGE])(request, version)
        if batch.sequence != wanted.get(batch.producer, 0):
            return produced([ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER])(request, version)
        wanted[batch.producer] = batch.sequence + len(batch.records)
        base = len(taken)
        taken.extend(batch.values())
        return produced([], [base])(request, version)

    answer.taken = taken  # type: ignore[attr-defined]
    return answer


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_parts_keep_the_sequences_of_the_whole(broker: Peer, most: int) -> None:
    """One producer id throughout; batches that were in flight after it stay after it."""
    judge = sized(most)
    broker.on(apis.PRODUCE, judge)
    values = [b"%03d" % i for i in range(100)]
    with make(broker, linger_ms=10, batch_bytes=200, retries=3) as producer:
        futures = [producer.send("t", value, partition=0) for value in values]
        assert [f.result(LIMIT_S).offset for f in futures] == list(range(100))
    assert judge.taken == values
    assert broker.count(apis.INIT_PRODUCER_ID) == 1


@pytest.mark.parametrize("bad", [[3], [3, 4], [3, 7, 19]], ids=str)
def test_batches_in_flight_after_a_refused_record_are_accepted(
    broker: Peer, bad: list[int]
) -> None:
    """The broker refuses its sequence, too: it is sent again under a new producer id."""
    values = [wide(i) for i in range(20)]
    judge = sized(1, [values[i] for i in bad])
    broker.on(apis.PRODUCE, judge)
    some = [{"producer_id": 4000 + i, "producer_epoch": 0} for i in range(9)]
    broker.on(apis.INIT_PRODUCER_ID, *some)
    with single(broker, in_flight=3) as producer:
        futures = [producer.send("t", value, partition=0) for value in values]
        assert [i for i, f in enumerate(futures) if f.exception(LIMIT_S)] == bad
        with pytest.raises(errors.MessageTooLarge):
            producer.check()
    assert judge.taken == [v for i, v in enumerate(values) if i not in bad]
    assert broker.count(apis.INIT_PRODUCER_ID) > 1


def test_the_size_limit_of_a_topic_is_learned(broker: Peer) -> None:
    """After a refusal, batches stay as small as the accepted ones, and are not refused again."""
    refused: list[int] = []

    def answer(request: Any, version: int) -> Any:
        row = request.topic_data[0].partition_data[0]
        if len(row.records) > MOST:
            refused.append(len(row.records))
            return produced([ErrorCode.MESSAGE_TOO_LARGE])(request, version)
        return produced([])(request, version)

    broker.on(apis.PRODUCE, answer)
    with make(broker, linger_ms=1_000_000, batch_bytes=6000) as producer:
        seen = []
        for _ in range(4):
            for i in range(50):
                producer.send("t", b"%0100d" % i, partition=0)
            producer.flush(LIMIT_S)
            seen.append(len(refused))
    assert seen[0] and seen == [seen[0]] * 4
    assert sum(len(b.records) for b in batches(broker)) > 200


def test_parts_with_larger_timestamp_deltas_than_the_whole(broker: Peer) -> None:
    """A record's time is stored relative to its batch's first: a part may be larger than the whole
    batch was."""
    judge = sized(60)
    broker.on(apis.PRODUCE, judge)
    late_ms = 1 << 62
    times = [*[late_ms] * 50, 0, *[late_ms] * 49]
    with make(broker, linger_ms=60_000) as producer:
        futures = [producer.send("t", None, partition=0, timestamp_ms=at_ms) for at_ms in times]
        producer.flush(LIMIT_S)
        assert [f.result(LIMIT_S).offset for f in futures] == list(range(100))
    assert judge.taken == [None] * 100
    assert [r.timestamp_ms for b in batches(broker)[1:] for r in b.records] == times
