"""Where logs begin and end, and what lies at a time: ListOffsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kafkalog import errors
from kafkalog.client.cluster import Cluster
from kafkalog.client.failures import check_code, is_retriable
from kafkalog.config.consumer import duration_ms
from kafkalog.types import Found, TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "all_partitions", "find_starts", "list_offsets"]

EARLIEST: Final = -2
"""In the place of a time: the log's start."""
LATEST: Final = -1
"""The high watermark, or the last stable offset for read_committed."""
MAX_TIMESTAMP: Final = -3
"""The record with the largest timestamp; from version 7 on."""
_VERSION_OF = {MAX_TIMESTAMP: 7}


def all_partitions(cluster: Cluster, topic: str) -> list[TopicPartition]:
    """The partitions of a topic, in order.  Raises: UnknownTopicOrPartition; as Cluster."""
    return [TopicPartition(topic, p) for p in cluster.topic(topic).partitions]


def find_starts(
    cluster: Cluster, partitions: Iterable[TopicPartition], reset: str, committed: bool = False
) -> dict[TopicPartition, int]:
    """Where to begin by auto.offset.reset: earliest, latest or by_duration:PT1H.

    Raises: as `list_offsets`.
    """
    where = {"earliest": EARLIEST, "latest": LATEST}.get(reset)
    if where is None:
        where = cluster.clock.now_ms() - (duration_ms(reset.partition(":")[2]) or 0)
    found = list_offsets(cluster, dict.fromkeys(partitions, where), committed)
    none = [tp for tp, at in found.items() if at.offset < 0]  # nothing is as young as that
    ends = list_offsets(cluster, dict.fromkeys(none, LATEST), committed) if none else {}
    return {tp: at.offset for tp, at in {**found, **ends}.items()}


def list_offsets(
    cluster: Cluster, times_ms: Mapping[TopicPartition, int], committed: bool = False
) -> dict[TopicPartition, Found]:
    """By partition: the first offset at or after a time, or EARLIEST, LATEST, MAX_TIMESTAMP.

    The offset is -1 where there is none at or after it.  `committed`: LATEST is the last
    stable offset.

    Raises: UnknownTopicOrPartition, UnsupportedVersion; what a broker answers.
    """
    found: dict[TopicPartition, Found] = {}

    def step() -> None:
        left = [tp for tp in times_ms if tp not in found]
        for node, partitions in cluster.by_leader(left).items():
            _ask(cluster, node, {tp: times_ms[tp] for tp in partitions}, committed, found)

    cluster.retrying(step)
    return {tp: found[tp] for tp in times_ms}


def _ask(
    cluster: Cluster,
    node: int,
    times_ms: Mapping[TopicPartition, int],
    committed: bool,
    found: dict[TopicPartition, Found],
) -> None:
    connection = cluster.connect(node)
    version = connection.version_of(apis.LIST_OFFSETS)
    needed = max(_VERSION_OF.get(time_ms, 0) for time_ms in times_ms.values())
    if version < needed:
        raise errors.UnsupportedVersion(
            f"{connection.address}: ListOffsets: version {version}, wanted {needed} for that time"
        )
    topics: dict[str, list[dict[str, int]]] = {}
    for tp, time_ms in times_ms.items():
        epoch = cluster.topics[tp.topic].partitions[tp.partition].leader_epoch
        topics.setdefault(tp.topic, []).append(
            {
                "partition_index": tp.partition,
                "current_leader_epoch": epoch,
                "timestamp": time_ms,
            }
        )
    answer = connection.call(
        apis.LIST_OFFSETS,
        {
            "replica_id": -1,
            "isolation_level": int(committed),
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        },
        version,
    )
    _take(answer, set(times_ms), found)


def _take(answer: object, wanted: set[TopicPartition], found: dict[TopicPartition, Found]) -> None:
    problem: tuple[int, TopicPartition] | None = None
    for topic in answer.topics:  # type: ignore[attr-defined]
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            if not row.error_code and tp in wanted:
                found[tp] = Found(row.offset, row.timestamp, row.leader_epoch)
            elif problem is None or not is_retriable(row.error_code):
                problem = row.error_code, tp
    if problem is not None and problem[0]:
        code, tp = problem
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            # Its metadata said otherwise: it has moved, or was removed a moment ago.
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        check_code(code, f"offsets of {tp.topic}-{tp.partition}")
    missing = sorted(wanted - set(found))
    if missing:
        raise errors.BadAnswer(f"ListOffsets: no answer for {missing[0].topic}-{missing[0][1]}")
