"""Topics and partitions that a consumer wants and the cluster lacks: when to look for them again.
It only decides: no clock, no socket, no thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafkalog.types import TopicPartition

__all__ = ["Lookout"]

ASK_AGAIN_S = 1.0
"""How often missing topics and partitions are looked for."""


class Lookout:
    """The lookups of one consumer's topics and partitions.  For the owner's thread only."""

    def __init__(self, every_s: float) -> None:
        """`every_s`: metadata.max.age.ms."""
        self.next_look_s = 0.0
        """When the topics are looked up next; 0: at once."""
        self.ask_again_s = 0.0
        """When missing partitions are looked for next."""
        self.missing: set[TopicPartition] = set()
        """Assigned partitions that the cluster does not have now.  The others are read."""
        self.absent: set[str] = set()
        """Topics of the subscription that were reported as missing."""
        self._every_s = every_s

    # ---- topics --------------------------------------------------------------------------------

    def due(self, now_s: float) -> bool:
        """True if it is time to look up the topics."""
        return now_s >= self.next_look_s

    def looks(self, now_s: float) -> float:
        """Begin a lookup of the topics; returns the old `next_look_s`, in case it fails."""
        before_s, self.next_look_s = self.next_look_s, now_s + self._every_s
        return before_s

    def lack(self, topics: Iterable[str], now_s: float) -> list[str]:
        """The cluster lacks these topics, which are looked for again soon; returns the new ones."""
        found = set(topics)
        new, self.absent = sorted(found - self.absent), found
        if found:
            self.next_look_s = min(self.next_look_s, now_s + ASK_AGAIN_S)
        return new

    # ---- partitions ------------------------------------------------------------------------------

    def miss(
        self, partitions: Iterable[TopicPartition], now_s: float, shared: bool
    ) -> list[TopicPartition]:
        """The cluster lacks these partitions; returns the new ones.  `shared`: they come from a
        subscription, which may not want them any more: its topics are looked up."""
        new = sorted(set(partitions) - self.missing)
        if new:
            self.missing.update(new)
            self.ask_again_s = now_s + ASK_AGAIN_S
            if shared:
                self.next_look_s = 0.0
        return new

    def asks(self, now_s: float) -> list[str]:
        """The topics of missing partitions, if it is time to look for them."""
        return sorted({tp.topic for tp in self.missing}) if now_s >= self.ask_again_s else []

    def asked(
        self, there: Callable[[TopicPartition], bool], now_s: float, shared: bool
    ) -> list[TopicPartition]:
        """Missing partitions were looked up; returns those found.  `shared`: as in `miss`."""
        self.ask_again_s = now_s + ASK_AGAIN_S
        found = [tp for tp in sorted(self.missing) if there(tp)]
        self.missing.difference_update(found)
        if self.missing and shared:
            self.next_look_s = 0.0
        return found

    def reads(self, partitions: Iterable[TopicPartition]) -> None:
        """Only these partitions are read now."""
        self.missing.intersection_update(partitions)
