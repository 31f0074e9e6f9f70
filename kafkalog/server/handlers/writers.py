"""Asks the coordinator, partition by partition, whether a producer may write in a transaction.

If a transaction is already open in the partition, its batch does not need the coordinator, and
comes here only together with others.  The first batch in each partition needs its answer
(KIP-890).
Up to version 11 of Produce the partition must have joined before; from version 12 on it joins
by being written.
"""

import struct
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kafkalog._native import lib
from kafkalog.coordinator.step import Step
from kafkalog.coordinator.transactions.core import Results
from kafkalog.coordinator.transactions.requests import Asked
from kafkalog.errors import InvalidTxnState, KafkalogError
from kafkalog.server.handlers.failures import handler_failed
from kafkalog.server.network.reactor import Appended
from kafkalog.server.node import Node
from kafkalog.server.request import Request
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
    ErrorCode.NOT_COORDINATOR,
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
    """Whether one batch may be written."""

    def __init__(self, node: Node, guard: Guard | None, error: ErrorCode) -> None:
        """`guard` is None when it may not."""
        self._node = node
        self._guard = guard
        self._error = error

    def append(self, append: Callable[[], Appended]) -> Appended:
        """Append it, if that is still allowed.

        Raises: Refused by the coordinator, InvalidTxnState, what `append` raises.
        """
        if self._guard is None:
            raise Refused(self._error, "the coordinator does not let the producer write here")
        with self._node.guards.writing(self._guard) as holds:
            if not holds:
                raise InvalidTxnState("its transaction has ended in this partition")
            return append()

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
    left = len(writes)

    def done(one: Writes, step: Step | None, results: Results) -> None:
        nonlocal left
        for where, error in results.items():
            # In the step that allows it, so that no marker of the same transaction was sent yet,
            # and all markers of the previous one, which it may have waited for, are written.
            allowed = error is ErrorCode.NONE
            guard = node.guards.begin(where, one.producer_id) if allowed else None
            verdicts[where.topic, where.partition, (one.producer_id, one.epoch)] = Verdict(
                node, guard, _as_producer(error, request.version)
            )
        left -= 1
        if left:
            return
        if at_once and step is not None:
            step.answer(lambda _: then(verdicts))  # once the step's decision is written
        else:
            node.begun.submit(partial(then, verdicts))

    def event(step: Step) -> None:
        core = node.transactions.core
        try:
            for one in writes:
                asked = Asked(request.body.transactional_id, one.producer_id, one.epoch)
                if request.version >= JOINS_SINCE:
                    core.join(step, asked, one.partitions, 2, partial(done, one))
                else:
                    done(one, step, core.verify(asked, one.partitions))
        except Exception as problem:
            for verdict in verdicts.values():
                verdict.end()
            handler_failed(request, problem)

    broker = None if node.afar is None else node.afar.coordinator(request.body.transactional_id)
    if broker is not None:
        _allow_afar(node, request, broker, writes, done)
    elif not node.transactions.ask(event, here=True):
        for one in writes:
            gone = dict.fromkeys(one.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            done(one, None, gone)


def _allow_afar(
    node: Node, request: Request, broker: int, writes: list[Writes],
    done: Callable[[Writes, Step | None, Results], None],
) -> None:  # fmt: skip
    """As `ask`, of a coordinator on another node."""
    assert node.afar is not None
    for one in writes:
        asked = Asked(request.body.transactional_id, one.producer_id, one.epoch)
        joins = request.version >= JOINS_SINCE
        node.afar.allow(broker, asked, one.partitions, joins, partial(done, one, None))


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
