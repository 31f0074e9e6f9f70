"""A range of a partition as columns, from its leader: one answer ahead, decoded in C."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from kafkalog import errors
from kafkalog.batch.walk import whole_batches
from kafkalog.client.fetch.core import NO_ID
from kafkalog.client.fetch.fetched import Ends, FetchOptions
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.link.cluster import Cluster
from kafkalog.log.fetched import Decoder
from kafkalog.log.scan.scan import ScanBatch
from kafkalog.types import TopicPartition

__all__ = ["sample_bytes", "scan_range"]

SAMPLE_BYTES = 64 << 10
SAMPLE_WAIT_MS = 1_000


def scan_range(
    cluster: Cluster,
    tp: TopicPartition,
    start: int,
    stop: int,
    columns: Sequence[str] | None,
    options: FetchOptions,
    topic_id: UUID = NO_ID,
) -> Iterator[ScanBatch]:
    """The records with offsets from `start` to below `stop`, as batches of a scan.

    Waits for records up to `stop` that are not written yet, for the API timeout.  `topic_id`: of
    the topic that is meant, if known.  Close the generator to end it early.

    Raises: OffsetOutOfRange if the log begins later or ends earlier; UnknownTopicOrPartition if the
    topic was deleted or recreated; CorruptMessage; permanent failures.
    """
    alone = options._replace(out_of_range="error", sessions=False)
    fetcher = Fetcher(cluster, {tp: start}, alone)
    fetcher.core.stops[tp] = stop
    decoder = Decoder(columns, options.check_crcs)
    backoff = cluster.backoff()
    try:
        while fetcher.positions[tp] < stop:
            found = fetcher.poll()
            _check_topic(cluster, tp, topic_id)
            for one in found:
                yield from decoder.batches(*tp, one.data, one.start, one.aborted, stop)
            if found:
                backoff = cluster.backoff()
            elif backoff.over():
                _check_end(tp, fetcher, options.committed)
    finally:
        fetcher.close()


def _check_topic(cluster: Cluster, tp: TopicPartition, topic_id: UUID) -> None:
    """Raises: UnknownTopicOrPartition if the known metadata has a recreated topic."""
    known = cluster.topics.get(tp.topic)
    if known is not None and topic_id != NO_ID and known.topic_id != topic_id:
        raise errors.UnknownTopicOrPartition(
            f"topic {tp.topic!r} was deleted and recreated: found the id {known.topic_id}, wanted "
            f"{topic_id}"
        )


def _check_end(tp: TopicPartition, fetcher: Fetcher, committed: bool) -> None:
    at, ends = fetcher.positions[tp], fetcher.ends.get(tp)
    if ends is None:
        raise errors.Timeout(f"{tp.topic}-{tp.partition}: no answer about offset {at} in time")
    end = _end(ends, committed)
    if end <= at:
        raise errors.OffsetOutOfRange(
            f"{tp.topic}-{tp.partition}: offset {at}, wanted {ends.log_start_offset} to {end}"
        )


def _end(ends: Ends, committed: bool) -> int:
    return ends.last_stable_offset if committed else ends.high_watermark


def sample_bytes(
    cluster: Cluster, positions: Mapping[TopicPartition, int], options: FetchOptions
) -> dict[TopicPartition, float]:
    """About how many bytes an offset takes in the log, from the batches at these positions.

    Partitions that do not answer within a second are left out, and those that fail: reading them
    raises.
    """
    small = options._replace(
        partition_bytes=SAMPLE_BYTES, min_bytes=1, out_of_range="error", sessions=False
    )
    fetcher = Fetcher(cluster, positions, small)
    fetcher.core.stops.update((tp, at + 1) for tp, at in positions.items())
    found: dict[TopicPartition, float] = {}
    try:
        while len(found) < len(positions) and (some := fetcher.poll(SAMPLE_WAIT_MS)):
            for one in some:
                # The first batch usually begins before the position; the last may be incomplete.
                base = int.from_bytes(one.data[:8], "big") if one.data else one.start
                size = sum(len(batch) for _, batch in whole_batches(one.data, check_crc=False))
                found[one.tp] = size / max(1, one.next_offset - min(base, one.start))
    except errors.KafkalogError:
        pass
    finally:
        fetcher.close()
    return found
