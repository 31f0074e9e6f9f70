"""The positions of a consumer: where it continues, and where logs begin and end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafkalog import arguments, errors
from kafkalog.arguments import whole_number
from kafkalog.client.calls.arguments import committed_of
from kafkalog.client.calls.groups import CommittedOffset
from kafkalog.client.calls.offsets import (
    EARLIEST,
    LATEST,
    all_partitions,
    find_offsets,
    list_offsets,
)
from kafkalog.client.consumer.core import ConsumerState
from kafkalog.client.consumer.fetch_positions import FetchPositions
from kafkalog.client.consumer.owned import Owned
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.fetch.reading import Reading
from kafkalog.client.link.failures import few
from kafkalog.client.link.metadata import PartitionInfo
from kafkalog.types import FoundOffset, TopicPartition

__all__ = ["Offset", "Positions"]

Offset = int | CommittedOffset


class Positions(Owned):
    """The part of a consumer that returns and sets positions; for one thread at a time."""

    _fetcher: Fetcher
    _reading: Reading
    _state: ConsumerState
    _fetch_positions: FetchPositions

    def _mine(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Raises: ArgumentError for those that are not assigned."""
        found = arguments.partitions("tp", partitions)
        for tp in found:
            if tp not in self._state.assigned:
                raise errors.ArgumentError(f"{tp.topic}-{tp.partition} is not assigned")
        return found

    # These calls ask brokers, and take at most `timeout_ms`; None: default.api.timeout.ms.

    def position(self, tp: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset after the last record that was handed out.

        Raises: ArgumentError for a partition that is not assigned; OffsetOutOfRange;
        UnknownTopicOrPartition; Timeout.
        """
        with self._used(timeout_ms):
            (tp,) = self._mine([tp])
            return self._position(tp)

    def _position(self, tp: TopicPartition) -> int:
        found = self._reading.position(tp)
        if found is None:
            self._fetch_positions.find([tp])
            found = self._reading.position(tp)
        if found is None:
            raise errors.UnknownTopicOrPartition(f"the cluster has no {tp.topic}-{tp.partition}")
        return found

    def seek(self, tp: TopicPartition, offset: Offset) -> None:
        """Continue at `offset`: an int, or a result of `committed`, whose leader epoch shows
        whether the log was truncated.

        Raises: ArgumentError for a partition that is not assigned.
        """
        with self._used():
            (tp,) = self._mine([tp])
            at = committed_of("offset", offset)
            self._fetch_positions.seek(tp, at.offset, at.leader_epoch)

    def seek_to_beginning(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> None:
        """Continue at the log's start; for all: `seek_to_beginning(*consumer.assignment)`.

        Raises: ArgumentError for none, and for those that are not assigned; the first failure,
        once all others are moved.
        """
        self._seek_to("seek_to_beginning", EARLIEST, partitions, timeout_ms)

    def seek_to_end(self, *partitions: TopicPartition, timeout_ms: float | None = None) -> None:
        """Continue at the end, see `end_offsets`; for all: `seek_to_end(*consumer.assignment)`.

        Raises: as `seek_to_beginning`.
        """
        self._seek_to("seek_to_end", LATEST, partitions, timeout_ms)

    def _seek_to(
        self, name: str, where: int, partitions: Sequence[TopicPartition], timeout_ms: float | None
    ) -> None:
        named = self._named(name, partitions)
        with self._used(timeout_ms):
            wanted = dict.fromkeys(self._mine(named), where)
            found = find_offsets(self._cluster, wanted, self._fetch_positions.stable_only)
            for tp, at in found.done.items():
                self._fetch_positions.seek(tp, at.offset, at.leader_epoch)
            found.check()

    @staticmethod
    def _named(name: str, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        if not partitions:  # a list that happens to be empty does not mean all
            raise errors.ArgumentError(
                f"{name} needs partitions; for all: {name}(*consumer.assignment)"
            )
        return partitions

    def seek_to_committed(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> None:
        """Continue at the group's committed offset, or without one by auto.offset.reset; for all:
        `seek_to_committed(*consumer.assignment)`.

        Raises: as `seek_to_beginning`; ArgumentError: no group; OffsetOutOfRange: nothing is
        committed, and auto.offset.reset is none.
        """
        wanted = self._named("seek_to_committed", partitions)
        with self._used(timeout_ms):
            self._state.identity()
            some = self._mine(wanted)
            if self._fetch_positions.begin_at(some) < len(some):
                names = few([f"{tp.topic}-{tp.partition}" for tp in some])
                raise errors.UnknownTopicOrPartition(f"the cluster does not have all of {names}")

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no records of these until `resume`; they stay assigned.  None named: nothing."""
        with self._used():
            for tp in self._mine(partitions):
                self._state.paused.add(tp)
                self._reading.drop(tp)

    def resume(self, *partitions: TopicPartition) -> None:
        """Continue with these; for all: `resume(*consumer.paused)`."""
        with self._used():
            for tp in self._mine(partitions):
                if tp in self._state.paused:
                    self._state.paused.discard(tp)
                    self._reading.go_on(tp)

    @property
    def paused(self) -> list[TopicPartition]:
        """The paused partitions, sorted."""
        return sorted(self._state.paused)

    def partitions(self, topic: str, timeout_ms: float | None = None) -> list[TopicPartition]:
        """The partitions of a topic.  Raises: UnknownTopicOrPartition; Timeout."""
        with self._used(timeout_ms):
            return all_partitions(self._cluster, arguments.text("topic", topic))

    def list_topics(self, timeout_ms: float | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics that this client may see, including Kafka's own, by name, and their
        partitions.  Raises: Timeout."""
        with self._used(timeout_ms):
            self._cluster.refresh(None)
            return {
                name: list(info.partitions.values())
                for name, info in sorted(self._cluster.topics.items())
            }

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The start offsets of logs.  Raises: UnknownTopicOrPartition; Timeout."""
        wanted = arguments.partitions("partitions", partitions)
        with self._used(timeout_ms):
            return self._at(wanted, EARLIEST)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets that the next records get: the high watermark, or for read_committed the
        last stable offset.  Raises: UnknownTopicOrPartition; Timeout.
        """
        wanted = arguments.partitions("partitions", partitions)
        with self._used(timeout_ms):
            return self._at(wanted, LATEST)

    def _at(self, partitions: list[TopicPartition], where: int) -> dict[TopicPartition, int]:
        times = dict.fromkeys(partitions, where)
        found = list_offsets(self._cluster, times, self._fetch_positions.stable_only)
        return {tp: at.offset for tp, at in found.items()}

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        """The first record at or after a time; None if there is none.

        Raises: ArgumentError for a negative time; UnknownTopicOrPartition; Timeout.
        """
        times = {
            arguments.partition("times_ms", tp): whole_number("times_ms", time_ms, 0)
            for tp, time_ms in arguments.mapping("times_ms", times_ms).items()
        }
        with self._used(timeout_ms):
            found = list_offsets(self._cluster, times, self._fetch_positions.stable_only)
            return {tp: at if at.offset >= 0 else None for tp, at in found.items()}

    def lag(self, tp: TopicPartition, timeout_ms: float | None = None) -> int:
        """The number of offsets from the position to the last known end; negative beyond the end.

        Raises: as `position`.
        """
        with self._used(timeout_ms):
            (tp,) = self._mine([tp])
            at = self._position(tp)
            ends = self._fetcher.ends.get(tp)
            end = -1 if ends is None else ends.high_watermark
            if ends is not None and self._fetch_positions.stable_only:
                end = ends.last_stable_offset
            if end < at:
                end = self._at([tp], LATEST)[tp]
            return end - at
