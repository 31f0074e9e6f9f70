"""Groups: FindCoordinator, also of other coordinators, is answered here, all else by the group
coordinator."""

from collections.abc import Collection
from functools import partial
from typing import Any

from kafkalog.coordinator.partitions import partition_for
from kafkalog.coordinator.share_state.state import SharePartition
from kafkalog.errors import for_clients
from kafkalog.metadata.levels import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
from kafkalog.security.permissions import CLUSTER_NAME, Kind, Operation
from kafkalog.server.failures import code_of
from kafkalog.server.handlers.common import call_of, node_entry
from kafkalog.server.journal import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from kafkalog.server.node import Node
from kafkalog.server.request import Request
from kafkalog.server.topics import internal_topic
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "find_coordinator", "to_consumer_groups", "to_coordinator", "to_share_groups",
    "to_streams_groups",
]  # fmt: skip

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""The key types of FindCoordinator."""
TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC, SHARE: SHARE_STATE_TOPIC}
"""The topic of the coordinators that each finds."""
SHARE_SINCE = 6
"""The first version of FindCoordinator that finds the coordinator of a share partition."""
SEVERAL_SINCE = 4
"""KIP-699: from this version on, one request has several keys."""


def find_coordinator(node: Node, request: Request) -> dict[str, Any]:
    """The leader of the partition for a group or a transactional id."""
    body = request.body
    code, message = ErrorCode.NONE, None
    keys = body.coordinator_keys if request.version >= SEVERAL_SINCE else [body.key]
    if body.key_type != SHARE or not all(_key_error(key)[0] for key in keys):
        code, message = _coordinator_error(node, body.key_type, request.version)
    if request.version < SEVERAL_SINCE:
        return _place(node, request, body.key, code, message)
    return {
        "coordinators": [
            {"key": key, **_place(node, request, key, code, message)}
            for key in body.coordinator_keys
        ]
    }


def _place(
    node: Node, request: Request, key: str, code: ErrorCode, message: str | None
) -> dict[str, Any]:
    if not code and request.body.key_type == SHARE:
        code, message = _key_error(key)
    found = None if code else _coordinator(node, request, key)
    if found is not None:
        del found["rack"]
        return {**found, "error_code": code, "error_message": message}
    code = code or ErrorCode.COORDINATOR_NOT_AVAILABLE
    return {"node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": message}


def _coordinator(node: Node, request: Request, key: str) -> dict[str, Any] | None:
    topic = node.image.topics.get(TOPICS[request.body.key_type])
    if topic is None:
        return None
    state = topic.partitions.get(partition_for(key, len(topic.partitions)))
    leader = -1 if state is None else state.leader
    return node_entry(node, request.peer.listener, leader) if leader >= 0 else None


def _key_error(key: str) -> tuple[ErrorCode, str | None]:
    try:
        SharePartition.of(key)
    except ValueError as error:
        return ErrorCode.INVALID_REQUEST, str(error)
    return ErrorCode.NONE, None


def _coordinator_error(node: Node, key_type: int, version: int) -> tuple[ErrorCode, str | None]:
    if key_type == SHARE and (version < SHARE_SINCE or node.on_zookeeper):
        wanted = "no cluster on ZooKeeper" if node.on_zookeeper else f"version {SHARE_SINCE}"
        return ErrorCode.INVALID_REQUEST, f"key type 2, a share partition: wanted {wanted}"
    if key_type not in TOPICS:
        wanted = "0, a group, 1, a transactional id, or 2, a share partition"
        return ErrorCode.INVALID_REQUEST, f"key type: found {key_type}, wanted {wanted}"
    try:
        internal_topic(node, TOPICS[key_type])
    except Exception as problem:
        code_of(problem)  # logged if Kafka has no code for it
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, for_clients(problem)
    return ErrorCode.NONE, None


def to_consumer_groups(node: Node, request: Request) -> dict[str, Any] | None:
    """Hand a request about consumer groups to the coordinator, if the cluster has them."""
    mark = node.reactor.repeat_mark()
    if node.image.features.get(GROUP_VERSION, 0):
        call = call_of(request)
        if request.api is not apis.CONSUMER_GROUP_HEARTBEAT:
            pass
        elif node.admission.guards(request.peer):
            visible = partial(
                node.admission.allowed, request.peer, Operation.DESCRIBE, Kind.TOPIC, quiet=True
            )
            call = call._replace(visible=visible)
        elif not node.quotas.active:
            call = call._replace(repeat=partial(request.repeated, mark))
        node.coordinator.submit(request.api, call, here=True)
        return None
    unsupported: dict[str, Any] = {"error_code": ErrorCode.UNSUPPORTED_VERSION}
    if request.api is apis.CONSUMER_GROUP_HEARTBEAT:
        return unsupported
    return {"groups": [{"group_id": one, **unsupported} for one in request.body.group_ids]}


def to_share_groups(node: Node, request: Request) -> dict[str, Any] | None:
    """Hand a request about share groups to the coordinator, if the cluster has them."""
    if node.image.features.get(SHARE_VERSION, 0):
        node.coordinator.submit(request.api, call_of(request), here=True)
        return None
    unsupported: dict[str, Any] = {"error_code": ErrorCode.UNSUPPORTED_VERSION}
    if request.api is apis.SHARE_GROUP_DESCRIBE:
        return {"groups": [{"group_id": one, **unsupported} for one in request.body.group_ids]}
    if request.api is apis.DESCRIBE_SHARE_GROUP_OFFSETS:
        names = [one.group_id for one in request.body.groups]
        return {"groups": [{"group_id": name, **unsupported} for name in names]}
    return unsupported


def to_streams_groups(node: Node, request: Request) -> dict[str, Any] | None:
    """Hand a request about streams groups to the coordinator, if the cluster has them."""
    if node.image.features.get(STREAMS_VERSION, 0):
        call = call_of(request)
        if request.api is apis.STREAMS_GROUP_HEARTBEAT and node.admission.guards(request.peer):
            call = call._replace(creatable=partial(_creatable, node, request.peer))
        node.coordinator.submit(request.api, call, here=True)
        return None
    unsupported: dict[str, Any] = {"error_code": ErrorCode.UNSUPPORTED_VERSION}
    if request.api is apis.STREAMS_GROUP_HEARTBEAT:
        return unsupported
    return {"groups": [{"group_id": one, **unsupported} for one in request.body.group_ids]}


def _creatable(node: Node, peer: Any, names: Collection[str]) -> Collection[str]:
    """Those of some topics that a caller may create."""
    admission = node.admission
    if admission.allows(peer, Operation.CREATE, Kind.CLUSTER, CLUSTER_NAME, quiet=True):
        return names
    found: set[str] = admission.allowed(peer, Operation.CREATE, Kind.TOPIC, names)
    return found


def to_coordinator(node: Node, request: Request) -> None:
    """Hand a request to the coordinator, which answers now or later."""
    node.coordinator.submit(request.api, call_of(request), here=True)
