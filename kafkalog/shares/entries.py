"""The share partitions of a broker: loading them, writing their state, forgetting them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from kafkalog.coordinator.share_state.persister import (
    UNINITIALIZED_OFFSET,
    Persister,
    ReadState,
    StateChanged,
    StateRead,
    WriteState,
)
from kafkalog.errors import KafkalogError
from kafkalog.shares.figures import PartitionFigures, Place
from kafkalog.shares.partition import PARTITION_BYTES, Letter, Refused, SharePartition, Write
from kafkalog.shares.requests import GroupShare, Led
from kafkalog.shares.sessions import Where
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Bury", "Effect", "Entries", "Entry", "EntryKey", "Owner"]

_AGAIN = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""The persister's errors as members get them; all others are UNKNOWN_SERVER_ERROR."""
_FENCED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)  # fmt: skip
"""Errors after which the state is read again before anything else."""

LOCK = "lock"
Done = Callable[[Refused | None], None]
Effect = Callable[[], object]
Bury = Callable[[str, str, int, Letter, Callable[[], None]], None]
"""Writes dead letters of a group, topic and partition number.  The last argument is called once,
from another thread, when they are written or given up."""


class EntryKey(NamedTuple):
    """A share partition."""

    group: str
    where: Where


class Entry:
    """A share partition with what waits for it."""

    def __init__(self, key: EntryKey, led: Led) -> None:
        """Not loaded yet."""
        self.key = key
        self.lock_timer = (LOCK, key.where.partition, key.group, key.where.topic_id.hex)
        """The timer for the end of its members' locks."""
        self.topic = led.topic
        self.leader_epoch = led.leader_epoch
        self.state_epoch = 0
        self.share: SharePartition | None = None
        """None: it is being loaded."""
        self.refused: Refused | None = None
        """Why it cannot be used any more; None: it can."""
        self.reading = False
        """True: a member reads, and others wait until it has acquired."""
        self.read_bytes = 0
        """The bytes that the last one has read; changed by the one that reads."""
        self.blocked: dict[int, None] = {}
        """The fetches that found it so, in order."""
        self.idle = False
        """True: no member has a session any more."""
        self.letters = 0
        """Dead letters that are being written."""
        self.waiting: dict[int, list[Done]] = {}
        """By write: those that wait for its end."""
        self.bytes = PARTITION_BYTES


class Owner(Protocol):
    """The thread and the lock of share partitions."""

    effects: list[Effect]
    """Carried out in their order without the lock."""
    bury: Bury
    """Called without the lock."""

    def run(self, work: Callable[[], object]) -> None:
        """Run `work` under the lock, then carry out the effects."""

    def changed(self, entry: Entry) -> None:
        """Records may be available, or it cannot be used any more."""

    def settings(self, group: str) -> GroupShare:
        """The settings in effect for a group."""

    def first_offset(self, group: str, led: Led) -> int:
        """Where a group without state begins; called without the lock.  Raises: KafkalogError."""

    def now_ms(self) -> int:
        """The monotonic clock."""


class Entries:
    """The share partitions of which members read.  Only under the owner's lock.

    Calls of the persister are effects: the owner carries them out without its lock.
    """

    def __init__(self, persister: Persister, owner: Owner) -> None:
        """Nothing is known yet."""
        self._persister, self._owner = persister, owner
        self._all: dict[EntryKey, Entry] = {}
        self._groups: dict[str, dict[EntryKey, Entry]] = {}
        self.bytes = 0
        """Approximate memory of all."""

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._all.values()))

    def figures(self) -> dict[Place, PartitionFigures]:
        """Those of each share partition that is loaded."""
        return {
            Place(one.key.group, one.topic, one.key.where.partition): PartitionFigures(
                one.share.holds.offsets, len(one.share.holds), one.share.expired
            )
            for one in self._all.values()
            if one.share is not None
        }

    def get(self, key: EntryKey) -> Entry | None:
        """A share partition, if it is known."""
        return self._all.get(key)

    # ---- beginning -----------------------------------------------------------------------------

    def use(self, key: EntryKey, led: Led) -> Entry:
        """The share partition, which is loaded first if it is new, or led in another epoch."""
        entry = self._all.get(key)
        if entry is not None and entry.leader_epoch != led.leader_epoch:
            self.forget(entry, _moved())
            entry = None
        if entry is None:
            entry = self._all[key] = Entry(key, led)
            self._groups.setdefault(key.group, {})[key] = entry
            self.bytes += entry.bytes
            ask = ReadState(*key.where, led.leader_epoch)
            report = partial(self._report_read, entry, led)
            self._owner.effects.append(partial(self._persister.read, key.group, [ask], report))
        entry.idle = False
        return entry

    def _report_read(self, entry: Entry, led: Led, found: Sequence[StateRead]) -> None:
        """Without the lock, as the log may be read."""
        read, start = found[0], self._start(entry.key.group, led, found[0])
        self._owner.run(partial(self._loaded, entry, read, start))

    def _start(self, group: str, led: Led, found: StateRead) -> int | Refused:
        if found.error is not ErrorCode.NONE:
            return _refused(found.error, found.message)
        if found.start_offset != UNINITIALIZED_OFFSET:
            return found.start_offset
        try:
            return self._owner.first_offset(group, led)
        except (ValueError, KafkalogError) as problem:
            return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem))

    def _loaded(self, entry: Entry, found: StateRead, start: int | Refused) -> None:
        """The persister has read a share partition."""
        if self._all.get(entry.key) is not entry:
            return  # forgotten since
        if isinstance(start, Refused):
            self.forget(entry, start)
            return
        try:
            entry.share = SharePartition(start, found.state_batches)
        except ValueError as problem:
            self.forget(entry, Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem)))
            return
        entry.state_epoch = found.state_epoch
        self._bury(entry)
        self.recount(entry)
        self._owner.changed(entry)

    def forget(self, entry: Entry, refused: Refused) -> None:
        """This broker does not lead it any more, or cannot: those that wait are refused."""
        entry.refused = refused
        if self._all.get(entry.key) is entry:
            del self._all[entry.key]
            of_group = self._groups[entry.key.group]
            del of_group[entry.key]
            if not of_group:
                del self._groups[entry.key.group]
            self.bytes -= entry.bytes
        for waiting in entry.waiting.values():
            self._owner.effects += [partial(done, refused) for done in waiting]
        entry.waiting.clear()
        self._owner.changed(entry)

    def rest(self, group: str) -> None:
        """No member of a group has a session: forget its share partitions once all is written."""
        for entry in list(self._groups.get(group, {}).values()):
            entry.idle = True
            self.tidy(entry)

    def tidy(self, entry: Entry) -> None:
        """Forget it if nobody needs it any more."""
        share = entry.share
        quiet = share is None or (share.writing is None and not share.queued)
        busy = entry.reading or entry.letters or entry.waiting
        if entry.idle and not busy and quiet:
            self.forget(entry, _moved())

    # ---- writing -------------------------------------------------------------------------------

    def wait(self, entry: Entry, number: int, done: Done) -> None:
        """Call `done` once that write has ended; 0: now."""
        if number == 0:
            self._owner.effects.append(partial(done, None))
        else:
            entry.waiting.setdefault(number, []).append(done)

    def write(self, entry: Entry) -> None:
        """Write what is to be written, if no other write is in progress."""
        share = entry.share
        write = None if share is None else share.begin_write()
        if write is not None:
            self._owner.effects.append(partial(self._send, entry, write))
        self.recount(entry)

    def _send(self, entry: Entry, write: Write) -> None:
        state = WriteState(
            *entry.key.where, entry.state_epoch, entry.leader_epoch, write.start_offset,
            write.complete, write.rows,
        )  # fmt: skip

        def report(found: Sequence[StateChanged]) -> None:
            self._owner.run(partial(self._written, entry, found[0]))

        self._persister.write(entry.key.group, [state], report)

    def _written(self, entry: Entry, found: StateChanged) -> None:
        """A write has ended."""
        share = entry.share
        if share is None or share.writing is None:
            return
        number, limits = share.writing.number, self._owner.settings(entry.key.group).limits
        done = found.error is ErrorCode.NONE
        share.end_write(done=done, now_ms=self._owner.now_ms(), limits=limits)
        refused = None if done else _refused(found.error, found.message)
        self._owner.effects += [partial(one, refused) for one in entry.waiting.pop(number, ())]
        if self._all.get(entry.key) is not entry:
            return  # forgotten since
        if refused is not None and refused.code in _FENCED:
            self.forget(entry, refused)
            return
        self._bury(entry)
        self.write(entry)
        self._owner.changed(entry)
        self.tidy(entry)

    def _bury(self, entry: Entry) -> None:
        """Write the dead letters that are due."""
        group, where = entry.key
        limits = self._owner.settings(group).limits
        for letter in () if entry.share is None else entry.share.letters(limits):
            entry.letters += 1
            done = partial(self._owner.run, partial(self._buried, entry, letter))
            self._owner.effects.append(
                partial(self._owner.bury, group, entry.topic, where.partition, letter, done)
            )

    def _buried(self, entry: Entry, letter: Letter) -> None:
        """Dead letters were written, or cannot be."""
        if entry.share is None or self._all.get(entry.key) is not entry:
            return  # forgotten since: the next leader writes them again
        entry.letters -= 1
        entry.share.archived(letter)
        self.write(entry)
        self.tidy(entry)

    def recount(self, entry: Entry) -> None:
        """Its memory may have changed."""
        if entry.share is not None and self._all.get(entry.key) is entry:
            self.bytes += entry.share.bytes - entry.bytes
            entry.bytes = entry.share.bytes


def _refused(code: ErrorCode, message: str | None) -> Refused:
    found = _AGAIN.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
    return Refused(found, message or f"the state of the share partition: {code.name}")


def _moved() -> Refused:
    return Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader of the partition has changed")
