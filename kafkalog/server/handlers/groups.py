"""Groups: FindCoordinator here, all else is the coordinator's."""

import logging
from typing import Any

from kafkalog.coordinator.step import Request as GroupRequest
from kafkalog.errors import for_clients
from kafkalog.server.handlers.common import code_of, node_entry
from kafkalog.server.node import Node
from kafkalog.server.request import Request
from kafkalog.server.topics import offsets_topic
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["find_coordinator", "to_coordinator"]

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""What a key of FindCoordinator may name."""
ASKED_MAX = 100_000
"""Groups, or partitions of a commit, in one request: as many as Produce and Fetch may name."""
_logger = logging.getLogger(__name__)
SEVERAL_SINCE = 4
"""KIP-699: from this version on several keys in one request."""
_FINAL = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
"""librdkafka and aiokafka ask again forever on any other code; it is the same in all versions, as
in Kafka, where every version finds the coordinator."""


def find_coordinator(node: Node, request: Request) -> dict[str, Any]:
    """This broker coordinates every group."""
    body = request.body
    code, message = _coordinator_error(node, body.key_type)
    if code:
        found: dict[str, Any] = {"node_id": -1, "host": "", "port": -1}
    else:
        found = node_entry(node, request.peer.listener)
        del found["rack"]
    found.update(error_code=code, error_message=message)
    if request.version < SEVERAL_SINCE:
        return found
    return {"coordinators": [{"key": key, **found} for key in body.coordinator_keys]}


def _coordinator_error(node: Node, key_type: int) -> tuple[ErrorCode, str | None]:
    if key_type == TRANSACTION:
        return _FINAL, "transactions are not there yet: use an idempotent producer"
    if key_type == SHARE:
        return ErrorCode.INVALID_REQUEST, "share groups are not there yet"
    if key_type != GROUP:
        return ErrorCode.INVALID_REQUEST, f"key type: found {key_type}, wanted 0, a group"
    try:
        offsets_topic(node)
    except Exception as problem:
        code_of(problem)  # logged when Kafka has no word for it
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, for_clients(problem)
    return ErrorCode.NONE, None


def _asks_for(body: Any) -> int:
    """How many groups, or partitions of a commit, a request names."""
    several = getattr(body, "groups", None) or getattr(body, "groups_names", None)
    if several is not None:
        return len(several)
    return sum(len(getattr(topic, "partitions", ())) for topic in getattr(body, "topics", ()) or ())


def to_coordinator(node: Node, request: Request) -> None:
    """Hand a request to the coordinator, which answers now or later.

    Its thread is one for all groups: who asks for too much at once is not answered.
    """
    peer = request.peer
    if (found := _asks_for(request.body)) > ASKED_MAX:
        _logger.info("%r: names %d groups or partitions, at most %d are looked at; its connection "
                     "is closed", request, found, ASKED_MAX)  # fmt: skip
        request.drop()
        return
    node.coordinator.submit(
        request.api,
        GroupRequest(
            request.body, request.version, peer.client_id or "", peer.host, request.answer
        ),
    )
