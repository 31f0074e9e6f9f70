"""The transactional ids of one partition of __transaction_state, and how they change.

A change is decided, written, and only then true: until its outcome is known it is `pending`, and
further ones get a retriable error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.coordinator.core import Shard
from kafkalog.coordinator.step import all_of
from kafkalog.coordinator.transactions.records import key_of, status_record
from kafkalog.coordinator.transactions.transaction import State, Status, Transaction, Waiting
from kafkalog.coordinator.weight import Weight
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.config.transaction import TransactionConfig
    from kafkalog.coordinator.step import Step
    from kafkalog.coordinator.timers import Timers

__all__ = ["Marker", "Outside", "TransactionShard"]

WAITING_MAX = 16
"""Requests of one transactional id that wait for another change of it."""
WAITING_MS = 1_000

Then = Callable[["Step", ErrorCode], None]


class Marker(NamedTuple):
    """An effect of a step: the end of a transaction is to be written to a partition of it, and the
    outcome to be told to TransactionCore.marked."""

    shard: int
    """The partition of __transaction_state that it comes from."""
    life: int
    """Which of the shards that this partition had: what became of another's does not count, see
    TransactionCore.marked."""
    transactional_id: str
    where: TopicPartition
    producer_id: int
    epoch: int
    commit: bool
    coordinator_epoch: int
    version: int
    """Of the transaction."""


class Outside(NamedTuple):
    """What the coordinator asks of the rest of the broker; called in its thread."""

    new_producer_id: Callable[[], int]
    """An id that nobody has or had.  Raises: KafkalogError."""
    topic_partitions: Callable[[str], int]
    """How many partitions a topic has; 0: there is none of the name."""
    group_partition: Callable[[str], TopicPartition | None]
    """Where a group's offsets are; None: there is no topic for them."""
    level: Callable[[], int]
    """Of the feature transaction.version."""


class TransactionShard(Shard):
    """The transactional ids of one partition.  One thread only: the coordinator's."""

    def __init__(
        self, partition: int, epoch: int, life: int, config: TransactionConfig, timers: Timers,
        outside: Outside, has_room: Callable[[int, int], bool],
    ) -> None:  # fmt: skip
        """`epoch`: markers say it of their coordinator, and one that was replaced is not believed;
        `life`: no other shard has it; `has_room`: whether so many transactional ids and bytes
        more may be kept, of all shards."""
        super().__init__(partition, epoch)
        self.life = life
        self.config = config
        self.timers = timers
        """Those of all shards."""
        self.outside = outside
        self.has_room = has_room
        self.ids: dict[str, Transaction] = {}
        """See put and forget."""
        self.weight = Weight()
        """Of all of them; it counts in the coordinator's while this shard is at work."""

    def put(self, one: Transaction) -> None:
        """Keep a transactional id."""
        self.ids[one.transactional_id] = one
        one.weight.move(self.weight)

    def forget(self, one: Transaction) -> None:
        """It is kept no longer."""
        if self.ids.get(one.transactional_id) is one:
            del self.ids[one.transactional_id]
            one.weight.move(None)

    def live(self) -> Iterator[Transaction]:
        """Those that are not being forgotten."""
        return (one for one in self.ids.values() if not one.dead and one.recorded)

    def write(self, step: Step, one: Transaction, status: Status, then: Then) -> None:
        """Let a transactional id have another status; `then` is called with the outcome, with
        REQUEST_TIMED_OUT when it is not known in time.  A change that comes late counts, too."""

        def settle(step: Step, error: ErrorCode) -> None:
            told = partial(then, step, error)
            if error is ErrorCode.REQUEST_TIMED_OUT:
                told()
            else:
                all_of([partial(self._settled, step, one, status, error), told])

        def late(step: Step, error: ErrorCode) -> None:
            self._settled(step, one, status, error)

        dead = status.state is State.DEAD
        record = status_record(one.transactional_id, status, self.outside.level())
        if dead:
            record = key_of(one.transactional_id), None
        one.pending = status  # not before it could be encoded
        one.weigh()
        step.write(self.partition, [record], settle, late)

    def park(self, step: Step, one: Transaction, waiting: Waiting) -> bool:
        """Let a request wait until a change is over that is under way, and an end that was decided
        is complete; False: too many do.  It is refused when that takes long."""
        if len(one.waiting) >= WAITING_MAX:
            return False
        if not one.waiting:
            key = ("waiting", self.partition, one.transactional_id, "")
            self.timers.set(key, step.now_ms + WAITING_MS)
        one.waiting.append(waiting)
        return True

    def refuse_waiting(self, step: Step, one: Transaction, error: ErrorCode) -> None:
        """Tell requests that wait that they do so in vain."""
        waiting, one.waiting = one.waiting, []
        all_of(partial(request.refuse, step, error) for request in waiting)

    def _go_on(self, step: Step, one: Transaction) -> None:
        """A change is over: waiting requests may try again, and wait again."""
        if one.pending is None and not one.status.prepared and one.waiting:
            self.timers.cancel(("waiting", self.partition, one.transactional_id, ""))
            waiting, one.waiting = one.waiting, []
            all_of(partial(request.again, step) for request in waiting)

    def _settled(self, step: Step, one: Transaction, status: Status, error: ErrorCode) -> None:
        one.pending = None
        self._apply(step, one, status, error)
        one.weigh()
        self._go_on(step, one)

    def _apply(self, step: Step, one: Transaction, status: Status, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            if not one.recorded:
                self.forget(one)  # nobody was given it
            return
        one.recorded = True
        if status.state is State.DEAD:
            self.forget(one)
            return
        self.take(step, one, status)

    def take(self, step: Step, one: Transaction, status: Status) -> None:
        """A status is in the journal: begin what follows from it."""
        begins = status.state is State.ONGOING and one.status.state is not State.ONGOING
        one.status = status
        if status.state is not State.ONGOING:
            one.deadline_ms = None
        elif begins or one.deadline_ms is None:
            spent_ms = max(0, step.wall_ms - status.start_ms)
            one.deadline_ms = step.now_ms + max(0, status.timeout_ms - spent_ms)
        if status.prepared:
            one.markers = set(status.partitions)
            if not one.markers:
                self.timers.set(("complete", self.partition, one.transactional_id, ""), step.now_ms)
            for where in sorted(one.markers):
                self.send(step, one, where)

    def send(self, step: Step, one: Transaction, where: TopicPartition) -> None:
        """Have the end of a transaction written to one of its partitions."""
        status = one.status
        step.effects.append(
            Marker(
                self.partition, self.life, one.transactional_id, where, status.producer_id,
                status.epoch, status.commits, self.epoch, status.version,
            )
        )  # fmt: skip
