"""Heartbeats without news, which C answers: the group, its members' sessions and what is shown stay
what they would be if each came to the coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafkalog.clock import ManualClock, SkippingClock
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.server.conftest import MakeBroker
from tests.unit.server.test_consumer_groups import GROUP_KIND, beat, enter

SESSION_MS = 45_000
BEAT = "ConsumerGroupHeartbeat"


def repeated(broker: Broker) -> int:
    return broker._node.reactor.stats().repeated


@contextmanager
def settled(broker: Broker, members: int = 2) -> Iterator[tuple[list[Raw], int]]:
    """A group whose members have their partitions: their connections, and the epoch; the last
    heartbeat of each came to the coordinator."""
    raws = [Raw(broker.bootstrap_servers) for _ in range(members)]
    try:
        raws[0].create("t", members)
        epochs = [enter(raw, f"m{number}").member_epoch for number, raw in enumerate(raws)]
        for _ in range(3):
            for number, raw in enumerate(raws):
                epochs[number] = settle(raw, f"m{number}", epochs[number])
        assert len(set(epochs)) == 1
        yield raws, epochs[0]
    finally:
        for raw in raws:
            raw.close()


def settle(raw: Raw, member: str, epoch: int) -> int:
    """Do as the coordinator says; returns the epoch."""
    told = beat(raw, member, epoch)
    if told.assignment is not None:
        owned = [
            {"topic_id": one.topic_id, "partitions": one.partitions}
            for one in told.assignment.topic_partitions
        ]
        told = beat(raw, member, told.member_epoch, topic_partitions=owned)
    return int(told.member_epoch)


def test_most_heartbeats_do_not_come_to_the_coordinator(broker: Broker) -> None:
    with settled(broker) as (raws, epoch):
        answers = [beat(raws[0], "m0", epoch) for _ in range(3)]
        before = repeated(broker)
        answers += [beat(raws[0], "m0", epoch) for _ in range(5)]
        assert repeated(broker) == before + 5
    assert {str(one) for one in answers} == {str(answers[0])}
    assert (answers[0].error_code, answers[0].member_epoch) == (0, epoch)


def test_a_change_of_the_group_is_told_with_the_next_heartbeat(broker: Broker) -> None:
    with settled(broker) as (raws, epoch), Raw(broker.bootstrap_servers) as late:
        for _ in range(3):
            beat(raws[0], "m0", epoch)
        beat(raws[1], "m1", -1)
        told = beat(raws[0], "m0", epoch)
        assert told.member_epoch > epoch
        assert sum(len(one.partitions) for one in told.assignment.topic_partitions) == 2
        enter(late, "late")
        assert beat(raws[0], "m0", told.member_epoch).assignment is not None


def test_a_grown_topic_is_told_with_the_next_heartbeat(broker: Broker) -> None:
    with settled(broker, 1) as (raws, epoch), Raw(broker.bootstrap_servers) as admin:
        for _ in range(3):
            beat(raws[0], "m0", epoch)
        grown = {"name": "t", "count": 5, "assignments": None}
        made = admin.call(
            apis.CREATE_PARTITIONS, 1, topics=[grown], timeout_ms=9_000, validate_only=False
        )
        assert not made.results[0].error_code
        found: list[Any] = []

        def told() -> bool:
            found.append(beat(raws[0], "m0", epoch))
            return found[-1].assignment is not None

        wait_for(told, "the partitions")
        assert [one.partitions for one in found[-1].assignment.topic_partitions] == [[*range(5)]]


def test_a_changed_setting_of_the_group_is_in_the_next_answer(broker: Broker) -> None:
    with settled(broker, 1) as (raws, epoch), Raw(broker.bootstrap_servers) as admin:
        for _ in range(3):
            assert beat(raws[0], "m0", epoch).heartbeat_interval_ms == 5_000
        changed = admin.alter(GROUP_KIND, "g", consumer_heartbeat_interval_ms="7000")
        assert not changed.error_code
        wait_for(lambda: beat(raws[0], "m0", epoch).heartbeat_interval_ms == 7_000, "the setting")


def test_a_member_that_is_heard_so_stays(make_broker: MakeBroker) -> None:
    """And it is removed a session after the last time."""
    clock = ManualClock()
    broker = make_broker(clock=clock)
    with settled(broker, 1) as (raws, epoch), Raw(broker.bootstrap_servers) as other:
        before = repeated(broker)
        for _ in range(2):
            beat(raws[0], "m0", epoch)
        for _ in range(4):
            clock.advance(SESSION_MS - 5_000)
            assert not beat(raws[0], "m0", epoch).error_code
        assert repeated(broker) >= before + 4
        clock.advance(SESSION_MS - 1)
        assert members(other) == ["m0"]
        clock.advance(1)
        wait_for(lambda: not members(other), "the end of the session")
        assert beat(raws[0], "m0", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


class OtherOrigin(SkippingClock):
    """A clock whose monotonic time counts from another moment than that of C."""

    def __init__(self, apart_s: int) -> None:
        self.apart_s = apart_s
        super().__init__()

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.apart_s


@pytest.mark.parametrize("apart_s", [-1_000, 1_000_000])
def test_a_session_ends_by_ages_not_by_times(make_broker: MakeBroker, apart_s: int) -> None:
    """The monotonic clocks of C and Python are the same one on Linux only."""
    clock = OtherOrigin(apart_s)
    broker = make_broker(clock=clock)
    with settled(broker, 1) as (raws, epoch), Raw(broker.bootstrap_servers) as other:
        before = repeated(broker)
        for _ in range(4):
            clock.advance(SESSION_MS - 15_000)
            assert not beat(raws[0], "m0", epoch).error_code
            assert members(other) == ["m0"]
        assert repeated(broker) >= before + 3
        clock.advance(SESSION_MS)
        wait_for(lambda: not members(other), "the end of the session")


def members(raw: Raw) -> list[str]:
    (found,) = raw.call(apis.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"]).groups
    return [one.member_id for one in found.members]


def test_a_client_with_a_quota_is_measured_each_time(broker: Broker) -> None:
    """Also if the quota comes later."""
    with settled(broker, 1) as (raws, epoch), Raw(broker.bootstrap_servers) as admin:
        for _ in range(3):
            beat(raws[0], "m0", epoch)
        entry = {
            "entity": [{"entity_type": "client-id", "entity_name": None}],
            "ops": [{"key": "request_percentage", "value": 1e6, "remove": False}],
        }
        (done,) = admin.call(
            apis.ALTER_CLIENT_QUOTAS, 1, entries=[entry], validate_only=False
        ).entries
        assert not done.error_code
        wait_for(lambda: broker._node.quotas.active, "the quota")
        beat(raws[0], "m0", epoch)
        before = repeated(broker)
        for _ in range(3):
            assert not beat(raws[0], "m0", epoch).error_code
        assert repeated(broker) == before


def test_a_fault_hits_them(broker: Broker) -> None:
    with settled(broker, 1) as (raws, epoch):
        for _ in range(3):
            beat(raws[0], "m0", epoch)
        broker.faults.fail(BEAT, "GROUP_AUTHORIZATION_FAILED")
        hit = beat(raws[0], "m0", epoch)
        assert hit.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert not beat(raws[0], "m0", epoch).error_code


def test_a_dropped_response_is_not_sent(broker: Broker) -> None:
    """Nor is it repeated: the next heartbeat comes to the coordinator."""
    with settled(broker, 1) as (raws, epoch), Raw(broker.bootstrap_servers) as later:
        for _ in range(3):
            beat(raws[0], "m0", epoch)
        broker.faults.drop_response(BEAT)
        with pytest.raises(ConnectionError):
            beat(raws[0], "m0", epoch)
        before = repeated(broker)
        assert not beat(later, "m0", epoch).error_code
        assert repeated(broker) == before


def test_a_client_that_is_cut_off_has_no_answer(broker: Broker) -> None:
    """C answers none of its heartbeats."""
    with settled(broker, 1) as (raws, epoch):
        for _ in range(3):
            beat(raws[0], "m0", epoch)
        fault = broker.faults.cut_off("raw")
        with pytest.raises(ConnectionError):
            beat(raws[0], "m0", epoch)
        assert fault.hits == 1


def test_they_are_counted_as_others(broker: Broker) -> None:
    def counted() -> list[float]:
        of = f'request="{BEAT}"'
        names = (f"requests_total{{{of}}}", f'errors_total{{{of},error="NONE"}}')
        found = broker.metrics()
        return [found[f"kafka_network_requestmetrics_{name}"] for name in names]

    with settled(broker, 1) as (raws, epoch):
        before = counted()
        for _ in range(6):
            beat(raws[0], "m0", epoch)
        assert repeated(broker) >= 4
        assert counted() == [value + 6 for value in before]
