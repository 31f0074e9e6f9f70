"""A coordinator without its thread: requests, outcomes and time go in, answers and appends
come out.

This is common to all coordinators, whatever they keep in the partitions of their journal: which
partition a key belongs to, whether this broker coordinates it, how the writes of one round become
one append, and how long they may take.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from kafkalog.coordinator.journal import JournalBatch
from kafkalog.coordinator.listings import Begin, Listings
from kafkalog.coordinator.partitions import partition_for
from kafkalog.coordinator.step import Call, JournalRecord, Producer, Step, Write, all_of
from kafkalog.coordinator.timers import Key, Timers
from kafkalog.logs.limit import limited
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "APPEND_BYTES",
    "UNSETTLED_BYTES_MAX",
    "Append",
    "CoordinatorState",
    "Shard",
    "append_error",
    "too_large",
]

LOG = limited(__name__)

APPEND_BYTES = 262_144
"""Writes are batched up to this size: far below max.message.bytes, so that one write that is too
large fails no other."""
UNSETTLED_BYTES_MAX = 67_108_864
"""Bytes of records whose outcome is unknown, also after their waiters got a timeout: beyond that a
coordinator takes no more of those that clients may send at any time."""
LOAD_AGAIN_MS = 11_000
"""How long before an unreadable partition is read again; longer than its log is left alone, see
kafkalog.server.partitions."""
_APPENDS: Key = ("append", -1, "", "")
"""The timer of the oldest append that waits."""
_LISTINGS: Key = ("listings", -1, "", "")
"""The timer of the requests to list that are under way."""
_NOT_AVAILABLE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
}
_NOT_COORDINATOR = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR}
_TOO_LARGE = {
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_FETCH_SIZE,
}


def append_error(
    error: ErrorCode, too_large: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
) -> ErrorCode:
    """The error for a client when the journal failed with `error`."""
    if error in _NOT_AVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _NOT_COORDINATOR:
        return ErrorCode.NOT_COORDINATOR
    return too_large if error in _TOO_LARGE else error


def too_large(error: ErrorCode) -> bool:
    """True if the journal refused records for their size: it certainly does not have them."""
    return error in _TOO_LARGE


class Append(NamedTuple):
    """Records of one or more writes, for one batch of the journal."""

    number: int
    partition: int
    records: list[JournalRecord]
    writes: list[Write]
    epoch: int
    """The leader epoch in which it was decided: it is appended in no other."""
    deadline_ms: int
    """When its waiters get a timeout error."""
    producer: Producer | None = None
    """The producer of its batch or marker."""


class Shard:
    """A coordinator's state of one partition of its journal.  One thread only."""

    def __init__(self, partition: int, epoch: int) -> None:
        self.partition = partition
        self.epoch = epoch
        """The leader epoch in which this broker leads the partition."""
        self.closed = False
        """Set when this broker no longer coordinates the partition: waiting requests fail."""

    @abstractmethod
    def live(self) -> Iterator[Any]:
        """Its groups or transactional ids that are not being deleted."""


S = TypeVar("S", bound=Shard)


class CoordinatorState(Generic[S]):
    """Everything of one kind that this broker coordinates.  Only for the coordinator's thread."""

    def __init__(self, append_timeout_ms: int) -> None:
        """`append_timeout_ms`: how long an append may take before its waiters get an error."""
        self.timers = Timers()
        self.partition_count = 0
        """Partitions of the journal's topic; 0 if it does not exist yet."""
        self.shards: dict[int, S] = {}
        """The loaded partitions."""
        self.loading: dict[int, int] = {}
        """Partitions being read, with their leader epoch."""
        self.unread: dict[int, int] = {}
        """Partitions whose last read failed, with their leader epoch."""
        self._led_since: set[int] = set()
        """Partitions of `loading` whose read may have begun before their log was led in the
        epoch."""
        self.stopped = False
        self._append_timeout_ms = append_timeout_ms
        # Both ordered by number, and so also by deadline, as all have the same timeout.
        self._waiting: dict[int, Append] = {}
        self._late: dict[int, Append] = {}
        self._sizes: dict[int, int] = {}  # of both
        self.unsettled_bytes = 0
        """Bytes of the records whose outcome is unknown."""
        self._next_append = 0
        self._listings = Listings()

    # ---- what each kind has of its own ------------------------------------------------------

    @property
    def unfinished(self) -> bool:
        """True if a decision is still being carried out elsewhere."""
        return False

    @abstractmethod
    def new_shard(self, partition: int, epoch: int) -> S:
        """An empty shard of a partition, to be filled by `load`."""

    @abstractmethod
    def load(self, shard: S, batches: Iterable[JournalBatch], wall_ms: int) -> None:
        """Fill an empty shard from its journal; in any thread, touches no timer."""

    @abstractmethod
    def request(self, api: Api, request: Call, step: Step) -> None:
        """Take a request; it is answered in this step or a later one."""

    @abstractmethod
    def refuse(self, api: Api, request: Call, step: Step, error: ErrorCode) -> None:
        """Answer with an error that does not depend on what is coordinated."""

    @abstractmethod
    def _resume(self, shard: S, step: Step) -> None:
        """A shard was loaded: resume what its journal says is in progress."""

    @abstractmethod
    def _resigned(self, shard: S, step: Step) -> None:
        """A shard has left this node: answer its waiters."""

    @abstractmethod
    def _expire(self, key: Key, step: Step) -> None:
        """A timer is due."""

    # ---- partitions ------------------------------------------------------------------------

    def begin_load(self, partition: int, partition_count: int, epoch: int) -> None:
        """This broker coordinates a partition, which is now being read."""
        self._forget_look(partition)
        self.partition_count = partition_count
        self.loading[partition] = epoch

    def end_load(self, shard: S, step: Step) -> None:
        """A partition was read."""
        if self.loading.get(shard.partition) != shard.epoch:
            return  # resigned since, or to be read in a later epoch
        self._forget_look(shard.partition)
        self.shards[shard.partition] = shard
        self._resume(shard, step)

    def lead_on(self, partition: int, epoch: int, step: Step) -> None:
        """A partition is led here in a later epoch, and nobody else led it in between."""
        shard = self.shards.get(partition)
        if shard is not None:
            shard.epoch = epoch
        elif partition in self.loading or partition in self.unread:
            self._load_again(partition, epoch, step)

    def leads(self, partition: int, epoch: int, step: Step) -> None:
        """The partition's log is now led here in this epoch: an earlier read was refused."""
        if self.unread.get(partition) == epoch:
            self._load_again(partition, epoch, step)
        elif self.loading.get(partition) == epoch:
            self._led_since.add(partition)

    def _load_again(self, partition: int, epoch: int, step: Step) -> None:
        self._forget_look(partition)
        self.loading[partition] = epoch
        step.loads.append((partition, epoch))

    def _forget_look(self, partition: int) -> None:
        """Cancel a read in progress or planned."""
        self.timers.cancel(("load", partition, "", ""))
        self.loading.pop(partition, None)
        self.unread.pop(partition, None)
        self._led_since.discard(partition)

    def not_loaded(self, partition: int, epoch: int, step: Step) -> None:
        """A partition could not be read: retry later, or immediately if its log became led here
        only during the read."""
        if self.loading.get(partition) != epoch:
            return
        if partition in self._led_since:
            self._load_again(partition, epoch, step)
        else:
            self.resign(partition, step)
            self.unread[partition] = epoch
            self.timers.set(("load", partition, "", ""), step.now_ms + LOAD_AGAIN_MS)

    def resign(self, partition: int, step: Step) -> None:
        """This broker no longer coordinates a partition: answer its waiting requests
        accordingly."""
        self._forget_look(partition)
        step.loads = [one for one in step.loads if one[0] != partition]
        shard = self.shards.pop(partition, None)
        if shard is None:
            return
        shard.closed = True
        left = [
            append.number
            for append in (*self._late.values(), *self._waiting.values())
            if append.partition == partition
        ]
        settling = (partial(self.settled, n, ErrorCode.NOT_COORDINATOR, step) for n in left)
        unwritten = partial(self._refuse_unwritten, partition, step)
        listings = partial(self._end_listings, step)
        all_of([*settling, partial(self._resigned, shard, step), unwritten, listings])

    @staticmethod
    def _refuse_unwritten(partition: int, step: Step) -> None:
        """This step's earlier decisions: they do not take the epoch of the partition's next
        shard."""
        while writes := [write for write in step.writes if write.partition == partition]:
            step.writes = [write for write in step.writes if write.partition != partition]
            all_of(partial(write.settle, step, ErrorCode.NOT_COORDINATOR) for write in writes)

    @property
    def all_told(self) -> ErrorCode:
        """The error code of an answer that lists everything: NONE if the list is complete."""
        if self.stopped or (self.unread and not self.loading):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.loading else ErrorCode.NONE

    def where(self, key: str) -> tuple[S | None, ErrorCode]:
        """The shard of a group or a transactional id, or the error if there is none."""
        if self.stopped:
            return None, ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self.partition_count:
            return None, ErrorCode.NOT_COORDINATOR
        partition = partition_for(key, self.partition_count)
        shard = self.shards.get(partition)
        if shard is not None:
            return shard, ErrorCode.NONE
        loading = partition in self.loading
        found = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR
        return None, found

    # ---- requests to list ------------------------------------------------------------------

    def _begin_listing(
        self, step: Step, api: Api, request: Call, begin: Begin, *, few: bool = False
    ) -> None:
        """Take a request with many rows; it is answered in this step or a later one.

        `few`: it is not large, unless its things are: its first slice waits for no other request.
        """
        begun = begin(request) if few else None
        if begun is not None and begun.go_on(step):
            begun.answer(step, self.all_told)
            return
        alone = not self._listings.busy

        def refuse(request: Call, step: Step) -> None:
            self.refuse(api, request, step, ErrorCode.UNKNOWN_SERVER_ERROR)

        if not self._listings.add(request, begin, refuse, begun):
            self.refuse(api, request, step, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif alone:
            self._list_on(step)

    def _list_on(self, step: Step) -> None:
        """Do a slice of the listings; the next one follows after the requests that have come."""
        self._listings.go_on(self.all_told, step)
        if self._listings.busy:
            self.timers.set(_LISTINGS, step.now_ms)

    def _end_listings(self, step: Step) -> None:
        """Answer all of them once no partition is left."""
        while not self.shards and self._listings.busy:
            self._list_on(step)

    # ---- time ------------------------------------------------------------------------------

    def tick(self, step: Step) -> None:
        """Run the timers that are due."""
        # Timers that are set here run in the next step, so that this ends.
        due = []
        while (key := self.timers.due(step.now_ms)) is not None:
            due.append(key)
        if not due:
            return
        all_of(partial(self._ring, key, step) for key in due)

    def _ring(self, key: Key, step: Step) -> None:
        if key == _APPENDS:
            self._time_out(step)
        elif key == _LISTINGS:
            if self._listings.busy:
                self._list_on(step)
        elif key[0] == "load":
            self._load_again(key[1], self.unread[key[1]], step)
        else:
            self._expire(key, step)

    # ---- the journal -----------------------------------------------------------------------

    def appends(self, step: Step) -> Iterable[Append]:
        """The step's writes, grouped by partition.

        The caller appends each in this order and passes its outcome to `settled`.
        """
        made: dict[int, Append] = {}
        sizes: dict[int, int] = {}
        found: list[Append] = []
        writes = deque(step.writes)
        step.writes = []
        while writes:
            write = writes.popleft()
            if write.partition not in self.shards:
                try:
                    write.settle(step, ErrorCode.NOT_COORDINATOR)
                except Exception:
                    LOG.exception("an error of the coordinator")  # the others are written
                writes.extend(step.writes)
                step.writes = []
                continue
            size = sum(len(key) + len(value or b"") + 20 for key, value in write.records)
            append = made.get(write.partition)
            full = append is None or sizes[write.partition] + size > APPEND_BYTES
            # Records of a transaction are a batch of their own.
            if append is None or full or append.producer is not None or write.producer is not None:
                limit_ms = step.now_ms + self._append_timeout_ms
                append = Append(
                    self._next_append, write.partition, [], [], self.shards[write.partition].epoch,
                    limit_ms, write.producer,
                )  # fmt: skip
                self._next_append += 1
                self._waiting[append.number] = append
                made[write.partition], sizes[write.partition] = append, 0
                if _APPENDS not in self.timers:
                    self.timers.set(_APPENDS, limit_ms)
                found.append(append)
            append.records.extend(write.records)
            append.writes.append(write)
            sizes[write.partition] += size
            self._sizes[append.number] = sizes[write.partition]
            self.unsettled_bytes += size
        return found

    def settled(self, number: int, error: ErrorCode, step: Step, base_offset: int = -1) -> None:
        """The outcome of an append; `base_offset`: of its first record, if that is known."""
        append = self._waiting.pop(number, None)
        late = append is None
        append = append or self._late.pop(number, None)
        if append is None:
            return  # this broker has resigned since
        self.unsettled_bytes -= self._sizes.pop(number)
        if error is ErrorCode.REQUEST_TIMED_OUT and not late:
            # The journal gave up before we did: no outcome will follow.
            error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        if error is ErrorCode.NONE:
            self._placed(append, base_offset)
        outcomes = [write.late if late else write.settle for write in append.writes]
        all_of(partial(tell, step, error) for tell in outcomes if tell is not None)

    def _placed(self, append: Append, base_offset: int) -> None:
        """The records of an append are committed, the first one at this offset (-1: it is not
        known), and the others right behind it."""

    def _time_out(self, step: Step) -> None:
        """Answer the waiters of appends that take too long with an error."""
        due = []
        for append in self._waiting.values():
            if append.deadline_ms > step.now_ms:
                # One timer for all: most appends are done before it is due.
                self.timers.set(_APPENDS, append.deadline_ms)
                break
            due.append(append)
        for append in due:
            self._late[append.number] = self._waiting.pop(append.number)
        error = ErrorCode.REQUEST_TIMED_OUT
        writes = [write for append in due for write in append.writes]
        all_of(partial(write.settle, step, error) for write in writes)
