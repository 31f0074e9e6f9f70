"""Partitions and offsets that the user manages: stored, assigned incrementally, sought."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafkalog import CommittedOffset, Consumer, Producer, Record, TopicPartition, aio, errors
from kafkalog.testing.broker import TestBroker
from tests.support.waiting import LIMIT_S

LIMIT_MS = LIMIT_S * 1000
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
GONE = TopicPartition("gone", 0)
BY_HAND = {"enable.auto.offset.store": False}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with TestBroker(tmp_path_factory.mktemp("by-hand") / "data") as broker:
        broker.create_topic("t", 2)
        with Producer(broker.bootstrap_servers) as producer:
            for partition in (0, 1):
                producer.send_many("t", [b"%d" % i for i in range(5)], partition=partition)
        yield broker


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def consumer(broker: TestBroker, group: str | None, **options: Any) -> Consumer:
    return Consumer(
        broker.bootstrap_servers, group=group,
        **{"auto_offset_reset": "earliest", "auto_commit": False if group else None, **options},
    )  # fmt: skip


def read(reader: Consumer, count: int) -> list[Record]:
    found: list[Record] = []
    while len(found) < count:
        found += reader.poll(LIMIT_MS, count - len(found))
    return found


# ---- stored ------------------------------------------------------------------------------------


def test_a_commit_takes_stored_offsets(shared: TestBroker, group: str) -> None:
    with consumer(shared, group, config=BY_HAND) as reader:
        reader.assign([ZERO, ONE])
        read(reader, 10)
        reader.commit()
        assert shared.committed(group) == {}
        reader.store_offsets({ZERO: 3})
        reader.commit()
        assert shared.committed(group) == {ZERO: 3}
        reader.store_offsets({ONE: CommittedOffset(2, -1, "mine"), ZERO: 4})
        reader.commit()
        assert shared.committed(group) == {ZERO: 4, ONE: 2}
        assert reader.committed(ONE) == CommittedOffset(2, -1, "mine")
        assert reader.position(ZERO) == 5  # storing does not move the position


def test_a_record_stores_the_offset_behind_it(shared: TestBroker, group: str) -> None:
    with consumer(shared, group, config=BY_HAND) as reader:
        reader.assign([ZERO])
        for record in read(reader, 2):
            reader.store_offsets(record)
        read(reader, 3)
        reader.commit()
        at = reader.committed(ZERO)
    assert at is not None and at.offset == 2 and at.leader_epoch >= 0


def test_automatic_commits_take_stored_offsets(shared: TestBroker, group: str) -> None:
    with consumer(shared, group, auto_commit=True, config=BY_HAND) as reader:
        reader.subscribe(["t"])
        read(reader, 10)
        reader.store_offsets({ZERO: 1})
    assert shared.committed(group) == {ZERO: 1}


def test_given_up_partitions_store_no_offsets(shared: TestBroker, group: str) -> None:
    with consumer(shared, group, config=BY_HAND) as reader:
        reader.assign([ZERO, ONE])
        reader.store_offsets({ZERO: 1, ONE: 1})
        reader.assign([ZERO])
        reader.commit()
        with pytest.raises(errors.ArgumentError, match="t-1 is not assigned"):
            reader.store_offsets({ONE: 1})
    assert shared.committed(group) == {ZERO: 1}


def test_without_the_setting_nothing_is_stored(shared: TestBroker, group: str) -> None:
    with consumer(shared, group) as reader:
        reader.assign([ZERO])
        with pytest.raises(errors.ArgumentError, match=r"enable\.auto\.offset\.store"):
            reader.store_offsets({ZERO: 1})


def test_another_thread_stores_nothing_and_looks_at_nothing(
    shared: TestBroker, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another polls, the positions may be changing."""
    problems: list[BaseException | None] = []

    class Looks:
        def on_consume(self, records: list[Record]) -> list[Record]:
            with ThreadPoolExecutor() as pool, monkeypatch.context() as now:
                now.setattr(reader._reading, "epoch", lambda *_: pytest.fail("it looked"))
                problems.append(pool.submit(reader.store_offsets, records[0]).exception())
            return records

    with consumer(shared, group, config=BY_HAND, interceptors=[Looks()]) as reader:
        reader.assign([ZERO])
        (record,) = read(reader, 1)
        assert [type(one) for one in problems] == [errors.WrongThread]
        reader.commit()
        assert shared.committed(group) == {}
        reader.store_offsets(record)
        reader.commit()
    assert shared.committed(group) == {ZERO: 1}


def test_asyncio_commits_stored_offsets(shared: TestBroker, group: str) -> None:
    async def work() -> None:
        async with aio.Consumer(
            shared.bootstrap_servers, group=group, auto_offset_reset="earliest",
            auto_commit=False, config=BY_HAND,
        ) as reader:  # fmt: skip
            await reader.assign([ZERO])
            assert len(await reader.poll(LIMIT_MS, 1)) == 1  # others are buffered, not returned
            await reader.store_offsets({ZERO: 4})
            await reader.commit()

    asyncio.run(work())
    assert shared.committed(group) == {ZERO: 4}


# ---- assigned ----------------------------------------------------------------------------------


def test_partitions_come_and_go_one_by_one(shared: TestBroker) -> None:
    with consumer(shared, None) as reader:
        reader.incremental_assign([ZERO])
        assert [one.partition for one in read(reader, 3)] == [0, 0, 0]
        reader.incremental_assign([ZERO, ONE])
        assert reader.assignment == [ZERO, ONE]
        assert reader.position(ZERO) == 3  # its position is kept
        reader.incremental_unassign([ZERO])
        assert reader.assignment == [ONE]
        assert [(one.partition, one.offset) for one in read(reader, 5)] == [
            (1, i) for i in range(5)
        ]
        with pytest.raises(errors.ArgumentError, match="t-0 is not assigned"):
            reader.incremental_unassign([ZERO])
        reader.incremental_unassign([ONE])
        assert reader.assignment == [] and reader.poll(0) == []


@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("how", ["assign", "incremental_unassign"])
def test_unassigned_partitions_are_committed_automatically(
    shared: TestBroker, group: str, how: str, auto: bool
) -> None:
    with consumer(shared, group, auto_commit=auto) as reader:
        reader.assign([ZERO, ONE])
        read(reader, 10)
        getattr(reader, how)([ONE if how == "assign" else ZERO])
        assert reader.assignment == [ONE]
    assert shared.committed(group) == ({ZERO: 5, ONE: 5} if auto else {})


@pytest.mark.parametrize("name", ["incremental_assign", "incremental_unassign"])
def test_not_while_topics_are_subscribed_to(shared: TestBroker, name: str) -> None:
    with consumer(shared, None) as reader:
        reader.subscribe(["t"])
        with pytest.raises(errors.ArgumentError, match=f"{name}: topics are subscribed to"):
            getattr(reader, name)([ZERO])


# ---- committed offsets and seeks ---------------------------------------------------------------


def test_committed_of_many_partitions(shared: TestBroker, group: str) -> None:
    with consumer(shared, group) as reader:
        reader.commit({ZERO: 2})
        assert reader.committed([ZERO, ONE]) == {ZERO: CommittedOffset(2), ONE: None}
        assert reader.committed({ZERO}, LIMIT_MS) == {ZERO: CommittedOffset(2)}
        assert reader.committed([]) == {}
        assert reader.committed(ZERO) == CommittedOffset(2)
        assert reader.committed(("t", 1)) is None  # type: ignore[call-overload]


def test_topics_are_listed_with_their_partitions(shared: TestBroker, group: str) -> None:
    with consumer(shared, group) as reader:
        reader.commit({ZERO: 2})
        found = reader.list_topics(LIMIT_MS)
        assert [one.partition for one in found["t"]] == [0, 1]
        assert all(one.leader in one.replicas for one in found["t"])
        assert "__consumer_offsets" in found
        reader.assign([ZERO])
        assert len(read(reader, 3)) == 3


def test_seek_to_committed_offsets(shared: TestBroker, group: str) -> None:
    with consumer(shared, group) as reader:
        reader.assign([ZERO, ONE])
        read(reader, 10)
        reader.commit({ZERO: 3})
        reader.seek_to_committed(*reader.assignment)
        assert reader.position(ZERO) == 3
        assert reader.position(ONE) == 0  # auto.offset.reset
        assert sorted((one.partition, one.offset) for one in read(reader, 7)) == [
            (0, 3), (0, 4), *((1, i) for i in range(5)),
        ]  # fmt: skip
        with pytest.raises(errors.ArgumentError, match="needs partitions"):
            reader.seek_to_committed()


def test_there_is_something_to_seek_to(shared: TestBroker, group: str) -> None:
    with consumer(shared, group, auto_offset_reset="none") as reader:
        reader.assign([ZERO])
        reader.seek(ZERO, 4)
        with pytest.raises(errors.OffsetOutOfRange, match=f"t-0: group '{group}' has committed"):
            reader.seek_to_committed(ZERO)
        assert reader.position(ZERO) == 4
    with consumer(shared, None) as reader:
        reader.assign([ZERO])
        with pytest.raises(errors.ArgumentError, match="the consumer has no group"):
            reader.seek_to_committed(ZERO)


def test_seek_where_a_topic_is_missing(shared: TestBroker, group: str) -> None:
    """It raises, but seeks to the partitions that exist."""
    with consumer(shared, group) as reader:
        reader.assign([ZERO, GONE])
        reader.seek(ZERO, 5)
        reader.commit({ZERO: 3})
        with pytest.raises(errors.UnknownTopicOrPartition, match="gone-0, t-0"):
            reader.seek_to_committed(*reader.assignment)
        assert reader.position(ZERO) == 3


def test_asyncio_assigns_and_seeks(shared: TestBroker, group: str) -> None:
    async def work() -> None:
        async with aio.Consumer(
            shared.bootstrap_servers, group=group, auto_offset_reset="earliest", auto_commit=False
        ) as reader:
            await reader.incremental_assign([ZERO])
            assert len(await reader.poll(LIMIT_MS, 2)) == 2
            await reader.commit()
            assert len(await reader.poll(LIMIT_MS, 2)) == 2
            await reader.seek_to_committed(ZERO)
            (record,) = await reader.poll(LIMIT_MS, 1)
            assert record.offset == 2
            assert await reader.committed([ZERO]) == {ZERO: await reader.committed(ZERO)}
            await reader.incremental_assign([ONE])
            await reader.incremental_unassign([ZERO])
            assert reader.assignment == [ONE]
            assert "t" in await reader.list_topics()

    asyncio.run(work())
