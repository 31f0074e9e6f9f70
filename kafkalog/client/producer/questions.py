"""Which topics a producer asks for, and when.  It decides and does nothing else: no clock, no
socket, no thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kafkalog.client.link.metadata import Known
from kafkalog.types import TopicPartition

__all__ = ["Question", "Questions"]


class Question(NamedTuple):
    """Topics to ask for, once."""

    wanted: frozenset[str]
    """Something is to be sent there now, so the broker may create them."""
    known: frozenset[str]
    """They are looked at, not written to: a deleted one does not come back because it was written
    to once."""


class Questions:
    """Of one producer: what it sends to and does not know.  One thread."""

    def __init__(self, known: Known, max_age_s: float, max_idle_s: float) -> None:
        """`max_age_s`: what is known longer is asked for again; `max_idle_s`: but a topic to which
        nothing was sent for so long is not."""
        self.next_s = 0.0
        """When the brokers may be asked again."""
        self._known = known
        self._max_age_s = max_age_s
        self._max_idle_s = max_idle_s
        self._refreshed_s = -math.inf
        self._unknown: set[str] = set()
        """Topics of what is to be sent.  Each is asked for once, and is here again while it is to
        be sent and its leader is not known: a deleted one is not asked for when nothing is."""
        self._leaderless: set[str] = set()
        """Topics with a partition that has no leader now: records go there again once it has."""
        self._doubted: set[TopicPartition] = set()

    def leader(self, tp: TopicPartition) -> int | None:
        """The node that leads a partition of what is to be sent; None: it is to be asked for."""
        info = self._known.topics.get(tp.topic)
        row = info and info.partitions.get(tp.partition)
        if (
            row is None or row.leader < 0 or row.leader not in self._known.nodes
            or tp in self._doubted
        ):  # fmt: skip
            self._unknown.add(tp.topic)
            return None
        return row.leader

    def doubt(self, tp: TopicPartition) -> None:
        """Another node leads it, perhaps: it is asked for again before anything goes there."""
        self._doubted.add(tp)
        self._unknown.add(tp.topic)

    def doubt_node(self, node: int) -> None:
        """So for all that a node leads."""
        for name, info in self._known.topics.items():
            for row in info.partitions.values():
                if row.leader == node:
                    self._doubted.add(TopicPartition(name, row.partition))

    def asks(
        self, now_s: float, waited: Iterable[str], used_since: Callable[[float], set[str]]
    ) -> Question | None:
        """What is to be asked now; None: nothing.  `waited`: topics that somebody waits for;
        `used_since`: time -> topics that something was sent to since then."""
        if now_s < self.next_s:
            return None
        wanted = frozenset({*waited, *self._unknown})
        known = frozenset(self._leaderless) - wanted
        if now_s - self._refreshed_s >= self._max_age_s:
            known |= frozenset(used_since(now_s - self._max_idle_s)) - wanted
            self._refreshed_s = now_s
        return Question(wanted, known) if wanted or known else None

    def answered(self, question: Question, next_s: float, learned: bool) -> None:
        """A question was answered, and what is known is known already; or `learned` is False.  The
        next one is not before `next_s`."""
        topics = question.wanted | question.known
        self.next_s = next_s
        self._unknown -= topics
        if learned:
            self._doubted = {tp for tp in self._doubted if tp.topic not in topics}
            self._leaderless -= topics
            self._leaderless.update(filter(self._lacks_leader, topics))
        elif question.known:
            self._refreshed_s = -math.inf

    def _lacks_leader(self, topic: str) -> bool:
        """Whether some of it has no leader now."""
        info = self._known.topics.get(topic)
        return info is not None and any(row.leader < 0 for row in info.partitions.values())
