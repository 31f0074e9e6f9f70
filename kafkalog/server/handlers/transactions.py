"""Transactions: their coordinator's requests, and TxnOffsetCommit, which needs two coordinators."""

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from kafkalog.coordinator.groups.offsets import TXN_IDS_VERSION
from kafkalog.coordinator.step import Producer, Step
from kafkalog.coordinator.transactions.core import Results
from kafkalog.coordinator.transactions.requests import ProducerClaim
from kafkalog.server.failures import code_of, handler_failed
from kafkalog.server.handlers.common import call_of
from kafkalog.server.handlers.writers import as_writer
from kafkalog.server.journal import OFFSETS_TOPIC, offsets_partition
from kafkalog.server.node import Node
from kafkalog.server.request import Request
from kafkalog.server.topics import internal_topic
from kafkalog.server.transactions.permission import Permission
from kafkalog.server.transactions.write_guards import Guard
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "add_offsets",
    "init_producer_id",
    "marker_code",
    "to_coordinator",
    "txn_offset_commit",
    "write_markers",
]

JOINS_SINCE = 5
"""The first version of TxnOffsetCommit in which the group's partition joins by being written."""
_OF_MARKERS = frozenset(
    (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER,
     ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
     ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INVALID_PRODUCER_EPOCH,
     ErrorCode.TRANSACTION_COORDINATOR_FENCED)
)  # fmt: skip
"""Errors after which a coordinator of Apache Kafka continues; after any other it stops writing the
marker, and its transaction stays open."""

_RETRY = frozenset(
    (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
     ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
)  # fmt: skip
"""The transaction coordinator's errors for the group's partition that the client would misread:
COORDINATOR_NOT_AVAILABLE makes it retry."""


def to_coordinator(node: Node, request: Request) -> None:
    """Hand a request to the coordinator, which answers now or later."""
    node.transactions.submit(request.api, call_of(request), here=True)


def init_producer_id(node: Node, request: Request) -> Mapping[str, Any] | None:
    """With a transactional id, its coordinator answers; without, a new, unused id is the answer."""
    body = request.body
    if body.transactional_id is not None:
        to_coordinator(node, request)
        return None
    if (body.producer_id == -1) != (body.producer_epoch == -1):
        return {"error_code": ErrorCode.INVALID_REQUEST, "producer_epoch": -1}
    try:
        producer_id = node.producer_ids.next()
    except Exception as problem:
        return {"error_code": code_of(problem), "producer_epoch": -1}
    return {"producer_id": producer_id, "producer_epoch": 0}


def add_offsets(node: Node, request: Request) -> None:
    """Add the partition of a group's offsets to the transaction; it must exist for that."""
    internal_topic(node, OFFSETS_TOPIC)
    to_coordinator(node, request)


# ---- TxnOffsetCommit -----------------------------------------------------------------------


def txn_offset_commit(node: Node, request: Request) -> None:
    """The transaction coordinator checks the producer, then the group coordinator commits."""
    body = request.body
    named = _named(node, request)
    if not any(_is_there(node, name, one) for topic, name in named for one in topic.partitions):
        _refuse(node, request)
        return
    if not body.group_id:
        _refuse(node, request, ErrorCode.INVALID_GROUP_ID)
        return
    internal_topic(node, OFFSETS_TOPIC)
    identity = ProducerClaim(body.transactional_id, body.producer_id, body.producer_epoch)
    where = offsets_partition(body.group_id, node.partitions.count(OFFSETS_TOPIC))
    if where is None:
        _refuse(node, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return

    joins = request.version >= JOINS_SINCE
    broker = None if node.peers is None else node.peers.coordinator(body.transactional_id)
    permission = Permission(
        node.guards, [where], identity.producer_id, identity.epoch, remote=broker is not None
    )

    def allowed(_: Step | None, results: Results) -> None:
        guard = permission.answered(results)[where]
        if guard is None:
            _refuse(node, request, _as_committer(results[where], request.version))
        else:
            _commit(node, request, guard)

    def event(step: Step) -> None:
        try:
            if joins:
                node.transactions.core.join(step, identity, [where], 2, allowed)
            else:
                allowed(step, node.transactions.core.verify(identity, [where]))
        except Exception as problem:
            handler_failed(request, problem)

    def heard(results: Results) -> None:
        try:
            allowed(None, results)
        except Exception as problem:
            handler_failed(request, problem)

    if node.peers is not None and broker is not None:
        node.peers.allow(broker, identity, [where], joins, heard)
    elif not node.transactions.ask(event, request.size, here=True):
        _refuse(node, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _as_committer(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version < JOINS_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # clients of those versions retry after it
    if error in _RETRY:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # the group coordinator is on another node
    return as_writer(error, version >= JOINS_SINCE)


def _commit(node: Node, request: Request, guard: Guard) -> None:
    def answer(body: dict[str, Any]) -> None:
        node.guards.end(guard)
        request.answer(body)

    call = call_of(request)
    try:
        node.coordinator.submit(
            request.api, call._replace(answer=answer, allowed=lambda: guard.error)
        )
    except BaseException:
        node.guards.end(guard)
        raise


def _is_there(node: Node, name: str | None, one: Any) -> bool:
    return name is not None and node.partitions.has(name, one.partition_index)


def _refuse(
    node: Node, request: Request, error: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
) -> None:
    """Every partition gets this error; a missing one gets its own."""

    def row(name: str | None, one: Any) -> dict[str, Any]:
        known = name is not None
        gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known else ErrorCode.UNKNOWN_TOPIC_ID
        code = error if _is_there(node, name, one) else gone
        return {"partition_index": one.partition_index, "error_code": code}

    topics = [
        {"name": topic.name, "topic_id": topic.topic_id,
         "partitions": [row(name, one) for one in topic.partitions]}
        for topic, name in _named(node, request)
    ]  # fmt: skip
    request.answer({"topics": topics})


def _named(node: Node, request: Request) -> list[tuple[Any, str | None]]:
    """The topics of a TxnOffsetCommit and their names; None if no topic has the id."""
    by_id = request.version >= TXN_IDS_VERSION
    name_of = node.partitions.name_of
    return [(one, name_of(one.topic_id) if by_id else one.name) for one in request.body.topics]


# ---- WriteTxnMarkers -----------------------------------------------------------------------


def write_markers(node: Node, request: Request) -> None:
    """End transactions in partitions, whatever their coordinator knows: how an administrator ends a
    hanging one."""
    _Marking(node, request).begin()


def marker_code(error: ErrorCode) -> ErrorCode:
    """The outcome of a marker as WriteTxnMarkers reports it.  For errors that coordinators do not
    know, such as a group that is loading, it asks for the marker again."""
    return error if error in _OF_MARKERS else ErrorCode.NOT_LEADER_OR_FOLLOWER


class _Marking:
    """The markers of a request, and the outcome of each."""

    def __init__(self, node: Node, request: Request) -> None:
        self._node = node
        self._request = request
        self._markers = [
            (number, TopicPartition(topic.name, index))
            for number, marker in enumerate(request.body.markers)
            for topic in marker.topics
            for index in topic.partition_indexes
        ]
        self._lock = threading.Lock()  # guards what follows
        self._results: dict[tuple[int, TopicPartition], ErrorCode] = {}
        self._left = 0

    def begin(self) -> None:
        wanted = dict.fromkeys(self._markers)
        self._left = len(wanted)
        if not wanted:
            self._answer()
        for key in wanted:
            number, where = key
            marker = self._request.body.markers[number]
            producer = Producer(marker.producer_id, marker.producer_epoch,
                                marker.transaction_result, marker.coordinator_epoch,
                                marker.transaction_version)  # fmt: skip
            self._node.markers.write_for_client(where, producer, partial(self._done, key))

    def _done(self, key: tuple[int, TopicPartition], error: ErrorCode) -> None:
        with self._lock:
            self._results[key] = marker_code(error)
            self._left -= 1
            if self._left:
                return
        self._answer()

    def _answer(self) -> None:
        markers = []
        for number, marker in enumerate(self._request.body.markers):
            topics = [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": index,
                            "error_code": self._results[number, TopicPartition(topic.name, index)],
                        }
                        for index in topic.partition_indexes
                    ],
                }
                for topic in marker.topics
            ]
            markers.append({"producer_id": marker.producer_id, "topics": topics})
        self._request.answer({"markers": markers})
