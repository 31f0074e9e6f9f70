"""The state of one transactional id, and its transitions.

Source: Kafka's TransactionMetadata; KIP-98 (transactions), KIP-360 (a producer that sends its
own epoch gets a higher one), KIP-890 (each transaction has its own epoch).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import NamedTuple

from kafkalog.coordinator.step import VERSION_2, Step
from kafkalog.coordinator.weight import Weight, text_bytes
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "EPOCH_MAX",
    "NONE",
    "PARTITION_BYTES",
    "State",
    "Status",
    "Transaction",
    "Waiting",
    "added",
    "completed",
    "ended",
    "initialized",
    "is_exhausted",
    "name_bytes",
    "rotated",
]

NONE = -1
"""The producer id or epoch that means "none"."""
EPOCH_MAX = 32_767
"""No client gets it, so that its last epoch can be fenced, too."""
TRANSACTION_BYTES, PARTITION_BYTES = 1_500, 400
"""Memory of a transactional id besides its name, including its timers and requests in flight, and
memory of each partition of its open transaction.  Measured, and rounded up."""


class State(IntEnum):
    """Kafka's numbers in its records; `title` gives its names."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """As Kafka's tools print it: PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))


PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
COMPLETE = frozenset({State.COMPLETE_COMMIT, State.COMPLETE_ABORT})


class Status(NamedTuple):
    """Everything that is written about a transactional id."""

    producer_id: int
    epoch: int
    """NONE: no client has one yet."""
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    updated_ms: int = -1
    previous_id: int = NONE
    """The previous producer id."""
    next_id: int = NONE
    """The producer id after a prepared end, if the epochs of this one are used up."""
    version: int = 0
    """The client's transaction version: 2 raises the epoch with each end."""
    last_epoch: int = NONE
    """The epoch that the client sent when it got this one; not written."""

    @property
    def prepared(self) -> bool:
        """True if its end is decided and some partitions lack the marker."""
        return self.state in PREPARED

    @property
    def commits(self) -> bool:
        """True if its decided end is a commit."""
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    @property
    def over(self) -> bool:
        """True if no transaction is open."""
        return self.state is State.EMPTY or self.state in COMPLETE


class Waiting(NamedTuple):
    """A request that waits for another change to finish."""

    again: Callable[[Step], None]
    refuse: Callable[[Step, ErrorCode], None]


class Transaction:
    """One transactional id.  Only for the coordinator's thread."""

    def __init__(self, transactional_id: str, status: Status) -> None:
        self.transactional_id = transactional_id
        self.status = status
        """The status in the journal."""
        self.pending: Status | None = None
        """The change that is being written to the journal: no other one begins before it ends."""
        self.deadline_ms: int | None = None
        """When its open transaction times out, on the monotonic clock."""
        self.markers: set[TopicPartition] = set()
        """The partitions that lack the marker of a prepared end."""
        self.waiting: list[Waiting] = []
        """Requests that wait for another change."""
        self.recorded = False
        """True if the journal has a record of it."""
        self.weight = Weight()
        """Approximate memory that it takes."""
        self.weigh()

    @property
    def dead(self) -> bool:
        """True if it is being forgotten."""
        return self.pending is not None and self.pending.state is State.DEAD

    def weigh(self) -> None:
        """Update its memory estimate: a change in progress counts."""
        partitions = len(self.status.partitions)
        if self.pending is not None:
            partitions = max(partitions, len(self.pending.partitions))
        wanted = name_bytes(self.transactional_id) + partitions * PARTITION_BYTES
        self.weight.add(wanted - self.weight.bytes)


def name_bytes(transactional_id: str) -> int:
    """Memory of a transactional id without a transaction."""
    return TRANSACTION_BYTES + text_bytes(transactional_id)


def is_exhausted(epoch: int) -> bool:
    """True if no client may get a higher epoch."""
    return epoch >= EPOCH_MAX - 1


def initialized(status: Status, timeout_ms: int, now_ms: int, claim: int | None) -> Status | None:
    """After InitProducerId from a producer that sent its epoch (None: it sent none).

    Returns None if it was fenced.
    """
    epoch, last = status.epoch + 1, NONE
    if claim is not None:
        if status.epoch == NONE or claim == status.epoch:
            last = status.epoch
        elif claim == status.last_epoch:
            epoch, last = status.epoch, status.last_epoch  # it never got the answer
        else:
            return None
    return status._replace(
        epoch=epoch, last_epoch=last, timeout_ms=timeout_ms, state=State.EMPTY,
        partitions=frozenset(), start_ms=-1, updated_ms=now_ms, next_id=NONE,
    )  # fmt: skip


def rotated(status: Status, new_id: int, timeout_ms: int, now_ms: int, claim: int | None) -> Status:
    """The same with a new producer id, since the epochs of the old one are used up."""
    return status._replace(
        producer_id=new_id, previous_id=status.producer_id, next_id=NONE, epoch=0,
        last_epoch=NONE if claim is None else status.epoch, timeout_ms=timeout_ms,
        state=State.EMPTY, partitions=frozenset(), start_ms=-1, updated_ms=now_ms,
    )  # fmt: skip


def added(
    status: Status, partitions: Iterable[TopicPartition], now_ms: int, version: int
) -> Status:
    """After partitions joined; the first ones begin the transaction."""
    begins = status.over
    return status._replace(
        state=State.ONGOING,
        partitions=status.partitions.union(partitions),
        start_ms=now_ms if begins else status.start_ms,
        updated_ms=now_ms,
        version=version if begins else status.version,
    )


def ended(
    status: Status, commit: bool, now_ms: int, version: int, *, fence: bool = False,
    next_id: int = NONE,
) -> Status:  # fmt: skip
    """After its end was decided.  `fence`: by another than its producer, which must not continue;
    `next_id`: for version 2 when the epochs are used up."""
    raised = fence or version >= VERSION_2
    begun = status.state is State.ONGOING
    return status._replace(
        state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
        # Kafka up to 4.1 sometimes gives its clients EPOCH_MAX (KAFKA-20090): such ends work, too.
        epoch=min(status.epoch + 1, EPOCH_MAX) if raised else status.epoch,
        # In version 2, a producer that retries with its own epoch gets the next one, once.
        last_epoch=status.epoch if version >= VERSION_2 else NONE if fence else status.last_epoch,
        start_ms=status.start_ms if begun else now_ms,
        updated_ms=now_ms,
        next_id=next_id,
        version=version,
    )


def completed(status: Status, now_ms: int) -> Status:
    """After all partitions have the marker."""
    moved = status.next_id != NONE
    return status._replace(
        state=State.COMPLETE_COMMIT if status.commits else State.COMPLETE_ABORT,
        producer_id=status.next_id if moved else status.producer_id,
        previous_id=status.producer_id if moved else status.previous_id,
        epoch=0 if moved else status.epoch,
        next_id=NONE,
        partitions=frozenset(),
        updated_ms=now_ms,
    )
