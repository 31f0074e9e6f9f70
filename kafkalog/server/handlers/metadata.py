"""Metadata and DescribeTopicPartitions: which topics there are, and where to find them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkalog.disk.layout import METADATA_TOPIC, topic_problem
from kafkalog.metadata.image import INTERNAL_TOPICS
from kafkalog.security.permissions import CLUSTER_NAME, Kind, Operation
from kafkalog.server.handlers.common import (
    cluster_operations,
    node_entries,
    operations,
)
from kafkalog.server.journal import OFFSETS_TOPIC
from kafkalog.server.node import Node, Serving
from kafkalog.server.request import Request
from kafkalog.server.topics import create_missing
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import ZERO_UUID

if TYPE_CHECKING:
    from kafkalog.metadata.image import Topic

__all__ = ["IDS_SINCE", "creatable", "describe_topic_partitions", "made_on_use", "metadata"]

IDS_SINCE = 12
"""In requests of versions 10 and 11, topic ids have no meaning."""


def metadata(node: Node, request: Request) -> dict[str, Any]:
    """This broker and the requested topics; missing topics may be created."""
    body = request.body
    if request.version < IDS_SINCE and any(topic.name is None for topic in body.topics or ()):
        return {"topics": [_invalid(topic) for topic in body.topics]}
    if body.topics is None or (request.version == 0 and not body.topics):
        topics = [_entry(node, one) for one in _visible(node, request)]
    else:
        topics = _requested(node, request)
    if body.include_topic_authorized_operations:
        for topic in topics:
            if topic["name"] is not None:
                _set_operations(node, request, topic)
    return {
        "brokers": node_entries(node, request.peer.listener),
        "cluster_id": node.image.cluster_id,
        "controller_id": node.metadata.controller,
        "topics": topics,
        "cluster_authorized_operations": cluster_operations(node, request),
    }


def _invalid(topic: Any) -> dict[str, Any]:
    """The whole request is invalid: it names a topic by nothing that its version knows."""
    name = topic.name or ""  # before version 12 the answer cannot leave it out
    return {"error_code": ErrorCode.INVALID_REQUEST, "name": name, "topic_id": topic.topic_id}


def _shown(topic: str) -> bool:
    return topic != METADATA_TOPIC


def _visible(node: Node, request: Request) -> list["Topic"]:
    """All topics that the caller may describe."""
    topics = node.image.topics
    names = set(filter(_shown, topics))
    if node.admission.guards(request.peer):
        names = node.admission.allowed(
            request.peer, Operation.DESCRIBE, Kind.TOPIC, names, quiet=True
        )
    return [topic for topic in topics.values() if topic.name in names]


def _set_operations(node: Node, request: Request, topic: dict[str, Any]) -> None:
    found = operations(node, request, Kind.TOPIC, topic["name"])
    topic["topic_authorized_operations"] = found


def _requested(node: Node, request: Request) -> list[dict[str, Any]]:
    body = request.body
    by_id = request.version >= IDS_SINCE
    names = [topic.name for topic in body.topics if topic.name is not None]
    # Kafka answers a request that creates a topic with its absence, and the client pauses.
    if body.allow_auto_topic_creation and node.config.auto_create_topics_enable:
        absent = [name for name in names if name not in node.image.topics and made_on_use(name)]
        allowed = creatable(node, request, absent)
        create_missing(node, [name for name in absent if name in allowed])
    image = node.image
    found: list[dict[str, Any]] = []
    # Each once, as in Kafka: otherwise a small request could ask for any number of answers.
    for entry in {(one.name, one.topic_id if by_id else None): one for one in body.topics}.values():
        if entry.name is None or (by_id and entry.topic_id != ZERO_UUID):
            topic = image.topic(entry.topic_id) if by_id else None
            missing = {"error_code": ErrorCode.UNKNOWN_TOPIC_ID, "name": None,
                       "topic_id": entry.topic_id}  # fmt: skip
            found.append(missing if topic is None else _entry(node, topic))
        elif (topic := image.topics.get(entry.name)) is not None and _shown(entry.name):
            found.append(_entry(node, topic))
        else:
            found.append({"error_code": _missing(entry.name), "name": entry.name,
                          "is_internal": entry.name in INTERNAL_TOPICS})  # fmt: skip
    return found


def creatable(node: Serving, request: Request, names: Iterable[str]) -> set[str]:
    """Those of the names under which the caller may create a topic."""
    admission, peer = node.admission, request.peer
    if not admission.guards(peer) or admission.allows(
        peer, Operation.CREATE, Kind.CLUSTER, CLUSTER_NAME, quiet=True
    ):
        return set(names)
    return admission.allowed(peer, Operation.CREATE, Kind.TOPIC, names)


def made_on_use(name: str) -> bool:
    """True if a request may create the topic: of Kafka's internal topics only the one that we fill,
    since each needs its own settings."""
    return _shown(name) and (name not in INTERNAL_TOPICS or name == OFFSETS_TOPIC)


def _missing(name: str) -> ErrorCode:
    if topic_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _entry(node: Node, topic: "Topic") -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": [_partition(node, topic, index) for index in sorted(topic.partitions)],
    }


def _partition(node: Node, topic: "Topic", index: int) -> dict[str, Any]:
    partition = topic.partitions[index]
    # As Kafka's controller does when the leader's disk failed.
    offline = node.partitions.offline(topic.name, index)
    led = partition.leader >= 0 and not (offline and partition.leader == node.node_id)
    gone = {*partition.offline_replicas}
    if offline:
        gone.add(node.node_id)
    if node.under_controllers:
        gone |= {*partition.replicas} - node.image.living.keys()
    return {
        "error_code": ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        "partition_index": partition.partition,
        "leader_id": partition.leader if led else -1,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": list(partition.replicas),
        "isr_nodes": list(partition.isr),
        "offline_replicas": sorted(gone),
    }


# ---- by pages ------------------------------------------------------------------------------


def describe_topic_partitions(node: Node, request: Request) -> dict[str, Any]:
    """Topics by name, a limited number per page; the cursor says where to continue (KIP-966)."""
    body, image = request.body, node.image
    names = {topic.name for topic in body.topics} or {
        topic.name for topic in _visible(node, request)
    }
    limit = min(body.response_partition_limit, node.config.max_request_partition_size_limit)
    left = limit if limit > 0 else node.config.max_request_partition_size_limit
    cursor = body.cursor
    found: list[dict[str, Any]] = []
    for name in sorted(names):
        if cursor is not None and name < cursor.topic_name:
            continue
        at_cursor = cursor is not None and name == cursor.topic_name
        first = max(cursor.partition_index, 0) if at_cursor else 0
        if left == 0:
            return _page(found, name, first)
        topic = image.topics.get(name)
        if topic is None or not _shown(name):
            code = _missing(name)
            found.append({"name": name, "error_code": code})
            _set_operations(node, request, found[-1])
            continue
        indexes = [index for index in sorted(topic.partitions) if index >= first]
        entry = _entry(node, topic)
        _set_operations(node, request, entry)
        entry["partitions"] = [_with_eligible(node, topic, i) for i in indexes[:left]]
        found.append(entry)
        if len(indexes) > left:
            return _page(found, name, indexes[left])
        left -= len(indexes)
    return {"topics": found}


def _with_eligible(node: Node, topic: "Topic", index: int) -> dict[str, Any]:
    """A partition with its eligible leader replicas; without any an empty list: Java fails on
    null."""
    state = topic.partitions[index]
    return {
        **_partition(node, topic, index),
        "eligible_leader_replicas": list(state.eligible_leader_replicas),
        "last_known_elr": list(state.last_known_elr),
    }


def _page(found: list[dict[str, Any]], topic: str, partition: int) -> dict[str, Any]:
    return {
        "topics": found,
        "next_cursor": {"topic_name": topic, "partition_index": partition},
    }
