"""The slow path of Fetch: opens logs when they are first read, then C answers."""

from typing import Any

from kafkalog.errors import NotLeaderOrFollower, StorageOffline, UnknownTopicOrPartition, passes
from kafkalog.logs.limit import limited
from kafkalog.server.node import Node
from kafkalog.server.request import Request

__all__ = ["fetch", "open_logs"]

_logger = limited(__name__)


def open_logs(node: Node, partitions: Any, to_read: bool = False) -> None:
    """Open the existing (topic, partition) pairs; the data plane reports the missing ones.

    `to_read`: a partition that was never written is not created.
    """
    use = node.partitions.allow_reads if to_read else node.partitions.log
    for topic, partition in partitions:
        try:
            use(topic, partition)
        except (UnknownTopicOrPartition, NotLeaderOrFollower, StorageOffline):
            pass
        except Exception as problem:
            if not passes(problem):  # logged once, and tried again with the next request
                _logger.exception("%s-%d cannot be opened", topic, partition)


def fetch(node: Node, request: Request) -> None:
    """Tell the data plane what the request reads, and hand it back."""
    node.admission.renew(request)
    names = node.image.names
    wanted = []
    for topic in request.body.topics:
        name = names.get(topic.topic_id) if request.version >= 13 else topic.topic
        if name is not None:
            wanted += [(name, partition.partition) for partition in topic.partitions]
    open_logs(node, wanted, to_read=True)
    request.again()
