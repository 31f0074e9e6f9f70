"""Where a consumer reads: the committed offset, else by auto.offset.reset, and where it seeks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafkalog import errors
from kafkalog.client.calls.groups import CommittedOffset, committed_offsets
from kafkalog.client.calls.offsets import find_starts
from kafkalog.client.calls.results import Results
from kafkalog.client.consumer.core import ConsumerState
from kafkalog.client.consumer.member import LOST
from kafkalog.client.consumer.metadata import ConsumerMetadata
from kafkalog.client.fetch.reading import Reading
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import passing
from kafkalog.client.link.metadata import known_in
from kafkalog.client.link.patience import NotYet
from kafkalog.config.consumer import ConsumerConfig
from kafkalog.types import FoundOffset, TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["FetchPositions"]


class FetchPositions:
    """The positions of the assigned partitions, which `reading` keeps.  For the owner's thread
    only."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        state: ConsumerState,
        metadata: ConsumerMetadata,
        reading: Reading,
    ) -> None:
        self.incomplete = False
        """True if an assigned partition may have no position yet."""
        self.stable_only = config.isolation_level == "read_committed"
        self._cluster = cluster
        self._reset = config.auto_offset_reset
        self._group = config.group_id or None
        self._state = state
        self._metadata = metadata
        self._reading = reading

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those already read continue."""
        for tp in self._state.replace(partitions):
            self._reading.forget(tp)
        self._cluster.patience.forget("positions")  # others may have committed in the meantime
        self.incomplete = True

    def seek(self, tp: TopicPartition, offset: int, epoch: int = -1) -> None:
        """Continue at an offset; `epoch`: as in Fetcher.seek."""
        self._reading.seek(tp, offset, tp not in self._state.paused, epoch)

    def read_again(self, partitions: Iterable[TopicPartition]) -> None:
        """Continue with these, which were missing."""
        for tp in partitions:
            self.incomplete = True
            if tp not in self._state.paused:
                self._reading.go_on(tp)

    def find_all(self) -> None:
        """Find the positions of all assigned partitions.  Raises: as `find`."""
        try:
            self.incomplete = not self.find(self._state.assigned)
        except errors.KafkalogError as problem:
            member = self._state.offsets_of()
            if member is None or problem.code not in (ErrorCode.STALE_MEMBER_EPOCH, *LOST):
                raise
            # The next heartbeat brings its epoch, or the end of its membership.
            self._metadata.lookups.behind = True

    def find(self, partitions: Iterable[TopicPartition]) -> bool:
        """Give each of these a position, if it has none; False: the cluster has lost one.

        Raises: as `begin_at`.
        """
        new, refused = self._known([tp for tp in partitions if self._reading.position(tp) is None])
        complete = not new or self.begin_at(new) == len(new)
        if refused is not None:
            raise refused
        return complete

    def begin_at(self, partitions: Sequence[TopicPartition]) -> int:
        """Continue at the committed offsets, or by auto.offset.reset; returns for how many of the
        partitions that is known.

        Raises: OffsetOutOfRange: neither gives an offset; the first failure of a partition, once
        all others continue.
        """
        found = self._starts(partitions)
        self._metadata.topic_ids(partitions)  # notes them
        for tp, one in found.done.items():
            if isinstance(one, CommittedOffset):
                self._state.assigned[tp] = one.offset
            self.seek(tp, one.offset, one.leader_epoch)
        found.check()
        return len(found.done)

    def _starts(
        self, partitions: Sequence[TopicPartition]
    ) -> Results[TopicPartition, CommittedOffset | FoundOffset]:
        """By partition, without those that the cluster lacks.  Failures: as `find_starts`.

        Raises: OffsetOutOfRange; what the coordinator answers; as `find_starts`.
        """
        found: dict[TopicPartition, CommittedOffset | FoundOffset] = {}
        if self._group is not None:
            found.update(
                committed_offsets(self._cluster, self._group, partitions, self._state.offsets_of())
            )
        rest = [tp for tp in partitions if tp not in found]
        if rest and self._reset == "none":
            raise errors.OffsetOutOfRange(
                f"{rest[0].topic}-{rest[0].partition}: group {self._group or ''!r} has committed "
                "nothing, and auto.offset.reset is none"
            )
        starts = find_starts(self._cluster, rest, self._reset, self.stable_only)
        failed: dict[TopicPartition, errors.KafkalogError] = {}
        for tp, why in starts.errors.items():
            if isinstance(why, errors.UnknownTopicOrPartition):
                self._cluster.forget(tp.topic)  # deleted: the next call finds out
            else:
                failed[tp] = why
        return Results({**found, **starts.done}, failed)

    def _known(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[list[TopicPartition], errors.KafkalogError | None]:
        """Those partitions that the cluster has; the first failure of a topic."""
        cluster, missing = self._cluster, self._state.missing.partitions
        wanted = [tp for tp in partitions if tp not in missing]
        refused: dict[str, errors.KafkalogError] = {}
        for name in sorted({tp.topic for tp in wanted if not known_in(cluster.topics, tp)}):
            cluster.forget(name)  # it may have grown
            try:
                cluster.topic(name)
            except errors.UnknownTopicOrPartition:
                continue
            except (NotYet, errors.WakeUp):
                raise
            except errors.KafkalogError as problem:
                refused[name] = problem
        known = [tp for tp in wanted if known_in(cluster.topics, tp)]
        if not any(map(passing, refused.values())):  # else they are looked for together
            self._metadata.miss({tp for tp in wanted if tp.topic not in refused} - set(known))
        return known, next(iter(refused.values()), None)
