"""How often a group without an interval of its own is assigned: by the work of its last assignment,
which is counted, not timed."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.config.served import check_served
from kafkalog.config.server import ServerConfig
from kafkalog.coordinator.consumer_groups.epochs import pace_ms
from kafkalog.errors import InvalidSetting
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.consumer_calls import ConsumerDesk
from tests.unit.coordinator.group_calls import config
from tests.unit.coordinator.test_consumer_groups_failures import consumer

INTERVAL = "group_consumer_assignment_interval_ms"
OWN = "consumer.assignment.interval.ms"
PARTITIONS = 500


def desk_of(**settings: Any) -> ConsumerDesk:
    """A coordinator without a setting of the interval, unless one is given."""
    return ConsumerDesk(config(**settings), topics={"t": PARTITIONS})


def assigned(desk: ConsumerDesk) -> bool:
    """True if the group's assignment is that of its last epoch."""
    found = desk.described()
    return bool(found.assignment_epoch == found.group_epoch)


def test_the_second_member_of_a_small_group_is_assigned_at_once() -> None:
    """With Kafka's interval it waits for a second, and then for its next heartbeat."""
    desk = ConsumerDesk(config())
    desk.enter("a")
    assert desk.enter("b").member_epoch == 3
    assert assigned(desk)


@pytest.mark.parametrize("members", [2, 60])
def test_a_group_waits_for_as_long_as_its_size_asks_for(members: int) -> None:
    """Also with the same partitions: what they cost is counted, too."""
    desk = desk_of()
    for number in range(members):
        desk.enter(f"m{number:02}")
        desk.wait(pace_ms(members, PARTITIONS))
    assert assigned(desk)
    desk.enter("late")
    assert assigned(desk)
    pause_ms = pace_ms(members + 1, PARTITIONS)
    last = desk.enter("last")
    desk.wait(pause_ms - 1)
    desk.beat("last", last.member_epoch)
    assert not assigned(desk)
    desk.wait(1)
    desk.beat("last", last.member_epoch)
    assert assigned(desk)


def test_an_assignment_takes_a_share_of_one_processor() -> None:
    """The wait grows with members and partitions; for few of both it is none."""
    assert pace_ms(10, 50) == pace_ms(0, 0) == 0
    assert pace_ms(500, 500) == 210
    assert pace_ms(1_000, 1_000) == 2 * pace_ms(500, 500)


@pytest.mark.parametrize(
    "settings, own", [({INTERVAL: 0}, {}), ({}, {OWN: 0})], ids=["of all", "its own"]
)
def test_an_interval_that_is_set_is_kafkas(settings: dict[str, Any], own: dict[str, int]) -> None:
    """0: each change is assigned at once, in a group of any size."""
    desk = desk_of(**settings)
    desk.own = {"g": own} if own else {}
    for number in range(40):
        joined = desk.enter(f"m{number:02}")
    assert joined.member_epoch == desk.described().group_epoch
    assert assigned(desk)


def test_the_lowest_interval_holds_for_groups_without_one() -> None:
    """As the broker's setting says; the default interval is within any bounds."""
    desk = desk_of(group_consumer_min_assignment_interval_ms=700)
    desk.enter("a")
    desk.enter("b")
    desk.wait(699)
    desk.beat("b", 2)
    assert not assigned(desk)
    desk.wait(1)
    desk.beat("b", 2)
    assert assigned(desk)


@pytest.mark.parametrize("most_ms", [0, 15, 15_000])
def test_a_group_waits_for_the_highest_interval_at_most(most_ms: int) -> None:
    """However large it is."""
    desk = desk_of(group_consumer_max_assignment_interval_ms=most_ms)
    for number in range(60):
        desk.enter(f"m{number:02}")
        desk.wait(pace_ms(60, PARTITIONS))
    desk.enter("late")
    wait_ms = min(pace_ms(61, PARTITIONS), most_ms)
    assert (wait_ms == most_ms) is (most_ms < 34)
    last = desk.enter("last")
    if wait_ms:
        desk.wait(wait_ms - 1)
        desk.beat("last", last.member_epoch)
        assert not assigned(desk)
        desk.wait(1)
        desk.beat("last", last.member_epoch)
    assert assigned(desk)


def test_the_bounds_of_the_interval_are_checked_as_kafka_does() -> None:
    """One that is not set counts as a second, with which Kafka would start."""
    name, lowest = INTERVAL.replace("_", "."), "group.consumer.min.assignment.interval.ms"
    for settings in ({lowest: 1_000}, {lowest: 1_001, name: 1_001}):
        check_served(ServerConfig(settings))
    for refused in ({lowest: 1_001}, {lowest: 700, name: 600}):
        with pytest.raises(InvalidSetting, match=f"{name}.* to 15000"):
            check_served(ServerConfig(refused))


def test_an_assignment_that_is_not_written_is_undone_with_its_wait() -> None:
    desk = desk_of()
    desk.enter("a")
    group = consumer(desk)
    desk.wait(pace_ms(1, PARTITIONS))
    desk.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert desk.enter("b").error
    assert group.pace_ms == pace_ms(1, PARTITIONS)
    assert desk.enter("b").member_epoch == 3
    assert group.pace_ms == pace_ms(2, PARTITIONS)


def test_settings_of_groups_are_read_once_for_many_heartbeats() -> None:
    """Until they are others."""
    desk = desk_of()
    desk.own = {"g": {OWN: 5_000}, "h": {OWN: 7_000}}
    consumers = desk.core.consumers
    assert [consumers.limits(name).assignment_ms for name in "ghgx"] == [5_000, 7_000, 5_000, 0]
    assert consumers.limits("g") is consumers.limits("g")
    desk.own = {"g": {OWN: 6_000}}
    assert [consumers.limits(name).assignment_ms for name in "gh"] == [6_000, 0]
