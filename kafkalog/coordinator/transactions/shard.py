"""The transactional ids of one partition of __transaction_state, and how they change.

A change is decided, then written, and only then valid: until its outcome is known it is `pending`,
and further changes get a retriable error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.coordinator.core import Shard
from kafkalog.coordinator.step import Producer, all_of
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
"""Requests of one transactional id that may wait for another change to it."""
WAITING_MS = 1_000

Then = Callable[["Step", ErrorCode], None]


class Marker(NamedTuple):
    """An effect of a step: write the end of a transaction to one of its partitions, and pass the
    outcome to TransactionCoordinatorState.marked."""

    shard: int
    """The partition of __transaction_state that it comes from."""
    life: int
    """Which of this partition's successive shards sent it; outcomes for earlier ones do not count,
    see TransactionCoordinatorState.marked."""
    transactional_id: str
    where: TopicPartition
    producer_id: int
    epoch: int
    commit: bool
    coordinator_epoch: int
    version: int
    """The transaction's version."""

    @property
    def producer(self) -> Producer:
        """The producer as the partition's log gets it."""
        return Producer(
            self.producer_id, self.epoch, self.commit, self.coordinator_epoch, self.version
        )


class Outside(NamedTuple):
    """The calls of the coordinator into the rest of the broker; called in its thread."""

    new_producer_id: Callable[[], int]
    """A producer id that was never used.  Raises: KafkalogError."""
    topic_partitions: Callable[[str], int]
    """How many partitions a topic has; 0 if the name is unknown."""
    group_partition: Callable[[str], TopicPartition | None]
    """The partition of a group's offsets; None if their topic does not exist."""
    level: Callable[[], int]
    """The level of the feature transaction.version."""


class TransactionShard(Shard):
    """The transactional ids of one partition.  Only for the coordinator's thread."""

    def __init__(
        self, partition: int, epoch: int, life: int, config: TransactionConfig, timers: Timers,
        outside: Outside, has_room: Callable[[int, int], bool],
    ) -> None:  # fmt: skip
        """`epoch`: the coordinator epoch of its markers; partitions refuse an outdated one.
        `life`: unique to this shard.  `has_room`: whether all shards may keep this many more
        transactional ids and bytes."""
        super().__init__(partition, epoch)
        self.life = life
        self.config = config
        self.timers = timers
        """The sums of all shards."""
        self.outside = outside
        self.has_room = has_room
        self.ids: dict[str, Transaction] = {}
        """See put and forget."""
        self.weight = Weight()
        """Memory of all of them; part of the coordinator's sum while this shard is active."""

    def put(self, one: Transaction) -> None:
        """Add a transactional id."""
        self.ids[one.transactional_id] = one
        one.weight.move(self.weight)

    def forget(self, one: Transaction) -> None:
        """Remove a transactional id."""
        if self.ids.get(one.transactional_id) is one:
            del self.ids[one.transactional_id]
            one.weight.move(None)

    def live(self) -> Iterator[Transaction]:
        """The transactional ids that are not being forgotten."""
        return (one for one in self.ids.values() if not one.dead and one.recorded)

    def write(self, step: Step, one: Transaction, status: Status, then: Then) -> None:
        """Change a transactional id's status; `then` is called with the outcome, or with
        REQUEST_TIMED_OUT if it is not known in time.  A late change is still valid."""

        def settle(step: Step, error: ErrorCode) -> None:
            status_sent = partial(then, step, error)
            if error is ErrorCode.REQUEST_TIMED_OUT:
                status_sent()
            else:
                all_of([partial(self._settled, step, one, status, error), status_sent])

        def late(step: Step, error: ErrorCode) -> None:
            self._settled(step, one, status, error)

        dead = status.state is State.DEAD
        record = status_record(one.transactional_id, status, self.outside.level())
        if dead:
            record = key_of(one.transactional_id), None
        one.pending = status  # only once it could be encoded
        one.weigh()
        step.write(self.partition, [record], settle, late)

    def park(self, step: Step, one: Transaction, waiting: Waiting) -> bool:
        """Let a request wait until the change in progress is done and a decided end is complete;
        False if too many wait.  It is refused if that takes too long."""
        if len(one.waiting) >= WAITING_MAX:
            return False
        if not one.waiting:
            key = ("waiting", self.partition, one.transactional_id, "")
            self.timers.set(key, step.now_ms + WAITING_MS)
        one.waiting.append(waiting)
        return True

    def refuse_waiting(self, step: Step, one: Transaction, error: ErrorCode) -> None:
        """Refuse the waiting requests."""
        waiting, one.waiting = one.waiting, []
        all_of(partial(request.refuse, step, error) for request in waiting)

    def _go_on(self, step: Step, one: Transaction) -> None:
        """A change is done: waiting requests may retry, and wait again."""
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
                self.forget(one)  # no client has it
            return
        one.recorded = True
        if status.state is State.DEAD:
            self.forget(one)
            return
        self.take(step, one, status)

    def take(self, step: Step, one: Transaction, status: Status) -> None:
        """A status is in the journal: start what follows from it."""
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
        """Send the marker of a transaction to one of its partitions."""
        status = one.status
        step.effects.append(
            Marker(
                self.partition, self.life, one.transactional_id, where, status.producer_id,
                status.epoch, status.commits, self.epoch, status.version,
            )
        )  # fmt: skip
