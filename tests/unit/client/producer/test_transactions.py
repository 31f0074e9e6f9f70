"""A producer's transactions: against Apache Kafka, our broker, and ours in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.calls import groups, topics
from kafkalog.client.calls.groups import GroupMetadata
from kafkalog.client.calls.offsets import LATEST, all_partitions, list_offsets
from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import failure_class
from kafkalog.client.producer.producer import Producer
from kafkalog.testing.broker import TestBroker
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support.waiting import wait_for

WAIT_S = 60.0


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The transaction version: 1 is that of clients that know no other."""
    if request.param == 1:
        monkeypatch.setattr("kafkalog.client.producer.transaction_calls.FEATURE", "of no broker")
    return int(request.param)


@pytest.fixture
def topic(cluster: Cluster, unique: str) -> str:
    topics.create_topic(cluster, unique, 2)
    list_offsets(cluster, dict.fromkeys(all_partitions(cluster, unique), LATEST))
    return unique


def shown(cluster: Cluster, topic: str, count: int) -> list[bytes | None]:
    """All committed values, sorted; there must be `count`.

    The end of a transaction is answered before its markers are written: this waits for them.
    """
    asked = dict.fromkeys(all_partitions(cluster, topic), LATEST)

    def ends(committed: bool) -> dict[TopicPartition, int]:
        found = list_offsets(cluster, asked, committed=committed)
        return {tp: at.offset for tp, at in found.items()}

    wait_for(lambda: ends(True) == ends(False), "no transaction is open", WAIT_S)
    last = ends(True)
    fetcher = Fetcher(cluster, dict.fromkeys(last, 0), FetchOptions(committed=True))
    found: list[bytes | None] = []
    try:
        while any(fetcher.positions[tp] < end for tp, end in last.items()):
            for block in fetcher.poll():
                found += [r.value for r in block.records()]
    finally:
        fetcher.close()
    assert len(found) == count
    return sorted(found, key=lambda v: v or b"")


def test_committed_records_are_visible_and_aborted_ones_are_not(
    cluster: Cluster, where: Any, topic: str, version: int
) -> None:
    with Producer(where, transactional_id=topic) as producer:
        epochs = []
        for turn in range(4):
            try:
                with producer.transaction():
                    for i in range(10):
                        producer.send(topic, b"%d %d" % (turn, i), partition=i % 2)
                    if turn % 2:
                        producer.flush(WAIT_S)
                        raise RuntimeError("mine")
            except RuntimeError:
                assert turn % 2
            epochs.append(producer._identity.epoch)
        assert producer._identity.second == (version == 2)  # type: ignore[attr-defined]
        assert len(set(epochs)) == (4 if version == 2 else 1)
    wanted = sorted(b"%d %d" % (turn, i) for turn in (0, 2) for i in range(10))
    assert shown(cluster, topic, 20) == wanted


def test_an_empty_transaction_is_nothing(cluster: Cluster, where: Any, topic: str,
                                         version: int) -> None:  # fmt: skip
    with Producer(where, transactional_id=topic) as producer:
        for _ in range(2):
            with producer.transaction():
                pass
        with producer.transaction():
            producer.send(topic, b"x", partition=0)
        with pytest.raises(RuntimeError), producer.transaction():
            raise RuntimeError
    assert shown(cluster, topic, 1) == [b"x"]


def test_outside_a_transaction_nothing_is_sent(where: Any, topic: str) -> None:
    with Producer(where, transactional_id=topic) as producer:
        for send in (lambda: producer.send(topic, b"x"), lambda: producer.send_many(topic, [b"x"])):
            with pytest.raises(errors.InvalidTxnState, match="no transaction is open"):
                send()
        with producer.transaction():
            producer.send(topic, b"x", partition=0)
            with pytest.raises(errors.InvalidTxnState, match="open already"):
                producer.begin_transaction()
        with pytest.raises(errors.InvalidTxnState):
            producer.send(topic, b"x")
        with pytest.raises(errors.InvalidTxnState):
            producer.commit_transaction()
    with Producer(where) as producer, pytest.raises(errors.InvalidTxnState, match="no transact"):
        producer.begin_transaction()


def test_the_second_of_a_name_fences_the_first(
    cluster: Cluster, where: Any, topic: str, version: int
) -> None:
    first = Producer(where, transactional_id=topic)
    first.begin_transaction()
    first.send(topic, b"old", partition=0).result(WAIT_S)
    with Producer(where, transactional_id=topic) as second, second.transaction():
        second.send(topic, b"new", partition=0).result(WAIT_S)
    late = first.send(topic, b"late", partition=0)
    with pytest.raises((errors.ProducerFenced, errors.InvalidProducerEpoch)):
        late.result(WAIT_S)
    with pytest.raises((errors.ProducerFenced, errors.InvalidProducerEpoch)):
        first.commit_transaction()
    with pytest.raises((errors.ProducerFenced, errors.InvalidProducerEpoch)):
        first.abort_transaction()
    with pytest.raises(errors.KafkalogError):
        first.begin_transaction()
    with pytest.raises(errors.KafkalogError):
        first.close()
    assert shown(cluster, topic, 1) == [b"new"]


def test_offsets_go_with_the_transaction(
    cluster: Cluster, where: Any, topic: str, version: int
) -> None:
    tp = TopicPartition(topic, 0)

    def becomes(offset: int) -> None:
        """The end of a transaction is answered before its markers are written."""
        wait_for(
            lambda: tp in (found := groups.committed_offsets(cluster, topic))
            and found[tp].offset == offset,
            f"{offset} is committed", WAIT_S,
        )  # fmt: skip

    with Producer(where, transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(topic, b"x", partition=1)
            producer.send_offsets({tp: 5}, topic)
        becomes(5)
        with pytest.raises(RuntimeError), producer.transaction():
            producer.send_offsets({tp: 9}, group=topic)
            raise RuntimeError
        with producer.transaction():
            producer.send_offsets({TopicPartition(topic, 1): (7, -1, "why")}, topic)
        other = TopicPartition(topic, 1)
        wait_for(lambda: other in groups.committed_offsets(cluster, topic), "7 is", WAIT_S)
        found = groups.committed_offsets(cluster, topic)
    assert found[tp].offset == 5
    assert (found[other].offset, found[other].metadata) == (7, "why")


def test_offsets_of_a_member_that_is_none_spoil_the_transaction(
    cluster: Cluster, where: Any, topic: str, version: int
) -> None:
    tp = TopicPartition(topic, 0)
    member = GroupMetadata(topic, generation=3, member_id="nobody")
    with Producer(where, transactional_id=topic) as producer:
        wanted = failure_class(ErrorCode.UNKNOWN_MEMBER_ID), failure_class(
            ErrorCode.ILLEGAL_GENERATION)  # fmt: skip
        with pytest.raises(wanted), producer.transaction():
            producer.send(topic, b"never", partition=0)
            with pytest.raises(wanted):
                producer.send_offsets({tp: 5}, member)
        with producer.transaction():
            producer.send(topic, b"fine", partition=0)
    assert shown(cluster, topic, 1) == [b"fine"]


def test_a_record_that_is_refused_spoils_the_transaction(
    cluster: Cluster, where: Any, topic: str, version: int
) -> None:
    config = {"max.request.size": 4 << 20}
    with Producer(where, transactional_id=topic, config=config) as producer:
        with pytest.raises(errors.MessageTooLarge), producer.transaction():
            producer.send(topic, b"never", partition=0)
            producer.send(topic, b"x" * (2 << 20), partition=1)
        with producer.transaction():
            producer.send(topic, b"fine", partition=1)
    assert shown(cluster, topic, 1) == [b"fine"]


def test_an_abort_drops_unsent_records(where: Any, topic: str) -> None:
    with Producer(where, transactional_id=topic, linger_ms=1_000_000) as producer:
        producer.begin_transaction()
        future = producer.send(topic, b"x", partition=0)
        producer.abort_transaction()
        with pytest.raises(errors.TransactionAborted):
            future.result(WAIT_S)


def test_sequences_of_dropped_records_leave_no_gap(tmp_path: Path, version: int) -> None:
    """It was in flight once, and waits for a retry when the block ends."""
    slow = {"retry.backoff.ms": 500, "retry.backoff.max.ms": 500}
    with (
        TestBroker(tmp_path / "data") as broker,
        Producer(broker.bootstrap_servers, transactional_id="x", config=slow) as producer,
    ):
        with producer.transaction():
            producer.send("t", b"1").result(WAIT_S)
        lost = broker.disconnect("Produce")
        with pytest.raises(ValueError, match="mine"), producer.transaction():
            producer.send("t", b"2")
            wait_for(lambda: lost.hits and producer._sender._quiet(), "it was cut off", WAIT_S)
            raise ValueError("mine")
        with producer.transaction():
            producer.partitions("t")
            producer.send("t", b"3")
        broker.wait_for_records("t", 2)
    assert producer._identity.second == (version == 2)  # type: ignore[attr-defined]


def test_a_close_aborts(cluster: Cluster, where: Any, topic: str, version: int) -> None:
    producer = Producer(where, transactional_id=topic)
    producer.begin_transaction()
    producer.send(topic, b"x", partition=0).result(WAIT_S)
    producer.close()
    with Producer(where, transactional_id=topic) as again, again.transaction():
        again.send(topic, b"y", partition=0)
    assert shown(cluster, topic, 1) == [b"y"]


def test_init_transactions_ends_open_transactions(
    cluster: Cluster, where: Any, topic: str, version: int
) -> None:
    """It ends before any new transaction: its records and offsets hold nobody back."""
    tp = TopicPartition(topic, 0)
    first = Producer(where, transactional_id=topic)
    first.begin_transaction()
    first.send(topic, b"old", partition=0).result(WAIT_S)
    first.send_offsets({tp: 5}, topic)
    with Producer(where, transactional_id=topic) as second:
        second.init_transactions()
        assert shown(cluster, topic, 0) == []
        assert tp not in groups.committed_offsets(cluster, topic)
        with pytest.raises(errors.KafkalogError):
            first.commit_transaction()
        pair = second._identity.pair
        second.init_transactions()
        assert second._identity.pair == pair
        with second.transaction():
            second.send(topic, b"new", partition=0)
            with pytest.raises(errors.InvalidTxnState, match="open already"):
                second.init_transactions()
    assert shown(cluster, topic, 1) == [b"new"]
    first.close()
    with Producer(where) as plain, pytest.raises(errors.InvalidTxnState, match="no transact"):
        plain.init_transactions()


def test_failures_say_whether_to_abort_or_to_close(
    cluster: Cluster, where: Any, topic: str, version: int
) -> None:
    """A loop decides by them: repeat the transaction with the same producer, or stop."""
    config = {"max.request.size": 4 << 20}
    todo = [[b"a", b"b"], [b"c", b"x" * (2 << 20)], [b"d"], [b"fenced"], [b"never"]]
    seen: list[tuple[str, bool, bool]] = []
    futures = []
    producer = Producer(where, transactional_id=topic, config=config)
    other: Producer | None = None
    while todo:
        try:
            with producer.transaction():
                futures = [producer.send(topic, value, partition=0) for value in todo[0]]
                if todo[0] == [b"fenced"]:
                    futures[0].result(WAIT_S)
                    other = Producer(where, transactional_id=topic)
                    other.init_transactions()
            todo.pop(0)
        except errors.KafkalogError as problem:
            seen.append((type(problem).__name__, problem.fatal, problem.abortable))
            if problem.fatal or not (problem.abortable or problem.retriable):
                break
            failed = [f.exception() for f in futures]
            assert any(isinstance(p, errors.KafkalogError) and p.abortable for p in failed)
            todo[0].pop()
    assert other is not None
    other.close()
    with pytest.raises(errors.KafkalogError) as caught:
        producer.begin_transaction()
    assert caught.value.fatal and not caught.value.abortable
    producer.close()
    assert todo == [[b"fenced"], [b"never"]]
    assert seen[0] == ("MessageTooLarge", False, True)
    assert [row[1:] for row in seen[1:]] == [(True, False)]
    assert shown(cluster, topic, 4) == [b"a", b"b", b"c", b"d"]


def test_failures_that_leave_the_transaction_as_it_was_are_neither(
    cluster: Cluster, where: Any, topic: str
) -> None:
    with Producer(where, transactional_id=topic) as producer:
        for call in (producer.commit_transaction, lambda: producer.send(topic, b"x")):
            with pytest.raises(errors.InvalidTxnState) as state:
                call()
            assert not state.value.fatal and not state.value.abortable
        with producer.transaction():
            with pytest.raises(errors.MessageTooLarge) as large:
                producer.send(topic, b"x" * (2 << 20))
            assert not large.value.fatal and not large.value.abortable
            producer.send(topic, b"fine", partition=0)
        with pytest.raises(errors.KafkalogError) as member, producer.transaction():
            producer.send_offsets({TopicPartition(topic, 0): 5}, GroupMetadata(topic, 3, "nobody"))
        assert member.value.abortable and not member.value.fatal
    assert shown(cluster, topic, 1) == [b"fine"]
