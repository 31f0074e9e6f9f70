"""A partition's replicas, each as its own node has it: where the log ends, and its batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.batch.walk import whole_batches
from kafkalog.client.calls.nodes import ReplicaOf
from kafkalog.client.calls.offsets import EARLIEST, LATEST
from kafkalog.client.calls.results import Results, each, only
from kafkalog.client.link.chunks import topic_rows
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code, failure
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Batch", "CopyReader", "copy_offsets"]

DEBUGGING = -2
"""The replica id of a debugging consumer: any replica answers it, not only the leader."""
BY_NAME_MAX = 12
"""Up to this version a Fetch names topics; later ones use ids."""
FETCH_BYTES = 1 << 20
WAIT_MS = 100
SAFE_VERSION = 11
"""The first version of Fetch that a follower answers for consumers (KIP-392)."""
NO_SESSION = -1
CONTROL = 32
UNKNOWN = -1


def copy_offsets(
    cluster: Cluster,
    copies: Iterable[ReplicaOf],
    when: int = LATEST,
    timeout_ms: int | None = None,
) -> Results[ReplicaOf, int]:
    """Where the log of each replica ends, even above the high watermark, or (EARLIEST) begins.

    Failures: PeerGone (no such node now); NotLeaderOrFollower: it has no such replica; what a
    broker answers.  Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[ReplicaOf], wait_ms: int
    ) -> Iterable[tuple[ReplicaOf, int | errors.KafkalogError]]:
        row = {"current_leader_epoch": UNKNOWN, "timestamp": when}
        rows = ((one.topic, {"partition_index": one.partition, **row}) for one in some)
        body = {"replica_id": DEBUGGING, "isolation_level": 0, "topics": topic_rows(rows)}
        answer = connection.call(apis.LIST_OFFSETS, body, timeout_ms=wait_ms)
        node = some[0].node
        return [
            (ReplicaOf(topic.name, row.partition_index, node), _end(topic.name, row, node))
            for topic in answer.topics
            for row in topic.partitions
        ]

    answers = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return each(cluster, copies, lambda one: one.node, ask, timeout_ms, answers)


def _end(topic: str, row: Any, node: int) -> int | errors.KafkalogError:
    if row.error_code:
        return failure(row.error_code, f"copy of {topic}-{row.partition_index} on node {node}")
    return int(row.offset)


class Batch(NamedTuple):
    """A batch of a replica."""

    base_offset: int
    last_offset: int
    record_count: int
    control: bool
    """It holds a transaction marker, not records."""
    data: bytes
    """The whole batch, as it is in the log."""


class CopyReader:
    """One replica's batches, from an offset up to the high watermark that its node knows.

    For one thread; there is nothing to close, as the connection is the cluster's.
    """

    def __init__(self, cluster: Cluster, tp: TopicPartition, node: int) -> None:
        """Ask where the replica begins and ends.

        Raises: UnsupportedVersion: the node answers only for partitions that it leads; PeerGone,
        Timeout; NotLeaderOrFollower: it has no such replica; what a broker answers.
        """
        self.tp = tp
        self.node = node
        self._cluster = cluster
        self._name = f"copy of {tp.topic}-{tp.partition} on node {node}"
        self._topic_id = cluster.topic(tp.topic).topic_id
        self.start = only(copy_offsets(cluster, [ReplicaOf(*tp, node)], EARLIEST))
        """Its first offset."""
        self.end = -1
        """The high watermark that its node knows, from the last answer."""
        self._fetch(self.start)

    def look(self) -> int:
        """Fetch `end` again.  Raises: as the constructor."""
        self._fetch(self.start)
        return self.end

    def batches(self, start: int, end: int) -> Iterator[Batch]:
        """The batches with offsets from `start` to below `end`; their CRCs are checked.

        Raises: CorruptMessage, OffsetOutOfRange; as the constructor.
        """
        at = start
        while at < end:
            data = self._fetch(at)
            behind = at
            for batch, view in whole_batches(data):
                first = int(batch.base_offset)
                if first >= end:
                    return
                behind = first + int(batch.last_offset_delta) + 1
                if behind > at:
                    control = bool(batch.attributes & CONTROL)
                    yield Batch(first, behind - 1, batch.record_count, control, bytes(view))
            if behind <= at:  # nothing is left: the rest was compacted away, or is missing
                return
            at = behind

    def _fetch(self, offset: int) -> bytes | memoryview:
        return self._cluster.retrying(lambda: self._fetch_once(offset))

    def _fetch_once(self, offset: int) -> bytes | memoryview:
        connection = self._cluster.connect(self.node)
        known = self._topic_id.int != 0
        version = connection.version_of(apis.FETCH, at_most=16 if known else BY_NAME_MAX)
        if version < SAFE_VERSION:
            raise errors.UnsupportedVersion(
                f"{connection.address}: Fetch: version {version}, wanted {SAFE_VERSION} to read "
                "from followers"
            )
        answer = connection.call(apis.FETCH, self._body(offset), version)
        check_code(answer.error_code, self._name)
        rows = [row for topic in answer.responses for row in topic.partitions]
        if len(rows) != 1:
            raise errors.BadAnswer(f"{self._name}: found {len(rows)} partitions, wanted 1")
        (row,) = rows
        check_code(row.error_code, self._name)
        self.end = row.high_watermark
        return row.records or b""

    def _body(self, offset: int) -> dict[str, Any]:
        partition = {
            "partition": self.tp.partition,
            "current_leader_epoch": UNKNOWN,
            "fetch_offset": offset,
            "partition_max_bytes": FETCH_BYTES,
        }
        topic = {"topic": self.tp.topic, "topic_id": self._topic_id, "partitions": [partition]}
        return {
            "max_wait_ms": WAIT_MS,
            "min_bytes": 0,
            "max_bytes": FETCH_BYTES,
            "isolation_level": 0,
            "rack_id": "",
            "session_id": 0,
            "session_epoch": NO_SESSION,
            "topics": [topic],
            "forgotten_topics_data": [],
        }
