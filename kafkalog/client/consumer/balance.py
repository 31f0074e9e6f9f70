"""Balances partitions among readers of different topics: how many of each topic each reader gets.

A reader can hand over a partition directly, or along a chain of readers, each of which hands on a
partition of another topic.  A maximum flow (Dinic's algorithm) from the readers above a level to
those below it splits them into two groups: the upper one can hand nothing over to the lower one any
more.  Each group is then balanced by itself, so the work grows with the subscriptions, not with the
partitions that move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heapreplace
from typing import NamedTuple

__all__ = ["Loads"]

Readers = Mapping[str, list[str]]
"""The readers of each topic."""


class _Layers(NamedTuple):
    """The shortest paths to readers that lack partitions: a reader hands over topics of its own
    depth, which readers of the next depth take."""

    readers: dict[str, int]
    """The depth of each reader that is reached; 0: it has too many."""
    topics: dict[str, int]
    complete: bool
    """True if one that lacks partitions is reached."""


class Loads:
    """The number of partitions of each topic that each reader has."""

    def __init__(
        self, topics: Mapping[str, Iterable[str]], kept: Mapping[str, Mapping[str, int]]
    ) -> None:
        """`topics`: of each reader; `kept`: of each reader, how many of a topic it would keep."""
        self.held: dict[str, dict[str, int]] = {
            reader: dict(kept.get(reader, ())) for reader in topics
        }
        """By reader and topic; never 0."""
        self.steps = 0
        """Readers looked at so far."""
        self._kept = kept
        self._load = {reader: sum(held.values()) for reader, held in self.held.items()}
        self._readers: dict[str, list[str]] = {}
        for reader, some in topics.items():
            for topic in some:
                self._readers.setdefault(topic, []).append(reader)

    def add(self, counts: Mapping[str, int]) -> None:
        """Give so many more partitions of each topic to its readers with the fewest."""
        # First topics with few possible readers: the others fit anywhere.
        for topic in sorted(counts, key=lambda topic: (len(self._readers[topic]), topic)):
            heap = [(self._load[reader], reader) for reader in self._readers[topic]]
            heapify(heap)
            self.steps += len(heap) + counts[topic]
            for _ in range(counts[topic]):
                load, reader = heap[0]
                heapreplace(heap, (load + 1, reader))
                self._move(topic, None, reader, 1)

    def balance(self) -> None:
        """Move partitions until no reader could hand over one to a reader that has two fewer."""
        groups = [list(self._load)]
        while groups:
            some = groups.pop()
            loads = [self._load[reader] for reader in some]
            if not loads or max(loads) - min(loads) < 2:
                continue
            level = sum(loads) // len(loads)
            upper = self._level(some, level)
            # Of the upper ones, those that are not reached again have one of these two levels.
            top = self._level([reader for reader in some if reader in upper], level + 1)
            groups.append([reader for reader in some if reader not in upper])
            groups.append([reader for reader in some if reader in top])

    def _level(self, some: list[str], level: int) -> set[str]:
        """Move partitions from readers above `level` to those below it while there is a path.

        Returns the readers above it, and those to which they could hand over.
        """
        readers = self._among(some)
        while True:
            layers = self._layers(some, readers, level)
            if not layers.complete:
                return set(layers.readers)
            self._hand_over(layers, readers, level)

    def _among(self, some: list[str]) -> Readers:
        """The topics that a group has partitions of, each with its readers in the group."""
        found: dict[str, list[str]] = {topic: [] for one in some for topic in self.held[one]}
        members = set(some)
        for topic, readers in found.items():
            self.steps += len(self._readers[topic])
            readers += [one for one in self._readers[topic] if one in members]
        return found

    def _layers(self, some: list[str], readers: Readers, level: int) -> _Layers:
        layer = [one for one in some if self._load[one] > level]
        found = _Layers(dict.fromkeys(layer, 0), {}, False)
        depth, complete = 0, False
        while layer and not complete:
            further: list[str] = []
            for one in layer:
                for topic in self.held[one]:
                    if topic in found.topics:
                        continue
                    found.topics[topic] = depth
                    self.steps += len(readers[topic])
                    more = [other for other in readers[topic] if other not in found.readers]
                    found.readers.update(dict.fromkeys(more, depth + 1))
                    further += more
            complete = any(self._load[one] < level for one in further)
            layer, depth = further, depth + 1
        return found._replace(complete=complete)

    def _hand_over(self, layers: _Layers, readers: Readers, level: int) -> None:
        """Move partitions along shortest paths until none is left."""
        left: dict[str, list[str]] = {}
        """The readers to try for each topic, last to first."""
        topics: dict[str, list[str]] = {}
        """The topics to try for each reader, last to first."""

        def begin(one: str) -> None:
            kept, depth = self._kept.get(one, {}), layers.readers[one]
            here = [topic for topic in self.held[one] if layers.topics.get(topic) == depth]
            # First those of which it has more than it had before.
            here.sort(key=lambda t: (self.held[one][t] > kept.get(t, 0), t))
            topics[one] = here
            for topic in here:
                if topic not in left:
                    self.steps += len(readers[topic])
                    left[topic] = [r for r in readers[topic] if layers.readers[r] == depth + 1]

        for source, depth in layers.readers.items():
            if depth:
                break  # those at depth 0 come first
            path: list[tuple[str, str]] = []
            one = source
            while self._load[source] > level:
                self.steps += 1
                if self._load[one] < level:
                    self._along(path, one, level)
                    path, one = [], source
                    continue
                if one not in topics:
                    begin(one)
                mine = topics[one]
                while mine and not (left[mine[-1]] and mine[-1] in self.held[one]):
                    mine.pop()
                if mine:
                    path.append((one, mine[-1]))
                    one = left[mine[-1]][-1]
                elif path:
                    one, topic = path.pop()
                    left[topic].pop()
                else:
                    break

    def _along(self, path: list[tuple[str, str]], end: str, level: int) -> None:
        """Hand over as many as possible along a path from a reader above the level to one below."""
        source = path[0][0]
        count = min(self._load[source] - level, level - self._load[end])
        count = min(count, *(self.held[one][topic] for one, topic in path))
        takers = [*(one for one, _ in path[1:]), end]
        for (giver, topic), taker in zip(path, takers, strict=True):
            self._move(topic, giver, taker, count)

    def _move(self, topic: str, giver: str | None, taker: str, count: int) -> None:
        if giver is not None:
            held = self.held[giver]
            held[topic] -= count
            self._load[giver] -= count
            if not held[topic]:
                del held[topic]
        held = self.held[taker]
        held[topic] = held.get(topic, 0) + count
        self._load[taker] += count
