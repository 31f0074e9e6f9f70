"""ListOffsets: offsets by time, and the ends of a partition."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from kafkalog.log.log import handle_of
from kafkalog.server.failures import code_of
from kafkalog.server.handlers.common import leader_error
from kafkalog.server.node import Node
from kafkalog.server.request import Request
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.log.log import Log

__all__ = ["list_offsets", "not_yet"]

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
EARLIEST_PENDING_UPLOAD = -6
SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9,
         EARLIEST_PENDING_UPLOAD: 11}  # fmt: skip
"""The first version in which each special timestamp has a meaning."""
_NOTHING = -1, -1, -1
_ENDS = (LATEST, EARLIEST, EARLIEST_LOCAL)
"""Special timestamps that give 0 for a partition without files."""
NOT_AVAILABLE_SINCE = 5
"""Clients of earlier versions do not know OFFSET_NOT_AVAILABLE."""
CONSUMER = -1
"""ReplicaId of clients; followers see the log's end."""
DEBUGGING = -2
"""ReplicaId of a comparison of replicas: any replica answers, not only the leader."""
READ_COMMITTED = 1


def list_offsets(node: Node, request: Request) -> dict[str, Any]:
    """One answer per partition, in the order of the request."""
    body = request.body
    counts = Counter((t.name, p.partition_index) for t in body.topics for p in t.partitions)
    topics = []
    for topic in body.topics:
        found = []
        for partition in topic.partitions:
            if counts[topic.name, partition.partition_index] > 1:
                answer: dict[str, Any] = {"error_code": ErrorCode.INVALID_REQUEST}
            else:
                answer = _one(node, request, topic.name, partition)
            found.append({"partition_index": partition.partition_index, **answer})
        topics.append({"name": topic.name, "partitions": found})
    return {"topics": topics}


def _one(node: Node, request: Request, topic: str, entry: Any) -> dict[str, Any]:
    state = node.image.partition(topic, entry.partition_index)
    code = leader_error(node, state, entry.current_leader_epoch)
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and request.body.replica_id == DEBUGGING:
        code = ErrorCode.NONE if state and node.node_id in state.replicas else code
    if code or state is None:
        return {"error_code": code}
    if entry.timestamp < 0 and request.version < SINCE.get(entry.timestamp, 1 << 15):
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION}
    try:
        log = node.partitions.existing_log(topic, entry.partition_index)
        if log is None:
            nothing = (-1, 0, state.leader_epoch) if entry.timestamp in _ENDS else _NOTHING
            timestamp, offset, epoch = nothing
        else:
            timestamp, offset, epoch = _look(log, request.body, entry.timestamp)
            if not_yet(log, request.body, entry.timestamp, offset):
                new = request.version >= NOT_AVAILABLE_SINCE
                return {"error_code": ErrorCode.OFFSET_NOT_AVAILABLE if new
                        else ErrorCode.LEADER_NOT_AVAILABLE}  # fmt: skip
    except Exception as problem:
        return {"error_code": code_of(problem)}
    return {"timestamp": timestamp, "offset": offset, "leader_epoch": epoch}


def _look(log: "Log", body: Any, timestamp: int) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch); -1 if there is none."""
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):  # there is no remote storage
        return _NOTHING
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.start_offset, _epoch_at(log, log.start_offset)
    state = handle_of(log).state()
    if body.replica_id != CONSUMER:
        end = int(state.log_end_offset)
    elif body.isolation_level == READ_COMMITTED:
        end = int(state.last_stable_offset)
    else:
        end = int(state.high_watermark)
    if timestamp == LATEST:
        return -1, end, int(state.leader_epoch)
    found = log.find_largest_time() if timestamp == MAX_TIMESTAMP else log.find_time(timestamp)
    if found is None or found.offset >= end:
        return _NOTHING
    # A record without a timestamp is found by the smallest one; Java refuses -1 here.
    return max(found.timestamp_ms, 0), found.offset, found.leader_epoch


def not_yet(log: "Log", body: Any, timestamp: int, offset: int) -> bool:
    """True if a client could see an end below one that the previous leader reported: a new leader
    shows its records once it knows that all in-sync replicas have them (KIP-207)."""
    if body.replica_id != CONSUMER or not (timestamp == LATEST or offset < 0 <= timestamp):
        return False
    state = handle_of(log).state()
    epochs = log.epochs
    began = epochs[-1].start_offset if epochs and epochs[-1].epoch == state.leader_epoch else 0
    return bool(began > state.high_watermark)


def _epoch_at(log: "Log", offset: int) -> int:
    epochs = [entry.epoch for entry in log.epochs if entry.start_offset <= offset]
    return epochs[-1] if epochs else -1
