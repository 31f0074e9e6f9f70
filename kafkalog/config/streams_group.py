"""The settings of streams groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kafkalog.config.declare import Long, Settings, Whole, Word, Words
from kafkalog.errors import InvalidSetting

__all__ = [
    "TASK_NAMES", "StreamsGroupConfig", "StreamsGroupSettings", "task_problem", "task_problems",
    "tasks_in_effect",
]  # fmt: skip

TASK_ASSIGNORS = ("sticky",)
TAG_KEY = r"[^,\s]{1,100}"


class StreamsGroupConfig(Settings):
    """The settings of all streams groups; a broker takes them with its own."""

    scope = "broker"

    group_streams_session_timeout_ms = Whole(
        45_000,
        "Time without a heartbeat after which a member of a streams group is removed.",
        unit="ms",
        low=1,
    )
    group_streams_min_session_timeout_ms = Whole(
        45_000, "The lowest streams.session.timeout.ms of a group.", unit="ms", low=1
    )
    group_streams_max_session_timeout_ms = Whole(
        60_000, "The highest streams.session.timeout.ms of a group.", unit="ms", low=1
    )
    group_streams_heartbeat_interval_ms = Whole(
        5_000, "Time between two heartbeats of a member of a streams group.", unit="ms", low=1
    )
    group_streams_min_heartbeat_interval_ms = Whole(
        5_000, "The lowest streams.heartbeat.interval.ms of a group.", unit="ms", low=1
    )
    group_streams_max_heartbeat_interval_ms = Whole(
        15_000, "The highest streams.heartbeat.interval.ms of a group.", unit="ms", low=1
    )
    group_streams_assignment_interval_ms = Whole(
        1_000,
        "Time between two assignments of a streams group's tasks, at least.",
        unit="ms",
        low=0,
    )
    group_streams_min_assignment_interval_ms = Whole(
        0, "The lowest streams.assignment.interval.ms of a group.", unit="ms", low=0
    )
    group_streams_max_assignment_interval_ms = Whole(
        15_000, "The highest streams.assignment.interval.ms of a group.", unit="ms", low=0
    )
    group_streams_max_size = Whole(
        2_147_483_647, "Members of a streams group.", unit="members", low=1
    )
    group_streams_assignors = Words(
        TASK_ASSIGNORS, "The assignor of streams groups.", choices=TASK_ASSIGNORS
    )
    group_streams_initial_rebalance_delay_ms = Whole(
        3_000,
        "Time that an empty streams group waits for more members before its first assignment.",
        unit="ms",
        low=0,
    )
    group_streams_num_standby_replicas = Whole(
        0, "Copies of the state of each task, on other instances of the application.", low=0
    )
    group_streams_max_standby_replicas = Whole(
        2, "The highest streams.num.standby.replicas of a group.", low=0
    )
    group_streams_num_warmup_replicas = Whole(
        2,
        "Kept for Apache Kafka 4.4, which assigns no warm-up tasks either.",
        low=0,
    )
    group_streams_max_warmup_replicas = Whole(
        20, "The highest streams.num.warmup.replicas of a group.", low=0
    )
    group_streams_task_offset_interval_ms = Whole(
        60_000,
        "Time between two reports of how far a member's copies of state have got.",
        unit="ms",
        low=1,
    )
    group_streams_min_task_offset_interval_ms = Whole(
        15_000, "The lowest streams.task.offset.interval.ms of a group.", unit="ms", low=1
    )
    group_streams_acceptable_recovery_lag = Long(
        10_000,
        "How many records a copy of state may be behind, and still count as complete.",
        unit="records",
        low=0,
    )
    group_streams_rack_aware_assignment_tags = Words(
        (), "Keys of the client tags that every member of a streams group must have.",
        pattern=TAG_KEY, example="keys of client tags",
    )  # fmt: skip


class StreamsGroupSettings(Settings):
    """The settings of a single streams group."""

    streams_session_timeout_ms = Whole(
        45_000, StreamsGroupConfig.group_streams_session_timeout_ms.text, unit="ms", low=1,
        synonym="group.streams.session.timeout.ms",
    )  # fmt: skip
    streams_heartbeat_interval_ms = Whole(
        5_000, StreamsGroupConfig.group_streams_heartbeat_interval_ms.text, unit="ms", low=1,
        synonym="group.streams.heartbeat.interval.ms",
    )  # fmt: skip
    streams_assignment_interval_ms = Whole(
        1_000, StreamsGroupConfig.group_streams_assignment_interval_ms.text, unit="ms", low=0,
        synonym="group.streams.assignment.interval.ms",
    )  # fmt: skip
    streams_initial_rebalance_delay_ms = Whole(
        3_000, StreamsGroupConfig.group_streams_initial_rebalance_delay_ms.text, unit="ms", low=0,
        synonym="group.streams.initial.rebalance.delay.ms",
    )  # fmt: skip
    streams_num_standby_replicas = Whole(
        0, StreamsGroupConfig.group_streams_num_standby_replicas.text, low=0,
        synonym="group.streams.num.standby.replicas",
    )  # fmt: skip
    streams_num_warmup_replicas = Whole(
        2, StreamsGroupConfig.group_streams_num_warmup_replicas.text, low=0,
        synonym="group.streams.num.warmup.replicas",
    )  # fmt: skip
    streams_task_offset_interval_ms = Whole(
        60_000, StreamsGroupConfig.group_streams_task_offset_interval_ms.text, unit="ms", low=1,
        synonym="group.streams.task.offset.interval.ms",
    )  # fmt: skip
    streams_acceptable_recovery_lag = Long(
        10_000, StreamsGroupConfig.group_streams_acceptable_recovery_lag.text, unit="records",
        low=0, synonym="group.streams.acceptable.recovery.lag",
    )  # fmt: skip
    streams_rack_aware_assignment_tags = Words(
        (), StreamsGroupConfig.group_streams_rack_aware_assignment_tags.text, pattern=TAG_KEY,
        example="keys of client tags", synonym="group.streams.rack.aware.assignment.tags",
    )  # fmt: skip
    streams_assignor_name = Word(
        "sticky", StreamsGroupConfig.group_streams_assignors.text, choices=TASK_ASSIGNORS
    )


TASK_NAMES = frozenset({
    "streams.initial.rebalance.delay.ms", "streams.num.standby.replicas",
    "streams.num.warmup.replicas", "streams.task.offset.interval.ms",
    "streams.acceptable.recovery.lag", "streams.rack.aware.assignment.tags",
    "streams.assignor.name",
})  # fmt: skip
"""The settings of single groups about tasks."""
_LOW = {"streams.task.offset.interval.ms": "group.streams.min.task.offset.interval.ms"}
_HIGH = {
    "streams.num.standby.replicas": "group.streams.max.standby.replicas",
    "streams.num.warmup.replicas": "group.streams.max.warmup.replicas",
}
_BOUNDED = {**_LOW, **_HIGH}


def task_problems(given: Mapping[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Settings that contradict each other, as Apache Kafka checks them at its start: name, value,
    and what is wanted."""
    for own, bound in _BOUNDED.items():
        name = f"group.{own}"
        if name in given and _outside(own, given[name], given[bound]):
            which = "at least" if own in _LOW else "at most"
            yield name, given[name], f"{which} {bound}, {given[bound]}"


def _outside(own: str, value: int, bound: int) -> bool:
    return value < bound if own in _LOW else value > bound


def task_problem(own: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """Why a group's own settings are refused, by those of its broker; None: they are not."""
    for name, bound in _BOUNDED.items():
        if name in own and _outside(name, own[name], given[bound]):
            which = "greater" if name in _LOW else "less"
            return f"{name} must be {which} than or equal to {bound}"
    return None


def tasks_in_effect(own: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """A group's own settings about tasks, within the bounds that its broker has now."""
    found: dict[str, Any] = {}
    for name in TASK_NAMES & own.keys():
        try:
            value = StreamsGroupSettings.table[name].checked(own[name])
        except InvalidSetting:
            continue  # of a newer version
        if name in _BOUNDED and _outside(name, value, given[_BOUNDED[name]]):
            value = given[_BOUNDED[name]]
        found[name] = value
    return found
