"""Which topics a producer asks for, and when.  It only decides: no clock, no socket, no thread."""

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
    """Records wait for them, so the broker may create them."""
    known: frozenset[str]
    """Looked up, not created: a deleted topic does not come back because records were once sent to
    it."""


class Questions:
    """The unknown topics that one producer sends to.  One thread."""

    def __init__(self, known: Known, max_age_s: float, max_idle_s: float) -> None:
        """`max_age_s`: older metadata is fetched again; `max_idle_s`: but not of a topic to which
        nothing was sent for this long."""
        self.next_s = 0.0
        """When the brokers may be asked again."""
        self._known = known
        self._max_age_s = max_age_s
        self._max_idle_s = max_idle_s
        self._refreshed_s = -math.inf
        self._unknown: set[str] = set()
        """Topics with records to send.  Each is asked for once, and added again while it has
        records and no known leader: a deleted topic without records is not asked for."""
        self._leaderless: set[str] = set()
        """Topics with a partition that has no leader now: it gets records again once it has one."""
        self._doubted: set[TopicPartition] = set()

    def leader(self, tp: TopicPartition) -> int | None:
        """The leader of a partition with records to send; None: it must be asked for."""
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
        """Its leader may have changed: ask again before anything is sent there."""
        self._doubted.add(tp)
        self._unknown.add(tp.topic)

    def doubt_node(self, node: int) -> None:
        """`doubt` all partitions that a node leads."""
        for name, info in self._known.topics.items():
            for row in info.partitions.values():
                if row.leader == node:
                    self._doubted.add(TopicPartition(name, row.partition))

    def asks(
        self, now_s: float, waited: Iterable[str], used_since: Callable[[float], set[str]]
    ) -> Question | None:
        """The question to ask now; None: none.  `waited`: topics that a thread waits for;
        `used_since`: time -> topics with records sent since then."""
        if now_s < self.next_s:
            return None
        wanted = frozenset({*waited, *self._unknown})
        known = frozenset(self._leaderless) - wanted
        if now_s - self._refreshed_s >= self._max_age_s:
            known |= frozenset(used_since(now_s - self._max_idle_s)) - wanted
            self._refreshed_s = now_s
        return Question(wanted, known) if wanted or known else None

    def answered(self, question: Question, next_s: float, learned: bool) -> None:
        """A question was answered and what it taught is learned; `learned` False: it failed.  The
        next question is not before `next_s`."""
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
        """True if a partition of it has no leader now."""
        info = self._known.topics.get(topic)
        return info is not None and any(row.leader < 0 for row in info.partitions.values())
