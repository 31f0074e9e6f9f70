"""Balances partitions among readers that keep their own where possible: the pure algorithm.

Balanced: no reader could hand over a partition, directly or along a chain of readers, to one that
has two fewer.  No share is more balanced, even if readers read different topics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafkalog.types import TopicPartition

__all__ = ["Claims", "balanced"]


class Claims(NamedTuple):
    """The partitions that a reader reports to have had."""

    generation: int
    """The generation that assigned them; -1: unknown."""
    owned: tuple[TopicPartition, ...]


Topics = Mapping[str, Iterable[str]]
Shares = dict[str, list[TopicPartition]]


def balanced(
    readers: Topics, partitions: Mapping[str, int], claims: Mapping[str, Claims]
) -> Shares:
    """The share of each reader, sorted.

    `readers`: the topics of each.  `partitions`: how many each topic has.  `claims`: of each
    reader; of two that claim the same partition the one with the later generation keeps it, and
    neither if the generations are equal.
    """
    wanted = {reader: {t for t in topics if t in partitions} for reader, topics in readers.items()}
    kept = _kept(wanted, partitions, claims)
    topics = set().union(*wanted.values()) if wanted else set()
    if all(some == topics for some in wanted.values()):
        found = _even(sorted(wanted), _all_of(topics, partitions), kept)
    else:
        found = _Uneven(wanted, partitions, kept).shares()
    return {reader: sorted(share) for reader, share in found.items()}


def _all_of(topics: Iterable[str], partitions: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, p) for topic in sorted(topics) for p in range(partitions[topic])]


def _kept(
    wanted: Mapping[str, set[str]], partitions: Mapping[str, int], claims: Mapping[str, Claims]
) -> dict[TopicPartition, str]:
    """The readers that may keep their partitions."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for reader in sorted(wanted):
        generation, owned = claims.get(reader, Claims(-1, ()))
        for tp in set(owned):
            if tp.topic not in wanted[reader] or not 0 <= tp.partition < partitions[tp.topic]:
                continue
            rival = best.get(tp)
            if rival is None or generation > rival[0]:
                best[tp] = generation, reader
            elif generation == rival[0]:
                best[tp] = generation, None
    return {tp: reader for tp, (_, reader) in best.items() if reader is not None}


def _even(
    readers: list[str], every: list[TopicPartition], kept: Mapping[TopicPartition, str]
) -> Shares:
    """If all read the same topics: each gets an equal part, and the first ones one more."""
    found: Shares = {reader: [] for reader in readers}
    if not readers:
        return found
    each, more = divmod(len(every), len(readers))
    left: list[TopicPartition] = []
    for tp in every:
        if tp in kept:
            found[kept[tp]].append(tp)
        else:
            left.append(tp)
    for share in found.values():
        room = each + (1 if more and len(share) > each else 0)
        more -= room - each
        left += share[room:]
        del share[room:]
    left.sort()
    room_of = {}
    for reader, share in found.items():
        room = max(each, len(share))
        if more and room == each:
            room, more = each + 1, more - 1
        room_of[reader] = room - len(share)
    # One by one, so that a topic's partitions are spread.
    turn = deque(reader for reader in readers if room_of[reader])
    for tp in left:
        reader = turn.popleft()
        found[reader].append(tp)
        room_of[reader] -= 1
        if room_of[reader]:
            turn.append(reader)
    return found


class _Uneven:
    """Readers of different topics."""

    def __init__(
        self,
        wanted: Mapping[str, set[str]],
        partitions: Mapping[str, int],
        kept: Mapping[TopicPartition, str],
    ) -> None:
        self.kept = kept
        self.readers: dict[str, list[str]] = {}
        """By topic."""
        for reader in sorted(wanted):
            for topic in sorted(wanted[reader]):
                self.readers.setdefault(topic, []).append(reader)
        self.found: dict[str, dict[str, set[TopicPartition]]] = {r: {} for r in sorted(wanted)}
        """By reader and topic."""
        self.load = dict.fromkeys(self.found, 0)
        left = []
        for tp in _all_of(self.readers, partitions):
            if tp in kept:
                self._give(tp, kept[tp])
            else:
                left.append(tp)
        # First those with few possible readers: the others fit anywhere.
        for tp in sorted(left, key=lambda tp: (len(self.readers[tp.topic]), tp)):
            self._give(tp, min(self.readers[tp.topic], key=lambda r: (self.load[r], r)))

    def shares(self) -> Shares:
        """The shares, once they are balanced."""
        tops = sorted(self.load, key=lambda r: (-self.load[r], r))
        while tops:
            # A reader that cannot give one up now cannot later either, unless it gets more.
            reader = tops[0]
            path = self._path(reader)
            if path is None:
                tops.pop(0)
            else:
                self._move(path)
                tops = sorted(self.load, key=lambda r: (-self.load[r], r))
        return {r: [tp for some in by.values() for tp in some] for r, by in self.found.items()}

    def _give(self, tp: TopicPartition, reader: str) -> None:
        self.found[reader].setdefault(tp.topic, set()).add(tp)
        self.load[reader] += 1

    def _path(self, start: str) -> list[tuple[str, str]] | None:
        """The shortest path to a reader with two fewer: (topic, next reader) of each step."""
        came: dict[str, tuple[str, str]] = {}
        queue, seen_topics = deque([start]), set()
        while queue:
            reader = queue.popleft()
            for topic in sorted(self.found[reader]):
                if topic in seen_topics or not self.found[reader][topic]:
                    continue
                seen_topics.add(topic)
                for other in self.readers[topic]:
                    if other == start or other in came:
                        continue
                    came[other] = reader, topic
                    if self.load[other] <= self.load[start] - 2:
                        return self._back(came, start, other)
                    queue.append(other)
        return None

    @staticmethod
    def _back(came: dict[str, tuple[str, str]], start: str, end: str) -> list[tuple[str, str]]:
        steps = []
        while end != start:
            reader, topic = came[end]
            steps.append((topic, end))
            end = reader
        steps.append(("", start))
        return steps[::-1]

    def _move(self, path: list[tuple[str, str]]) -> None:
        giver = path[0][1]
        for topic, taker in path[1:]:
            # Prefer one that the giver did not have before, best of all one that the taker had.
            tp = min(
                self.found[giver][topic],
                key=lambda tp: (self.kept.get(tp) != taker, self.kept.get(tp) == giver, tp),
            )
            self.found[giver][topic].remove(tp)
            self.load[giver] -= 1
            self._give(tp, taker)
            giver = taker
