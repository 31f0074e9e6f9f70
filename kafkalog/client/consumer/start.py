"""Where a consumer begins: at its group's committed offset, else by auto.offset.reset."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog import errors
from kafkalog.client.calls.groups import CommittedOffset, committed_offsets
from kafkalog.client.calls.offsets import find_starts
from kafkalog.client.calls.results import Results
from kafkalog.client.link.cluster import Cluster
from kafkalog.types import FoundOffset, TopicPartition

__all__ = ["find_begins"]


def find_begins(
    cluster: Cluster,
    group: str | None,
    partitions: Sequence[TopicPartition],
    reset: str,
    committed: bool,
) -> Results[TopicPartition, CommittedOffset | FoundOffset]:
    """The start by partition; partitions that the cluster lacks are left out.

    `committed`: the end is the last stable offset.  Failures: as `find_starts`.
    Raises: OffsetOutOfRange: nothing is committed, and `reset` is none; what the coordinator
    answers; as `find_starts`.
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
    starts = find_starts(cluster, missing, reset, committed)
    lacking = [
        tp for tp, why in starts.errors.items()
        if isinstance(why, errors.UnknownTopicOrPartition)
    ]  # fmt: skip
    for tp in lacking:  # deleted: the next call finds out
        cluster.forget(tp.topic)
    failed = {tp: why for tp, why in starts.errors.items() if tp not in lacking}
    return Results({**found, **starts.done}, failed)
