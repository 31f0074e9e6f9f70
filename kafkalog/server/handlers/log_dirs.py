"""DescribeLogDirs, AlterReplicaLogDirs: what the one data directory holds, and how full its disk
is."""

import os
from collections.abc import Iterable
from typing import Any

from kafkalog.errors import KafkalogError
from kafkalog.metadata.settings import is_cordoned
from kafkalog.server.node import Node
from kafkalog.server.request import Request
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["alter_replica_log_dirs", "describe_log_dirs"]


def describe_log_dirs(node: Node, request: Request) -> dict[str, Any]:
    """Sizes by partition, taken from the files without opening logs.

    If one log failed, the directory has KAFKA_STORAGE_ERROR; the others are still listed.
    """
    wanted = request.body.topics
    image = node.image
    if wanted is None:
        listed = {
            topic.name: dict.fromkeys(sorted(topic.partitions)) for topic in image.topics.values()
        }
    else:  # each once, however often it is named: each one lists a folder
        listed = {}
        for topic in wanted:
            listed.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    topics = [
        {"name": name, "partitions": found}
        for name, partitions in listed.items()
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
        "is_cordoned": is_cordoned(image, node.config),
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
        return 0  # nothing was written to it yet, or it is being deleted


def _is_here(node: Node, path: str) -> bool:
    """True if a path leads to the data directory.  The system follows it: realpath would look at
    each of its names, of which there may be thousands."""
    try:
        return os.path.isabs(path) and os.path.samefile(path, node.manager.path)
    except (OSError, ValueError):  # there is no such directory; no path has a NUL
        return False


def alter_replica_log_dirs(node: Node, request: Request) -> dict[str, Any]:
    """Every replica is in the one directory; any other is not found."""
    results: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.body.dirs:
        here = _is_here(node, directory.path)
        for topic in directory.topics:
            for partition in topic.partitions:
                code = ErrorCode.NONE if here else ErrorCode.LOG_DIR_NOT_FOUND
                if here and not node.partitions.has(topic.name, partition):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                results.setdefault(topic.name, {})[partition] = code
    return {
        "results": [
            {"topic_name": name,
             "partitions": [{"partition_index": index, "error_code": code}
                            for index, code in found.items()]}
            for name, found in results.items()
        ]
    }  # fmt: skip
