"""DeleteRecords: deletes the records below an offset."""

from collections.abc import Mapping
from typing import Any

from kafkalog.errors import OffsetOutOfRange
from kafkalog.metadata.image import INTERNAL_TOPICS
from kafkalog.server.failures import code_of
from kafkalog.server.handlers.common import leader_error
from kafkalog.server.node import Node
from kafkalog.server.request import Request
from kafkalog.server.threads.deletions import Deleted
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["delete_records"]

HIGH_WATERMARK = -1
"""The offset that means "all records that can be read"."""


def delete_records(node: Node, request: Request) -> None:
    """One answer per partition: the low watermark, once all live replicas have deleted the records.
    REQUEST_TIMED_OUT if they have not in time, though the records are deleted here.
    If a partition is named several times, the last offset counts, as in Kafka: each costs disk
    work."""
    requested: dict[str, dict[int, int]] = {}
    for topic in request.body.topics:
        offsets = {one.partition_index: one.offset for one in topic.partitions}
        requested.setdefault(topic.name, {}).update(offsets)
    found: dict[TopicPartition, Deleted] = {}
    wanted: dict[TopicPartition, int] = {}
    for name, offsets in requested.items():
        for index, offset in offsets.items():
            tp = TopicPartition(name, index)
            found[tp] = Deleted(*_one(node, name, index, offset))
            if not found[tp].error and node.clustered:
                wanted[tp] = found[tp].low_watermark if offset == HIGH_WATERMARK else offset

    def done(waited: Mapping[TopicPartition, Deleted]) -> None:
        rows = found | dict(waited)
        topics = [
            {
                "name": name,
                "partitions": [_row(rows[TopicPartition(name, index)], index) for index in offsets],
            }
            for name, offsets in requested.items()
        ]
        request.answer({"topics": topics})

    node.deletions.wait(wanted, request.body.timeout_ms, done)


def _row(found: Deleted, index: int) -> dict[str, Any]:
    return {"partition_index": index, "low_watermark": found.low_watermark,
            "error_code": found.error}  # fmt: skip


def _one(node: Node, topic: str, partition: int, offset: int) -> tuple[int, ErrorCode]:
    if topic in INTERNAL_TOPICS:
        return -1, ErrorCode.INVALID_TOPIC_EXCEPTION
    if code := leader_error(node, node.image.partition(topic, partition)):
        return -1, code
    if "delete" not in node.partitions.config(topic).cleanup_policy:
        return -1, ErrorCode.POLICY_VIOLATION
    try:
        log = node.partitions.existing_log(topic, partition)
        if log is None:  # never written: there is nothing to delete
            if offset not in (HIGH_WATERMARK, 0):
                raise OffsetOutOfRange(f"{topic}-{partition}: found offset {offset}, wanted 0")
            return 0, ErrorCode.NONE
        wanted = log.high_watermark if offset == HIGH_WATERMARK else offset
        if wanted < 0:
            raise OffsetOutOfRange(f"{topic}-{partition}: found offset {offset}, wanted -1 or more")
        if wanted > log.start_offset:
            log.delete_before(wanted)
        return log.start_offset, ErrorCode.NONE
    except Exception as problem:
        return -1, code_of(problem)
