"""CreateTopics, DeleteTopics, CreatePartitions: the metadata decides."""

from typing import Any

from kafkalog.metadata import translation
from kafkalog.server.node import Node
from kafkalog.server.request import Request
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["create_partitions", "create_topics", "delete_topics"]

DISABLED_SINCE = 3
"""Versions of DeleteTopics before this one do not know TOPIC_DELETION_DISABLED."""


def create_topics(node: Node, request: Request) -> dict[str, Any]:
    """One result per topic; every client sees a created topic from now on."""
    return {"topics": node.alone().create_topics(translation.new_topics(request.body))}


def delete_topics(node: Node, request: Request) -> dict[str, Any]:
    """One result per topic; requests waiting for a deleted topic are answered."""
    results = node.alone().delete_topics(translation.deleted_topics(request.body))
    if request.version < DISABLED_SINCE:
        for result in results:
            if result["error_code"] == ErrorCode.TOPIC_DELETION_DISABLED:
                result["error_code"] = ErrorCode.INVALID_REQUEST
    return {"responses": results}


def create_partitions(node: Node, request: Request) -> dict[str, Any]:
    """One result per topic."""
    return {"results": node.alone().create_partitions(translation.more_partitions(request.body))}
