"""The topics of a cluster as one answer tells of them, and what is counted once for all views."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog.client.link.metadata import TopicInfo

__all__ = ["Known", "offline", "under"]


def under(one: TopicInfo) -> int:
    """Partitions with fewer replicas in sync than they have."""
    return sum(len(p.isr) < len(p.replicas) for p in one.partitions.values())


def offline(one: TopicInfo) -> int:
    """Partitions without a leader."""
    return sum(p.leader < 0 for p in one.partitions.values())


class Known:
    """Topics by name; never changed."""

    def __init__(self, topics: Mapping[str, TopicInfo]) -> None:
        self.topics = topics
        self.under = {name: count for name, one in topics.items() if (count := under(one))}
        """Topics with such partitions, and how many."""
        self.offline = {name: count for name, one in topics.items() if (count := offline(one))}
