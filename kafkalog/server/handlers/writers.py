"""Asks the coordinator, partition by partition, whether a producer may write in a transaction.

If a transaction is already open in the partition, its batch does not need the coordinator, and
comes here only together with others.  The first batch in each partition needs its answer
(KIP-890).
Up to version 11 of Produce the partition must have joined before; from version 12 on it joins
by being written.
"""

import struct
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kafkalog._native import lib
from kafkalog.coordinator.step import Step
from kafkalog.coordinator.transactions.core import Results
from kafkalog.coordinator.transactions.requests import ProducerClaim
from kafkalog.errors import InvalidTxnState, KafkalogError, NotLeaderOrFollower
from kafkalog.server.failures import handler_failed
from kafkalog.server.network.reactor import Appended
from kafkalog.server.node import Node
from kafkalog.server.request import Request
from kafkalog.server.transactions.permission import Permission
from kafkalog.server.transactions.write_guards import Guard
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "ATTRIBUTES_POS",
    "JOINS_SINCE",
    "Refused",
    "Verdict",
    "Verdicts",
    "allow",
    "as_writer",
    "transactional",
    "writer_of",
]

ATTRIBUTES_POS = 21
_PRODUCER = struct.Struct(">qh")
_PRODUCER_POS = 43
KNOWS_ABORTABLE_SINCE = 11
"""The first version of Produce whose clients know TRANSACTION_ABORTABLE."""
JOINS_SINCE = 12
"""From this version on, a partition joins by being written."""
_RETRY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR, ErrorCode.OPERATION_NOT_ATTEMPTED,
}  # fmt: skip
"""Errors that a producer does not expect for a partition: NOT_ENOUGH_REPLICAS makes it retry."""


class Writes(NamedTuple):
    """The transactional batches of a request from one producer."""

    producer_id: int
    epoch: int
    partitions: list[TopicPartition]


class Refused(KafkalogError):
    """A request is refused with a Kafka error that has no exception class."""

    def __init__(self, error: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.error = error


class Verdict:
    """Decides if one batch may be written."""

    def __init__(self, node: Node, guard: Guard | None, error: ErrorCode) -> None:
        """`guard` is None when it may not."""
        self._node = node
        self._guard = guard
        self._error = error

    def append(self, append: Callable[[], Appended]) -> Appended:
        """Append it, if that is still allowed.

        Raises: Refused by the coordinator, InvalidTxnState, NotLeaderOrFollower, what `append`
        raises.
        """
        if self._guard is None:
            raise Refused(self._error, "the coordinator does not let the producer write here")
        with self._node.guards.writing(self._guard) as holds:
            if holds:
                return append()
        if self._guard.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise NotLeaderOrFollower("the partition was led elsewhere since, or deleted")
        raise InvalidTxnState("its transaction has ended in this partition")

    def end(self) -> None:
        """Release the guard: it was written, or was not."""
        if self._guard is not None:
            self._node.guards.end(self._guard)


Producer = tuple[int, int]
"""Its id and epoch."""
Verdicts = dict[tuple[str | None, int, Producer | None], Verdict]
"""By topic, partition and producer: a request may hold allowed and refused producers."""


def writer_of(records: bytes | None) -> Producer | None:
    """The producer of a transactional batch; None of any other."""
    if records is None or len(records) < lib.KL_BATCH_HEADER_BYTES:
        return None
    if not records[ATTRIBUTES_POS + 1] & lib.KL_ATTR_TRANSACTIONAL:
        return None
    producer_id, epoch = _PRODUCER.unpack_from(records, _PRODUCER_POS)
    return producer_id, epoch


def transactional(named: list[tuple[str | None, Any]]) -> list[Writes]:
    """The transactional batches of a request, by producer; without those for missing
    topics."""
    found: dict[Producer, list[TopicPartition]] = defaultdict(list)
    for name, topic in named:
        if name is None:
            continue
        for one in topic.partition_data:
            if (producer := writer_of(one.records)) is not None:
                found[producer].append(TopicPartition(name, one.index))
    return [Writes(*producer, partitions) for producer, partitions in found.items()]


def allow(
    node: Node, request: Request, writes: list[Writes], then: Callable[[Verdicts], None], *,
    at_once: bool = False,
) -> None:  # fmt: skip
    """Ask the coordinator; `then` is called with its decision, in a thread of its own.

    `at_once`: it takes no longer than an append of the coordinator's, which may wait for it."""
    verdicts: Verdicts = {}
    there = [
        one._replace(partitions=[where for where in one.partitions if node.partitions.has(*where)])
        for one in writes
    ]
    # Nobody is asked if no partition exists: a transaction would begin.
    writes = [one for one in there if one.partitions]
    if not writes:
        then(verdicts)
        return
    questions = _Questions(node, request, writes, then, at_once)
    name = request.body.transactional_id
    broker = None if node.peers is None else node.peers.coordinator(name)
    if broker is not None:
        questions.elsewhere(broker)
    elif not node.transactions.ask(questions.here, request.size, here=True):
        questions.nobody()


class _Questions:
    """The questions of one request, one for each producer."""

    def __init__(
        self, node: Node, request: Request, writes: list[Writes],
        then: Callable[[Verdicts], None], at_once: bool,
    ) -> None:  # fmt: skip
        self._node, self._request, self._writes = node, request, writes
        self._then, self._at_once = then, at_once
        self._joins = request.version >= JOINS_SINCE
        self._lock = threading.Lock()  # guards what follows: answers may come in several threads
        self._verdicts: Verdicts = {}
        self._left = len(writes)

    def _identity(self, one: Writes) -> ProducerClaim:
        return ProducerClaim(self._request.body.transactional_id, one.producer_id, one.epoch)

    def _permission(self, one: Writes, *, remote: bool) -> Permission:
        guards = self._node.guards
        return Permission(guards, one.partitions, one.producer_id, one.epoch, remote=remote)

    def here(self, step: Step) -> None:
        """Ask the coordinator of this node, in its step."""
        core = self._node.transactions.core
        try:
            for one in self._writes:
                identity = self._identity(one)
                answered = partial(self._answered, one, self._permission(one, remote=False))
                if self._joins:
                    core.join(step, identity, one.partitions, 2, answered)
                else:
                    answered(step, core.verify(identity, one.partitions))
        except Exception as problem:
            for verdict in self._verdicts.values():
                verdict.end()
            handler_failed(self._request, problem)

    def elsewhere(self, broker: int) -> None:
        """Ask a coordinator on another node."""
        node = self._node
        assert node.peers is not None
        for one in self._writes:
            answered = partial(self._answered, one, self._permission(one, remote=True), None)
            node.peers.allow(broker, self._identity(one), one.partitions, self._joins, answered)

    def nobody(self) -> None:
        """There is no coordinator to ask."""
        for one in self._writes:
            gone = dict.fromkeys(one.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._answered(one, self._permission(one, remote=False), None, gone)

    def _answered(
        self, one: Writes, permission: Permission, step: Step | None, results: Results
    ) -> None:
        """Take the answer for a producer; `step`: the coordinator's, if it is on this node."""
        node, version = self._node, self._request.version
        found = permission.answered(results)
        with self._lock:
            for where, guard in found.items():
                verdict = Verdict(node, guard, _as_producer(results[where], version))
                self._verdicts[where.topic, where.partition, (one.producer_id, one.epoch)] = verdict
            self._left -= 1
            if self._left:
                return
        if self._at_once and step is not None:
            # Once the step's decision is written.
            step.answer(lambda _: self._then(self._verdicts))
        else:
            node.continuations.submit(partial(self._then, self._verdicts))


def _as_producer(error: ErrorCode, version: int) -> ErrorCode:
    early = error is ErrorCode.CONCURRENT_TRANSACTIONS and version < JOINS_SINCE
    if early or error in _RETRY:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return as_writer(error, version >= KNOWS_ABORTABLE_SINCE)


def as_writer(error: ErrorCode, knows: bool) -> ErrorCode:
    """The error for a producer that the coordinator refuses; `knows`: it knows
    TRANSACTION_ABORTABLE."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows:
        return ErrorCode.INVALID_TXN_STATE
    return error
