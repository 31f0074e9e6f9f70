"""Translates groups' offsets for the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkalog.client.calls.groups import CommittedOffset
from kafkalog.mirror.spans import translated
from kafkalog.mirror.state import Progress
from kafkalog.types import TopicPartition

__all__ = ["moves"]


def moves(
    committed: Mapping[TopicPartition, CommittedOffset],
    progress: Mapping[TopicPartition, Progress],
    there: Mapping[TopicPartition, CommittedOffset],
    renamed: Callable[[str], str],
) -> dict[TopicPartition, CommittedOffset]:
    """The offsets to commit for a group in the target, by the target's partitions.

    `committed`: in the source; `there`: in the target, where a group is never moved back: its
    members may have read on.  A group ahead of the copy waits at the copy's end.
    """
    found: dict[TopicPartition, CommittedOffset] = {}
    for tp, one in committed.items():
        known = progress.get(tp)
        at = translated(known.spans, _in_source(one, known)) if known else None
        if at is None:
            continue
        target = TopicPartition(renamed(tp.topic), tp.partition)
        now = there.get(target)
        if now is None or now.offset < at:
            found[target] = CommittedOffset(at, metadata=one.metadata)
    return found


def _in_source(one: CommittedOffset, known: Progress) -> int:
    """Where the group continues in the source's log as it is now."""
    if 0 <= one.leader_epoch <= known.cut.epoch:  # committed before the log was truncated
        return min(one.offset, known.cut.offset)
    return min(one.offset, known.position)
