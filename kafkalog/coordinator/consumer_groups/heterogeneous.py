"""The uniform assignor for members that subscribe to different topics.  Pure.

Members keep what they have, as long as they subscribe to it; free partitions go to the members
with the fewest; then, topic by topic, partitions move from the subscribers with the most to those
with the fewest, until no move helps or all topics were looked at often enough.  Source: Kafka's
UniformHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import heapify, heappop, heappush
from uuid import UUID

from kafkalog.coordinator.consumer_groups.member import Partitions

__all__ = ["balanced"]

ROUNDS_MAX = 16

Found = dict[str, dict[UUID, set[int]]]


def balanced(
    members: Mapping[str, Collection[UUID]], counts: Mapping[UUID, int],
    before: Mapping[str, Partitions],
) -> Found:  # fmt: skip
    """The new assignment.  `members`: the topics of each, in a fixed order."""
    return _Balance(members, counts, before).result()


class _Balance:
    """One assignment in progress."""

    def __init__(
        self, members: Mapping[str, Collection[UUID]], counts: Mapping[UUID, int],
        before: Mapping[str, Partitions],
    ) -> None:  # fmt: skip
        self.found: Found = {name: {} for name in members}
        self.sizes = dict.fromkeys(members, 0)
        self.takers: dict[UUID, list[str]] = {}
        self.rank = {name: index for index, name in enumerate(members)}
        for name, topics in members.items():
            for topic in topics:
                self.takers.setdefault(topic, []).append(name)
        self.free = {topic: set(range(counts[topic])) for topic in self.takers}
        for name, topics in members.items():
            for topic, numbers in before.get(name, {}).items():
                if topic in topics:
                    kept = self.free[topic] & numbers
                    self.free[topic] -= kept
                    self._give(name, topic, kept)

        def place(topic: UUID) -> tuple[float, int, UUID]:
            takers = len(self.takers[topic])
            return -counts[topic] / takers, takers, topic

        self.order = sorted(self.takers, key=place)
        """Topics with many partitions for each subscriber first."""

    def _give(self, name: str, topic: UUID, numbers: Collection[int]) -> None:
        if numbers:
            self.found[name].setdefault(topic, set()).update(numbers)
            self.sizes[name] += len(numbers)

    def result(self) -> Found:
        """The assignment."""
        for topic in self.order:
            self._share_out(topic)
        shared = [topic for topic in self.order if len(self.takers[topic]) > 1]
        for _ in range(ROUNDS_MAX):
            if not sum(self._level(topic) for topic in shared):
                break
        return self.found

    def _share_out(self, topic: UUID) -> None:
        """Give the free partitions of a topic to its subscribers with the fewest."""
        fewest = [(self.sizes[name], self.rank[name], name) for name in self.takers[topic]]
        heapify(fewest)
        for number in sorted(self.free[topic]):
            size, rank, name = heappop(fewest)
            self._give(name, topic, (number,))
            heappush(fewest, (size + 1, rank, name))

    def _level(self, topic: UUID) -> int:
        """Move partitions of a topic to its subscribers with the fewest; returns how many."""
        moved = 0
        givers = [name for name in self.takers[topic] if self.found[name].get(topic)]
        most = [(-self.sizes[name], -self.rank[name], name) for name in givers]
        fewest = [(self.sizes[name], self.rank[name], name) for name in self.takers[topic]]
        heapify(most)
        heapify(fewest)
        while most:
            size, rank, giver = heappop(most)
            if -size != self.sizes[giver]:
                heappush(most, (-self.sizes[giver], rank, giver))
                continue
            while fewest[0][0] != self.sizes[fewest[0][2]]:
                _, place, name = heappop(fewest)
                heappush(fewest, (self.sizes[name], place, name))
            _, _, taker = fewest[0]
            if self.sizes[giver] - self.sizes[taker] <= 1:
                break
            number = max(self.found[giver][topic])
            self._move(topic, number, giver, taker)
            moved += 1
            if self.found[giver].get(topic):
                heappush(most, (-self.sizes[giver], rank, giver))
        return moved

    def _move(self, topic: UUID, number: int, giver: str, taker: str) -> None:
        numbers = self.found[giver][topic]
        numbers.discard(number)
        if not numbers:
            del self.found[giver][topic]
        self.sizes[giver] -= 1
        self._give(taker, topic, (number,))
