"""OffsetForLeaderEpoch: where a leader epoch ended, so that clients detect truncation."""

from typing import Any

from kafkalog.server.failures import code_of
from kafkalog.server.handlers.common import leader_error
from kafkalog.server.node import Node
from kafkalog.server.request import Request

__all__ = ["offset_for_leader_epoch"]


def offset_for_leader_epoch(node: Node, request: Request) -> dict[str, Any]:
    """One answer per partition, in the order of the request."""
    topics = []
    for topic in request.body.topics:
        found = [{"partition": p.partition, **_one(node, topic.topic, p)} for p in topic.partitions]
        topics.append({"topic": topic.topic, "partitions": found})
    return {"topics": topics}


def _one(node: Node, topic: str, entry: Any) -> dict[str, Any]:
    state = node.image.partition(topic, entry.partition)
    code = leader_error(node, state, entry.current_leader_epoch)
    if code or state is None:
        return {"error_code": code}
    try:
        log = node.partitions.existing_log(topic, entry.partition)
        if entry.leader_epoch < 0:
            epoch, end = -1, -1
        elif log is not None:
            epoch, end = log.epoch_end(entry.leader_epoch)
        else:  # never written: every epoch ends where it began
            was = entry.leader_epoch <= state.leader_epoch
            epoch, end = (entry.leader_epoch, 0) if was else (-1, -1)
    except Exception as problem:
        return {"error_code": code_of(problem)}
    return {"leader_epoch": epoch, "end_offset": end}
