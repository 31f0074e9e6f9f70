"""Offsets of logs: start, end and by time; and the deletion of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from kafkalog import errors
from kafkalog.client.calls.results import Results, broker_ms, each, values_of
from kafkalog.client.link.chunks import topic_rows
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import failure
from kafkalog.config.consumer import duration_ms
from kafkalog.types import FoundOffset, TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "EpochEnd",
    "all_partitions",
    "delete_records",
    "epoch_ends",
    "find_offsets",
    "find_starts",
    "list_offsets",
]

EARLIEST: Final = -2
"""Instead of a time: the log's start."""
LATEST: Final = -1
"""The high watermark, or the last stable offset for read_committed."""
MAX_TIMESTAMP: Final = -3
"""The record with the largest timestamp; since version 7."""
EARLIEST_LOCAL: Final = -4
"""The first record on the leader's own disk, if older ones are in tiered storage."""
LATEST_TIERED: Final = -5
"""The last record in tiered storage."""
EPOCHS_VERSION = 3
"""First version of OffsetForLeaderEpoch for clients."""
_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
V = TypeVar("V")


def all_partitions(cluster: Cluster, topic: str) -> list[TopicPartition]:
    """The partitions of a topic, in order.  Raises: UnknownTopicOrPartition; as Cluster."""
    return [TopicPartition(topic, p) for p in cluster.topic(topic).partitions]


def find_starts(
    cluster: Cluster, partitions: Iterable[TopicPartition], reset: str, committed: bool = False
) -> Results[TopicPartition, FoundOffset]:
    """Where to begin by auto.offset.reset: earliest, latest or by_duration:PT1H.

    Failures and raises: as `find_offsets`.
    """
    where = {"earliest": EARLIEST, "latest": LATEST}.get(reset)
    if where is None:
        # The same time in every retry: a new one would have to be asked for again.
        now_ms: int = cluster.patience.once("now", cluster.clock.now_ms)
        where = now_ms - (duration_ms(reset.partition(":")[2]) or 0)
    found = find_offsets(cluster, dict.fromkeys(partitions, where), committed)
    none = [tp for tp, at in found.done.items() if at.offset < 0]  # no record is that recent
    ends = find_offsets(cluster, dict.fromkeys(none, LATEST), committed)
    starts = {tp: at for tp, at in found.done.items() if at.offset >= 0}
    return Results({**starts, **ends.done}, {**found.errors, **ends.errors})


def list_offsets(
    cluster: Cluster, times_ms: Mapping[TopicPartition, int], committed: bool = False
) -> dict[TopicPartition, FoundOffset]:
    """`find_offsets`, all or nothing.  Raises: the first failure; as `find_offsets`."""
    return find_offsets(cluster, times_ms, committed).check()


def find_offsets(
    cluster: Cluster,
    times_ms: Mapping[TopicPartition, int],
    committed: bool = False,
    timeout_ms: int | None = None,
) -> Results[TopicPartition, FoundOffset]:
    """By partition: the first offset at or after a time, or one of the above.

    The offset is -1 if there is no record at or after it.  `committed`: LATEST is the last
    stable offset.

    Failures: UnknownTopicOrPartition, UnsupportedVersion; what a broker answers.
    Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[TopicPartition], wait_ms: int
    ) -> Iterable[tuple[TopicPartition, FoundOffset | errors.KafkalogError]]:
        version = connection.version_of(apis.LIST_OFFSETS)
        found: list[tuple[TopicPartition, FoundOffset | errors.KafkalogError]] = []
        rows: list[tuple[str, dict[str, int]]] = []
        for tp in some:
            needed = _VERSION_OF.get(times_ms[tp], 0)
            if version < needed:
                problem = f"ListOffsets: version {version}, wanted {needed} for that time"
                old = errors.UnsupportedVersion(f"{connection.address}: {problem}")
                found.append((tp, old))
                continue
            epoch = cluster.leader_epoch(tp)
            row = {"partition_index": tp.partition, "current_leader_epoch": epoch}
            rows.append((tp.topic, {**row, "timestamp": times_ms[tp]}))
        if rows:
            level = int(committed)
            body = {"replica_id": -1, "isolation_level": level, "topics": topic_rows(rows)}
            answer = connection.call(apis.LIST_OFFSETS, body, version, wait_ms)
            found += values_of(answer, apis.LIST_OFFSETS, "offsets", _found)
        return found

    return each(cluster, times_ms, cluster.leader, ask, timeout_ms)


def _found(row: Any) -> FoundOffset:
    return FoundOffset(row.offset, row.timestamp, row.leader_epoch)


class EpochEnd(NamedTuple):
    """Where a leader epoch ends in a log."""

    epoch: int
    """The largest one that the leader has up to the one that was asked for; -1: none."""
    end: int
    """The offset after its last record; -1: not known."""


def epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int], timeout_ms: int | None = None
) -> Results[TopicPartition, EpochEnd]:
    """By partition: the end of the leader epoch of a record that was read, by which a reader
    finds out whether the log was truncated since (KIP-320).

    Failures: UnsupportedVersion: the leader does not report it; UnknownTopicOrPartition; the
    leader's metadata is older than the record (UNKNOWN_LEADER_EPOCH, transient); what a broker
    answers.  Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[TopicPartition], wait_ms: int
    ) -> Iterable[tuple[TopicPartition, EpochEnd | errors.KafkalogError]]:
        api = apis.OFFSET_FOR_LEADER_EPOCH
        version = connection.version_of(api) if connection.knows(api) else 0
        if version < EPOCHS_VERSION:
            text = f"OffsetForLeaderEpoch: version {version}, wanted {EPOCHS_VERSION}"
            old = errors.UnsupportedVersion(f"{connection.address}: {text}")
            return [(tp, old) for tp in some]
        rows: list[tuple[str, dict[str, int]]] = []
        found: list[tuple[TopicPartition, EpochEnd | errors.KafkalogError]] = []
        for tp in some:
            info = cluster.topics[tp.topic]
            current = cluster.leader_epoch(tp)
            if info.topic_id.int and current < epochs[tp]:
                text = f"leader epoch {current} of {tp.topic}-{tp.partition}"
                why = f"records of leader epoch {epochs[tp]} were read before"
                found.append((tp, failure(ErrorCode.UNKNOWN_LEADER_EPOCH, text, why)))
                continue
            row = {"partition": tp.partition, "current_leader_epoch": current}
            rows.append((tp.topic, {**row, "leader_epoch": epochs[tp]}))
        if rows:
            body = {"replica_id": -1, "topics": topic_rows(rows, "topic")}
            answer = connection.call(api, body, version, wait_ms)
            found += values_of(answer, api, "leader epochs", _ended, "topic", "partition")
        return found

    return each(cluster, epochs, cluster.leader, ask, timeout_ms)


def _ended(row: Any) -> EpochEnd:
    return EpochEnd(row.leader_epoch, row.end_offset)


def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int], timeout_ms: int | None = None
) -> Results[TopicPartition, int]:
    """Delete records before an offset, -1: before the high watermark; returns the new log starts.

    Failures: UnknownTopicOrPartition, OffsetOutOfRange, PolicyViolation (a topic that is only
    compacted); what a broker answers.
    Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[TopicPartition], wait_ms: int
    ) -> Iterable[tuple[TopicPartition, int | errors.KafkalogError]]:
        rows = ((tp.topic, {"partition_index": tp.partition, "offset": before[tp]}) for tp in some)
        body = {"topics": topic_rows(rows), "timeout_ms": broker_ms(wait_ms)}
        answer = connection.call(apis.DELETE_RECORDS, body, timeout_ms=wait_ms)
        return values_of(answer, apis.DELETE_RECORDS, "records", lambda row: int(row.low_watermark))

    return each(cluster, before, cluster.leader, ask, timeout_ms)
