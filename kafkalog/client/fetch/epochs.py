"""Leader epochs of records that were read (KIP-320): they show that a log was truncated.

Pure: decides what to ask, and what an answer means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog.batch.walk import whole_batches
from kafkalog.client.link.chunks import names_max, topic_rows
from kafkalog.client.link.metadata import Known
from kafkalog.types import TopicPartition

__all__ = ["USABLE_VERSION", "Epochs", "FetchPosition", "Leader", "leader_of"]

USABLE_VERSION = 3
"""First version of OffsetForLeaderEpoch for clients."""
KNOWN_MAX = 16
"""Epochs remembered per partition; records not handed out yet are in the last few."""
STALE_MAX = 10
"""How often metadata may be older than the records read before their epochs are dropped."""


class Leader(NamedTuple):
    """The leader whose answers about a partition count."""

    topic_id: UUID
    epoch: int
    """-1: the brokers do not report it."""


class FetchPosition(NamedTuple):
    """A position, and the leader epoch of the record before it; -1: not known."""

    offset: int
    epoch: int


class Epochs:
    """By partition: the epochs of the records read, and the leader that the position is valid for.

    If the leader has changed, the position is checked there before it is read from.  One thread.
    """

    def __init__(self) -> None:
        self.unsure: set[TopicPartition] = set()
        """To be checked before they are fetched."""
        self._read: dict[TopicPartition, list[tuple[int, int]]] = {}
        """(first offset, epoch), ascending."""
        self._starts: dict[TopicPartition, int] = {}
        """Where reading began: the epoch of the record before it was not read here."""
        self._good: dict[TopicPartition, Leader] = {}
        self._stale: dict[TopicPartition, int] = {}
        """How often metadata was older than the records read."""
        self._version = -1

    def start(self, tp: TopicPartition, at: FetchPosition) -> None:
        """A partition continues at another offset."""
        self.forget(tp)
        self._starts[tp] = at.offset
        if at.epoch >= 0:
            self._read[tp] = [(at.offset - 1, at.epoch)]
        self.look_again()

    def look_again(self) -> None:
        """Check again: positions were added since the last change of metadata."""
        self._version = -1

    def forget(self, tp: TopicPartition) -> None:
        """The partition is no longer read."""
        self.unsure.discard(tp)
        for known in (self._read, self._starts, self._good, self._stale):
            known.pop(tp, None)

    def before(self, tp: TopicPartition, offset: int) -> int:
        """The epoch of the last record before an offset; -1: not known."""
        for first, epoch in reversed(self._read.get(tp, ())):
            if first < offset:
                return epoch
        return -1

    def read(self, tp: TopicPartition, data: bytes | memoryview, last_epoch: int) -> None:
        """Note the epochs of fetched batches; the last one's is given."""
        known = self._read.setdefault(tp, [])
        if int.from_bytes(data[12:16], "big", signed=True) == last_epoch:
            if not known or known[-1][1] != last_epoch:
                known.append((int.from_bytes(data[:8], "big"), last_epoch))
        else:
            for batch, _ in whole_batches(data, check_crc=False):
                if not known or known[-1][1] != batch.leader_epoch:
                    known.append((int(batch.base_offset), int(batch.leader_epoch)))
        del known[:-KNOWN_MAX]

    # ---- leaders -----------------------------------------------------------------------

    def look(self, known: Known, positions: Mapping[TopicPartition, int]) -> None:
        """After a change of metadata, find positions that must be checked."""
        if known.version == self._version:
            return
        self._version = known.version
        for tp, at in positions.items():
            now = leader_of(known, tp)
            before = self._good.get(tp)
            if now is None or now == before:
                continue
            if before is not None and before.topic_id != now.topic_id:
                self._read.pop(tp, None)  # another topic with that name
            if now.epoch < 0 or self.before(tp, at) < 0:
                self._take(tp, now)
            else:
                self.unsure.add(tp)

    def doubts(
        self,
        known: Known,
        node: int,
        some: Iterable[TopicPartition],
        positions: Mapping[TopicPartition, int],
    ) -> tuple[dict[TopicPartition, Leader], list[TopicPartition]]:
        """(partitions of `some` to check with this node, those whose metadata is older than the
        records read and must be fetched again)."""
        leaders: dict[TopicPartition, Leader] = {}
        stale: list[TopicPartition] = []
        for tp in [tp for tp in some if tp in self.unsure]:
            now = leader_of(known, tp)
            if now is None or known.topics[tp.topic].partitions[tp.partition].leader != node:
                continue
            read = self.before(tp, positions[tp])
            if read < 0:  # moved by a seek
                self._take(tp, now)
            elif now.epoch >= read:
                if len(leaders) < names_max():
                    leaders[tp] = now
            elif self._stale.get(tp, 0) < STALE_MAX:
                self._stale[tp] = self._stale.get(tp, 0) + 1
                stale.append(tp)
            else:  # not without end: if epochs restart, the old ones mean nothing
                self._read.pop(tp, None)
                self._take(tp, now)
        return leaders, stale

    def current(self, tp: TopicPartition) -> int:
        """The leader epoch that the position is valid for, for Fetch; -1: not known."""
        found = self._good.get(tp)
        return -1 if found is None else found.epoch

    def _take(self, tp: TopicPartition, now: Leader) -> None:
        self._good[tp] = now
        self._stale.pop(tp, None)
        self.unsure.discard(tp)

    # ---- asking ------------------------------------------------------------------------

    def question(
        self, positions: Mapping[TopicPartition, int], leaders: Mapping[TopicPartition, Leader]
    ) -> dict[str, Any]:
        """The body of OffsetForLeaderEpoch for unsure positions."""
        rows = (
            (tp.topic, {"partition": tp.partition, "current_leader_epoch": leader.epoch,
                        "leader_epoch": self.before(tp, positions[tp])})
            for tp, leader in leaders.items()
        )  # fmt: skip
        return {"topics": topic_rows(rows, "topic")}

    def good(self, leaders: Mapping[TopicPartition, Leader]) -> None:
        """These positions are valid, or cannot be checked."""
        for tp, leader in leaders.items():
            self._take(tp, leader)

    def divergence(self, tp: TopicPartition, at: int, answer: Any) -> FetchPosition | None:
        """Where the log diverges from the records read, offset -1: not known; None: it does not."""
        if answer.end_offset < 0 or answer.leader_epoch < 0:
            return FetchPosition(-1, -1)
        offset, start = answer.end_offset, self._starts.get(tp, 0)
        for first, epoch in self._read.get(tp, ()):
            if epoch > answer.leader_epoch:  # the leader has no records of that epoch
                offset = min(offset, max(first, start))
                break
        return FetchPosition(offset, answer.leader_epoch) if offset < at else None


def leader_of(known: Known, tp: TopicPartition) -> Leader | None:
    """The leader in metadata; None: metadata does not have the partition."""
    info = known.topics.get(tp.topic)
    row = None if info is None else info.partitions.get(tp.partition)
    return None if info is None or row is None else Leader(info.topic_id, row.leader_epoch)
