"""A scripted group coordinator, and a consumer that is its only member."""

from __future__ import annotations

from typing import Any

from kafkalog.client.consumer.consumer import Consumer
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import Peer
from tests.support.waiting import wait_for

OPTIONS: dict[str, Any] = {
    "group": "g",
    "heartbeat_ms": 1,
    "auto_offset_reset": "earliest",
    "config": {
        "retry.backoff.ms": 1,
        "retry.backoff.max.ms": 5,
        "reconnect.backoff.ms": 1,
        "reconnect.backoff.max.ms": 5,
        "default.api.timeout.ms": 20_000,
        "request.timeout.ms": 20_000,
        "fetch.max.wait.ms": 10,
    },
}
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


class Coordinator:
    """Node 1 coordinates group g; its only member is the leader, and gets what it assigns."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.generation = 0
        self.shared: dict[str, bytes] = {}
        self.protocol = "range"
        where = {"key": "g", "node_id": 1, "host": "127.0.0.1", "port": peer.port}
        peer.on(apis.METADATA, peer.metadata({"t": 2}))
        peer.on(apis.FIND_COORDINATOR, {"coordinators": [where]})
        peer.on(apis.JOIN_GROUP, self.join)
        peer.on(apis.SYNC_GROUP, self.sync)
        peer.on(apis.HEARTBEAT, {})
        peer.on(apis.LEAVE_GROUP, {"members": []})
        peer.on(apis.OFFSET_FETCH, {"groups": [{"group_id": "g", "topics": []}]})
        peer.on(apis.LIST_OFFSETS, self.offsets)
        peer.on(apis.FETCH, {"responses": []})
        peer.on(apis.OFFSET_COMMIT, self.commit)

    def join(self, request: Any, version: int) -> Any:
        if not request.member_id:
            return {"error_code": ErrorCode.MEMBER_ID_REQUIRED, "member_id": "m"}
        self.generation += 1
        me = request.member_id
        member = {"member_id": me, "metadata": request.protocols[0].metadata}
        return {
            "generation_id": self.generation, "protocol_name": self.protocol, "leader": me,
            "member_id": me, "members": [member],
        }  # fmt: skip

    def sync(self, request: Any, version: int) -> Any:
        self.shared = {a.member_id: a.assignment for a in request.assignments}
        return {"assignment": self.shared[request.member_id]}

    def offsets(self, request: Any, version: int) -> Any:
        rows = [{"partition_index": p.partition_index, "offset": 0}
                for p in request.topics[0].partitions]  # fmt: skip
        return {"topics": [{"name": "t", "partitions": rows}]}

    def commit(self, request: Any, version: int) -> Any:
        return commit_answer(request, 0)


def commit_answer(request: Any, code: int) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": p.partition_index, "error_code": code}
                    for p in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def joined(peer: Peer, **options: Any) -> Consumer:
    made = Consumer(peer.servers, "t", **{**OPTIONS, **options})
    while not (made.assignment and placed(made)):
        made.poll(10)
    return made


def placed(member: Consumer) -> bool:
    """True if its positions are known."""
    return all(member._reading.position(tp) is not None for tp in member.assignment)


def ids(peer: Peer) -> list[str]:
    """The member ids it sent in JoinGroup."""
    return [request.member_id for request in peer.sent(apis.JOIN_GROUP)]


def generation(member: Consumer) -> int:
    return member.group_metadata().generation


def again(member: Consumer, wanted: int = 2) -> None:
    """Poll until it is in generation `wanted` or a later one."""
    while (
        generation(member) < wanted or not member.assignment or member._state.joining
        or not placed(member)
    ):  # fmt: skip
        member.poll(10)


def in_time(consumer: Consumer) -> None:
    wait_for(lambda: consumer.poll(10) or consumer.assignment, "it is in")
