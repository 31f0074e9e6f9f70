"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn for one transactional id: each
ends with a call of `then`.

Source: Kafka's TransactionCoordinator; KIP-98, KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kafkalog.coordinator.core import append_error
from kafkalog.coordinator.step import VERSION_2, Step
from kafkalog.coordinator.transactions.shard import TransactionShard
from kafkalog.coordinator.transactions.transaction import (
    COMPLETE,
    NONE,
    PARTITION_BYTES,
    State,
    Status,
    Transaction,
    Waiting,
    added,
    completed,
    ended,
    initialized,
    is_exhausted,
    name_bytes,
    rotated,
)
from kafkalog.errors import KafkalogError
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "ProducerAnswer", "ProducerClaim", "add_partitions", "end", "fence", "init_producer", "verify",
]  # fmt: skip

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
UNMAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class ProducerClaim(NamedTuple):
    """The caller: a transactional id, and the producer that its client claims to be."""

    transactional_id: str
    producer_id: int
    epoch: int


class ProducerAnswer(NamedTuple):
    """The answer to a producer."""

    error: ErrorCode
    producer_id: int = NONE
    epoch: int = NONE


Respond = Callable[[Step, ProducerAnswer], None]
Then = Callable[[Step, ErrorCode], None]


# ---- InitProducerId ------------------------------------------------------------------------


def init_producer(
    shard: TransactionShard, step: Step, claim: ProducerClaim, timeout_ms: int, then: Respond
) -> None:
    """Give a client the next epoch of its transactional id, which fences its previous producer."""
    if not claim.transactional_id:
        then(step, ProducerAnswer(ErrorCode.INVALID_REQUEST))
        return
    if not 0 < timeout_ms <= shard.config.transaction_max_timeout_ms:
        then(step, ProducerAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
        return
    name = claim.transactional_id
    if name not in shard.ids and not shard.has_room(1, name_bytes(name)):
        then(step, ProducerAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))  # clients retry
        return
    try:
        one = _known_or_new(shard, claim.transactional_id, timeout_ms)
        status = _initialized(shard, step, one, claim, timeout_ms)
    except KafkalogError as problem:
        then(step, ProducerAnswer(_code_of(problem)))
        return
    if not one.recorded and isinstance(status, ErrorCode) and one.pending is None:
        shard.forget(one)
    if isinstance(status, ErrorCode):
        then(step, ProducerAnswer(status))
        return

    def settled(step: Step, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            then(step, ProducerAnswer(error, status.producer_id, status.epoch))
        else:
            then(step, ProducerAnswer(append_error(error)))

    shard.write(step, one, status, settled)


def _code_of(problem: KafkalogError) -> ErrorCode:
    return ErrorCode.UNKNOWN_SERVER_ERROR if problem.code is None else ErrorCode(problem.code)


def _known_or_new(shard: TransactionShard, name: str, timeout_ms: int) -> Transaction:
    one = shard.ids.get(name)
    if one is None:
        fresh = Status(shard.outside.new_producer_id(), NONE, timeout_ms)
        one = Transaction(name, fresh)
        shard.put(one)
    return one


def _initialized(
    shard: TransactionShard, step: Step, one: Transaction, claim: ProducerClaim, timeout_ms: int
) -> Status | ErrorCode:
    """The status to write, or an immediate answer."""
    status = one.status
    if one.pending is not None or status.prepared:
        return CONCURRENT  # also to a client with the next producer id, which is not yet valid
    wanted = None if claim.producer_id == NONE else claim.epoch
    if wanted is not None and not (
        status.epoch == NONE
        or claim.producer_id == status.producer_id
        or (claim.producer_id == status.previous_id and is_exhausted(claim.epoch))
    ):
        return FENCED
    if status.state is State.ONGOING:
        # Its transaction is aborted first; the client retries and then gets an epoch.
        fence(shard, step, one)
        return CONCURRENT
    if is_exhausted(status.epoch) and wanted in (None, status.epoch):
        new_id = shard.outside.new_producer_id()
        return rotated(status, new_id, timeout_ms, step.wall_ms, wanted)
    return initialized(status, timeout_ms, step.wall_ms, wanted) or FENCED


# ---- partitions ----------------------------------------------------------------------------


def _known(shard: TransactionShard, claim: ProducerClaim) -> Transaction | ErrorCode:
    """The transactional id of a producer that may continue with it."""
    if not claim.transactional_id:
        return ErrorCode.INVALID_REQUEST
    one = shard.ids.get(claim.transactional_id)
    if one is None or one.status.epoch == NONE:
        return UNMAPPED
    if _is_next(one.status, claim):
        return one
    if one.status.producer_id != claim.producer_id:
        return UNMAPPED
    return FENCED if one.status.epoch != claim.epoch else one


def _is_next(status: Status, claim: ProducerClaim) -> bool:
    """True if it already got the producer id with which it continues once its end is complete."""
    return status.prepared and status.next_id == claim.producer_id and claim.epoch == 0


def add_partitions(
    shard: TransactionShard,
    step: Step,
    claim: ProducerClaim,
    partitions: Iterable[TopicPartition],
    version: int,
    then: Then,
) -> None:
    """Add partitions to a transaction; the first ones begin it."""
    one = _known(shard, claim)
    if isinstance(one, ErrorCode):
        then(step, one)
        return
    wanted = frozenset(partitions)
    status = one.status
    if one.pending is not None or status.prepared:
        # Usually the previous end is being written: its producer need not retry.
        waiting = Waiting(
            lambda step: add_partitions(shard, step, claim, wanted, version, then), then
        )
        if not shard.park(step, one, waiting):
            then(step, CONCURRENT)
    elif status.state is State.ONGOING and wanted <= status.partitions:
        then(step, ErrorCode.NONE)
    elif not shard.has_room(0, PARTITION_BYTES * len(wanted - status.partitions)):
        then(step, ErrorCode.COORDINATOR_NOT_AVAILABLE)  # clients retry
    else:
        shard.write(
            step, one, added(status, wanted, step.wall_ms, version),
            lambda step, error: then(step, append_error(error)),
        )  # fmt: skip


def verify(
    shard: TransactionShard, claim: ProducerClaim, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """True if each partition is part of the producer's open transaction."""
    found = _known(shard, claim)
    if isinstance(found, ErrorCode):
        return dict.fromkeys(partitions, found)
    if found.status.prepared:
        return dict.fromkeys(partitions, CONCURRENT)
    joined = found.status.partitions
    return {
        one: ErrorCode.NONE if one in joined else ErrorCode.TRANSACTION_ABORTABLE
        for one in partitions
    }


# ---- ends ----------------------------------------------------------------------------------


def end(
    shard: TransactionShard,
    step: Step,
    claim: ProducerClaim,
    commit: bool,
    version: int,
    then: Respond,
) -> None:
    """Decide the end of a transaction; its partitions get their markers afterwards."""
    decided = _end(shard, claim, commit, version)
    if isinstance(decided, _Early):
        # It has the epoch from the previous end: most often all its records were dropped.
        waiting = Waiting(
            lambda step: end(shard, step, claim, commit, version, then),
            lambda step, error: then(step, ProducerAnswer(error)),
        )
        if not shard.park(step, decided.one, waiting):
            then(step, ProducerAnswer(CONCURRENT))
        return
    if not isinstance(decided, Transaction):
        then(step, decided)
        return
    one, status = decided, decided.status
    try:
        next_id = _next_id(shard, status, version)
    except KafkalogError as problem:
        then(step, ProducerAnswer(_code_of(problem)))
        return
    after = ended(status, commit, step.wall_ms, version, next_id=next_id)

    def settled(step: Step, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            ended = completed(after, step.wall_ms)
            then(step, ProducerAnswer(error, ended.producer_id, ended.epoch))
        else:
            then(step, ProducerAnswer(append_error(error)))

    shard.write(step, one, after, settled)


class _Early(NamedTuple):
    """The next transaction is to be ended before the previous end is complete."""

    one: Transaction


def _end(
    shard: TransactionShard, claim: ProducerClaim, commit: bool, version: int
) -> Transaction | ProducerAnswer | _Early:
    """The transactional id whose transaction may end, or the answer."""
    if not claim.transactional_id:
        return ProducerAnswer(ErrorCode.INVALID_REQUEST)
    one = shard.ids.get(claim.transactional_id)
    if one is None or one.status.epoch == NONE:
        return ProducerAnswer(UNMAPPED)
    status = one.status
    raises = version >= VERSION_2
    if raises and _is_next(status, claim):
        return _Early(one)
    # The end that raised the epoch, requested again.
    moved = (
        raises and claim.producer_id == status.previous_id
        and is_exhausted(claim.epoch) and status.epoch == 0
    )  # fmt: skip
    again = moved or (
        raises and status.version >= VERSION_2 and claim.producer_id == status.producer_id
        and claim.epoch == status.epoch - 1
    )  # fmt: skip
    if status.producer_id != claim.producer_id and not moved:
        return ProducerAnswer(UNMAPPED)
    if raises:
        retried = status.prepared or status.state in COMPLETE
        valid = claim.epoch == status.epoch or (again and retried)
    else:
        valid = claim.epoch == status.epoch
    if not valid:
        return ProducerAnswer(FENCED)
    if raises and not again and (status.prepared or one.pending is not None):
        return _Early(one)  # Kafka gives it a retriable error
    if one.pending is not None:
        return ProducerAnswer(CONCURRENT)
    if status.state is State.ONGOING:
        return one
    if raises and not again:
        # Nothing was written since the last end: an abort is allowed nevertheless.
        return ProducerAnswer(ErrorCode.INVALID_TXN_STATE) if commit else one
    return _end_again(status, commit)


def _end_again(status: Status, commit: bool) -> ProducerAnswer:
    """The answer to a repeated EndTxn, or to one without a transaction."""
    if status.state is State.EMPTY or status.commits != commit:
        return ProducerAnswer(ErrorCode.INVALID_TXN_STATE)
    if status.prepared:
        return ProducerAnswer(CONCURRENT)
    return ProducerAnswer(ErrorCode.NONE, status.producer_id, status.epoch)


def fence(shard: TransactionShard, step: Step, one: Transaction) -> None:
    """Abort an open transaction under an epoch that its producer does not have.

    Raises: KafkalogError if it needs a new producer id and there is none.
    """
    status = one.status
    version = min(shard.outside.level(), VERSION_2)
    next_id = _next_id(shard, status, version)
    after = ended(status, False, step.wall_ms, version, fence=True, next_id=next_id)
    shard.write(step, one, after, lambda _step, _error: None)


def _next_id(shard: TransactionShard, status: Status, version: int) -> int:
    """The producer id with which a transactional id continues after an end that uses up its epochs.
    Also if another than its producer ends it: in version 2 that one gets the next epoch."""
    if version < VERSION_2 or not is_exhausted(status.epoch):
        return NONE
    return shard.outside.new_producer_id()
