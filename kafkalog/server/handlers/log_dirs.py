"""DescribeLogDirs: what the one data directory holds, and how full its disk is."""

import os
from collections.abc import Iterable
from typing import Any

from kafkalog.errors import KafkalogError
from kafkalog.server.handlers.common import Handler
from kafkalog.server.node import Node
from kafkalog.server.threads.requests import Request
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["HANDLERS"]


def describe_log_dirs(node: Node, request: Request) -> dict[str, Any]:
    """Sizes by partition, taken from the files: no log is opened for them.

    The directory has KAFKA_STORAGE_ERROR as soon as one log in it has; the others are listed.
    """
    wanted = request.body.topics
    image = node.image
    if wanted is None:
        asked = [(topic.name, sorted(topic.partitions)) for topic in image.topics.values()]
    else:
        asked = [(topic.topic, list(dict.fromkeys(topic.partitions))) for topic in wanted]
    topics = [
        {"name": name, "partitions": found}
        for name, partitions in asked
        if (found := list(_sizes(node, name, partitions)))
    ]
    disk = os.statvfs(node.manager.path)
    failed = node.partitions.any_offline()
    one = {
        "error_code": ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NONE,
        "log_dir": node.manager.path,
        "topics": topics,
        "total_bytes": disk.f_blocks * disk.f_frsize,
        "usable_bytes": disk.f_bavail * disk.f_frsize,
    }
    return {"results": [one]}


def _sizes(node: Node, topic: str, partitions: Iterable[int]) -> Iterable[dict[str, Any]]:
    for partition in partitions:
        if node.partitions.has(topic, partition) and not node.partitions.offline(topic, partition):
            size = _size(node, topic, partition)
            yield {"partition_index": partition, "partition_size": size, "offset_lag": 0}


def _size(node: Node, topic: str, partition: int) -> int:
    try:
        with os.scandir(node.manager.folder(topic, partition)) as files:
            return sum(file.stat().st_size for file in files if file.name.endswith(".log"))
    except (KafkalogError, OSError):
        return 0  # nothing was written to it yet, or it is going


HANDLERS: dict[int, Handler] = {apis.DESCRIBE_LOG_DIRS.key: describe_log_dirs}
