"""Positions that are no good: their partitions are fetched again where auto.offset.reset says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from kafkalog import errors
from kafkalog.client.calls.offsets import EARLIEST, LATEST, find_starts, list_offsets
from kafkalog.client.fetch.epochs import Place
from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.known import NO_NODE
from kafkalog.client.link.patience import NotYet
from kafkalog.types import TopicPartition

__all__ = ["LostPlaces", "Move"]

Failed = Callable[[errors.KafkalogError, list[TopicPartition]], None]


class Move(NamedTuple):
    """Where a partition goes on."""

    tp: TopicPartition
    why: str
    to: Place


class LostPlaces:
    """By partition: a position, and why it is no good, until the leader has said where to go on.

    One thread.
    """

    def __init__(self, cluster: Cluster, options: FetchOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._lost: dict[TopicPartition, tuple[int, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._lost)

    def waits(self, tp: TopicPartition, at: int) -> bool:
        """Whether it is not known yet where a partition goes on that is at this offset."""
        return tp in self._lost and self._lost[tp][0] == at

    def add(self, tp: TopicPartition, at: int, why: str) -> None:
        """A position is no good."""
        if tp not in self._lost:  # what was answered before it was lost says nothing of it
            self._cluster.patience.forget(self._errand(self._leader(tp)))
        self._lost[tp] = at, why

    def found(self, positions: Mapping[TopicPartition, int], failed: Failed) -> Iterator[Move]:
        """Those of which a leader has said by now where they go on; each leader is asked once
        about all of its partitions.  `failed`: called with those of a leader that has failed.

        Raises: what `failed` does.
        """
        leaders: dict[int, list[TopicPartition]] = {}
        for tp, (at, _) in list(self._lost.items()):
            if positions.get(tp) == at:
                leaders.setdefault(self._leader(tp), []).append(tp)
            else:  # sought elsewhere, or given away
                del self._lost[tp]
        for leader, some in leaders.items():
            try:
                with self._cluster.patience.errand_of(self._errand(leader), 0):
                    starts = self._starts(some)
            except NotYet:
                continue
            except errors.WakeUp:
                raise
            except errors.KafkalogError as problem:
                for tp in some:
                    del self._lost[tp]
                failed(problem, some)
            else:
                for tp in some:
                    yield Move(tp, self._lost.pop(tp)[1], starts[tp])

    def _starts(self, some: list[TopicPartition]) -> dict[TopicPartition, Place]:
        """Raises: OffsetOutOfRange, without a reset; as list_offsets."""
        cluster, options = self._cluster, self._options
        if options.out_of_range != "error":
            starts = find_starts(cluster, some, options.out_of_range, options.committed)
            return {tp: Place(at.offset, at.leader_epoch) for tp, at in starts.items()}
        first, end = (list_offsets(cluster, dict.fromkeys(some, at)) for at in (EARLIEST, LATEST))
        tp = some[0]
        raise errors.OffsetOutOfRange(
            f"{tp.topic}-{tp.partition}: offset {self._lost[tp][0]}, wanted {first[tp].offset} to "
            f"{end[tp].offset}"
        )

    def _leader(self, tp: TopicPartition) -> int:
        """As far as it is known now."""
        info = self._cluster.topics.get(tp.topic)
        row = None if info is None else info.partitions.get(tp.partition)
        return NO_NODE if row is None else row.leader

    @staticmethod
    def _errand(leader: int) -> str:
        return f"reset by node {leader}"
