"""The client against a real broker: Apache Kafka's, and ours."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.batch.partitioner import partition_for_key
from kafkalog.client.calls import groups, topics
from kafkalog.client.calls.offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    all_partitions,
    list_offsets,
)
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import failure_class
from kafkalog.client.producer.producer import Producer
from kafkalog.types import Record, TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support.waiting import LIMIT_S, wait_for


def read(cluster: Cluster, topic: str, count: int, **options: Any) -> list[Record]:
    """The first `count` records, read from the start of all partitions."""
    positions = dict.fromkeys(all_partitions(cluster, topic), 0)
    fetcher = Fetcher(cluster, positions, FetchOptions(**options))
    found: list[Record] = []
    try:
        while len(found) < count:
            for block in fetcher.poll():
                found += block.records()
    finally:
        fetcher.close()
    return found


# ---- records -------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produced_records_are_fetched(cluster: Cluster, where: Any, topic: str, codec: str) -> None:
    """Keys, values, headers and times survive the round trip, in order within each partition."""
    sent = [
        (b"key %d" % (i % 7) if i % 5 else None, b"value %d" % i * 3 if i % 11 else None, i)
        for i in range(500)
    ]
    with Producer(where, compression=codec, batch_bytes=2_000) as producer:
        for key, value, i in sent:
            headers = [("n", b"%d" % i), ("null", None)] if i % 3 == 0 else ()
            producer.send(topic, value, key, timestamp_ms=1_700_000_000_000 + i, headers=headers)
    found = read(cluster, topic, len(sent))
    assert sorted((r.timestamp_ms - 1_700_000_000_000, r.key, r.value) for r in found) == [
        (i, key, value) for key, value, i in sent
    ]
    for r in found:
        i = r.timestamp_ms - 1_700_000_000_000
        assert r.headers == ((("n", b"%d" % i), ("null", None)) if i % 3 == 0 else ())
        assert r.key is None or r.partition == partition_for_key(r.key, 3)
    for _, some in itertools.groupby(found, key=lambda r: (r.partition, r.key)):
        times = [r.timestamp_ms for r in some]
        assert times == sorted(times)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(cluster: Cluster, where: Any, topic: str, acks: int) -> None:
    done = []
    with Producer(where, acks=acks, on_delivery=done.append) as producer:
        for i in range(100):
            producer.send(topic, b"%d" % i, partition=1)
    assert sum(d.count for d in done) == 100
    assert [r.value for r in read(cluster, topic, 100)] == [b"%d" % i for i in range(100)]
    assert all((d.base_offset == -1) == (acks == 0) for d in done)


def test_an_idempotent_producer_gets_an_id(where: Any, topic: str) -> None:
    with Producer(where) as one, Producer(where) as two:
        for producer in (one, two):
            producer.send(topic, b"x", partition=0)
            producer.flush()
        assert 0 <= one.producer_id != two.producer_id >= 0


def test_batches_in_flight_are_appended_in_order(cluster: Cluster, where: Any, topic: str) -> None:
    with Producer(where, batch_bytes=200, in_flight=5) as producer:
        for i in range(2_000):
            producer.send(topic, b"%06d" % i, partition=2)
    assert [int(r.value or b"") for r in read(cluster, topic, 2_000)] == [*range(2_000)]


def test_the_broker_makes_a_topic_that_is_produced_to(cluster: Cluster, unique: str) -> None:
    with Producer(cluster) as producer:
        producer.send(unique, b"x")
    assert len(cluster.topic(unique).partitions) == 2
    with pytest.raises(errors.UnknownTopicOrPartition, match="no topic"):
        cluster.topic(unique + "-other")


def test_a_record_that_is_too_large_is_refused(cluster: Cluster, topic: str) -> None:
    producer = Producer(cluster, config={"max.request.size": 4 << 20})
    producer.send(topic, b"x" * (2 << 20), partition=0)
    with pytest.raises(errors.MessageTooLarge, match="MESSAGE_TOO_LARGE"):
        producer.flush()
    producer.close()


def test_offsets_and_times(cluster: Cluster, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    times = [1_000_000, 3_000_000, 2_000_000]
    with Producer(cluster) as producer:
        for time_ms in times:
            producer.send(topic, b"x", partition=0, timestamp_ms=time_ms)

    def at(time_ms: int) -> int:
        return list_offsets(cluster, {tp: time_ms})[tp].offset

    assert [at(EARLIEST), at(LATEST)] == [0, 3]
    assert [at(t) for t in (0, 1_000_000, 1_000_001, 3_000_000, 3_000_001)] == [0, 0, 1, 1, -1]
    assert list_offsets(cluster, {tp: MAX_TIMESTAMP})[tp][:2] == (1, 3_000_000)
    assert list_offsets(cluster, {tp: LATEST}, committed=True)[tp].offset == 3


def test_an_offset_out_of_range(cluster: Cluster, topic: str) -> None:
    fetcher = Fetcher(cluster, {TopicPartition(topic, 0): 5})
    with pytest.raises(errors.OffsetOutOfRange, match="offset 5, wanted 0 to 0"):
        while True:
            fetcher.poll()
    fetcher.close()


def test_a_fetch_waits_for_new_records(cluster: Cluster, topic: str) -> None:
    """A fetch that is sent before the record exists is answered once it does."""
    fetcher = Fetcher(cluster, {TopicPartition(topic, 0): 0}, FetchOptions(max_wait_ms=10_000))
    assert fetcher.poll(0) == []
    with Producer(cluster) as producer:
        producer.send(topic, b"now", partition=0)
    (block,) = fetcher.poll(10_000)
    assert [r.value for r in block.records()] == [b"now"]
    assert (block.high_watermark, block.log_start_offset) == (1, 0)
    fetcher.close()


# ---- topics and settings -------------------------------------------------------------------


def test_topics(cluster: Cluster, topic: str, wait_until: Callable[..., None]) -> None:
    assert topic in topics.list_topics(cluster)
    with pytest.raises(errors.TopicExists, match=topic):
        topics.create_topic(cluster, topic)
    with pytest.raises(failure_class(ErrorCode.INVALID_REPLICATION_FACTOR)):
        topics.create_topic(cluster, topic + "-2", 1, 9)
    with pytest.raises(errors.InvalidTopic):
        topics.create_topic(cluster, "a/b")
    with pytest.raises(errors.InvalidSetting):
        topics.create_topic(cluster, topic + "-3", config={"segment.bites": "1"})
    topics.create_partitions(cluster, {topic: 5}).check()

    def grown() -> bool:
        cluster.refresh([topic])
        return [*cluster.topic(topic).partitions] == [0, 1, 2, 3, 4]

    wait_until(grown, "there are five")  # Kafka's brokers see it a little later
    with pytest.raises(failure_class(ErrorCode.INVALID_PARTITIONS)):
        topics.create_partitions(cluster, {topic: 4}).check()
    topics.delete_topic(cluster, topic)
    wait_until(lambda: topic not in topics.list_topics(cluster), "the topic is gone")
    with pytest.raises(errors.UnknownTopicOrPartition):
        topics.delete_topic(cluster, topic)


# ---- groups --------------------------------------------------------------------------------

QUICK: dict[str, Any] = {
    "session_timeout_ms": 6_000,
    "heartbeat_ms": 200,
    "auto_offset_reset": "earliest",
    "config": {"fetch.max.wait.ms": 50},
}


class Member:
    """A group member in its own thread, until `end`."""

    def __init__(self, where: Any, group: str, topic: str, **options: Any) -> None:
        self.seen: list[tuple[int, int]] = []
        self.assignment: list[TopicPartition] = []
        self.failure: BaseException | None = None
        self._end = threading.Event()
        self._consumer = Consumer(where, topic, group=group, **{**QUICK, **options})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._consumer as consumer:
                while not self._end.is_set():
                    self.seen += [(r.partition, r.offset) for r in consumer.poll(50)]
                    self.assignment = consumer.assignment
        except BaseException as problem:
            self.failure = problem

    def end(self) -> None:
        self._end.set()
        self._thread.join(LIMIT_S)
        assert self.failure is None, self.failure


def fill(cluster: Cluster, topic: str, count: int) -> None:
    with Producer(cluster) as producer:
        for i in range(count):
            producer.send(topic, b"%d" % i, partition=i % 3)


def test_a_group_shares_out_and_takes_back(
    cluster: Cluster, where: Any, topic: str, wait_until: Callable[..., None]
) -> None:
    """With two members, each partition has one owner; when one leaves, the other gets all."""
    fill(cluster, topic, 30)
    one = Member(where, topic, topic)
    wait_until(lambda: len(one.seen) == 30, "the first reads everything")
    two = Member(where, topic, topic)
    wait_until(
        lambda: sorted([*one.assignment, *two.assignment]) == all_partitions(cluster, topic)
        and one.assignment and two.assignment, "both have some", 30,
    )  # fmt: skip
    info = groups.describe_group(cluster, topic)
    assert (info.state, info.assignor, len(info.members)) == ("Stable", "range", 2)
    assert sorted(len(m.assignment) for m in info.members) == [1, 2]
    fill(cluster, topic, 30)
    wait_until(lambda: len(one.seen) + len(two.seen) >= 60, "they read what is new")
    one.end()
    wait_until(lambda: len(two.assignment) == 3, "the other has all of them")
    two.end()
    assert sorted({*one.seen, *two.seen}) == [(p, o) for p in range(3) for o in range(20)]
    committed = groups.committed_offsets(cluster, topic)
    assert {tp.partition: c.offset for tp, c in committed.items()} == {0: 20, 1: 20, 2: 20}
    assert groups.describe_group(cluster, topic).state == "Empty"


def test_a_group_goes_on_where_it_left_off(cluster: Cluster, where: Any, topic: str) -> None:
    fill(cluster, topic, 30)
    seen: list[tuple[int, int]] = []
    for turn in (1, 2):
        with Consumer(where, topic, group=topic, **QUICK) as consumer:
            while len(seen) < 15 * turn:
                seen += [(r.partition, r.offset) for r in consumer.poll(max_records=5)]
    assert sorted(seen) == [(p, o) for p in range(3) for o in range(10)]


def test_where_a_group_without_offsets_begins(cluster: Cluster, where: Any, topic: str) -> None:
    fill(cluster, topic, 3)
    with (
        Consumer(where, topic, group=topic, **{**QUICK, "auto_offset_reset": "none"}) as consumer,
        pytest.raises(errors.OffsetOutOfRange, match="has committed nothing"),
    ):
        consumer.poll(10_000)
    with Consumer(
        where, topic, group=topic, **{**QUICK, "auto_offset_reset": "latest"}
    ) as consumer:
        while not consumer.assignment:
            assert consumer.poll(100) == []
        assert {consumer.position(tp) for tp in consumer.assignment} == {1}
    # Its position is committed although it read nothing.
    assert {c.offset for c in groups.committed_offsets(cluster, topic).values()} == {1}


def test_a_static_member_comes_back_to_its_partitions(
    cluster: Cluster, where: Any, topic: str
) -> None:
    found = []
    for _ in range(2):
        with Consumer(where, topic, group=topic, group_instance_id="one", **QUICK) as consumer:
            while not consumer.assignment:
                consumer.poll(100)
            found.append((consumer.group_metadata().generation, consumer.assignment))
    assert found[0] == found[1]
    assert found[0][1] == all_partitions(cluster, topic)


def test_offsets_of_a_group_from_outside(cluster: Cluster, topic: str) -> None:
    """Offsets are committed, fetched with their metadata, deleted; then the group is deleted."""
    fill(cluster, topic, 30)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 2)
    wanted = {one: groups.CommittedOffset(3, -1, "mine"), two: groups.CommittedOffset(0)}
    groups.commit_offsets(cluster, topic, wanted)
    assert groups.committed_offsets(cluster, topic) == wanted
    assert groups.committed_offsets(cluster, topic, [one]) == {one: wanted[one]}
    groups.delete_offsets(cluster, topic, [one]).check()
    assert list(groups.committed_offsets(cluster, topic)) == [two]
    listed = {g.group: g for g in groups.list_groups(cluster)}
    assert listed[topic].state == "Empty"
    groups.delete_groups(cluster, [topic]).check()
    assert groups.describe_group(cluster, topic).state == "Dead"
    with pytest.raises(failure_class(ErrorCode.GROUP_ID_NOT_FOUND)):
        groups.delete_groups(cluster, [topic]).check()


def test_a_group_with_members_is_not_changed_from_outside(
    cluster: Cluster, where: Any, topic: str
) -> None:
    consumer = Consumer(where, topic, group=topic, **QUICK)
    while not consumer.assignment:
        consumer.poll(100)
    with pytest.raises(failure_class(ErrorCode.UNKNOWN_MEMBER_ID)):
        groups.commit_offsets(cluster, topic, {TopicPartition(topic, 0): groups.CommittedOffset(1)})
    with pytest.raises(failure_class(ErrorCode.NON_EMPTY_GROUP)):
        groups.delete_groups(cluster, [topic]).check()
    consumer.close()


def test_a_group_joins_again_when_its_topic_grows(
    cluster: Cluster, where: Any, topic: str, wait_until: Callable[..., None]
) -> None:
    member = Member(
        where, topic, topic, config={"fetch.max.wait.ms": 50, "metadata.max.age.ms": 100}
    )
    wait_until(lambda: len(member.assignment) == 3, "it has all of them")
    topics.create_partitions(cluster, {topic: 4}).check()
    wait_until(lambda: len(member.assignment) == 4, "it has the new one, too")
    member.end()


def test_a_group_reads_a_topic_that_is_made_later(
    cluster: Cluster, where: Any, topic: str, unique: str
) -> None:
    late = f"{unique}-late"
    with Consumer(
        where, topic, late, group=unique, auto_offset_reset="earliest",
        config={"allow.auto.create.topics": False},
    ) as consumer:  # fmt: skip
        wait_for(lambda: consumer.poll(20) or consumer.assignment, "it is in")
        topics.create_topic(cluster, late, 1)
        with Producer(where) as producer:
            producer.send(late, b"x")
        found = wait_for(lambda: consumer.poll(20), "it reads")
    assert [(record.topic, record.value) for record in found] == [(late, b"x")]


def test_offsets_of_an_open_transaction_are_waited_for(
    cluster: Cluster, where: Any, topic: str, unique: str
) -> None:
    """A consumer that would start at these offsets polls nothing and raises nothing."""
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Producer(where) as plain:
        plain.send(topic, b"before", partition=0)
        plain.send(topic, b"behind", partition=0)
    config = {"default.api.timeout.ms": 1_000}
    with (
        Producer(where, transactional_id=unique) as producer,
        Consumer(where, group=unique, auto_commit=False, config=config) as consumer,
    ):
        with producer.transaction():
            producer.send(topic, b"x", partition=1)
            producer.send_offsets({zero: 1}, unique)
            consumer.assign([zero])
            assert [consumer.poll(500) for _ in range(3)] == [[], [], []]
            unstable = failure_class(ErrorCode.UNSTABLE_OFFSET_COMMIT)
            with pytest.raises((unstable, errors.Timeout)):
                consumer.committed(zero, timeout_ms=200)
        found = wait_for(lambda: consumer.poll(20), "it reads from there")
        assert [record.value for record in found] == [b"behind"]
        assert one not in consumer.assignment
