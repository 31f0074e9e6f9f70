"""Partitions on several nodes in virtual time: logs of leader epochs that are replicated and
truncated, high watermarks, elections, retention, topics that are deleted and recreated.

This module knows what a partition is and what happened to each record, whatever a node believes.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple
from uuid import UUID

from kafkalog.types import TopicPartition
from tests.support.batches import Row, batch
from tests.support.simulated import World

__all__ = ["Batch", "Logs", "Made", "Part", "Replica", "Topic"]


class Batch(NamedTuple):
    """Consecutive records."""

    offset: int
    numbers: tuple[int, ...]
    epoch: int
    before: int
    """The number of the record before; -1: there is none."""
    data: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.numbers)


class Made(NamedTuple):
    """A record as its leader appended it."""

    tp: TopicPartition
    topic_id: UUID
    offset: int
    epoch: int
    before: int
    """The number of the record before it in that log; -1: it is the first one."""


class Replica:
    """A node's replica of a partition."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.epochs: list[tuple[int, int]] = []
        """(epoch, its first offset)."""
        self.start = self.high = 0
        self.epoch = -1
        """The leader epoch that the node knows."""
        self.leads = False
        self.open_at: int | None = None
        """Where the open transaction begins."""
        self._below = -1

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.start

    @property
    def last(self) -> int:
        """The number of the last record, even if retention deleted it; -1: there was none."""
        return self.batches[-1].numbers[-1] if self.batches else self._below

    @property
    def stable(self) -> int:
        return self.high if self.open_at is None else min(self.high, self.open_at)

    def note_epoch(self, epoch: int, offset: int) -> None:
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs.append((epoch, offset))

    def end_of(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch returns it; (-1, -1): unknown."""
        if self.epochs and self.epochs[-1][0] == epoch:
            return epoch, self.end
        later = [start for one, start in self.epochs if one > epoch]
        if not later:
            return -1, -1
        before = [one for one, _ in self.epochs if one <= epoch]
        return (before[-1] if before else epoch), later[0]

    def keep_from(self, start: int) -> None:
        """Delete records by retention."""
        if start <= self.start:
            return
        self._below, self.start = self.last, start
        self.batches = [one for one in self.batches if one.end > start]
        below = [one for one in self.epochs if one[1] <= start]
        self.epochs = [(epoch, start) for epoch, _ in below[-1:]] + self.epochs[len(below) :]
        self.high = max(self.high, start)

    def cut(self, keep: int) -> None:
        """Lose all batches except the first `keep`."""
        if keep < len(self.batches):
            first = self.batches[keep]
            self._below, self.start = first.before, min(self.start, first.offset)
            del self.batches[keep:]
        self.epochs = [one for one in self.epochs if one[1] < self.end]
        self.high = min(self.high, self.end)
        self.open_at = None

    def has(self, one: Batch) -> bool:
        """True if the batch is in the log, or was before retention."""
        if one.end <= self.start:
            return True
        at = bisect_left(self.batches, one.offset, key=_offset_of)
        return at < len(self.batches) and self.batches[at] is one

    def follow(self, leader: Replica, most: int) -> None:
        """Truncate what the leader does not have, then copy up to `most` batches."""
        if leader.start > self.end or self.start > leader.end:
            self.cut(0)
            self.start = self.high = leader.start
            self._below = leader.batches[0].before if leader.batches else leader.last
            self.epochs = []
        keep = len(self.batches)
        while keep and not leader.has(self.batches[keep - 1]):
            keep -= 1
        if keep < len(self.batches):
            self.cut(keep)
        first = bisect_left(leader.batches, self.end, key=_offset_of)
        if first and not self.batches and leader.batches[first - 1].end > self.end:
            first -= 1  # it begins within a batch
        for one in leader.batches[first : first + most]:
            self.batches.append(one)
            self.note_epoch(one.epoch, one.offset)
        self.high = max(min(leader.high, self.end), self.start)
        self.open_at = leader.open_at
        self.keep_from(min(leader.start, self.end))


class Part:
    """A partition as the controller knows it."""

    def __init__(self, tp: TopicPartition, topic_id: UUID, nodes: list[int]) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.replicas = {node: Replica() for node in nodes}
        self.leader, self.epoch = nodes[0], 0
        self.in_sync = set(nodes)
        self.slow_until_ms: dict[int, int] = {}
        """Until when a follower copies nothing."""
        for node in nodes:
            self.apply(node)

    def apply(self, node: int) -> bool:
        """A node learns the leader, unless it would follow a node that does not know yet."""
        mine = self.replicas[node]
        if mine.epoch == self.epoch:
            return True
        if node != self.leader and self.leader >= 0:
            leader = self.replicas[self.leader]
            if leader.epoch != self.epoch:
                return False
            mine.follow(leader, 0)
        mine.epoch, mine.leads, mine.open_at = self.epoch, node == self.leader, None
        if mine.leads:
            mine.note_epoch(self.epoch, mine.end)
        return True

    @property
    def leading(self) -> Replica | None:
        """The leader's replica, once that node knows it leads."""
        found = self.replicas.get(self.leader)
        return found if found is not None and found.epoch == self.epoch else None


class Topic:
    """A topic, from creation to deletion."""

    def __init__(self, name: str, topic_id: UUID) -> None:
        self.name = name
        self.topic_id = topic_id
        self.parts: list[Part] = []


class Logs:
    """All topics and records, and what goes wrong with them."""

    def __init__(self, time: World, nodes: list[int], copies: int) -> None:
        self.time = time
        self.nodes = nodes
        self.alive = set(nodes)
        self.copies = copies
        self.topics: dict[str, Topic] = {}
        self.made: list[Made] = []
        self.visible: set[int] = set()
        """Records that were below a leader's high watermark."""
        self.stable: set[int] = set()
        """Records that were below its last stable offset."""
        self.cut: set[int] = set()
        """Records that a later leader did not have."""
        self.refused: set[tuple[TopicPartition, int]] = set()
        """Offsets that were out of a leader's range."""
        self.refused_late: set[tuple[TopicPartition, int]] = set()
        """Offsets past the end of a leader that did not yet know it no longer led."""
        self.retained: set[tuple[TopicPartition, int]] = set()
        """Offsets below the start of a leader's log."""
        self.slow_ms = 20
        """The longest time until a node knows the controller's decision."""
        self._ids = 0

    @property
    def parts(self) -> list[Part]:
        return [part for topic in self.topics.values() for part in topic.parts]

    def part(self, tp: TopicPartition) -> Part | None:
        topic = self.topics.get(tp.topic)
        return topic.parts[tp.partition] if topic and tp.partition < len(topic.parts) else None

    def create(self, name: str, partitions: int) -> None:
        self._ids += 1
        self.topics[name] = Topic(name, UUID(int=self._ids))
        self.time.note(f"{name} is created, {partitions} partitions")
        for _ in range(partitions):
            self.grow(name)

    def grow(self, name: str) -> None:
        topic = self.topics[name]
        nodes = self.time.rng.sample(self.nodes, self.copies)
        topic.parts.append(Part(TopicPartition(name, len(topic.parts)), topic.topic_id, nodes))

    # ---- records -------------------------------------------------------------------------

    def append(self, part: Part, count: int) -> None:
        log = part.leading
        if log is None or part.leader not in self.alive:
            return
        numbers = tuple(range(len(self.made), len(self.made) + count))
        before = log.last
        for place, number in enumerate(numbers):
            self.made.append(Made(part.tp, part.topic_id, log.end + place, part.epoch, before))
            before = number
        rows = [Row(b"%d" % number) for number in numbers]
        data = batch(rows, base_offset=log.end, leader_epoch=part.epoch)
        log.batches.append(Batch(log.end, numbers, part.epoch, log.last, data))

    def replicate(self, part: Part, only: set[int] | None = None) -> None:
        """Followers fetch; the high watermark follows those in sync."""
        leader = part.leading
        if leader is None or part.leader not in self.alive:
            return
        for node, one in part.replicas.items():
            if node == part.leader or node not in self.alive or one.epoch != part.epoch:
                continue
            slow = part.slow_until_ms.get(node, 0) > self.time.now_ms
            if not slow and (only is None or node in only):
                one.follow(leader, self.time.rng.randint(1, 8))
                if one.end == leader.end:
                    part.in_sync.add(node)
        synced = [part.replicas[node] for node in part.in_sync]
        ends = [one.end if one.epoch == part.epoch else leader.high for one in synced]
        leader.high = max(leader.high, min(ends))
        self.mark(leader)

    def mark(self, leader: Replica) -> None:
        """Note what may be read there."""
        for one in reversed(leader.batches):
            if one.offset >= leader.high:
                continue
            if one.end <= leader.stable and one.numbers[-1] in self.stable:
                break
            for number in one.numbers:
                if self.made[number].offset < leader.high:
                    self.visible.add(number)
                if self.made[number].offset < leader.stable:
                    self.stable.add(number)

    def transact(self, part: Part) -> None:
        """A transaction begins at the end of the log, or the open one ends."""
        log = part.leading
        if log is not None:
            log.open_at = log.end if log.open_at is None else None
            self.mark(log)

    def lag(self, part: Part) -> None:
        """A follower falls out of sync for a while."""
        others = sorted(node for node in part.in_sync if node != part.leader)
        if others:
            node = self.time.rng.choice(others)
            part.in_sync.discard(node)
            part.slow_until_ms[node] = self.time.now_ms + self.time.rng.randint(100, 6_000)

    def retain(self, part: Part) -> None:
        """The log start moves, but not past the high watermark."""
        log = part.leading
        if log is not None and log.high > log.start:
            log.keep_from(self.time.rng.randint(log.start + 1, log.high))
            self.time.note(f"{_named(part)} begins at {log.start}")

    # ---- leaders -------------------------------------------------------------------------

    def elect(self, part: Part, unclean: bool) -> None:
        """Elect another leader, or the same again; none if no node may lead."""
        rng = self.time.rng
        able = sorted(self.alive & (part.replicas.keys() if unclean else part.in_sync))
        if not able and part.leader < 0:
            return
        part.epoch += 1
        part.leader = rng.choice(able) if able else -1
        if part.leader >= 0:
            # Nodes that are down, or lag, may lack what is appended from now on.
            part.in_sync = {part.leader} if unclean else part.in_sync & self.alive
        how = ", unclean" if unclean else ""
        self.time.note(f"{_named(part)} is led by {part.leader} in epoch {part.epoch}{how}")
        if able:
            log, mine = part.replicas[part.leader], (part.tp, part.topic_id)
            kept = {number for one in log.batches for number in one.numbers}
            self.cut |= {
                number
                for number, one in enumerate(self.made)
                if (one.tp, one.topic_id) == mine and one.offset >= log.start and number not in kept
            }
        for node in part.replicas:
            self.tell(part, node, part.epoch)

    def tell(self, part: Part, node: int, epoch: int) -> None:
        """Let a node learn the leader after some time."""

        def learn() -> None:
            if part.epoch == epoch and (node not in self.alive or not part.apply(node)):
                self.time.later(10 + self.slow_ms, learn)
            elif part.epoch == epoch and part.replicas[node].leads:
                self.mark(part.replicas[node])

        self.time.later(self.delay_ms(self.slow_ms), learn)

    def delay_ms(self, most_ms: int) -> int:
        """The delay until a node knows; sometimes long."""
        rng = self.time.rng
        return rng.randint(0, most_ms) * (10 if rng.random() < 0.1 else 1)


def _offset_of(one: Batch) -> int:
    return one.offset


def _named(part: Part) -> str:
    return f"{part.tp.topic}-{part.tp.partition}"
