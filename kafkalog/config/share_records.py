"""The settings of share groups' records, at the leaders of their partitions (KIP-932, KIP-1191)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kafkalog.config.consumer import duration_ms
from kafkalog.config.declare import Flag, Long, Settings, Whole, Word
from kafkalog.errors import InvalidSetting

__all__ = [
    "COPY_RECORD",
    "LETTER_TOPIC",
    "NAMES",
    "ShareRecordSettings",
    "ShareRecordsConfig",
    "in_effect",
    "own_problem",
    "record_problems",
]

SIZE, SIZE_DEFAULT = "group.share.max.size", 200
"""Members of a share group: all of them may read from one broker."""
LETTER_TOPIC = "errors.deadletterqueue.topic.name"
COPY_RECORD = "errors.deadletterqueue.copy.record.enable"
BOUNDED = ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")
"""Numbers that a broker bounds with group.share.min and max."""


class ShareRecordsConfig(Settings):
    """The settings of all share groups' records; a broker takes them with its own."""

    scope = "broker"

    group_share_record_lock_duration_ms = Whole(
        30_000,
        "How long a member of a share group may hold a record.",
        unit="ms", low=1_000, high=3_600_000,
    )  # fmt: skip
    group_share_min_record_lock_duration_ms = Whole(
        15_000, "The lowest share.record.lock.duration.ms of a group.", unit="ms",
        low=1_000, high=30_000,
    )  # fmt: skip
    group_share_max_record_lock_duration_ms = Whole(
        60_000, "The highest share.record.lock.duration.ms of a group.", unit="ms",
        low=30_000, high=3_600_000,
    )  # fmt: skip
    group_share_delivery_count_limit = Whole(
        5, "How many times a record is delivered to a share group at most.", low=2, high=10
    )
    group_share_min_delivery_count_limit = Whole(
        2, "The lowest share.delivery.count.limit of a group.", low=2, high=5
    )
    group_share_max_delivery_count_limit = Whole(
        10, "The highest share.delivery.count.limit of a group.", low=5, high=25
    )
    group_share_partition_max_record_locks = Whole(
        2_000,
        "Records of a partition that a share group has in flight, above which its members get no "
        "new ones.",
        low=100, high=10_000,
    )  # fmt: skip
    group_share_min_partition_max_record_locks = Whole(
        100, "The lowest share.partition.max.record.locks of a group.", low=100, high=2_000
    )
    group_share_max_partition_max_record_locks = Whole(
        4_000, "The highest share.partition.max.record.locks of a group.", low=2_000, high=10_000
    )
    group_share_max_share_sessions = Whole(
        2_000, "Members of share groups that may read from a broker at the same time.", low=1
    )
    errors_deadletterqueue_auto_create_topics_enable = Flag(
        False, "Create a share group's dead-letter topic when its first dead letter is written."
    )
    errors_deadletterqueue_topic_name_prefix = Word(
        "dlq.",
        "Dead letters of share groups go only to topics whose names begin with it; empty: to any.",
    )
    kafkalog_share_records_max_bytes = Long(
        1 << 28,
        "Approximate memory for what members of share groups hold and read; above it, they get no "
        "more records.",
        unit="bytes",
        low=1 << 20,
    )


class ShareRecordSettings(Settings):
    """Those of a single group."""

    scope = "group"

    share_record_lock_duration_ms = Whole(
        30_000, ShareRecordsConfig.group_share_record_lock_duration_ms.text, unit="ms",
        low=1_000, synonym="group.share.record.lock.duration.ms",
    )  # fmt: skip
    share_delivery_count_limit = Whole(
        5, ShareRecordsConfig.group_share_delivery_count_limit.text, low=2,
        synonym="group.share.delivery.count.limit",
    )  # fmt: skip
    share_partition_max_record_locks = Whole(
        2_000, ShareRecordsConfig.group_share_partition_max_record_locks.text, low=100,
        synonym="group.share.partition.max.record.locks",
    )  # fmt: skip
    share_auto_offset_reset = Word(
        "latest",
        "Where a group begins in a partition: earliest, latest, by_duration:PT1H (records up to "
        "that age).",
    )
    share_isolation_level = Word(
        "read_uncommitted",
        "Whether the group gets records of open and aborted transactions.",
        choices=("read_uncommitted", "read_committed"),
        fold=str.lower,
    )
    share_renew_acknowledge_enable = Flag(True, "Members may renew the locks of their records.")
    errors_deadletterqueue_topic_name = Word(
        "",
        "The topic that gets a dead letter of each record that is rejected or delivered too often; "
        "empty: none. It needs share.version 2.",
    )
    errors_deadletterqueue_copy_record_enable = Flag(
        False, "Dead letters have the keys and values of their records, not only headers."
    )


NAMES = frozenset(ShareRecordSettings.table)


def _checked(name: str, value: object) -> Any:
    """A value of a group.  Raises: InvalidSetting."""
    found = ShareRecordSettings.table[name].checked(value)
    if name == LETTER_TOPIC and str(found).startswith("__"):
        raise InvalidSetting(f"{name}: DLQ topic name must not start with '__'")
    if name == "share.auto.offset.reset" and found not in ("earliest", "latest"):
        kind, _, duration = str(found).partition(":")
        if kind != "by_duration" or duration_ms(duration) is None:
            wanted = "earliest, latest or by_duration with a duration: by_duration:PT1H"
            raise InvalidSetting(f"{name}: found {value!r}, wanted {wanted}")
    return found


def in_effect(own: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a group, its own ones within the bounds that its broker has now."""
    found = {}
    for name, setting in ShareRecordSettings.table.items():
        rest = name.removeprefix("share.")
        value = given[setting.synonym] if rest in BOUNDED else setting.default
        if name in own:
            try:
                value = _checked(name, own[name])
            except InvalidSetting:
                pass  # of a newer version
            else:
                if rest in BOUNDED:
                    low, high = _bounds(rest, given)
                    value = min(max(value, low), high)
        found[name] = value
    return found


def own_problem(own: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """Why a group's own settings are refused, by those of its broker; None: they are not."""
    for name, value in own.items():
        rest = name.removeprefix("share.")
        if rest in BOUNDED:
            low, high = _bounds(rest, given)
            if value < low:
                return f"{name} must be greater than or equal to group.share.min.{rest}"
            if value > high:
                return f"{name} must be less than or equal to group.share.max.{rest}"
        else:
            try:
                _checked(name, value)
            except InvalidSetting as problem:
                return str(problem)
    return None


def _bounds(rest: str, given: Mapping[str, Any]) -> tuple[int, int]:
    low, high = (given[f"group.share.{end}.{rest}"] for end in ("min", "max"))
    return low, high


def record_problems(given: Mapping[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Settings that contradict each other, as Apache Kafka checks them at its start: name, value,
    and what is wanted."""
    for rest in BOUNDED:
        own = f"group.share.{rest}"
        if own not in given:
            return
        low, high = _bounds(rest, given)
        if high < low:
            yield f"group.share.max.{rest}", high, f"at least group.share.min.{rest}, {low}"
        elif not low <= given[own] <= high:
            yield own, given[own], f"{low} to {high}, as group.share.min.{rest} and max say"
    sessions, size = given["group.share.max.share.sessions"], given.get(SIZE, SIZE_DEFAULT)
    if sessions < size:
        yield "group.share.max.share.sessions", sessions, f"at least {SIZE}, {size}"
