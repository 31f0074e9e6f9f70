"""A member that its group has removed: every kind of commit it tries is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import aio
from kafkalog.client.calls.groups import GroupMetadata, remove_members
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import failure_class
from kafkalog.client.producer.producer import Producer
from kafkalog.testing.broker import TestBroker
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support.waiting import wait_for

TP = TopicPartition("t", 0)
OPTIONS: dict[str, Any] = {
    "group": "g",
    "auto_offset_reset": "earliest",
    "auto_commit": False,
    "session_timeout_ms": 60_000,
    "config": {"fetch.max.wait.ms": 10},
}
UNKNOWN = failure_class(ErrorCode.UNKNOWN_MEMBER_ID)
FENCED = failure_class(ErrorCode.FENCED_INSTANCE_ID)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "b") as made:
        made.create_topic("t")
        made.fill("t", [str(i) for i in range(10)])
        yield made


def member(broker: TestBroker, **options: Any) -> Consumer:
    """A member that has read three records."""
    made = Consumer(broker.bootstrap_servers, "t", **{**OPTIONS, **options})
    read: list[Any] = []
    while len(read) < 3:
        read += made.poll(1_000, max_records=3 - len(read))
    return made


def succeed(broker: TestBroker) -> Consumer:
    """Remove the members; a new one reads and commits everything."""
    with Cluster(broker.bootstrap_servers) as cluster:
        remove_members(cluster, "g").check()
    made = Consumer(broker.bootstrap_servers, "t", **OPTIONS)
    read: list[Any] = []
    while len(read) < 10:
        read += made.poll(1_000)
    made.commit()
    return made


def noticed(one: Consumer) -> None:
    """Wait until it has noticed and asks to join; it gets in only after the other one joins."""
    wait_for(lambda: one.poll(0) or not one.assignment, "it gives its partitions up")


def in_transaction(broker: TestBroker, who: GroupMetadata) -> None:
    with Producer(broker.bootstrap_servers, transactional_id="x") as producer:
        producer.begin_transaction()
        producer.send_offsets({TP: 3}, who)
        producer.commit_transaction()


@pytest.mark.parametrize("heartbeat_ms", [50_000, 20], ids=["unaware", "aware"])
def test_its_transaction_is_refused(broker: TestBroker, heartbeat_ms: int) -> None:
    """Committed without a generation, it would set the group back, and records would repeat."""
    one = member(broker, heartbeat_ms=heartbeat_ms)
    was = one.group_metadata()
    two = succeed(broker)
    if heartbeat_ms == 20:
        noticed(one)
    assert one.group_metadata() == was
    with pytest.raises(UNKNOWN):
        in_transaction(broker, one.group_metadata())
    one.close()
    assert one.group_metadata() == was
    with pytest.raises(UNKNOWN):
        in_transaction(broker, one.group_metadata())
    assert broker.committed("g") == {TP: 10}
    two.close()


def test_a_member_of_an_older_generation_is_told_so(broker: TestBroker) -> None:
    """It kept the metadata of one generation, and is now in the next."""
    with member(broker, heartbeat_ms=20) as one:
        old = one.group_metadata()
        with Consumer(broker.bootstrap_servers, "t", **OPTIONS) as two:
            wait_for(lambda: generations([one, two]) == {old.generation + 1}, "both are in")
            with pytest.raises(failure_class(ErrorCode.ILLEGAL_GENERATION)):
                in_transaction(broker, old)
            in_transaction(broker, one.group_metadata())


def replaced(broker: TestBroker, one: Consumer) -> Consumer:
    """The member that now has the place of `one`."""
    made = Consumer(broker.bootstrap_servers, "t", **OPTIONS, group_instance_id="i")
    wait_for(lambda: made.poll(10) or made.assignment, "the other one is in")
    return made


def by_a_heartbeat(one: Consumer) -> None:
    wait_for(lambda: one.poll(10) and False, "it is fenced")


def by_a_commit(one: Consumer) -> None:
    one.commit({TP: 3})


def by_a_commit_in_the_background(one: Consumer) -> None:
    told: list[Any] = []
    one.commit({TP: 3}, wait=False, callback=lambda *how: told.append(how[1]))
    wait_for(lambda: one.poll(0) and False, "it is fenced")


def by_an_automatic_commit(one: Consumer) -> None:
    one.unsubscribe()


@pytest.mark.parametrize(
    ("how", "options"),
    [
        (by_a_heartbeat, {"heartbeat_ms": 20}),
        (by_a_commit, {"heartbeat_ms": 50_000}),
        (by_a_commit_in_the_background, {"heartbeat_ms": 50_000}),
        (by_an_automatic_commit, {"heartbeat_ms": 50_000, "auto_commit": True}),
    ],
)
def test_a_static_member_that_was_replaced_stays_out(
    broker: TestBroker, how: Callable[[Consumer], None], options: dict[str, Any]
) -> None:
    """However it notices, and whichever member has its place later, it takes nothing back."""
    lost: list[TopicPartition] = []
    with member(broker, **options, group_instance_id="i") as one:
        one.subscribe("t", on_lost=lost.extend)
        wait_for(lambda: one.poll(10), "it has read on")
        was = one.group_metadata()
        two = replaced(broker, one)
        with pytest.raises(FENCED):
            how(one)
        one.subscribe("t", on_lost=lost.extend)
        for _ in range(2):
            with pytest.raises(FENCED):
                one.poll(60_000)
        assert one.assignment == []
        with Cluster(broker.bootstrap_servers) as cluster:
            remove_members(cluster, "g").check()  # its place becomes free
        with pytest.raises(FENCED):
            one.poll(60_000)
        assert one.group_metadata() == was
        with pytest.raises(FENCED):
            one.commit({TP: 3})
        three = replaced(broker, one)
        with pytest.raises(FENCED):
            one.poll(60_000)
        three.commit({TP: 10})
        three.close()
        two.close()
        one.unsubscribe()
        one.assign([TP])  # by hand it may continue reading
        one.seek(TP, 0)
        assert one.poll(60_000)
    assert lost == [TP]
    assert broker.committed("g") == {TP: 10}


def test_a_static_member_that_was_replaced_is_told_so_and_takes_nothing_back(
    broker: TestBroker,
) -> None:
    """Nor does its transaction."""
    with member(broker, heartbeat_ms=20, group_instance_id="i") as one:
        was = one.group_metadata()
        two = replaced(broker, one)
        with pytest.raises(FENCED):
            by_a_heartbeat(one)
        assert one.group_metadata() == was
        with pytest.raises(FENCED):
            in_transaction(broker, one.group_metadata())
        two.commit({TP: 10})
        two.close()
    assert broker.committed("g") == {TP: 10}


def generations(members: list[Consumer]) -> set[int]:
    """The generations of the members after each has polled."""
    for one in members:
        one.poll(10)
    return {one.group_metadata().generation for one in members}


def plainly(one: Consumer) -> None:
    with pytest.raises(UNKNOWN):
        one.commit({TP: 3})


def later(one: Consumer) -> None:
    """Refused immediately, or by the coordinator."""
    told: list[Any] = []
    try:
        one.commit({TP: 3}, wait=False, callback=lambda *how: told.append(how[1]))
    except UNKNOWN as problem:
        told.append(problem)
    wait_for(lambda: one.poll(0) is None or told, "the error is reported")
    assert isinstance(told[0], UNKNOWN)


def at_the_end(one: Consumer) -> None:
    one.close()


def by_unsubscribing(one: Consumer) -> None:
    one.unsubscribe()


def with_other_topics(one: Consumer) -> None:
    one.subscribe("u")
    one.poll(0)


@pytest.mark.parametrize("heartbeat_ms", [50_000, 20], ids=["unaware", "aware"])
@pytest.mark.parametrize("way", [plainly, later, at_the_end, by_unsubscribing, with_other_topics])
def test_its_commits_are_refused(
    broker: TestBroker, way: Callable[[Consumer], None], heartbeat_ms: int
) -> None:
    """Also of its own positions, as in automatic commits."""
    one = member(broker, heartbeat_ms=heartbeat_ms, auto_commit=True)
    two = succeed(broker)
    if heartbeat_ms == 20:
        noticed(one)
    way(one)
    one.close()
    two.close()
    assert broker.committed("g") == {TP: 10}


def test_asyncio_commits_are_refused(broker: TestBroker) -> None:
    async def work() -> None:
        one = aio.Consumer(broker.bootstrap_servers, "t", **OPTIONS, heartbeat_ms=50_000)
        read: list[Any] = []
        while len(read) < 3:
            read += await one.poll(1_000, max_records=3 - len(read))
        was = await one.group_metadata()
        two = await asyncio.to_thread(succeed, broker)
        with pytest.raises(UNKNOWN):
            await one.commit()
        async with aio.Producer(broker.bootstrap_servers, transactional_id="x") as producer:
            with pytest.raises(UNKNOWN):
                async with producer.transaction():
                    await producer.send_offsets({TP: 3}, await one.group_metadata())
        await one.close()
        with pytest.raises(UNKNOWN):
            await asyncio.to_thread(in_transaction, broker, was)
        await asyncio.to_thread(two.close)

    asyncio.run(work())
    assert broker.committed("g") == {TP: 10}


def test_a_consumer_that_never_joined_is_no_member(broker: TestBroker) -> None:
    """Nor is a consumer that now reads partitions by hand."""
    nobody = GroupMetadata("g")
    with Consumer(broker.bootstrap_servers, **OPTIONS) as consumer:
        assert consumer.group_metadata() == nobody
        consumer.assign([TP])
        assert len(consumer.poll(60_000, max_records=3)) == 3
        assert consumer.group_metadata() == nobody
        in_transaction(broker, consumer.group_metadata())
    broker.assert_committed("g", {TP: 3})
    with member(broker) as one:
        one.unsubscribe()
        assert one.group_metadata().generation > 0
        one.assign([TP])
        assert one.group_metadata() == nobody
        one.commit({TP: 7})
    assert broker.committed("g") == {TP: 7}
