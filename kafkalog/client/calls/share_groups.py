"""Share groups from outside: where their partitions begin, and changes of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafkalog import errors
from kafkalog.client.calls.results import Results, each
from kafkalog.client.link.chunks import by_topic
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code, outcome
from kafkalog.types import TopicPartition
from kafkalog.wire import apis

__all__ = ["ShareOffset", "alter_offsets", "delete_offsets", "describe_offsets"]


class ShareOffset(NamedTuple):
    """Where a partition begins for a share group."""

    offset: int
    """Records below it are done with."""
    leader_epoch: int = -1
    lag: int | None = None
    """Records from there on that are not done with; None: unknown."""


def describe_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, ShareOffset]:
    """Where partitions begin for a share group; None: all partitions that it reads.  One that
    begins nowhere yet is left out.

    Raises: what the broker answers.
    """
    topics = None if partitions is None else [
        {"topic_name": name, "partitions": sorted(numbers)}
        for name, numbers in by_topic(sorted(set(partitions))).items()
    ]  # fmt: skip
    body = {"groups": [{"group_id": group, "topics": topics}]}

    def step() -> dict[TopicPartition, ShareOffset]:
        connection = cluster.connect(cluster.coordinator(group))
        answer = connection.call(apis.DESCRIBE_SHARE_GROUP_OFFSETS, body)
        if len(answer.groups) != 1:
            raise errors.BadAnswer(
                f"DescribeShareGroupOffsets of {group!r}: found {len(answer.groups)} groups, "
                "wanted 1"
            )
        (found,) = answer.groups
        check_code(found.error_code, f"offsets of group {group!r}", found.error_message)
        out = {}
        for topic in found.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.topic_name, row.partition_index)
                where = f"{tp.topic}-{tp.partition}"
                check_code(
                    row.error_code, f"offset of group {group!r} in {where}", row.error_message
                )
                if row.start_offset >= 0:
                    lag = getattr(row, "lag", -1)
                    out[tp] = ShareOffset(
                        row.start_offset, row.leader_epoch, None if lag < 0 else lag
                    )
        return dict(sorted(out.items()))

    return cluster.retrying(step)


def alter_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int],
    timeout_ms: int | None = None,
) -> Results[TopicPartition, None]:  # fmt: skip
    """Let partitions begin elsewhere for a share group without members.

    Failures: NonEmptyGroup, UnknownTopicOrPartition; what the broker answers.  Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[TopicPartition], wait_ms: int
    ) -> Iterable[tuple[TopicPartition, errors.KafkalogError | None]]:
        topics = by_topic(
            (tp.topic, {"partition_index": tp.partition, "start_offset": offsets[tp]})
            for tp in some
        )
        rows = [{"topic_name": name, "partitions": parts} for name, parts in topics.items()]
        body = {"group_id": group, "topics": rows}
        answer = connection.call(apis.ALTER_SHARE_GROUP_OFFSETS, body, timeout_ms=wait_ms)
        check_code(answer.error_code, f"group {group!r}", answer.error_message)
        return [
            (
                TopicPartition(topic.topic_name, row.partition_index),
                outcome(
                    row.error_code,
                    f"offset of group {group!r}: {topic.topic_name}-{row.partition_index}",
                    row.error_message,
                ),
            )
            for topic in answer.responses for row in topic.partitions
        ]  # fmt: skip

    return each(cluster, offsets, lambda tp: cluster.coordinator(group), ask, timeout_ms)


def delete_offsets(
    cluster: Cluster, group: str, topics: Iterable[str], timeout_ms: int | None = None
) -> Results[str, None]:
    """Forget where topics begin for a share group without members.

    Failures: GroupIdNotFound, NonEmptyGroup, UnknownTopicOrPartition; what the broker answers.
    Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[str], wait_ms: int
    ) -> Iterable[tuple[str, errors.KafkalogError | None]]:
        body = {"group_id": group, "topics": [{"topic_name": name} for name in some]}
        answer = connection.call(apis.DELETE_SHARE_GROUP_OFFSETS, body, timeout_ms=wait_ms)
        check_code(answer.error_code, f"group {group!r}", answer.error_message)
        return [
            (
                row.topic_name,
                outcome(
                    row.error_code, f"offsets of group {group!r} in {row.topic_name!r}",
                    row.error_message,
                ),
            )
            for row in answer.responses
        ]  # fmt: skip

    return each(cluster, topics, lambda name: cluster.coordinator(group), ask, timeout_ms)
