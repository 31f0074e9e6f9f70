"""Where a consumer begins: at its group's committed offset, else by auto.offset.reset."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog import errors
from kafkalog.client.calls.groups import CommittedOffset, committed_offsets
from kafkalog.client.calls.offsets import find_starts
from kafkalog.client.link.cluster import Cluster
from kafkalog.types import FoundOffset, TopicPartition

__all__ = ["find_begins"]


def find_begins(
    cluster: Cluster,
    group: str | None,
    partitions: Sequence[TopicPartition],
    reset: str,
    committed: bool,
) -> dict[TopicPartition, CommittedOffset | FoundOffset]:
    """The start by partition.  A partition that the cluster lacks is left out, and maybe others.

    `committed`: the end is the last stable offset.  Raises: OffsetOutOfRange: nothing is committed,
    and `reset` is none; what brokers answer.
    """
    found: dict[TopicPartition, CommittedOffset | FoundOffset] = {}
    if group is not None:
        found.update(committed_offsets(cluster, group, partitions))
    missing = [tp for tp in partitions if tp not in found]
    if missing and reset == "none":
        raise errors.OffsetOutOfRange(
            f"{missing[0].topic}-{missing[0].partition}: group {group or ''!r} has committed "
            "nothing, and auto.offset.reset is none"
        )
    if missing:
        try:
            found.update(find_starts(cluster, missing, reset, committed))
        except errors.UnknownTopicOrPartition:  # deleted: the next call finds out which one
            cluster.forget()
    return found
