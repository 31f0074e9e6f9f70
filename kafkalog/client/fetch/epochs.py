"""Leader epochs of what was read (KIP-320), by which a consumer notices that a log was cut.

Pure: what is to be asked, and what an answer means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog.batch.walk import whole_batches
from kafkalog.client.link.chunks import names_max
from kafkalog.client.link.metadata import Known
from kafkalog.types import TopicPartition

__all__ = ["USABLE_VERSION", "Epochs", "Leader", "Place", "leader_of"]

USABLE_VERSION = 3
"""Of OffsetForLeaderEpoch: before it only nodes may ask."""
KNOWN_MAX = 16
"""Epochs remembered of a partition; what is read and not handed out yet is in the last few."""
STALE_MAX = 10
"""How often metadata may be older than what was read before that counts for nothing."""


class Leader(NamedTuple):
    """Whose answers about a partition count."""

    topic_id: UUID
    epoch: int
    """-1: the brokers do not say."""


class Place(NamedTuple):
    """A position, and the leader epoch of the record before it; -1: not known."""

    offset: int
    epoch: int


class Epochs:
    """By partition: the epochs of what was read, and the leader for whom the position is good.

    A position whose leader is another one now is checked there before it is read from.  One
    thread.
    """

    def __init__(self) -> None:
        self.unsure: set[TopicPartition] = set()
        """To be checked before they are read."""
        self._read: dict[TopicPartition, list[tuple[int, int]]] = {}
        """(first offset, epoch), ascending."""
        self._begun: dict[TopicPartition, int] = {}
        """What is before that was not read: that it had the epoch is hearsay."""
        self._good: dict[TopicPartition, Leader] = {}
        self._stale: dict[TopicPartition, int] = {}
        """How often metadata was found to be older than what was read."""
        self._version = -1

    def start(self, tp: TopicPartition, at: Place) -> None:
        """A partition goes on elsewhere."""
        self.forget(tp)
        self._begun[tp] = at.offset
        if at.epoch >= 0:
            self._read[tp] = [(at.offset - 1, at.epoch)]
        self.look_again()

    def look_again(self) -> None:
        """Positions were added since metadata changed last."""
        self._version = -1

    def forget(self, tp: TopicPartition) -> None:
        """It is read no more."""
        self.unsure.discard(tp)
        for known in (self._read, self._begun, self._good, self._stale):
            known.pop(tp, None)

    def before(self, tp: TopicPartition, offset: int) -> int:
        """The epoch of the last record before an offset that was read from; -1: not known."""
        for first, epoch in reversed(self._read.get(tp, ())):
            if first < offset:
                return epoch
        return -1

    def read(self, tp: TopicPartition, data: bytes | memoryview, last_epoch: int) -> None:
        """Batches have come; the last one's epoch is known."""
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
        """Find those that are to be checked, where the metadata has changed."""
        if known.version == self._version:
            return
        self._version = known.version
        for tp, at in positions.items():
            now = leader_of(known, tp)
            before = self._good.get(tp)
            if now is None or now == before:
                continue
            if before is not None and before.topic_id != now.topic_id:
                self._read.pop(tp, None)  # another topic of that name
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
        """(those of some that are to be checked with this node, those of which metadata is older
        than what was read: another look may help)."""
        leaders: dict[TopicPartition, Leader] = {}
        stale: list[TopicPartition] = []
        for tp in [tp for tp in some if tp in self.unsure]:
            now = leader_of(known, tp)
            if now is None or known.topics[tp.topic].partitions[tp.partition].leader != node:
                continue
            read = self.before(tp, positions[tp])
            if read < 0:  # it was sought since
                self._take(tp, now)
            elif now.epoch >= read:
                if len(leaders) < names_max():
                    leaders[tp] = now
            elif self._stale.get(tp, 0) < STALE_MAX:
                self._stale[tp] = self._stale.get(tp, 0) + 1
                stale.append(tp)
            else:  # not for ever: where epochs begin again, those of before say nothing
                self._read.pop(tp, None)
                self._take(tp, now)
        return leaders, stale

    def current(self, tp: TopicPartition) -> int:
        """The leader's epoch for which the position is good, as Fetch says it; -1: not known."""
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
        """Of OffsetForLeaderEpoch, about the unsure."""
        topics: dict[str, list[dict[str, int]]] = {}
        for tp, leader in leaders.items():
            topics.setdefault(tp.topic, []).append(
                {
                    "partition": tp.partition,
                    "current_leader_epoch": leader.epoch,
                    "leader_epoch": self.before(tp, positions[tp]),
                }
            )
        return {"topics": [{"topic": name, "partitions": rows} for name, rows in topics.items()]}

    def good(self, leaders: Mapping[TopicPartition, Leader]) -> None:
        """So are the positions of these, or nobody can say otherwise."""
        for tp, leader in leaders.items():
            self._take(tp, leader)

    def parted(self, tp: TopicPartition, at: int, answer: Any) -> Place | None:
        """Where the log has parted from what was read, offset -1: not known; None: nowhere."""
        if answer.end_offset < 0 or answer.leader_epoch < 0:
            return Place(-1, -1)
        offset, begun = answer.end_offset, self._begun.get(tp, 0)
        for first, epoch in self._read.get(tp, ()):
            if epoch > answer.leader_epoch:  # the leader never had that: no record of it is there
                offset = min(offset, max(first, begun))
                break
        return Place(offset, answer.leader_epoch) if offset < at else None


def leader_of(known: Known, tp: TopicPartition) -> Leader | None:
    """As metadata has it; None: it does not have the partition."""
    info = known.topics.get(tp.topic)
    row = None if info is None else info.partitions.get(tp.partition)
    return None if info is None or row is None else Leader(info.topic_id, row.leader_epoch)
