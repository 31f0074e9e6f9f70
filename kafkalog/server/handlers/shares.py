"""ShareFetch and ShareAcknowledge: share groups' records, at the leaders of their partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from kafkalog.errors import KafkalogError, for_clients
from kafkalog.metadata.levels import SHARE_VERSION
from kafkalog.security.permissions import Kind, Operation
from kafkalog.server.failures import code_of
from kafkalog.server.handlers.common import leader_error, node_entry
from kafkalog.server.node import Node
from kafkalog.server.request import Request
from kafkalog.shares.acquiring import Want
from kafkalog.shares.partition import Acknowledgement, Refused
from kafkalog.shares.requests import Answer, Ask, Found, Led, check_acks
from kafkalog.shares.sessions import Key, Where
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["share_acknowledge", "share_fetch"]

MEMBER_CHARACTERS_MAX = 36
RENEW_SINCE = 2
"""KIP-1222, and KIP-1206: from this version on locks can be renewed, and record limits be exact."""
EXACT = 1
"""ShareAcquireMode: the record limit is exact."""
UNLED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""The errors with which an answer names the leader."""


def share_fetch(node: Node, request: Request) -> dict[str, Any] | None:
    """Acknowledge records, then acquire others and read them."""
    body = request.body
    if not node.image.features.get(SHARE_VERSION, 0):
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION}
    try:
        _check_member(body)
        _check_renewal(request)
        if request.version >= RENEW_SINCE and body.share_acquire_mode not in (0, EXACT):
            mode = body.share_acquire_mode
            why = f"share acquire mode: found {mode}, wanted 0 or {EXACT}"
            raise Refused(ErrorCode.INVALID_REQUEST, why)
    except Refused as refused:
        return _whole(refused)
    wanted = [
        Where(topic.topic_id, one.partition_index)
        for topic in body.topics for one in topic.partitions
    ]  # fmt: skip
    forgotten = [
        Where(topic.topic_id, number)
        for topic in body.forgotten_topics_data for number in topic.partitions
    ]  # fmt: skip
    finder = _Finder(node, request)
    acks = _acks(body.topics)
    exact = request.version >= RENEW_SINCE and body.share_acquire_mode == EXACT
    ask = Ask(
        Key(body.group_id, body.member_id), body.share_session_epoch,
        list(dict.fromkeys(wanted)), forgotten, acks or None, _mistakes(request, acks),
        Want(body.member_id, body.max_records, max(body.batch_size, 1), exact),
        body.min_bytes, min(body.max_bytes, node.config.fetch_max_bytes), body.max_wait_ms,
        _renews(request), request.connection,
    )  # fmt: skip
    node.shares.fetch(ask, finder, partial(_answer_fetch, node, request))
    return None


def share_acknowledge(node: Node, request: Request) -> dict[str, Any] | None:
    """Acknowledge records."""
    body = request.body
    if not node.image.features.get(SHARE_VERSION, 0):
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION}
    try:
        _check_member(body)
        _check_renewal(request)
    except Refused as refused:
        return _whole(refused)
    finder = _Finder(node, request)
    acks = _acks(body.topics)
    mistakes = _mistakes(request, acks)
    key = Key(body.group_id, body.member_id)
    answer = partial(_answer_acknowledge, node, request)
    node.shares.acknowledge(key, body.share_session_epoch, acks, mistakes, finder, answer)
    return None


# ---- the request ---------------------------------------------------------------------------------


def _check_member(body: Any) -> None:
    """Raises: Refused."""
    if body.group_id is None:
        raise Refused(ErrorCode.INVALID_REQUEST, "group id: found null, wanted a text")
    member = body.member_id
    if not member or len(member) > MEMBER_CHARACTERS_MAX:
        wanted = f"wanted 1 to {MEMBER_CHARACTERS_MAX} characters"
        raise Refused(ErrorCode.INVALID_REQUEST, f"member id: found {member!r:.100}, {wanted}")


def _renews(request: Request) -> bool:
    return request.version >= RENEW_SINCE and request.body.is_renew_ack


def _check_renewal(request: Request) -> None:
    """Raises: Refused: a request that renews locks fetches nothing."""
    if not _renews(request):
        return
    body, code = request.body, ErrorCode.INVALID_REQUEST
    for name in ("max_bytes", "min_bytes", "max_records", "max_wait_ms"):
        if value := getattr(body, name, 0):
            raise Refused(code, f"{name}: found {value}, wanted 0 in a request that renews locks")


def _acks(topics: Iterable[Any]) -> dict[Where, list[Acknowledgement]]:
    """The acknowledgements of a request, by partition."""
    found: dict[Where, list[Acknowledgement]] = {}
    for topic in topics:
        for one in topic.partitions:
            said = [Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                    for batch in one.acknowledgement_batches]  # fmt: skip
            if said:
                found.setdefault(Where(topic.topic_id, one.partition_index), []).extend(said)
    return found


def _mistakes(
    request: Request, acks: Mapping[Where, list[Acknowledgement]]
) -> dict[Where, Refused]:  # fmt: skip
    """The partitions whose acknowledgements are refused, whatever is in flight."""
    found = {}
    for where, said in acks.items():
        try:
            check_acks(said, request.version, _renews(request))
        except Refused as refused:
            found[where] = refused
    return found


class _Finder:
    """Finds partitions for a caller: as `Find`."""

    def __init__(self, node: Node, request: Request) -> None:
        self._node, self._request = node, request
        self._allowed: dict[str, bool] = {}

    def __call__(self, where: Where) -> Led:
        node, name = self._node, self._node.image.names.get(where.topic_id)
        if name is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {where.topic_id}")
        if name not in self._allowed:
            peer = self._request.peer
            allows = partial(node.admission.allows, peer, Operation.READ, Kind.TOPIC, name)
            self._allowed[name] = not node.admission.guards(peer) or allows()
        if not self._allowed[name]:
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed to read the topic")
        state = node.image.partition(name, where.partition)
        code = leader_error(node, state)
        if code or state is None:
            why = f"{name}-{where.partition}: this broker does not lead it"
            raise Refused(code, why)
        try:
            log = node.partitions.existing_log(name, where.partition)
        except (KafkalogError, OSError) as problem:
            raise Refused(ErrorCode(code_of(problem)), for_clients(problem)) from problem
        return Led(name, state.leader_epoch, log)


# ---- the answer ----------------------------------------------------------------------------------


def _whole(refused: Refused) -> dict[str, Any]:
    return {"error_code": refused.code, "error_message": refused.message}


def _answer_fetch(node: Node, request: Request, answer: Answer) -> None:
    if answer.refused is not None:
        request.answer(_whole(answer.refused))
        return
    if request.meter is not None:
        request.meter.fetch(sum(len(one.records) for one in answer.found.values()))
    rows: dict[Where, dict[str, Any]] = {}
    for where, found in answer.found.items():
        rows[where] = _found_row(found)
    for where, refused in answer.acked.items():
        row = rows.setdefault(where, {"records": b""})
        if refused is not None:
            row.update(
                acknowledge_error_code=refused.code, acknowledge_error_message=refused.message
            )
    request.answer(_by_topic(node, request, rows, answer.lock_ms))


def _found_row(found: Found) -> dict[str, Any]:
    if found.refused is not None:
        return {**_whole(found.refused), "records": b""}
    acquired = [
        {"first_offset": one.first, "last_offset": one.last, "delivery_count": one.deliveries}
        for one in found.acquired
    ]
    return {"records": found.records, "acquired_records": acquired}


def _answer_acknowledge(node: Node, request: Request, answer: Answer) -> None:
    if answer.refused is not None:
        request.answer(_whole(answer.refused))
        return
    rows = {where: {} if refused is None else _whole(refused)
            for where, refused in answer.acked.items()}  # fmt: skip
    request.answer(_by_topic(node, request, rows, answer.lock_ms))


def _by_topic(
    node: Node, request: Request, rows: Mapping[Where, dict[str, Any]], lock_ms: int
) -> dict[str, Any]:
    """The rows of partitions as an answer, with the leaders of those that are led elsewhere."""
    topics: dict[Any, list[dict[str, Any]]] = {}
    leaders: dict[int, dict[str, Any]] = {}
    for where, row in rows.items():
        row["partition_index"] = where.partition
        if row.get("error_code") in UNLED:
            _name_leader(node, request, where, row, leaders)
        topics.setdefault(where.topic_id, []).append(row)
    responses = [{"topic_id": one, "partitions": found} for one, found in topics.items()]
    answer: dict[str, Any] = {"responses": responses, "node_endpoints": list(leaders.values())}
    if request.version >= RENEW_SINCE or request.api is apis.SHARE_FETCH:
        answer["acquisition_lock_timeout_ms"] = lock_ms
    return answer


def _name_leader(
    node: Node, request: Request, where: Where, row: dict[str, Any],
    leaders: dict[int, dict[str, Any]],
) -> None:  # fmt: skip
    name = node.image.names.get(where.topic_id)
    state = None if name is None else node.image.partition(name, where.partition)
    if state is not None:
        row["current_leader"] = {"leader_id": state.leader, "leader_epoch": state.leader_epoch}
        found = node_entry(node, request.peer.listener, state.leader)
        if found is not None:
            leaders[state.leader] = found
