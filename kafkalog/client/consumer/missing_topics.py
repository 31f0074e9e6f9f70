"""Topics and partitions that a consumer wants and the cluster lacks: when to look for them again.
It only decides: no clock, no socket, no thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafkalog.types import TopicPartition

__all__ = ["MissingTopics"]

RETRY_S = 1.0
"""How often missing topics and partitions are looked for."""


class MissingTopics:
    """The missing topics of one consumer.  For the owner's thread only."""

    def __init__(self, every_s: float) -> None:
        """`every_s`: metadata.max.age.ms."""
        self.next_lookup_s = 0.0
        """When the topics are looked up next; 0: at once."""
        self.next_retry_s = 0.0
        """When missing partitions are looked for next."""
        self.partitions: set[TopicPartition] = set()
        """Assigned partitions that the cluster does not have now.  The others are read."""
        self.topics: set[str] = set()
        """Topics of the subscription that were reported as missing."""
        self._every_s = every_s

    # ---- topics --------------------------------------------------------------------------------

    def due(self, now_s: float) -> bool:
        """True if it is time to look up the topics."""
        return now_s >= self.next_lookup_s

    def begin_lookup(self, now_s: float) -> float:
        """Begin a lookup of the topics; returns the old `next_lookup_s`, in case it fails."""
        before_s, self.next_lookup_s = self.next_lookup_s, now_s + self._every_s
        return before_s

    def miss_topics(self, topics: Iterable[str], now_s: float) -> list[str]:
        """The cluster lacks these topics, which are looked for again soon; returns the new ones."""
        found = set(topics)
        new, self.topics = sorted(found - self.topics), found
        if found:
            self.next_lookup_s = min(self.next_lookup_s, now_s + RETRY_S)
        return new

    # ---- partitions ------------------------------------------------------------------------------

    def miss_partitions(
        self, partitions: Iterable[TopicPartition], now_s: float, shared: bool
    ) -> list[TopicPartition]:
        """The cluster lacks these partitions; returns the new ones.  `shared`: they come from a
        subscription, which may not want them any more: its topics are looked up."""
        new = sorted(set(partitions) - self.partitions)
        if new:
            self.partitions.update(new)
            self.next_retry_s = now_s + RETRY_S
            if shared:
                self.next_lookup_s = 0.0
        return new

    def due_topics(self, now_s: float) -> list[str]:
        """The topics of missing partitions, if it is time to look for them."""
        return sorted({tp.topic for tp in self.partitions}) if now_s >= self.next_retry_s else []

    def found(
        self, there: Callable[[TopicPartition], bool], now_s: float, shared: bool
    ) -> list[TopicPartition]:
        """Missing partitions were looked up; returns those found.  `shared`: as in
        `miss_partitions`."""
        self.next_retry_s = now_s + RETRY_S
        found = [tp for tp in sorted(self.partitions) if there(tp)]
        self.partitions.difference_update(found)
        if self.partitions and shared:
            self.next_lookup_s = 0.0
        return found

    def retain(self, partitions: Iterable[TopicPartition]) -> None:
        """Only these partitions are read now."""
        self.partitions.intersection_update(partitions)
