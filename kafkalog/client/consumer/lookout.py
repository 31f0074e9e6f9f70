"""What a consumer wants and the cluster does not have: when it is looked for again.  It decides and
does nothing else: no clock, no socket, no thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafkalog.types import TopicPartition

__all__ = ["Lookout"]

ASK_AGAIN_S = 1.0
"""How often topics and partitions are looked for that the cluster does not have."""


class Lookout:
    """Of one consumer.  The owner's thread only."""

    def __init__(self, every_s: float) -> None:
        """`every_s`: metadata.max.age.ms."""
        self.next_look_s = 0.0
        """When the topics are looked at again.  0: at once."""
        self.ask_again_s = 0.0
        """When what is missing is looked for again."""
        self.missing: set[TopicPartition] = set()
        """Of what is read: what the cluster does not have now.  The rest goes on."""
        self.absent: set[str] = set()
        """Topics of the subscription of which that was told."""
        self._every_s = every_s

    # ---- topics --------------------------------------------------------------------------------

    def due(self, now_s: float) -> bool:
        """Whether it is time to look at the topics."""
        return now_s >= self.next_look_s

    def looks(self, now_s: float) -> float:
        """They are looked at now; what `next_look_s` was, if nothing comes of it."""
        before_s, self.next_look_s = self.next_look_s, now_s + self._every_s
        return before_s

    def lack(self, topics: Iterable[str], now_s: float) -> list[str]:
        """The cluster does not have these, and they are looked for again soon; which are new."""
        found = set(topics)
        new, self.absent = sorted(found - self.absent), found
        if found:
            self.next_look_s = min(self.next_look_s, now_s + ASK_AGAIN_S)
        return new

    # ---- partitions ------------------------------------------------------------------------------

    def miss(
        self, partitions: Iterable[TopicPartition], now_s: float, shared: bool
    ) -> list[TopicPartition]:
        """The cluster does not have these; which of them are new.  `shared`: they come of a
        subscription, which perhaps does not want them any more: its topics are looked at."""
        new = sorted(set(partitions) - self.missing)
        if new:
            self.missing.update(new)
            self.ask_again_s = now_s + ASK_AGAIN_S
            if shared:
                self.next_look_s = 0.0
        return new

    def asks(self, now_s: float) -> list[str]:
        """Topics of what is missing, when it is time to look for it."""
        return sorted({tp.topic for tp in self.missing}) if now_s >= self.ask_again_s else []

    def asked(
        self, there: Callable[[TopicPartition], bool], now_s: float, shared: bool
    ) -> list[TopicPartition]:
        """It was looked for; what is there again.  `shared`: as in `miss`."""
        self.ask_again_s = now_s + ASK_AGAIN_S
        found = [tp for tp in sorted(self.missing) if there(tp)]
        self.missing.difference_update(found)
        if self.missing and shared:
            self.next_look_s = 0.0
        return found

    def reads(self, partitions: Iterable[TopicPartition]) -> None:
        """Only these are read now."""
        self.missing.intersection_update(partitions)
