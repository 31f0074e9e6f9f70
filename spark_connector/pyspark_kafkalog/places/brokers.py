"""Partitions of brokers, ours or Apache Kafka's, over the wire.

kafkalog and pyarrow are imported on first use, so that listing data sources stays light.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from ..client_options import resolved
from ..errors import DataLoss, ReadError
from ..options import EARLIEST, LATEST, Key, ReadOptions, Retries
from ..patience import Patience, patiently
from ..plan import Ends, Marks, Range, lost, task_bytes, within
from .piece import Piece, columns_wanted, record_batches, tell_lost, told_damage

if TYPE_CHECKING:
    from kafkalog.client.fetch.fetched import FetchOptions
    from kafkalog.client.link.cluster import Cluster

T = TypeVar("T")
_STEPS = 64
"""At most this many marks for each task's worth of bytes."""
_MARKS_MAX = 1 << 16
"""Marks of a range."""
_GUESS_BYTES = 1_000.0
"""Bytes of an offset if its partition gives no sample."""
_FETCHES = {"max.partition.fetch.bytes": str(4 << 20)}
"""A task reads one partition from one node: the limits of a consumer of many would be too low."""
_SAMPLE_S = 60.0
"""How long a sample is used: a stream plans many times a second."""


class Brokers:
    """The place of kafka.bootstrap.servers.  See Place."""

    def __init__(
        self,
        servers: str,
        isolation: str,
        client: Sequence[tuple[str, str]] = (),
        retries: Retries = Retries(),  # noqa: B008
    ) -> None:
        """`client`: a consumer's settings, by Kafka's names.  Nothing is sent yet."""
        self.name = f"the brokers at {servers}"
        self._servers = servers
        self._committed = isolation == "read_committed"
        self._client = dict(client)
        self._retries = retries
        self._made: tuple[Cluster, FetchOptions] | None = None
        self._samples: dict[Key, tuple[float, float]] = {}
        """(bytes of an offset, until when it is used)"""

    def present(self) -> list[Key]:
        """As Place."""

        def all_topics() -> list[Key]:
            self._cluster.refresh(None)
            topics = self._cluster.topics.values()
            return [(topic.name, number) for topic in topics for number in topic.partitions]

        return self._ask(all_topics)

    def identities(self, keys: Sequence[Key]) -> dict[Key, str]:
        """As Place.  Brokers before Kafka 2.8 know none: there it is all zero."""

        def ids() -> dict[Key, str]:
            self._cluster.refresh({topic for topic, _ in keys})
            topics = self._cluster.topics
            return {
                key: str(topics[key[0]].topic_id)
                for key in keys
                if key[0] in topics and key[1] in topics[key[0]].partitions
            }

        return self._ask(ids)

    def ends(self, keys: Sequence[Key]) -> dict[Key, Ends]:
        """As Place: two requests to each leader."""
        starts = self._offsets(dict.fromkeys(keys, EARLIEST))
        stops = self._offsets(dict.fromkeys(starts, LATEST))
        return {key: Ends(min(starts[key], stop), stop) for key, stop in stops.items()}

    def at_times(self, times_ms: Mapping[Key, int]) -> dict[Key, int | None]:
        """As Place."""
        found = self._offsets(times_ms)
        return {key: None if offset < 0 else offset for key, offset in found.items()}

    def _offsets(self, times_ms: Mapping[Key, int]) -> dict[Key, int]:
        """ListOffsets; without those that have gone."""
        from kafkalog.client.calls.offsets import find_offsets
        from kafkalog.errors import UnknownTopicOrPartition
        from kafkalog.types import TopicPartition

        asked = {TopicPartition(*key): ms for key, ms in times_ms.items()}

        def offsets() -> dict[Key, int]:
            found = find_offsets(self._cluster, asked, self._committed)
            for problem in found.errors.values():
                if not isinstance(problem, UnknownTopicOrPartition):
                    raise problem
            return {(tp.topic, tp.partition): one.offset for tp, one in found.done.items()}

        return self._ask(offsets)

    def marks(self, ranges: Sequence[Range], options: ReadOptions) -> dict[Key, Marks]:
        """As Place: even ones, by the size of the first batches and of some in the middle."""
        sizes = self._bytes_of_offsets(ranges)
        total = sum(sizes[one.key] * one.count for one in ranges)
        step = max(1, task_bytes(int(total), options) // _STEPS)
        return {one.key: even_marks(one, sizes[one.key], step) for one in ranges}

    def _bytes_of_offsets(self, ranges: Sequence[Range]) -> dict[Key, float]:
        from kafkalog.client.fetch.ranges import sample_bytes
        from kafkalog.types import TopicPartition

        now_s = time.monotonic()
        unknown = [one for one in ranges if self._samples.get(one.key, (0.0, now_s))[1] <= now_s]
        samples: dict[Key, list[float]] = {one.key: [] for one in unknown}
        for points in (
            {TopicPartition(*one.key): one.start for one in unknown},
            {TopicPartition(*one.key): one.start + one.count // 2 for one in unknown},
        ):
            found = sample_bytes(self._cluster, points, self._fetching) if points else {}
            for tp, size in found.items():
                samples[tp.topic, tp.partition].append(size)
        for key, sizes in samples.items():
            mean = sum(sizes) / len(sizes) if sizes else _GUESS_BYTES
            self._samples[key] = mean, now_s + _SAMPLE_S
        return {one.key: self._samples[one.key][0] for one in ranges}

    def piece(self, there: Range, identity: str) -> Piece:
        """As Place."""
        return Piece(there, identity)

    def read(self, piece: Piece, columns: Sequence[str], options: ReadOptions) -> Iterator[Any]:
        """As Place."""
        import pyarrow as pa

        from kafkalog import KafkalogError

        key, wanted = piece.range.key, piece.range
        where = f"{key[0]}-{key[1]}, offsets {wanted.start} to {wanted.stop}, of {self.name}"
        where += f", read on {socket.gethostname()}"
        try:
            yield from self._read(piece, columns, options, where)
        except (KafkalogError, OSError, pa.ArrowException) as error:
            self.close()  # the next attempt looks again
            told = told_damage(error, "`kafkalog verify` of the partition's folder at its leader")
            raise ReadError(f"{where}: {told}") from error

    def _read(
        self, piece: Piece, columns: Sequence[str], options: ReadOptions, where: str
    ) -> Iterator[Any]:
        from kafkalog.client.fetch.ranges import scan_range
        from kafkalog.errors import OffsetOutOfRange, UnknownTopicOrPartition
        from kafkalog.types import TopicPartition

        key, at, stop = piece.range.key, piece.range.start, piece.range.stop
        # Plans are retried, tasks are not: they wait as long as those of Spark's own source.
        self._cluster.options = self._cluster.options._replace(api_timeout_ms=self._retries.poll_ms)
        while at < stop:
            try:
                blocks = scan_range(
                    self._cluster, TopicPartition(*key), at, stop, columns_wanted(columns, options),
                    self._fetching, UUID(piece.identity),
                )  # fmt: skip
                for batch, behind in record_batches(blocks, at, columns, options):
                    yield batch
                    at = behind
                return
            except OffsetOutOfRange as error:  # retention was faster, or an end was lost
                asked = Range(key, at, stop)
                ends = self.ends([key]).get(key, Ends(at, at))
                if options.fail_on_data_loss:
                    raise DataLoss(f"{where}: {lost(asked, ends, options.isolation)}") from error
                tell_lost(f"{where}: {lost(asked, ends, options.isolation)}", options)
                there = within(asked, ends)
                at, stop = there.start, there.stop
            except UnknownTopicOrPartition as error:
                tell_lost(f"{where}: {error}: the topic was deleted", options)
                return

    def told_gone(self, key: Key) -> str:
        """As Place."""
        return (
            f"{key[0]}-{key[1]}: was deleted from {self.name} while the read was planned "
            "(failOnDataLoss=false leaves it out)"
        )

    def close(self) -> None:
        """As Place."""
        if self._made is not None:
            self._made[0].close()
            self._made = None

    # ---- the client --------------------------------------------------------------------

    @property
    def _cluster(self) -> Cluster:
        return self._client_made()[0]

    @property
    def _fetching(self) -> FetchOptions:
        return self._client_made()[1]

    def _client_made(self) -> tuple[Cluster, FetchOptions]:
        if self._made is None:
            from kafkalog.client.consumer.settings import client_options, fetch_options
            from kafkalog.client.link.cluster import Cluster
            from kafkalog.config.consumer import ConsumerConfig

            config = ConsumerConfig(_FETCHES | resolved(self._client))
            fetching = fetch_options(config)._replace(committed=self._committed)
            self._made = Cluster(self._servers, client_options(config)), fetching
        return self._made

    def _ask(self, step: Callable[[], T]) -> T:
        """The brokers' answer; retried while none answers.

        Raises: ReadError.
        """
        from kafkalog import KafkalogError

        options = self._cluster.options
        patience = Patience(
            options.api_timeout_ms * self._retries.times,
            options.retry_backoff_ms,
            options.retry_backoff_max_ms,
        )
        try:
            return patiently(step, patience, self.name)
        except KafkalogError as error:
            self.close()
            raise ReadError(
                f"{self.name}, asked from {socket.gethostname()}: {type(error).__name__}: {error}"
            ) from error


def even_marks(there: Range, offset_bytes: float, step_bytes: int) -> Marks:
    """Marks of a range by the mean size of its offsets, about `step_bytes` apart."""
    total = max(1, int(offset_bytes * there.count))
    parts = max(1, min(there.count, -(-total // step_bytes), _MARKS_MAX))
    return Marks(
        [there.start + there.count * part // parts for part in range(parts + 1)],
        [total * part // parts for part in range(parts + 1)],
    )
