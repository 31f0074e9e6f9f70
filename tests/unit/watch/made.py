"""Samples for tests of the pure parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from kafkalog.client.calls.groups import GroupListing
from kafkalog.client.calls.nodes import ClusterInfo, LogDir, NodeInfo, ReplicaInfo
from kafkalog.client.link.metadata import PartitionInfo, TopicInfo
from kafkalog.types import TopicPartition
from kafkalog.watch.sample import GroupSample, Positions, Sample, Seen

NODES = (NodeInfo(1, "a", 9092, "r1", False), NodeInfo(2, "b", 9092, None, False))


def topic(name: str, partitions: int = 1, topic_id: int = 1, **changes: Any) -> TopicInfo:
    """Led by node 1, copied by node 2."""
    rows = {
        n: PartitionInfo(n, 1, 0, (1, 2), (1, 2))._replace(**changes) for n in range(partitions)
    }
    return TopicInfo(name, UUID(int=topic_id), name.startswith("__"), rows)


def group(
    name: str,
    at_s: float | None = None,
    offsets: Mapping[tuple[str, int], int] | None = None,
    **changes: Any,
) -> GroupSample:
    """A group that was asked at `at_s`; None: not asked."""
    found = {TopicPartition(*tp): offset for tp, offset in (offsets or {}).items()}
    positions = None if at_s is None else Positions(at_s, found, {})
    listing = GroupListing(name, "consumer", "Stable", "classic")
    return GroupSample(listing, None, positions)._replace(**changes)


def dirs(sizes: Mapping[tuple[str, int], int]) -> tuple[LogDir, ...]:
    """One log directory."""
    found = {TopicPartition(*tp): ReplicaInfo(size, 0, False) for tp, size in sizes.items()}
    return (LogDir("/d", None, found, 1000, 400),)


def sample(
    at_s: float, topics: tuple[TopicInfo, ...] = (),
    ends: Mapping[tuple[str, int], int] | None = None, groups: tuple[GroupSample, ...] = (),
    **changes: Any,
) -> Sample:  # fmt: skip
    """A sample of two nodes in which everything was answered at `at_s`."""
    seen = {TopicPartition(*tp): Seen(at_s, end) for tp, end in (ends or {}).items()}
    return Sample(
        int(at_s * 1000), at_s, ClusterInfo("c", 1, NODES), None,
        {one.name: one for one in topics}, {}, seen, {}, at_s,
        {one.listing.group: one for one in groups}, (), (), {},
    )._replace(**changes)  # fmt: skip
