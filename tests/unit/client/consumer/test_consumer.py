"""The consumer's API against real brokers: Apache Kafka's, ours, and ours in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.calls import topics
from kafkalog.client.calls.groups import CommittedOffset, remove_members
from kafkalog.client.calls.offsets import LATEST, all_partitions, list_offsets
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import failure_class
from kafkalog.client.producer.producer import Producer
from kafkalog.types import Record, TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.batches import Row, batch
from tests.support.waiting import LIMIT_S, wait_for

EARLIEST: dict[str, Any] = {"auto_offset_reset": "earliest", "config": {"fetch.max.wait.ms": 50}}


def append(cluster: Cluster, tp: TopicPartition, data: bytes) -> None:
    """Append a batch as it is, once the leader of a new topic knows that it leads."""
    wait_for(lambda: appended(cluster, tp, data) == 0, "the append")


def appended(cluster: Cluster, tp: TopicPartition, data: bytes) -> int:
    connection = cluster.connect(cluster.leader(tp))
    answer = connection.call(
        apis.PRODUCE,
        {
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [
                {
                    "name": tp.topic,
                    "topic_id": cluster.topic(tp.topic).topic_id,
                    "partition_data": [{"index": tp.partition, "records": data}],
                }
            ],
        },
        connection.version_of(apis.PRODUCE, at_most=11),
    )
    code = int(answer.responses[0].partition_responses[0].error_code)
    assert code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return code


@pytest.fixture
def topic(cluster: Cluster, unique: str) -> str:
    """Three partitions of thirty records each; times are offsets in seconds."""
    topics.create_topic(cluster, unique, 3)
    list_offsets(cluster, dict.fromkeys(all_partitions(cluster, unique), LATEST))
    for tp in all_partitions(cluster, unique):
        rows = [Row(b"%d" % i, b"k", 1000 * i, [("n", b"%d" % i)]) for i in range(30)]
        for first in (0, 10, 20):
            append(cluster, tp, batch(rows[first : first + 10]))
    return unique


def take(consumer: Consumer, count: int) -> list[Record]:
    found: list[Record] = []
    while len(found) < count:
        found += consumer.poll(1_000)
    return found


def test_all_partitions_without_a_group(where: Any, topic: str) -> None:
    with Consumer(where, topic, **EARLIEST) as consumer:
        found = take(consumer, 90)
        for p in range(3):
            mine = [r for r in found if r.partition == p]
            assert [(r.offset, r.value) for r in mine] == [(i, b"%d" % i) for i in range(30)]
        assert found[0].headers == (("n", b"0"),)
        assert consumer.poll(0) == []
        for tp in consumer.assignment:
            assert (consumer.position(tp), consumer.lag(tp)) == (30, 0)
            consumer.seek(tp, 70)
            assert consumer.lag(tp) == -40
            consumer.seek(tp, 30)
        with pytest.raises(errors.ArgumentError, match="the consumer has no group"):
            consumer.commit()


def test_iteration_moves_the_position_record_by_record(where: Any, topic: str) -> None:
    tp = TopicPartition(topic, 1)
    with Consumer(where, group=topic, **EARLIEST) as consumer:
        consumer.assign([tp])
        found = [r.offset for r in islice(consumer, 7)]
        assert found == [*range(7)]
        assert consumer.position(tp) == 7
        consumer.commit()
        assert consumer.committed(tp) == CommittedOffset(7, 0, "")
        assert [r.offset for r in consumer.poll(60_000, 2)] == [7, 8]
        for record in consumer:
            if record.offset == 12:
                consumer.seek(tp, 3)
            elif record.offset == 3:
                break
        assert consumer.position(tp) == 4


def test_columns_go_on_where_records_have_ended(where: Any, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    with Consumer(where, **EARLIEST) as consumer:
        consumer.assign([tp])
        assert [r.offset for r in consumer.poll(60_000, 5)] == [0, 1, 2, 3, 4]
        offsets: list[int] = []
        while len(offsets) < 25:
            for some in consumer.poll_arrow(1_000):
                assert set(some.numpy("topic")) == {topic}
                offsets += some.numpy("offset").tolist()
        assert offsets == [*range(5, 30)]
        assert consumer.position(tp) == 30


def test_seek_pause_and_resume(where: Any, topic: str) -> None:
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Consumer(where, **EARLIEST) as consumer:
        consumer.assign([zero, one])
        assert len(consumer.poll(60_000, 3)) == 3
        consumer.pause(zero)
        consumer.seek_to_end(one)
        consumer.seek(zero, 20)
        assert (consumer.paused, consumer.poll(100)) == ([zero], [])
        assert consumer.position(one) == 30
        consumer.resume(zero)
        assert [(r.partition, r.offset) for r in take(consumer, 10)] == [
            (0, i) for i in range(20, 30)
        ]
        consumer.seek_to_beginning(one)
        assert take(consumer, 30)[0].offset == 0
        for bad in (lambda: consumer.seek(TopicPartition(topic, 2), 0),
                    lambda: consumer.seek(zero, -1),
                    lambda: consumer.position(TopicPartition(topic, 2))):  # fmt: skip
            with pytest.raises(errors.ArgumentError):
                bad()


def test_offsets_and_times(where: Any, topic: str) -> None:
    tps = [TopicPartition(topic, p) for p in range(2)]
    with Consumer(where) as consumer:
        assert consumer.partitions(topic) == [*tps, TopicPartition(topic, 2)]
        assert consumer.beginning_offsets(tps) == dict.fromkeys(tps, 0)
        assert consumer.end_offsets(tps) == dict.fromkeys(tps, 30)
        found = consumer.offsets_for_times({tps[0]: 4_500, tps[1]: 29_001})
        later = found[tps[0]]
        assert later is not None
        assert (later.offset, found[tps[1]]) == (5, None)


def test_where_it_begins(where: Any, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    for reset, at in (("earliest", 0), ("latest", 30), ("by_duration:PT1H", 30)):
        with Consumer(where, auto_offset_reset=reset) as consumer:
            consumer.assign([tp])
            assert consumer.position(tp) == at
    with Consumer(where, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 99)
        with pytest.raises(errors.OffsetOutOfRange, match="offset 99, wanted 0 to 30"):
            consumer.poll(60_000)


def test_commits_keep_their_metadata_and_later_ones_count(where: Any, topic: str) -> None:
    tp = TopicPartition(topic, 2)
    told: list[Any] = []
    with Consumer(where, group=topic, **EARLIEST) as consumer:
        consumer.assign([tp])
        assert consumer.committed(tp) is None
        consumer.commit({tp: CommittedOffset(3, -1, "mine")})
        assert consumer.committed(tp) == CommittedOffset(3, -1, "mine")
        for i in (5, 6):
            consumer.commit({tp: i}, wait=False, callback=lambda *how: told.append(how))
        consumer.commit({tp: 9})  # after those in flight
        assert told == [({tp: CommittedOffset(5)}, None), ({tp: CommittedOffset(6)}, None)]
        assert consumer.committed(tp) == CommittedOffset(9)
    with Consumer(where, group=topic, **EARLIEST) as consumer:
        consumer.assign([tp])
        assert consumer.poll(60_000, 1)[0].offset == 9


def test_an_exception_commits_nothing_more(where: Any, topic: str) -> None:
    with pytest.raises(ZeroDivisionError), Consumer(where, topic, group=topic, **EARLIEST) as one:
        take(one, 90)
        raise ZeroDivisionError
    with Consumer(where, topic, group=topic, **EARLIEST) as two:
        assert len(take(two, 90)) == 90


def test_topics_by_a_pattern_also_those_to_come(cluster: Cluster, where: Any, unique: str) -> None:
    topics.create_topic(cluster, f"{unique}-a", 1)
    config = {"metadata.max.age.ms": 50, "fetch.max.wait.ms": 50}
    for group in (None, unique):
        with Consumer(
            where, pattern=f"{unique}-.", group=group, heartbeat_ms=100, config=config
        ) as consumer:
            until(consumer, lambda c: bool(c.assignment))
            topics.create_topic(cluster, f"{unique}-{'b' if group is None else 'c'}", 2)
            wanted = len(consumer.assignment) + 2
            until(consumer, lambda c, n=wanted: len(c.assignment) == n)  # type: ignore[misc]


def until(consumer: Consumer, done: Callable[[Consumer], bool]) -> None:
    """Poll until the condition holds."""
    for _ in range(1_200):
        consumer.poll(50)
        if done(consumer):
            return
    raise AssertionError(f"{consumer} {consumer.subscription}")


@pytest.mark.parametrize("assignor", ["roundrobin", "sticky", "cooperative-sticky"])
def test_members_share_and_hand_over(where: Any, topic: str, assignor: str) -> None:
    """Two members, then one: every record is read, each partition by one at a time."""
    seen: list[tuple[int, int]] = []
    owners: dict[TopicPartition, str] = {}
    stop = {"a": threading.Event(), "b": threading.Event()}
    shares: dict[str, list[TopicPartition]] = {}
    failures: list[BaseException] = []

    def run(name: str) -> None:
        def gain(tps: list[TopicPartition]) -> None:
            for tp in tps:
                assert owners.setdefault(tp, name) == name, "another reads it"

        def give(tps: list[TopicPartition]) -> None:
            for tp in tps:
                assert owners.pop(tp) == name

        try:
            with Consumer(
                where, group=topic, assignor=assignor, heartbeat_ms=100, **EARLIEST
            ) as consumer:
                consumer.subscribe(topic, on_assigned=gain, on_revoked=give)
                while not stop[name].is_set():
                    seen.extend((r.partition, r.offset) for r in consumer.poll(50))
                    shares[name] = consumer.assignment
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    try:
        for thread in threads:
            thread.start()
        wait_for(lambda: sorted(map(len, shares.values())) == [1, 2] or failures, "shared", 40)
        stop["a"].set()
        wait_for(lambda: len(shares["b"]) == 3 or failures, "the other has all", 40)
        wait_for(lambda: len(set(seen)) == 90 or failures, "all is read", 40)
    finally:
        for name, thread in zip("ab", threads, strict=True):
            stop[name].set()
            thread.join(LIMIT_S)
    assert failures == []
    assert owners == {}
    assert sorted(seen) == [(p, i) for p in range(3) for i in range(30)]  # none twice


def test_a_removed_member_sets_nothing_back_in_a_transaction(
    cluster: Cluster, where: Any, topic: str
) -> None:
    """It does not know yet; the coordinator refuses its offsets because of its generation."""
    tp = TopicPartition(topic, 0)
    options = {**EARLIEST, "group": topic, "auto_commit": False, "heartbeat_ms": 40_000}
    with Consumer(where, topic, **options) as one, Consumer(where, topic, **options) as two:
        assert one.poll(60_000, 3)
        remove_members(cluster, topic).check()
        take(two, 90)
        two.commit()
        with Producer(where, transactional_id=topic) as writer:
            writer.begin_transaction()
            with pytest.raises(failure_class(ErrorCode.UNKNOWN_MEMBER_ID)):
                writer.send_offsets({tp: 3}, one.group_metadata())
            writer.abort_transaction()
        assert two.committed(tp) == CommittedOffset(30, 0)


def later(member: Consumer, end_s: float) -> bool:
    """True if its session ends later than `end_s`."""
    return member._heartbeats.session_end_s > end_s


def test_a_member_that_reads_on_while_others_are_waited_for_is_counted_in(
    where: Any, topic: str
) -> None:
    """Heartbeats of the last generation count; they also show that nobody else reads there."""
    options = {**EARLIEST, "group": topic, "assignor": "cooperative-sticky", "heartbeat_ms": 50}
    members = [Consumer(where, topic, **options) for _ in range(3)]
    one, two, three = members

    def polled(some: list[Consumer], done: Callable[[], object], what: str) -> None:
        wait_for(lambda: [m.poll(10) for m in some] and done(), what)

    try:
        polled([one, two], lambda: one.assignment and two.assignment, "two are in")
        polled([one, two], lambda: not (one._state.joining or two._state.joining), "stable")
        polled([one, three], lambda: one._state.joining, "it joins again")
        mine, before = one.assignment, one.group_metadata()
        for _ in range(3):  # the second only sends heartbeats, and the others wait for it
            polled([one], partial(later, one, one._heartbeats.session_end_s), "it beats")
            assert (one.assignment, one._state.joining) == (mine, True)
        assert one.group_metadata() == before
        polled(members, lambda: all(m.assignment for m in members), "each has one")
    finally:
        for member in members:
            member.close()


def test_read_committed_omits_aborted_and_open_transactions(where: Any, topic: str) -> None:
    """As Records and as columns, also with offsets that a transaction commits for the group."""
    tp = TopicPartition(topic, 0)
    options = {**EARLIEST, "isolation": "read_committed", "group": topic, "auto_commit": False}
    with Consumer(where, **options) as consumer, Producer(where, transactional_id=topic) as writer:
        consumer.assign([tp])
        assert len(take(consumer, 30)) == 30
        with writer.transaction():
            writer.send(topic, b"kept", partition=0)
            writer.send_offsets({tp: 30}, group=consumer.group_metadata())
        with suppress(ZeroDivisionError), writer.transaction():
            writer.send(topic, b"aborted", partition=0).result(LIMIT_S)
            raise ZeroDivisionError
        with writer.transaction():
            writer.send(topic, b"open", partition=0).result(LIMIT_S)
            assert [r.value for r in take(consumer, 1)] == [b"kept"]
            assert consumer.poll(100) == []
            assert consumer.lag(tp) == 0
        assert [r.value for r in take(consumer, 1)] == [b"open"]
        consumer.seek(tp, 30)
        values: list[bytes] = []
        while len(values) < 2:
            for some in consumer.poll_arrow(1_000):
                values += some.numpy("value").tolist()
        assert values == [b"kept", b"open"]
        assert consumer.committed(tp) == CommittedOffset(30)


def test_interceptors_see_records_and_commits(where: Any, topic: str) -> None:
    class Interceptor:
        commits: list[Any] = []  # noqa: RUF012

        def on_consume(self, records: list[Record]) -> list[Record]:
            return [r for r in records if r.offset % 2]

        def on_commit(self, offsets: Any) -> None:
            self.commits.append(offsets)
            raise ValueError("this is logged")

    tp = TopicPartition(topic, 0)
    with Consumer(where, group=topic, interceptors=[Interceptor()], **EARLIEST) as consumer:
        consumer.assign([tp])
        assert [r.offset for r in take(consumer, 15)] == [*range(1, 30, 2)]
        consumer.commit()
    assert Interceptor.commits[-1] == {tp: CommittedOffset(30, 0)}


def test_an_iteration_with_interceptors_moves_one_by_one(where: Any, topic: str) -> None:
    class Interceptor:
        def on_consume(self, records: list[Record]) -> list[Record]:
            return [r for r in records if r.offset != 1]

    tp = TopicPartition(topic, 0)
    with Consumer(where, interceptors=[Interceptor()], **EARLIEST) as consumer:
        consumer.assign([tp])
        assert next(iter(consumer)).offset == 0
        assert consumer.position(tp) == 1
        assert [r.offset for r in islice(consumer, 2)] == [2, 3]
        assert consumer.position(tp) == 4
        assert next(iter(take(consumer, 1))).offset == 4


def test_other_topics_while_it_joins(where: Any, topic: str) -> None:
    """The answer to the earlier JoinGroup is ignored."""
    for number in range(100):  # until a join is seen before its answer arrives
        group = f"{topic}-{number}"
        with Consumer(where, topic + "-none", group=group, **EARLIEST) as consumer:
            joining = consumer._membership
            assert joining is not None
            while joining.member.state == "out":
                consumer.poll(0)
            if joining.member.state == "in":
                continue
            consumer.subscribe(topic)
            assert {r.topic for r in take(consumer, 90)} == {topic}
            return
    raise AssertionError("no join was seen under way")


@pytest.mark.parametrize("columns", [False, True], ids=["records", "columns"])
def test_a_position_follows_a_reset(where: Any, topic: str, columns: bool) -> None:
    """The new position is committed, and a paused partition continues there."""
    tp = TopicPartition(topic, 0)
    config = {"fetch.max.wait.ms": 50}
    with Consumer(where, group=topic, auto_offset_reset="latest", config=config) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 500)

        def settled() -> bool:
            assert not (consumer.poll_arrow(50) if columns else consumer.poll(50))
            return consumer.position(tp) == 30

        wait_for(settled, "the position is the end")
        consumer.commit()
        assert consumer.committed(tp) == CommittedOffset(30, 0)


def test_commits_that_wait_are_one(where: Any, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    with Consumer(where, group=topic, auto_commit=False, **EARLIEST) as consumer:
        consumer.assign([tp])
        told: list[Any] = []
        for offset in range(5_000):
            consumer.commit({tp: offset}, wait=False)
            assert len(consumer._committer._commits) <= 1
        consumer.commit({tp: 7}, wait=False, callback=lambda *how: told.append(how))
        consumer.commit({TopicPartition(topic, 1): 3}, wait=False)
        consumer.commit({TopicPartition(topic, 2): 4})
        assert told == [({tp: CommittedOffset(7)}, None)]
        found = [consumer.committed(TopicPartition(topic, p)) for p in range(3)]
        assert found == [CommittedOffset(7), CommittedOffset(3), CommittedOffset(4)]


def test_memory_is_bounded_by_the_settings(cluster: Cluster, where: Any, unique: str) -> None:
    """One answer per broker is buffered, however much the log holds."""
    topics.create_topic(cluster, unique, 4)
    tps = all_partitions(cluster, unique)
    for tp in tps:
        for i in range(40):
            append(cluster, tp, batch([Row(b"%02d" % i * 5_000, None, 1)]))
    limit = 100_000
    config = {"fetch.max.bytes": limit, "max.partition.fetch.bytes": 50_000}
    with Consumer(where, unique, auto_offset_reset="earliest", config=config) as consumer:
        count = 0
        while count < 160:
            count += len(consumer.poll(60_000, 1))
            assert sum(len(one.data) for one in consumer._reading._queue) <= limit


def test_settings_by_kafkas_names(where: Any) -> None:
    with pytest.raises(errors.UnknownSetting, match=r"the nearest is fetch\.min\.bytes"):
        Consumer(where, config={"fetch.min.byte": 1})
    with pytest.raises(errors.InvalidSetting, match=r"auto\.offset\.reset: found 'first'"):
        Consumer(where, auto_offset_reset="first")
    with pytest.raises(errors.InvalidSetting, match=r"heartbeat\.interval\.ms: found 50000"):
        Consumer(where, heartbeat_ms=50_000)
    with pytest.raises(errors.ArgumentError, match="topics or a pattern"):
        Consumer(where, "t", pattern="t")
    with Consumer(where) as consumer:
        with pytest.raises(errors.ArgumentError, match="nothing to read"):
            consumer.poll(0)
        consumer.assign([])
        with pytest.raises(errors.ArgumentError, match="unsubscribe first"):
            consumer.subscribe("t")
        consumer.unsubscribe()
        consumer.subscribe("t")
        with pytest.raises(errors.ArgumentError, match="unsubscribe first"):
            consumer.assign([])
