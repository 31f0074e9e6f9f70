"""A share partition: which records of a partition a share group has in flight, and who has them.

A state machine without I/O: it gets the batches that were read, acknowledgements, the time, and
the outcomes of writes; it answers with what was acquired, and hands out what is to be written.  It
keeps ranges of offsets, not records.

Source: KIP-932, KIP-1191, KIP-1206, KIP-1222, and the behaviour of Apache Kafka 4.4's share
partitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from kafkalog.coordinator.share_state.persister import StateBatch
from kafkalog.coordinator.share_state.state import BATCHES_MAX
from kafkalog.shares.ranges import Ranges
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "NOBODY",
    "PARTITION_BYTES",
    "RANGES_MAX",
    "RANGE_BYTES",
    "TERMINAL",
    "AckType",
    "Acknowledgement",
    "Acquired",
    "Hold",
    "Letter",
    "Limits",
    "Refused",
    "SharePartition",
    "State",
    "Write",
]

NOBODY = ""
"""The member that holds a record which nobody holds."""
RANGES_MAX = BATCHES_MAX - 1
"""Ranges of a share partition: an acknowledgement that may need more is refused, before the
coordinator refuses to keep so many."""
RANGE_BYTES, PARTITION_BYTES = 600, 2_500
"""Memory of a range with what may be queued to be written of it, and of a share partition besides
its ranges.  Measured, and rounded up."""


class State(IntEnum):
    """The state of a record; the numbers are those in `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """It was given up, and is to become a dead letter first."""
    ARCHIVED = 4


TERMINAL = (State.ACKNOWLEDGED, State.ARCHIVED)
"""The states of records that are never delivered again."""


class AckType(IntEnum):
    """An answer of a member about a record; the numbers are the protocol's."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Limits(NamedTuple):
    """The settings of the group."""

    lock_ms: int = 30_000
    """How long a member may hold a record."""
    deliveries: int = 5
    """How many times a record is delivered at most."""
    in_flight: int = 2_000
    """Offsets in flight, above which no new ones are acquired."""
    renews: bool = True
    """True: members may renew their locks."""
    letters: bool = False
    """True: a record that was rejected, or delivered too often, becomes a dead letter."""


class Before(NamedTuple):
    """The state to which a record returns if the write of its new state fails."""

    deliveries: int
    member: str
    until_ms: int


class Hold(NamedTuple):
    """All that is known of a record."""

    state: State
    deliveries: int
    """Deliveries, the present one included."""
    member: str = NOBODY
    until_ms: int = 0
    """When the lock ends, on the monotonic clock; of an acquired record."""
    unit: tuple[int, int] | None = None
    """First and last offset of the batch with which it was first acquired."""
    write: int = 0
    """The number of the write that makes this state final; 0: it is final."""
    before: Before | None = None
    rejected: bool = False
    """True: a member has rejected it, and it becomes a dead letter."""
    sent: bool = False
    """Its dead letter is being written."""


class Letter(NamedTuple):
    """Records to be written to the dead-letter topic."""

    first: int
    last: int
    deliveries: int
    rejected: bool
    """A member has rejected them; False: they were delivered too often."""


_DONE = {state: Hold(state, 0) for state in TERMINAL}


class Acquired(NamedTuple):
    """Offsets that were acquired together."""

    first: int
    last: int
    deliveries: int
    """Deliveries, this one included."""


class Acknowledgement(NamedTuple):
    """The answer of a member about the offsets `first` to `last`."""

    first: int
    last: int
    types: Sequence[int]
    """One for all, or one for each offset."""


class Write(NamedTuple):
    """All that is to be written now."""

    number: int
    start_offset: int
    complete: int
    """How many offsets from the start on are acknowledged or archived."""
    rows: tuple[StateBatch, ...]


class Refused(Exception):
    """An acknowledgement was refused; nothing has changed."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class SharePartition:
    """The records in flight of one partition for one group.  One thread at a time."""

    def __init__(self, start: int, rows: Iterable[StateBatch] = ()) -> None:
        """`start`: where the group begins; `rows`: as they were last written.

        Offsets between two rows were acquired before, or have no record: they are read again.

        Raises: ValueError for rows that contradict each other.
        """
        self.start = start
        """All below it are done."""
        self.end = start
        """The first offset that was never acquired."""
        self.holds: Ranges[Hold] = Ranges()
        self.writing: Write | None = None
        """The write in progress."""
        self._rows: Ranges[tuple[State, int]] = Ranges()
        self._number = 1
        self._written_start = start
        self._soonest_ms: float = math.inf  # no lock ends earlier
        self._free = True  # some record may be available
        self.expired = 0
        """Records whose locks have ended."""
        self._letters = False  # some record may be a dead letter that was not sent
        for row in rows:
            self._load(row)
        self.advance()

    def _load(self, row: StateBatch) -> None:
        first, last, state = row.first_offset, row.last_offset, State(row.delivery_state)
        if first < self.end or last < first or state is State.ACQUIRED:
            raise ValueError(
                f"state {state.name} of offsets {first} to {last}: wanted written states in order,"
                f" from offset {self.end} on"
            )
        if first > self.end:
            gap = (self.end, first - 1)
            self.holds.put(*gap, Hold(State.AVAILABLE, 0, unit=gap))
        hold = _DONE.get(state) or Hold(state, row.delivery_count, unit=(first, last))
        self._letters |= state is State.ARCHIVING
        self.holds.put(first, last, hold)
        self.end = last + 1

    # ---- what is known -------------------------------------------------------------------------

    @property
    def bytes(self) -> int:
        """Approximate memory."""
        return PARTITION_BYTES + RANGE_BYTES * (len(self.holds) + len(self._rows))

    @property
    def in_flight(self) -> int:
        """Offsets from the start to the last one that was acquired."""
        return self.end - self.start if len(self.holds) else 0

    @property
    def due_ms(self) -> float:
        """When `expire` may find a lock that has ended; math.inf: nothing is locked."""
        return self._soonest_ms

    @property
    def queued(self) -> int:
        """The number that the next write gets; 0: nothing is to be written."""
        return self._number if len(self._rows) else 0

    def next_fetch_offset(self) -> int:
        """Where to read next: the first record that is available, else the first new one."""
        if self._free:
            for one in self.holds:
                if _is_free(one.value):
                    return one.first
            self._free = False
        return self.end

    def end_of_free(self, offset: int, count: int) -> int:
        """The end of the first `count` offsets from `offset` on that are available or new."""
        for one in self.holds.between(offset, self.end - 1):
            if _is_free(one.value):
                begin = max(one.first, offset)
                if one.last - begin + 1 >= count:
                    return begin + count
                count -= one.last - begin + 1
        return max(offset, self.end) + count

    def can_acquire(self, limits: Limits) -> bool:
        """True if there may be something to acquire."""
        return self.in_flight < limits.in_flight or self.next_fetch_offset() < self.end

    # ---- acquiring -----------------------------------------------------------------------------

    def put(self, first: int, last: int, hold: Hold) -> None:
        """Give offsets a state that nobody writes: they are acquired, or wait to be."""
        self.holds.put(first, last, hold)
        if hold.state is State.ACQUIRED:
            self._soonest_ms = min(self._soonest_ms, hold.until_ms)
        else:
            self._free = self._free or hold.state is State.AVAILABLE

    def archive(self, first: int, last: int, state: State) -> None:
        """Never deliver those of the offsets that are in this state."""

        def change(hold: Hold) -> Hold:
            return _DONE[State.ARCHIVED] if hold.state is state else hold

        self.holds.change(first, last, change)

    # ---- acknowledging -------------------------------------------------------------------------

    def acknowledge(
        self, member: str, said: Sequence[Acknowledgement], now_ms: int, limits: Limits
    ) -> int:
        """All of what a member says, or nothing.

        `said`: in the order of offsets; only the first offset may be in the one before, too.

        Returns the number of the write after which it is final; 0: it is now.

        Raises: Refused: a record is not held by the member, or was never acquired.
        """
        runs: list[tuple[int, int, int]] = []
        for one in said:
            runs += _runs(one, self.start)
        if len(self.holds) + len(runs) + len(said) > RANGES_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"acknowledgements in {len(runs)} pieces: found {len(self.holds)} pieces in flight,"
                f" wanted at most {RANGES_MAX} with these",
            )
        for one in said:
            self._check_known(one)
        said_to = -1  # the last offset that changes
        for first, last, kind in runs:
            self._check_held(member, first, last)
            if first <= said_to:
                raise Refused(
                    ErrorCode.INVALID_RECORD_STATE, f"offset {first} is acknowledged twice"
                )
            if kind != AckType.RENEW:
                said_to = last
            elif not limits.renews:
                why = "share.renew.acknowledge.enable is false for the group"
                raise Refused(ErrorCode.INVALID_RECORD_STATE, why)
        for first, last, kind in runs:
            if kind == AckType.RENEW:
                self._renew(first, last, now_ms + limits.lock_ms)
            else:
                self._settle(first, last, AckType(kind), limits)
        return self.queued if said_to >= 0 else 0

    def _check_known(self, one: Acknowledgement) -> None:
        """Raises: Refused for offsets that were not acquired."""
        if one.last < self.start:
            return
        found = self.holds.before(max(one.first, self.start))
        if found is None:
            raise Refused(
                ErrorCode.INVALID_RECORD_STATE,
                f"offsets {one.first} to {one.last}: none of them is in flight",
            )
        last = self.holds.before(one.last) or found
        if last.last < max(one.first, self.start) or one.last > last.last:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"offsets {one.first} to {one.last}: found in flight up to {last.last} only",
            )

    def _check_held(self, member: str, first: int, last: int) -> None:
        """Raises: Refused for records that the member does not hold."""
        for one in self.holds.between(first, last):
            hold, at = one.value, max(one.first, first)
            if hold.state is not State.ACQUIRED or hold.write:
                why = f"found it {hold.state.name.lower()}, wanted acquired"
            elif hold.member != member:
                why = "another member holds it"
            else:
                continue
            raise Refused(ErrorCode.INVALID_RECORD_STATE, f"offset {at}: {why}")

    def _renew(self, first: int, last: int, until_ms: int) -> None:
        self.holds.change(first, last, lambda hold: hold._replace(until_ms=until_ms))

    def _settle(self, first: int, last: int, kind: AckType, limits: Limits) -> None:
        """Records get the state that a member says, which is to be written."""

        rejected = kind is AckType.REJECT and limits.letters

        def change(hold: Hold) -> Hold:
            state = State.ARCHIVING if rejected else _SAID[kind]
            if state is State.AVAILABLE and hold.deliveries >= limits.deliveries:
                state = self._given_up(limits)
            before = Before(hold.deliveries, hold.member, hold.until_ms)
            return Hold(
                state, hold.deliveries, unit=hold.unit, write=self._number, before=before,
                rejected=rejected,
            )  # fmt: skip

        self._letters |= rejected

        self._change(first, last, change)

    def _given_up(self, limits: Limits) -> State:
        """The state of a record that was delivered too often."""
        self._letters |= limits.letters
        return State.ARCHIVING if limits.letters else State.ARCHIVED

    def _change(self, first: int, last: int, change: Callable[[Hold], Hold]) -> None:
        """Change records, and queue what changes to be written."""
        for one in self.holds.change(first, last, change):
            self._rows.put(one.first, one.last, (one.value.state, one.value.deliveries))

    def release(self, member: str, limits: Limits) -> int:
        """Make all that a member holds available again; it counts as delivered.

        Returns the number of the write after which it is; 0: it held nothing.
        """
        held = [one for one in self.holds
                if one.value.member == member and one.value.state is State.ACQUIRED]  # fmt: skip
        for one in held:
            self._settle(one.first, one.last, AckType.RELEASE, limits)
        return self.queued if held else 0

    # ---- time ----------------------------------------------------------------------------------

    def expire(self, now_ms: int, limits: Limits) -> bool:
        """Take records from members whose lock has ended; True if some were."""
        if now_ms < self._soonest_ms:
            return False
        soonest, ended = math.inf, []
        for one in self.holds:
            hold = one.value
            if hold.state is State.ACQUIRED:
                if hold.until_ms <= now_ms:
                    ended.append(one)
                else:
                    soonest = min(soonest, hold.until_ms)
        self._soonest_ms = soonest
        for one in ended:
            self.expired += one.size
            self._change(one.first, one.last, lambda hold: self._ended(hold, limits))
        self._free = self._free or bool(ended)
        return bool(ended)

    def _ended(self, hold: Hold, limits: Limits) -> Hold:
        """A record whose lock has ended: nobody can undo that, so it is not undone if the write
        fails."""
        if hold.deliveries >= limits.deliveries:
            state = self._given_up(limits)
            return Hold(state, hold.deliveries, unit=hold.unit, write=self._number)
        return Hold(State.AVAILABLE, hold.deliveries, unit=hold.unit)

    # ---- dead letters --------------------------------------------------------------------------

    def letters(self, limits: Limits) -> list[Letter]:
        """The dead letters to be written now, each once; `archived` tells that they were."""
        if not self._letters:
            return []
        found, self._letters = list[Letter](), False
        for one in self.holds:
            hold = one.value
            if hold.state is State.ARCHIVING and hold.write:
                self._letters = True
            elif hold.state is State.ARCHIVING and not hold.sent:
                rejected = hold.rejected or hold.deliveries < limits.deliveries
                found.append(Letter(one.first, one.last, hold.deliveries, rejected))
        for letter in found:
            self.holds.change(letter.first, letter.last, lambda hold: hold._replace(sent=True))
        return found

    def archived(self, letter: Letter) -> None:
        """A dead letter was written, or cannot be: its records are never delivered again."""

        def change(hold: Hold) -> Hold:
            if not hold.sent:
                return hold
            return Hold(State.ARCHIVED, hold.deliveries, unit=hold.unit, write=self._number)

        self._change(letter.first, letter.last, change)

    # ---- the log -------------------------------------------------------------------------------

    def moved(self, log_start: int) -> bool:
        """The log begins here now; True if the group begins later than before."""
        if log_start <= self.start:
            return False
        self.holds.cut(log_start)
        if len(self._rows) and self._rows[-1].last >= log_start:
            self._rows.cut(log_start)  # else they stay: members wait for the write of them
        self.start = log_start
        self.end = max(self.end, log_start)
        self.advance()
        return True

    def advance(self) -> bool:
        """Forget the records at the start that are done; True if there were some."""
        offset = self.start
        for one in self.holds:
            if one.value.state not in TERMINAL or one.value.write:
                offset = one.first
                break
            offset = one.last + 1
        else:
            offset = self.end
        if offset <= self.start:
            return False
        self.holds.cut(offset)
        self.start = offset
        return True

    # ---- writing -------------------------------------------------------------------------------

    def begin_write(self) -> Write | None:
        """Begin to write all that waits for it; None: nothing does, or a write is in progress."""
        if self.writing is not None or not len(self._rows):
            return None
        rows = tuple(StateBatch(one.first, one.last, *one.value) for one in self._rows)
        complete = sum(one.size for one in self.holds if one.value.state in TERMINAL)
        self.writing = Write(self._number, self.start, complete, rows)
        self._rows.clear()
        self._number += 1
        return self.writing

    def end_write(self, *, done: bool, now_ms: int, limits: Limits) -> None:
        """The write in progress has ended; without `done`, what it was to make final is undone."""
        assert self.writing is not None
        (number, _, _, rows), self.writing = self.writing, None

        def change(hold: Hold) -> Hold:
            if hold.write != number:
                return hold
            if done or hold.before is None:
                return _DONE.get(hold.state) or hold._replace(write=0, before=None)
            return self._undone(hold, hold.before, now_ms, limits)

        for one in rows:
            self.holds.change(one.first_offset, one.last_offset, change)
            self._free = self._free or not done or one.delivery_state == State.AVAILABLE
        self.advance()

    def _undone(self, hold: Hold, before: Before, now_ms: int, limits: Limits) -> Hold:
        back = Hold(State.ACQUIRED, before.deliveries, before.member, before.until_ms, hold.unit)
        if before.until_ms <= now_ms:
            again = before.deliveries < limits.deliveries
            state = State.AVAILABLE if again else self._given_up(limits)
            return back._replace(state=state, member=NOBODY, until_ms=0)
        self._soonest_ms = min(self._soonest_ms, before.until_ms)
        return back


_SAID = {
    AckType.GAP: State.ARCHIVED,
    AckType.ACCEPT: State.ACKNOWLEDGED,
    AckType.RELEASE: State.AVAILABLE,
    AckType.REJECT: State.ARCHIVED,
}


def _is_free(hold: Hold) -> bool:
    return hold.state is State.AVAILABLE and not hold.write


def _runs(one: Acknowledgement, start: int) -> list[tuple[int, int, int]]:
    """(first, last, type) of the offsets from `start` on, those with one type together."""
    if len(one.types) == 1:
        first = max(one.first, start)
        return [(first, one.last, one.types[0])] if first <= one.last else []
    found: list[tuple[int, int, int]] = []
    for offset, kind in enumerate(one.types, one.first):
        if offset < start:
            continue
        if found and found[-1][2] == kind:
            found[-1] = (found[-1][0], offset, kind)
        else:
            found.append((offset, offset, kind))
    return found
