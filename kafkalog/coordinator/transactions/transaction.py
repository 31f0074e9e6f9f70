"""The state of one transactional id, and how it comes from one to the next.

Source: Kafka's TransactionMetadata; KIP-98 (transactions), KIP-360 (an epoch is raised for a
producer that asks with its own), KIP-890 (an epoch for each transaction).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import NamedTuple

from kafkalog.coordinator.step import VERSION_2, Step
from kafkalog.coordinator.weight import Weight
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
"""As a producer id or an epoch: there is none."""
EPOCH_MAX = 32_767
"""No client is given it, so that its last epoch can be fenced, too."""
TRANSACTION_BYTES, PARTITION_BYTES = 1_500, 400
"""What a transactional id takes in memory besides its name, its timers and all that is in flight
included, and what each partition of its open transaction takes.  Measured, and rounded up."""


class State(IntEnum):
    """As Kafka numbers them in its records; the values of `title` are its names."""

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
        """As Kafka's tools show it: PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))


PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
COMPLETE = frozenset({State.COMPLETE_COMMIT, State.COMPLETE_ABORT})


class Status(NamedTuple):
    """All that is written down of a transactional id."""

    producer_id: int
    epoch: int
    """NONE: nobody was given one yet."""
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    updated_ms: int = -1
    previous_id: int = NONE
    """The producer id before this one."""
    next_id: int = NONE
    """The producer id after the end that is prepared, when the epochs of this one are used up."""
    version: int = 0
    """Of transactions, as the client speaks it: 2 raises the epoch with each end."""
    last_epoch: int = NONE
    """The epoch that a client asked with when it was given this one; not written down."""

    @property
    def prepared(self) -> bool:
        """Whether its end was decided and not all partitions know."""
        return self.state in PREPARED

    @property
    def commits(self) -> bool:
        """Of one whose end was decided: whether it is a commit."""
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    @property
    def over(self) -> bool:
        """Whether no transaction is open."""
        return self.state is State.EMPTY or self.state in COMPLETE


class Waiting(NamedTuple):
    """A request that waits for another change to be over."""

    again: Callable[[Step], None]
    refuse: Callable[[Step, ErrorCode], None]


class Transaction:
    """One transactional id.  One thread only: the coordinator's."""

    def __init__(self, transactional_id: str, status: Status) -> None:
        self.transactional_id = transactional_id
        self.status = status
        """What is in the journal."""
        self.pending: Status | None = None
        """The change that is being written to the journal: no other one begins until it ends."""
        self.deadline_ms: int | None = None
        """When its open transaction is over, on the monotonic clock."""
        self.markers: set[TopicPartition] = set()
        """Of a prepared end: partitions that do not know it yet."""
        self.waiting: list[Waiting] = []
        """Requests that another change is in the way of."""
        self.recorded = False
        """Whether the journal has anything of it."""
        self.weight = Weight()
        """About what it takes in memory."""
        self.weigh()

    @property
    def dead(self) -> bool:
        """Whether it is about to be forgotten."""
        return self.pending is not None and self.pending.state is State.DEAD

    def weigh(self) -> None:
        """See what it takes: a change that is on its way counts."""
        partitions = len(self.status.partitions)
        if self.pending is not None:
            partitions = max(partitions, len(self.pending.partitions))
        wanted = name_bytes(self.transactional_id) + partitions * PARTITION_BYTES
        self.weight.add(wanted - self.weight.bytes)


def name_bytes(transactional_id: str) -> int:
    """What a transactional id takes that has no transaction."""
    return TRANSACTION_BYTES + len(transactional_id)


def is_exhausted(epoch: int) -> bool:
    """Whether no client may be given a higher epoch."""
    return epoch >= EPOCH_MAX - 1


def initialized(status: Status, timeout_ms: int, now_ms: int, asked: int | None) -> Status | None:
    """After InitProducerId of a producer that said which epoch it has (None: it said none).

    None: it was fenced.
    """
    epoch, last = status.epoch + 1, NONE
    if asked is not None:
        if status.epoch == NONE or asked == status.epoch:
            last = status.epoch
        elif asked == status.last_epoch:
            epoch, last = status.epoch, status.last_epoch  # it never saw the answer
        else:
            return None
    return status._replace(
        epoch=epoch, last_epoch=last, timeout_ms=timeout_ms, state=State.EMPTY,
        partitions=frozenset(), start_ms=-1, updated_ms=now_ms, next_id=NONE,
    )  # fmt: skip


def rotated(status: Status, new_id: int, timeout_ms: int, now_ms: int, asked: int | None) -> Status:
    """The same under a new producer id, since the epochs of the old one are used up."""
    return status._replace(
        producer_id=new_id, previous_id=status.producer_id, next_id=NONE, epoch=0,
        last_epoch=NONE if asked is None else status.epoch, timeout_ms=timeout_ms,
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
    """After its end was decided.  `fence`: not by its producer, which must not go on; `next_id`:
    of a version 2 whose epochs are used up."""
    raised = fence or version >= VERSION_2
    begun = status.state is State.ONGOING
    return status._replace(
        state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
        # Kafka up to 4.1 gives its clients EPOCH_MAX at times (KAFKA-20090): that ends as well.
        epoch=min(status.epoch + 1, EPOCH_MAX) if raised else status.epoch,
        # Of version 2 a producer that asks again with its own epoch is given the next one, once.
        last_epoch=status.epoch if version >= VERSION_2 else NONE if fence else status.last_epoch,
        start_ms=status.start_ms if begun else now_ms,
        updated_ms=now_ms,
        next_id=next_id,
        version=version,
    )


def completed(status: Status, now_ms: int) -> Status:
    """After all partitions know of its end."""
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
