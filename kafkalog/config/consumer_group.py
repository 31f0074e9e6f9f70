"""The settings of groups whose members heartbeat: consumer (KIP-848), share (KIP-932) and streams
groups (KIP-1071)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kafkalog.config.declare import Settings, Whole, Word, Words
from kafkalog.config.share_records import ShareRecordSettings
from kafkalog.config.streams_group import (
    StreamsGroupSettings,
    task_problem,
    task_problems,
    tasks_in_effect,
)
from kafkalog.errors import InvalidSetting

__all__ = [
    "ConsumerGroupConfig", "GroupSettings", "ShareGroupConfig", "group_problems", "in_effect",
    "own_problem",
]  # fmt: skip

ASSIGNORS = ("uniform", "range")
SHARE_ASSIGNORS = ("simple",)
_KINDS = ("consumer", "share", "streams")
_RANGES = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
_PACED = "group.consumer.assignment.interval.ms"
_PACED_MS = 1_000
"""Its default in Kafka, which has to be within the bounds there."""
_OF_MEMBERS = frozenset(f"{kind}.{name}" for kind in _KINDS for name in _RANGES)
"""The settings of single groups that have bounds in settings of the broker."""


class ConsumerGroupConfig(Settings):
    """The settings of all consumer groups; a broker takes them with its own."""

    scope = "broker"

    group_consumer_session_timeout_ms = Whole(
        45_000, "Time without a heartbeat after which a member is removed.", unit="ms", low=1
    )
    group_consumer_min_session_timeout_ms = Whole(
        45_000, "The lowest consumer.session.timeout.ms of a group.", unit="ms", low=1
    )
    group_consumer_max_session_timeout_ms = Whole(
        60_000, "The highest consumer.session.timeout.ms of a group.", unit="ms", low=1
    )
    group_consumer_heartbeat_interval_ms = Whole(
        5_000, "Time between two heartbeats of a member.", unit="ms", low=1
    )
    group_consumer_min_heartbeat_interval_ms = Whole(
        5_000, "The lowest consumer.heartbeat.interval.ms of a group.", unit="ms", low=1
    )
    group_consumer_max_heartbeat_interval_ms = Whole(
        15_000, "The highest consumer.heartbeat.interval.ms of a group.", unit="ms", low=1
    )
    group_consumer_assignment_interval_ms = Whole(
        0,
        "Time between two assignments of a group's partitions, at least: members that join "
        "together are assigned together. Unless it is set, here or for the group, it is 0.4 ms for "
        "each member and 0.02 ms for each partition, if that is more than 10 ms, and at most "
        "group.consumer.max.assignment.interval.ms.",
        unit="ms",
        low=0,
        kafka=_PACED_MS,
    )
    group_consumer_min_assignment_interval_ms = Whole(
        0, "The lowest consumer.assignment.interval.ms of a group.", unit="ms", low=0
    )
    group_consumer_max_assignment_interval_ms = Whole(
        15_000, "The highest consumer.assignment.interval.ms of a group.", unit="ms", low=0
    )
    group_consumer_max_size = Whole(
        2_147_483_647, "Members of a consumer group.", unit="members", low=1
    )
    group_consumer_assignors = Words(
        ASSIGNORS,
        "Assignors that members may choose; the first is the default.",
        choices=ASSIGNORS,
    )
    group_consumer_migration_policy = Word(
        "bidirectional",
        "How a group with members changes between the classic and the newer protocol: `upgrade`, "
        "with the first member of the newer one; `downgrade`, when the last of these is gone; both "
        "ways; or not at all. A group without members changes with the first member that joins.",
        choices=("disabled", "upgrade", "downgrade", "bidirectional"),
        fold=str.lower,
    )
    group_consumer_regex_refresh_interval_ms = Whole(
        600_000,
        "Time after which the topics that match the members' patterns are looked for again, if no "
        "topic was created.",
        unit="ms",
        low=10_000,
    )


class ShareGroupConfig(Settings):
    """The settings of all share groups' members; a broker takes them with its own."""

    scope = "broker"

    group_share_session_timeout_ms = Whole(
        45_000,
        "Time without a heartbeat after which a member of a share group is removed.",
        unit="ms",
        low=1,
    )
    group_share_min_session_timeout_ms = Whole(
        45_000, "The lowest share.session.timeout.ms of a group.", unit="ms", low=1
    )
    group_share_max_session_timeout_ms = Whole(
        60_000, "The highest share.session.timeout.ms of a group.", unit="ms", low=1
    )
    group_share_heartbeat_interval_ms = Whole(
        5_000, "Time between two heartbeats of a member of a share group.", unit="ms", low=1
    )
    group_share_min_heartbeat_interval_ms = Whole(
        5_000, "The lowest share.heartbeat.interval.ms of a group.", unit="ms", low=1
    )
    group_share_max_heartbeat_interval_ms = Whole(
        15_000, "The highest share.heartbeat.interval.ms of a group.", unit="ms", low=1
    )
    group_share_assignment_interval_ms = Whole(
        1_000,
        "Time between two assignments of a share group's partitions, at least.",
        unit="ms",
        low=0,
    )
    group_share_min_assignment_interval_ms = Whole(
        0, "The lowest share.assignment.interval.ms of a group.", unit="ms", low=0
    )
    group_share_max_assignment_interval_ms = Whole(
        15_000, "The highest share.assignment.interval.ms of a group.", unit="ms", low=0
    )
    group_share_max_size = Whole(
        200, "Members of a share group.", unit="members", low=1, high=1_000
    )
    group_share_assignors = Words(
        SHARE_ASSIGNORS, "The assignor of share groups.", choices=SHARE_ASSIGNORS
    )
    group_share_initialize_retry_interval_ms = Whole(
        30_000,
        "Time after which a share partition whose state is not kept yet is asked for again; at "
        "least offsets.commit.timeout.ms.",
        unit="ms",
        low=1,
    )


class GroupSettings(ShareRecordSettings, StreamsGroupSettings):
    """The settings of a single group."""

    scope = "group"

    consumer_session_timeout_ms = Whole(
        45_000, ConsumerGroupConfig.group_consumer_session_timeout_ms.text, unit="ms", low=1,
        synonym="group.consumer.session.timeout.ms",
    )  # fmt: skip
    consumer_heartbeat_interval_ms = Whole(
        5_000, ConsumerGroupConfig.group_consumer_heartbeat_interval_ms.text, unit="ms", low=1,
        synonym="group.consumer.heartbeat.interval.ms",
    )  # fmt: skip
    consumer_assignment_interval_ms = Whole(
        0, ConsumerGroupConfig.group_consumer_assignment_interval_ms.text, unit="ms", low=0,
        synonym="group.consumer.assignment.interval.ms",
    )  # fmt: skip
    share_session_timeout_ms = Whole(
        45_000, ShareGroupConfig.group_share_session_timeout_ms.text, unit="ms", low=1,
        synonym="group.share.session.timeout.ms",
    )  # fmt: skip
    share_heartbeat_interval_ms = Whole(
        5_000, ShareGroupConfig.group_share_heartbeat_interval_ms.text, unit="ms", low=1,
        synonym="group.share.heartbeat.interval.ms",
    )  # fmt: skip
    share_assignment_interval_ms = Whole(
        1_000, ShareGroupConfig.group_share_assignment_interval_ms.text, unit="ms", low=0,
        synonym="group.share.assignment.interval.ms",
    )  # fmt: skip


def group_problems(
    given: Mapping[str, Any], explicit: Callable[[str], bool]
) -> Iterator[tuple[str, object, str]]:
    """Settings that contradict each other, as Apache Kafka checks them at its start: name, value,
    and what is wanted.  `explicit`: tells if one was given."""
    for kind in _KINDS:
        group = f"group.{kind}"
        if f"{group}.session.timeout.ms" in given:
            yield from _problems_of(group, given, explicit)
    yield from task_problems(given)


def _problems_of(
    group: str, given: Mapping[str, Any], explicit: Callable[[str], bool]
) -> Iterator[tuple[str, object, str]]:
    for name in _RANGES:
        low, high = (given[f"{group}.{end}.{name}"] for end in ("min", "max"))
        own = f"{group}.{name}"
        value = given[own] if own != _PACED or explicit(own) else _PACED_MS
        if high < low:
            yield f"{group}.max.{name}", high, f"at least {group}.min.{name}, {low}"
        elif not low <= value <= high:
            yield own, value, f"{low} to {high}, as {group}.min.{name} and max say"
    session_ms = given[f"{group}.session.timeout.ms"]
    beat = f"{group}.heartbeat.interval.ms"
    if given[beat] >= session_ms:
        yield beat, given[beat], f"less than {group}.session.timeout.ms, {session_ms}"
    if not given[f"{group}.assignors"]:
        yield f"{group}.assignors", "nothing", "at least one assignor"


def _bounds(name: str, given: Mapping[str, Any]) -> tuple[str, str, int, int]:
    """The kind of groups that a setting is of, the rest of its name, and the broker's bounds."""
    kind, rest = name.split(".", 1)
    low, high = (given[f"group.{kind}.{end}.{rest}"] for end in ("min", "max"))
    return kind, rest, low, high


def in_effect(own: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """A group's own settings, within the bounds that its broker has now."""
    found = tasks_in_effect(own, given)
    for name, setting in GroupSettings.table.items():
        if name in own and name in _OF_MEMBERS:
            _, _, low, high = _bounds(name, given)
            try:
                found[name] = min(max(setting.checked(own[name]), low), high)
            except InvalidSetting:
                continue  # of a newer version
    return found


def own_problem(own: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """Why a group's own settings are refused, by those of its broker; None: they are not."""
    for name, value in own.items():
        if name not in _OF_MEMBERS:
            continue
        kind, rest, low, high = _bounds(name, given)
        if value < low:
            return f"{name} must be greater than or equal to group.{kind}.min.{rest}"
        if value > high:
            return f"{name} must be less than or equal to group.{kind}.max.{rest}"
    ends = ("session.timeout.ms", "heartbeat.interval.ms")
    for kind in _KINDS:
        session_ms, beat_ms = (own.get(f"{kind}.{n}", given[f"group.{kind}.{n}"]) for n in ends)
        if beat_ms >= session_ms:
            return (f"{kind}.session.timeout.ms must be greater than "
                    f"{kind}.heartbeat.interval.ms")  # fmt: skip
    return task_problem(own, given)
