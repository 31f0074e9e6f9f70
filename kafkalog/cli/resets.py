"""The targets of `kafkalog groups reset-offsets`: the options, and the offsets they mean."""

import argparse
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.cli.common import UsageError, parse_moment
from kafkalog.config.consumer import duration_ms

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin
    from kafkalog.types import TopicPartition

__all__ = ["TARGETS", "Target", "add_targets", "parse_duration", "plan_reset", "target_of"]

TARGETS = (
    "to_earliest", "to_latest", "to_current", "to_offset", "shift_by", "to_datetime", "by_duration",
)  # fmt: skip


class Target(NamedTuple):
    """Where a group is to continue."""

    kind: str
    """earliest, latest, current, time, offset or shift."""
    number: int = 0
    """Milliseconds since 1970, an offset, or a number of offsets to move."""


def add_targets(group: Any) -> None:
    """The options, of which exactly one must be given."""
    group.add_argument("--to-earliest", action="store_true", help="to the logs' starts")
    group.add_argument("--to-latest", action="store_true", help="to their ends")
    group.add_argument("--to-current", action="store_true", help="to the group's current offsets")
    group.add_argument("--to-offset", type=int, metavar="N", help="to this offset")
    group.add_argument(
        "--shift-by", type=int, metavar="N", help="by N offsets; backwards if N is negative"
    )
    group.add_argument(
        "--to-datetime",
        "--to-time",
        metavar="TIME",
        help="to the first record at or after this time, ISO 8601 (UTC) or ms; to the end if "
        "there is none",
    )
    group.add_argument(
        "--by-duration",
        metavar="PnDTnHnMnS",
        help="to the records of this long ago, such as PT1H30M",
    )


def target_of(options: argparse.Namespace) -> Target:
    """The given target.  Raises: UsageError."""
    found = []
    for kind in ("earliest", "latest", "current"):
        if getattr(options, f"to_{kind}"):
            found.append(Target(kind))
    if options.to_offset is not None:
        found.append(Target("offset", options.to_offset))
    if options.shift_by is not None:
        found.append(Target("shift", options.shift_by))
    if options.to_datetime is not None:
        try:
            found.append(Target("time", parse_moment(options.to_datetime)))
        except ValueError:
            raise UsageError(
                f"--to-datetime: found {options.to_datetime!r}, wanted ISO 8601 or ms"
            ) from None
    if options.by_duration is not None:
        before_ms = parse_duration(options.by_duration)
        found.append(Target("time", int(time.time() * 1000) - before_ms))
    if len(found) != 1:
        raise UsageError(
            f"found {len(found)} targets, wanted one of --to-earliest, --to-latest, --to-current, "
            "--to-offset, --shift-by, --to-datetime, --by-duration"
        )
    return found[0]


def parse_duration(text: str) -> int:
    """Milliseconds of an ISO 8601 duration in days or smaller units.  Raises: UsageError."""
    found = duration_ms(text)
    if found is None:
        raise UsageError(f"--by-duration: found {text!r}, wanted a duration such as PT1H30M or P7D")
    return found


def plan_reset(
    admin: "Admin",
    target: Target,
    partitions: "list[TopicPartition]",
    committed: "Mapping[TopicPartition, int]",
) -> "dict[TopicPartition, int]":
    """The new offset of each partition, never outside its log.

    Raises: UsageError for a shift of a partition without a committed offset; errors of
    Admin.list_offsets.
    """
    firsts = admin.list_offsets(dict.fromkeys(partitions, "earliest")).check()
    ends = admin.list_offsets(dict.fromkeys(partitions, "latest")).check()
    if target.kind == "time":
        times = dict.fromkeys(partitions, max(target.number, 0))
        at = admin.list_offsets(times).check()
    if target.kind == "shift":
        for tp in partitions:
            if tp not in committed:
                raise UsageError(
                    f"--shift-by: the group has committed nothing for {tp.topic}-{tp.partition}"
                )
    wanted: dict[str, Callable[[TopicPartition], int]] = {
        "earliest": lambda tp: firsts[tp].offset,
        "latest": lambda tp: ends[tp].offset,
        "current": lambda tp: committed.get(tp, ends[tp].offset),
        "offset": lambda tp: target.number,
        "shift": lambda tp: committed[tp] + target.number,
        "time": lambda tp: at[tp].offset if at[tp].offset >= 0 else ends[tp].offset,
    }
    find = wanted[target.kind]
    return {tp: min(max(find(tp), firsts[tp].offset), ends[tp].offset) for tp in partitions}
