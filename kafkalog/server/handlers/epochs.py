"""OffsetForLeaderEpoch: where a leader's reign ended, so that clients notice what was cut."""

from typing import Any

from kafkalog.server.handlers.common import code_of, epoch_error
from kafkalog.server.node import Node
from kafkalog.server.request import Request

__all__ = ["offset_for_leader_epoch"]


def offset_for_leader_epoch(node: Node, request: Request) -> dict[str, Any]:
    """One answer a partition, in the order of the request."""
    topics = []
    for topic in request.body.topics:
        found = [{"partition": p.partition, **_one(node, topic.topic, p)} for p in topic.partitions]
        topics.append({"topic": topic.topic, "partitions": found})
    return {"topics": topics}


def _one(node: Node, topic: str, asked: Any) -> dict[str, Any]:
    code = epoch_error(node.image.partition(topic, asked.partition), asked.current_leader_epoch)
    if code:
        return {"error_code": code}
    try:
        log = node.partitions.look(topic, asked.partition)
        if log is not None:
            epoch, end = log.epoch_end(asked.leader_epoch)
        else:  # never written: what there is ends where it begins, in the first epoch
            epoch, end = (0, 0) if asked.leader_epoch == 0 else (-1, -1)
    except Exception as problem:
        return {"error_code": code_of(problem)}
    return {"leader_epoch": epoch, "end_offset": end}
