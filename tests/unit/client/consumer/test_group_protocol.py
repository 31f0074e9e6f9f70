"""Consumers with group.protocol=consumer: the coordinator assigns their partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import aio, errors
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.consumer.group_heartbeats import GroupHeartbeats
from kafkalog.client.link.failures import failure_class
from kafkalog.testing.broker import TestBroker as Broker
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support.waiting import wait_for

QUICK = {
    "group.consumer.min.heartbeat.interval.ms": 5,
    "group.consumer.heartbeat.interval.ms": 5,
    "group.consumer.assignment.interval.ms": 0,
}
FOUR = [TopicPartition("t", number) for number in range(4)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose members heartbeat often, with ten records in each partition of topic t."""
    with Broker(str(tmp_path / "data"), config=QUICK) as made:
        with kafkalog.Admin(made.bootstrap_servers) as admin:
            admin.create_topic("t", 4)
        fill(made)
        yield made


def fill(broker: Broker, topic: str = "t", partitions: int = 4) -> None:
    """Ten more records in each partition."""
    with kafkalog.Producer(broker.bootstrap_servers) as producer:
        for number in range(10 * partitions):
            producer.send(topic, b"%d" % number, partition=number % partitions)


class Told:
    """A consumer, the records that it has read, and the calls of its listeners."""

    def __init__(self, broker: Broker, **options: Any) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.read: list[tuple[int, int]] = []
        topics = options.pop("topics", ["t"])
        pattern = options.pop("pattern", None)
        self.consumer = Consumer(
            broker.bootstrap_servers,
            **{"group": "g", "group_protocol": "consumer", "auto_offset_reset": "earliest"}
            | options,
        )
        self.consumer.subscribe(
            topics if pattern is None else None, pattern=pattern,
            on_assigned=lambda some: self.note("assigned", some),
            on_revoked=lambda some: self.note("revoked", some),
            on_lost=lambda some: self.note("lost", some),
        )  # fmt: skip

    def note(self, call: str, some: list[TopicPartition]) -> None:
        self.calls.append((call, [tp.partition for tp in some]))

    def poll(self) -> None:
        found = self.consumer.poll(20)
        self.read += [(one.partition, one.offset) for one in found]


def until(done: Any, *some: Told) -> None:
    """Poll them in turn until it is done."""

    def polled() -> bool:
        for one in some:
            one.poll()
        return bool(done())

    wait_for(polled, "the group")


def test_a_poll_without_news_wakes_no_thread(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each poll woke the thread of heartbeats, which then had nothing to do."""
    woken: list[object] = []
    wake = GroupHeartbeats._wake

    def counted(self: GroupHeartbeats) -> None:
        woken.append(self)
        wake(self)

    monkeypatch.setattr(GroupHeartbeats, "_wake", counted)
    one = Told(broker)
    until(lambda: len(one.read) == 40, one)
    begun = len(woken)
    for _ in range(20):
        one.consumer.poll(1)
    assert begun > 0 and len(woken) == begun
    one.consumer.close()


def shared(*some: Told) -> bool:
    """True if all partitions are read, each by one, and each member has some."""
    held = [tp for one in some for tp in one.consumer.assignment]
    return sorted(held) == FOUR and all(one.consumer.assignment for one in some)


def test_a_member_alone_reads_everything_and_commits(broker: Broker) -> None:
    """Its successor continues where it has stopped."""
    one = Told(broker)
    until(lambda: len(one.read) == 40, one)
    assert one.consumer.group_metadata().generation > 0
    one.consumer.close()
    assert one.calls == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3])]
    fill(broker)
    other = Told(broker)
    until(lambda: len(other.read) == 40, other)
    assert min(offset for _, offset in other.read) == 10
    other.consumer.close()


def test_members_share_the_partitions(broker: Broker) -> None:
    """The first gives up half, keeps the rest, and gets all again when the other leaves."""
    one = Told(broker)
    until(lambda: len(one.read) == 40, one)
    other = Told(broker)
    until(lambda: shared(one, other), one, other)
    assert [call for call, _ in one.calls] == ["assigned", "revoked", "assigned"]
    assert other.read == []  # the first has committed
    other.consumer.close()
    until(lambda: shared(one), one)
    assert "lost" not in [call for call, _ in one.calls]
    assert len(one.read) == len(set(one.read)) == 40
    one.consumer.close()


def test_a_dead_members_partitions_go_to_the_others(broker: Broker) -> None:
    one, dead = Told(broker), Told(broker)
    until(lambda: shared(one, dead), one, dead)
    dead.consumer._heartbeats.stop()  # its process has ended
    broker.clock.advance(60_000)
    until(lambda: shared(one), one)
    one.consumer.close()
    dead.consumer.close(commit=False, timeout_ms=0)


def test_members_that_the_group_has_removed_join_again(broker: Broker) -> None:
    """Their partitions are lost, without a commit."""
    one, other = Told(broker), Told(broker)
    until(lambda: shared(one, other), one, other)

    def lost() -> bool:
        broker.clock.advance(60_000)  # again: a heartbeat on its way may come before the expiry
        return "lost" in [call for call, _ in one.calls + other.calls]

    until(lost, one, other)
    until(lambda: shared(one, other), one, other)
    one.consumer.close()
    other.consumer.close()


def test_a_broker_restarts(broker: Broker) -> None:
    """Members continue with the epochs that they had."""
    one, other = Told(broker), Told(broker)
    until(lambda: shared(one, other), one, other)
    broker.stop()
    broker.start()
    fill(broker)
    until(lambda: len({*one.read, *other.read}) == 80, one, other)
    assert "lost" not in [call for call, _ in one.calls + other.calls]
    one.consumer.commit()
    one.consumer.close()
    other.consumer.close()


def test_a_pattern_is_resolved_by_the_coordinator(broker: Broker) -> None:
    one = Told(broker, pattern="t.*")
    until(lambda: len(one.read) == 40, one)
    assert one.consumer.subscription == ["t"]
    one.consumer.close()


def test_another_subscription_changes_the_assignment(broker: Broker) -> None:
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("u", 1)
    one = Told(broker)
    until(lambda: shared(one), one)
    one.consumer.subscribe("u")
    until(lambda: one.consumer.assignment == [TopicPartition("u", 0)], one)
    one.consumer.unsubscribe()
    assert one.consumer.assignment == []
    one.consumer.subscribe("t")
    until(lambda: shared(one), one)
    one.consumer.close()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"config": {"group.remote.assignor": "best"}}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"pattern": "(?!a)b"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_the_coordinators_refusal_is_raised(
    broker: Broker, options: dict[str, Any], code: ErrorCode
) -> None:
    one = Told(broker, **options)
    with pytest.raises(failure_class(code)):
        until(lambda: False, one)
    one.consumer.close()


def test_an_instance_id_in_use_is_refused(broker: Broker) -> None:
    """Once its member is closed, another takes its place."""
    one = Told(broker, group_instance_id="i")
    until(lambda: shared(one), one)
    other = Told(broker, group_instance_id="i")
    with pytest.raises(failure_class(ErrorCode.UNRELEASED_INSTANCE_ID)):
        until(lambda: False, other)
    one.consumer.close()
    until(lambda: shared(other), other)
    other.consumer.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("session.timeout.ms", 10_000),
        ("heartbeat.interval.ms", 100),
        ("partition.assignment.strategy", "range"),
    ],
)
def test_settings_of_the_classic_protocol_are_refused(name: str, value: object) -> None:
    with pytest.raises(errors.InvalidSetting, match=name):
        Consumer("localhost:1", group="g", group_protocol="consumer", config={name: value})
    with pytest.raises(errors.InvalidSetting, match=r"group\.remote\.assignor"):
        Consumer("localhost:1", group="g", config={"group.remote.assignor": "range"})


def test_an_assignor_of_its_own_is_refused() -> None:
    with pytest.raises(errors.ArgumentError, match=r"group\.remote\.assignor"):
        Consumer("localhost:1", group="g", group_protocol="consumer", assignor="range")


def test_asyncio_members_share_the_partitions(broker: Broker) -> None:
    """Each is told of its own, and they read every record once."""

    async def work() -> None:
        told: list[str] = []
        options: dict[str, Any] = {"group": "g", "group_protocol": "consumer"}
        reset = {"auto_offset_reset": "earliest"}
        async with (
            aio.Consumer(broker.bootstrap_servers, **options, **reset) as one,
            aio.Consumer(broker.bootstrap_servers, **options, **reset) as other,
        ):
            await one.subscribe(["t"], on_assigned=lambda some: told.append("assigned"))
            await other.subscribe(pattern="t.*")
            read: list[tuple[int, int]] = []
            while len(set(read)) < 40 or not (one.assignment and other.assignment):
                for some in (await one.poll(20), await other.poll(20)):
                    read += [(record.partition, record.offset) for record in some]
            await one.commit()
            assert sorted(one.assignment + other.assignment) == FOUR
            assert "assigned" in told

    asyncio.run(asyncio.wait_for(work(), 60))
