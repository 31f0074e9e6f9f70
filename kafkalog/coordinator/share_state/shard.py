"""The share partitions of one partition of `__share_group_state`, and how they change.

A change is decided, then written, and only then valid.  What would depend on a change whose outcome
is not known waits for it; only changes that are decided in the same step, and so are written
together, build on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.coordinator.core import Shard, too_large
from kafkalog.coordinator.share_state.records import record_of
from kafkalog.coordinator.share_state.requests import Decision, Result
from kafkalog.coordinator.share_state.state import Change, Kept, SharePartition, Update, applied
from kafkalog.coordinator.step import all_of
from kafkalog.coordinator.weight import Weight
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.config.share_state import ShareStateConfig
    from kafkalog.coordinator.step import Step
    from kafkalog.coordinator.timers import Timers

__all__ = ["WAITING_MAX", "Entry", "ShareStateShard", "Then", "Work"]

WAITING_MAX = 100
"""Requests about one share partition that may wait for a change of it."""
ENTRY_BYTES = 1_000
BATCH_BYTES = 150
"""Approximate memory of a share partition, and of each of its state batches."""
Then = Callable[["Step", ErrorCode, Result | None], None]
"""Takes the outcome of a request: an error of the journal or the coordinator, or the result."""


class Work(NamedTuple):
    """A request about a share partition."""

    decide: Callable[[Step, Kept | None], Decision]
    then: Then


class Entry:
    """A share partition, with the changes whose outcome is not known."""

    __slots__ = ("ahead", "changes", "kept", "step", "unsure", "waiting", "weight")

    def __init__(self, within: Weight) -> None:
        self.kept: Kept | None = None
        """The state that the journal certainly has; None: nothing."""
        self.ahead: Kept | None = None
        """With all of `changes`."""
        self.changes: list[Change] = []
        """In the order in which they were decided."""
        self.step: Step | None = None
        """The step that decided them."""
        self.unsure = False
        """True if the journal may have a change that failed: the next one restates the state."""
        self.waiting: list[Work] = []
        self.weight = Weight(within)

    def weigh(self, where: SharePartition) -> None:
        """Note the memory of what is kept."""
        found = (one.state.state_batches for one in (self.kept, self.ahead) if one is not None)
        size = ENTRY_BYTES + 4 * len(where.group_id) + BATCH_BYTES * max(map(len, found), default=0)
        self.weight.add(size - self.weight.bytes)


class ShareStateShard(Shard):
    """The share partitions of one partition.  Only for the coordinator's thread."""

    def __init__(
        self, partition: int, epoch: int, config: ShareStateConfig, timers: Timers
    ) -> None:
        super().__init__(partition, epoch)
        self.config = config
        self.timers = timers
        self.entries: dict[SharePartition, Entry] = {}
        self.snapshots: dict[SharePartition, int] = {}
        """The offset of the latest snapshot of each: below the lowest nothing is needed."""
        self.forgotten = -1
        """The offset of the last tombstone."""
        self.pruned = 0
        """Nothing is needed, or is there, below this offset."""
        self.weight = Weight()
        """Memory of all of them; part of the coordinator's sum while this shard is active."""

    def live(self) -> Iterator[SharePartition]:
        """The share partitions that are kept."""
        return (where for where, one in self.entries.items() if one.kept is not None)

    @property
    def updates_max(self) -> int:
        """After so many updates a snapshot is due."""
        return self.config.share_coordinator_snapshot_update_records_per_snapshot

    @property
    def needed(self) -> int:
        """The lowest offset that is needed; 0: it is not known."""
        return max(0, min(self.snapshots.values(), default=self.forgotten))

    # ---- records ---------------------------------------------------------------------------

    def replay(self, where: SharePartition, change: Change, offset: int) -> None:
        """Take a record of the journal; only before the shard is active."""
        if not isinstance(change, Update):
            self.placed(where, change is None, offset)
        entry = self.entries.get(where)
        if entry is None:
            if change is None:
                return
            entry = self.entries[where] = Entry(self.weight)
        entry.kept = entry.ahead = applied(entry.kept, change, self.updates_max)
        if entry.kept is None:
            self._drop(where, entry)
        elif isinstance(change, Update):
            self.snapshots.setdefault(where, offset)  # if its snapshot is lost

    def placed(self, where: SharePartition, gone: bool, offset: int) -> None:
        """A snapshot of a share partition, or its tombstone, is at this offset."""
        if gone:
            self.snapshots.pop(where, None)
            self.forgotten = offset
        else:
            self.snapshots[where] = offset

    def _drop(self, where: SharePartition, entry: Entry) -> None:
        if self.entries.get(where) is entry:
            del self.entries[where]
            entry.weight.move(None)

    # ---- requests --------------------------------------------------------------------------

    def take(self, step: Step, where: SharePartition, work: Work) -> None:
        """Decide a request, now or once changes in progress are done."""
        entry = self.entries.get(where)
        if entry is None:
            entry = self.entries[where] = Entry(self.weight)
        if entry.changes and entry.step is not step:
            self._park(step, where, entry, work)
            return
        ahead = entry.ahead
        if entry.unsure and ahead is not None:
            ahead = ahead._replace(updates=self.updates_max)
        decision = work.decide(step, ahead)
        if decision.changes:
            self.change(step, where, entry, decision, work.then)
        elif entry.changes:
            self._park(step, where, entry, work)
        else:
            if entry.kept is None:
                self._drop(where, entry)
            work.then(step, ErrorCode.NONE, decision.result)

    def change(
        self, step: Step, where: SharePartition, entry: Entry, decision: Decision, then: Then
    ) -> None:
        """Write the change of a decision; `then` gets its result."""
        (change,) = decision.changes

        def settle(step: Step, error: ErrorCode) -> None:
            outcome = partial(then, step, error, None if error else decision.result)
            if error is ErrorCode.REQUEST_TIMED_OUT:
                outcome()
            else:
                all_of([partial(self._settled, step, where, entry, change, error), outcome])

        def late(step: Step, error: ErrorCode) -> None:
            self._settled(step, where, entry, change, error)

        record = record_of(where, change)
        ahead = applied(entry.ahead, change, self.updates_max)
        entry.changes.append(change)  # only once it could be encoded
        entry.ahead, entry.step = ahead, step
        entry.weigh(where)
        step.write(self.partition, [record], settle, late)

    def _settled(
        self, step: Step, where: SharePartition, entry: Entry, change: Change, error: ErrorCode
    ) -> None:
        number = next(i for i, one in enumerate(entry.changes) if one is change)
        del entry.changes[number]
        if error is ErrorCode.NONE:
            entry.kept = applied(entry.kept, change, self.updates_max)
            entry.unsure = entry.unsure and isinstance(change, Update)
        else:
            entry.unsure = entry.unsure or not too_large(error)
            entry.ahead = entry.kept
            for one in entry.changes:
                entry.ahead = applied(entry.ahead, one, self.updates_max)
        entry.weigh(where)
        if not entry.changes:
            entry.ahead, entry.step = entry.kept, None
            self._go_on(step, where, entry)

    # ---- requests that wait ----------------------------------------------------------------

    def _park(self, step: Step, where: SharePartition, entry: Entry, work: Work) -> None:
        if len(entry.waiting) >= WAITING_MAX:
            work.then(step, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
            return
        if not entry.waiting:
            wait_ms = self.config.share_coordinator_write_timeout_ms
            self.timers.set(self._timer(where), step.now_ms + wait_ms)
        entry.waiting.append(work)

    def _timer(self, where: SharePartition) -> tuple[str, int, str, str]:
        return "waiting", self.partition, where.key, ""

    def _go_on(self, step: Step, where: SharePartition, entry: Entry) -> None:
        """A change is done: waiting requests have their turn."""
        waiting, entry.waiting = entry.waiting, []
        if waiting:
            self.timers.cancel(self._timer(where))
        if entry.kept is None:
            self._drop(where, entry)  # `take` makes it again
        if self.closed:
            error = ErrorCode.NOT_COORDINATOR
            all_of(partial(work.then, step, error, None) for work in waiting)
        else:
            all_of(partial(self.take, step, where, work) for work in waiting)

    def refuse_waiting(
        self, step: Step, error: ErrorCode, where: SharePartition | None = None
    ) -> None:
        """Refuse the requests that wait for a change of a share partition; None: of any."""
        some = list(self.entries) if where is None else [where]
        entries = [self.entries[one] for one in some if one in self.entries]
        refused = [work for entry in entries for work in entry.waiting]
        for entry in entries:
            entry.waiting = []
        all_of(partial(work.then, step, error, None) for work in refused)
