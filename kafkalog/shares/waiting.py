"""Requests of members that wait: for records, and for what they acknowledge to be written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from kafkalog.shares.requests import Acked, Answer, Found

if TYPE_CHECKING:
    from kafkalog.shares.entries import Done, Entry, EntryKey
    from kafkalog.shares.partition import Refused
    from kafkalog.shares.requests import Ask, Find
    from kafkalog.shares.sessions import Room, Session, Sessions, Where

__all__ = ["Acking", "Fetching", "Waits"]

NOTHING = Found(None)


class Acking:
    """The outcomes of acknowledgements, which come one by one, from any thread."""

    def __init__(self, wheres: Iterable[Where], done: Callable[[Acked], None]) -> None:
        """`done` is called once all of these have an outcome."""
        self._lock = threading.Lock()
        self._found: dict[Where, Refused | None] = dict.fromkeys(wheres)
        self._left = len(self._found)
        self._done = done

    def outcome(self, where: Where) -> Done:
        """The function to call with the outcome for a partition."""
        return partial(self.put, where)

    def put(self, where: Where, refused: Refused | None) -> None:
        """The outcome for a partition is known; once for each."""
        with self._lock:
            self._left -= 1
            self._found[where] = refused
            over = not self._left
        if over:
            self._done(self._found)


class Fetching:
    """A ShareFetch that is not answered yet.  Guarded by the lock of the share partitions."""

    def __init__(
        self, number: int, ask: Ask, find: Find, deadline_ms: int,
        answer: Callable[[Answer], None],
    ) -> None:  # fmt: skip
        """Without a session."""
        self.number, self.ask, self.find = number, ask, find
        self.deadline_ms = deadline_ms
        self.answer = answer
        self.why: Refused | None = None
        """Why the whole request is refused, unless there is room for its session before it is
        over."""
        self.session: Session | None = None
        self.lock_ms = 0
        self.wheres: list[Where] = []
        """The partitions to read, in their turn."""
        self.entries: set[EntryKey] = set()
        """The share partitions for whose changes it waits."""
        self.refused: dict[Where, Refused] = {}
        """Partitions that cannot be read."""
        self.trying = False
        """True: a thread tries to acquire records for it."""
        self.again = False
        """True: something has changed since that thread began."""
        self.forced = False
        """True: its time is over."""
        self.acquires = False
        """True: it could have acquired records, if there were some."""
        self.over = False
        """True: it waits for no more records."""
        self.acked: Acked | None = {} if ask.acks is None else None
        """None: what it acknowledges is not final yet."""
        self.found: dict[Where, Found] = {}

    def begin(self, session: Session | None, lock_ms: int) -> None:
        """It is not refused; `session`: None if it ends its session."""
        self.why, self.session, self.lock_ms = None, session, lock_ms
        self.wheres = [] if session is None else session.in_turn()

    @property
    def left(self) -> list[Where]:
        """The partitions that can be read."""
        if not self.refused:
            return self.wheres
        return [where for where in self.wheres if where not in self.refused]

    def outcome(self) -> Answer | None:
        """The answer; None: it waits for records, or what it acknowledges is not final yet."""
        if not self.over or (self.acked is None and self.why is None):
            return None
        if self.why is not None or self.acked is None:
            return Answer(self.why, {}, {}, 0)
        return Answer(None, self.acked, self._shown(), self.lock_ms)

    def _shown(self) -> dict[Where, Found]:
        """The partitions of the answer: in a session only those with news."""
        session, found = self.session, {}
        if session is None:
            return {}
        first = self.ask.epoch == 0
        for where in self.wheres:
            refused = self.refused.get(where) if self.refused else None
            one = Found(refused) if refused else self.found.get(where, NOTHING)
            asked = session.partitions.get(where)  # None: it has forgotten it since
            if first or asked or one.acquired or refused is not None:
                found[where] = one
            if asked is not None and asked is not (refused is not None):
                session.partitions[where] = refused is not None
        return found


class Waits:
    """The fetches that are not answered yet, and which of them try next.  Guarded by the lock of
    the share partitions."""

    def __init__(self) -> None:
        """None waits."""
        self.all: dict[int, Fetching] = {}
        self.ready: dict[int, None] = {}
        """Those that try again, in order."""
        self.without_room: dict[int, Room] = {}
        """Those that are to be refused as there is no room for their sessions: what each needs."""
        self._by_entry: dict[EntryKey, set[int]] = {}

    def remove(self, number: int) -> None:
        """A fetch is answered."""
        del self.all[number]
        self.without_room.pop(number, None)

    def room(self, sessions: Sessions) -> None:
        """A session has ended, or one that tried because of that is through: the first one that
        found no room, and would find some, tries again."""
        for number, needs in self.without_room.items():
            if number not in self.ready and sessions.has_room(needs):
                self.ready[number] = None
                return

    def add(self, fetch: Fetching, key: EntryKey) -> None:
        """A fetch waits for changes of a share partition."""
        fetch.entries.add(key)
        self._by_entry.setdefault(key, set()).add(fetch.number)

    def leave(self, fetch: Fetching, key: EntryKey) -> bool:
        """A fetch waits no more for a share partition; True if no other one does."""
        numbers = self._by_entry[key]
        numbers.discard(fetch.number)
        if not numbers:
            del self._by_entry[key]
        return not numbers

    def changed(self, entry: Entry) -> None:
        """Those that wait for a share partition try again: while another one reads, each would
        only find that."""
        waiting = self._by_entry.get(entry.key, ())
        if entry.refused is not None:
            for number in waiting:
                self.all[number].refused[entry.key.where] = entry.refused
        elif entry.reading:
            entry.blocked.update(dict.fromkeys(waiting))
            return
        self.ready.update(dict.fromkeys(waiting))

    def pass_on(self, entry: Entry) -> None:
        """Unless one reads, let the next one read that found another one reading.  Each that tries
        and does not read passes this on, and so does each that ends."""
        while entry.blocked and not entry.reading:
            number = next(iter(entry.blocked))
            del entry.blocked[number]
            fetch = self.all.get(number)
            if fetch is not None and not fetch.over:
                self.ready[number] = None
                return

    def next(self) -> Fetching | None:
        """The next one that tries again; None: there is none."""
        while self.ready:
            number = next(iter(self.ready))
            del self.ready[number]
            if (fetch := self.all.get(number)) is not None:
                return fetch
        return None
