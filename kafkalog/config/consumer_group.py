"""The settings of consumer groups whose members heartbeat (KIP-848)."""

from collections.abc import Iterator, Mapping
from typing import Any

from kafkalog.config.declare import Settings, Whole, Word, Words
from kafkalog.config.share_records import ShareRecordSettings
from kafkalog.errors import InvalidSetting

__all__ = ["ConsumerGroupConfig", "GroupSettings", "group_problems", "in_effect", "own_problem"]

ASSIGNORS = ("uniform", "range")
_RANGES = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")


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
        1_000,
        "Time between two assignments of a group's partitions, at least: members that join "
        "together are assigned together.",
        unit="ms",
        low=0,
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


class GroupSettings(ShareRecordSettings):
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
        1_000, ConsumerGroupConfig.group_consumer_assignment_interval_ms.text, unit="ms", low=0,
        synonym="group.consumer.assignment.interval.ms",
    )  # fmt: skip


def group_problems(given: Mapping[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Settings that contradict each other, as Apache Kafka checks them at its start: name, value,
    and what is wanted."""
    if "group.consumer.session.timeout.ms" not in given:
        return
    for name in _RANGES:
        low, high = (given[f"group.consumer.{end}.{name}"] for end in ("min", "max"))
        own = f"group.consumer.{name}"
        if high < low:
            yield f"group.consumer.max.{name}", high, f"at least group.consumer.min.{name}, {low}"
        elif not low <= given[own] <= high:
            yield own, given[own], f"{low} to {high}, as group.consumer.min.{name} and max say"
    session_ms = given["group.consumer.session.timeout.ms"]
    beat = "group.consumer.heartbeat.interval.ms"
    if given[beat] >= session_ms:
        yield beat, given[beat], f"less than group.consumer.session.timeout.ms, {session_ms}"
    if not given["group.consumer.assignors"]:
        yield "group.consumer.assignors", "nothing", "at least one assignor"


def in_effect(own: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, int]:
    """A group's own settings, within the bounds that its broker has now."""
    found = {}
    for name, setting in GroupSettings.table.items():
        if name in own and name not in ShareRecordSettings.table:
            rest = name.removeprefix("consumer.")
            low, high = (given[f"group.consumer.{end}.{rest}"] for end in ("min", "max"))
            try:
                found[name] = min(max(setting.checked(own[name]), low), high)
            except InvalidSetting:
                continue  # of a newer version
    return found


def own_problem(own: Mapping[str, int], given: Mapping[str, Any]) -> str | None:
    """Why a group's own settings are refused, by those of its broker; None: they are not."""
    for name, value in own.items():
        rest = name.removeprefix("consumer.")
        low, high = (given[f"group.consumer.{end}.{rest}"] for end in ("min", "max"))
        if value < low:
            return f"{name} must be greater than or equal to group.consumer.min.{rest}"
        if value > high:
            return f"{name} must be less than or equal to group.consumer.max.{rest}"
    ends = ("session.timeout.ms", "heartbeat.interval.ms")
    session_ms, beat_ms = (own.get(f"consumer.{n}", given[f"group.consumer.{n}"]) for n in ends)
    if beat_ms >= session_ms:
        return "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"
    return None
