"""DeleteRecords: what lies below an offset goes."""

from typing import Any

from kafkalog.errors import OffsetOutOfRange
from kafkalog.metadata.image import INTERNAL_TOPICS
from kafkalog.server.handlers.common import code_of
from kafkalog.server.node import Node
from kafkalog.server.request import Request
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["delete_records"]

HIGH_WATERMARK = -1
"""The offset that means "all that can be read"."""


def delete_records(node: Node, request: Request) -> dict[str, Any]:
    """One answer a partition: the offset from which on it can be read now.  Of one that is named
    several times the last offset counts, as in Kafka: each costs the disk something."""
    asked: dict[str, dict[int, int]] = {}
    for topic in request.body.topics:
        offsets = {one.partition_index: one.offset for one in topic.partitions}
        asked.setdefault(topic.name, {}).update(offsets)
    topics = []
    for name, offsets in asked.items():
        found = []
        for index, offset in offsets.items():
            low, code = _one(node, name, index, offset)
            found.append({"partition_index": index, "low_watermark": low, "error_code": code})
        topics.append({"name": name, "partitions": found})
    return {"topics": topics}


def _one(node: Node, topic: str, partition: int, offset: int) -> tuple[int, ErrorCode]:
    if topic in INTERNAL_TOPICS:
        return -1, ErrorCode.INVALID_TOPIC_EXCEPTION
    if not node.partitions.has(topic, partition):
        return -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if "delete" not in node.partitions.config(topic).cleanup_policy:
        return -1, ErrorCode.POLICY_VIOLATION
    try:
        log = node.partitions.look(topic, partition)
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
