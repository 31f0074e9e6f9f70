"""Share sessions: the partitions that a member reads from this broker, kept between its requests.

Pure.  A member has one session; its epoch counts the requests.  Epoch 0 begins a session, -1 ends
it.

Source: KIP-932, and the behaviour of Apache Kafka 4.4's share sessions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from kafkalog.shares.partition import Refused
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "FINAL", "INITIAL", "Key", "NoRoom", "Room", "Session", "Sessions", "Where", "next_epoch",
]  # fmt: skip

INITIAL, FINAL = 0, -1
"""The epochs that begin and end a session."""
EPOCH_MAX = 2**31 - 1
SESSION_BYTES, WHERE_BYTES = 1_500, 250
"""Memory of a session besides its strings, and of each of its partitions."""


class Where(NamedTuple):
    """A partition, by the id of its topic."""

    topic_id: UUID
    partition: int


class Key(NamedTuple):
    """A member of a group."""

    group: str
    member: str


class Room(NamedTuple):
    """The sessions and the memory that a request would take."""

    sessions: int
    bytes: int


class NoRoom(Refused):
    """There is no room for a session, or for more partitions of one."""

    def __init__(self, message: str, needs: Room) -> None:
        super().__init__(ErrorCode.SHARE_SESSION_LIMIT_REACHED, message)
        self.needs = needs


class Session:
    """The session of a member."""

    def __init__(self, key: Key, connection: int) -> None:
        """`connection`: its number; the session ends with it."""
        self.key = key
        self.connection = connection
        self.epoch = next_epoch(INITIAL)
        """That of the next request."""
        self.partitions: dict[Where, bool] = {}
        """In the order of the answer; True: the next answer has it, whatever is in it."""
        self.acquired: set[Where] = set()
        """Those of which its member may hold records; changed by `Sessions` only."""

    @property
    def bytes(self) -> int:
        """Approximate memory."""
        group, member = self.key
        texts = 4 * (len(group) + len(member))
        return SESSION_BYTES + texts + WHERE_BYTES * (len(self.partitions) + len(self.acquired))

    def in_turn(self) -> list[Where]:
        """Its partitions, a different one first with each request."""
        found = list(self.partitions)
        at = self.epoch % len(found) if found else 0
        return found[at:] + found[:at]


class Sessions:
    """The sessions of a broker.  One thread at a time."""

    def __init__(self, sessions_max: int, bytes_max: int) -> None:
        """At most so many, and approximately so much memory."""
        self.sessions_max, self.bytes_max = sessions_max, bytes_max
        self.bytes = 0
        """Approximate memory of all."""
        self.partitions = 0
        """Those of all sessions."""
        self._all: dict[Key, Session] = {}
        self._by_connection: dict[int, set[Key]] = {}
        self._groups: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._all)

    def get(self, key: Key) -> Session | None:
        """The session of a member."""
        return self._all.get(key)

    def has_group(self, group: str) -> bool:
        """True if a member of the group has a session."""
        return group in self._groups

    def has_room(self, needs: Room) -> bool:
        """True if there is so much room."""
        if needs.sessions and len(self._all) + needs.sessions > self.sessions_max:
            return False
        return self.bytes + needs.bytes <= self.bytes_max

    def connections(self) -> list[int]:
        """The connections that have sessions."""
        return list(self._by_connection)

    def fetch(
        self, key: Key, epoch: int, wanted: Iterable[Where], forgotten: Iterable[Where],
        connection: int, *, acknowledges: bool,
    ) -> Session | None:  # fmt: skip
        """The session of a ShareFetch, with the partitions that it adds and without those that it
        forgets; None: it ends the session, see `remove`.

        Raises: Refused.
        """
        if epoch == FINAL:
            self._known(key)
            return None
        if epoch == INITIAL:
            if acknowledges:
                why = "a request that begins a share session acknowledges nothing"
                raise Refused(ErrorCode.INVALID_REQUEST, why)
            before_it = self.remove(key)
            session = Session(key, connection)
            session.acquired = set() if before_it is None else before_it.acquired
            session.partitions = dict.fromkeys(wanted, False)
            self._admit(session)
            return session
        session = self._in_epoch(key, epoch)
        before, count = session.bytes, len(session.partitions)
        partitions = {one: True for one in wanted if one not in session.partitions}
        self._check(Room(0, WHERE_BYTES * len(partitions)))
        session.partitions.update(partitions)
        for one in forgotten:
            session.partitions.pop(one, None)
        self.bytes += session.bytes - before
        self.partitions += len(session.partitions) - count
        session.epoch = next_epoch(epoch)
        return session

    def acknowledge(self, key: Key, epoch: int) -> Session:
        """The session of a ShareAcknowledge; with the final epoch, it is to be removed.

        Raises: Refused.
        """
        if epoch == INITIAL:
            why = "share session epoch: found 0, which ShareFetch begins a session with"
            raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, why)
        if epoch == FINAL:
            return self._known(key)
        session = self._in_epoch(key, epoch)
        session.epoch = next_epoch(epoch)
        return session

    def acquired(self, key: Key, where: Where) -> None:
        """A member has acquired records of a partition."""
        session = self._all.get(key)
        if session is not None and where not in session.acquired:
            session.acquired.add(where)
            self.bytes += WHERE_BYTES

    def remove(self, key: Key) -> Session | None:
        """Forget a session, and return it; None: there was none."""
        session = self._all.pop(key, None)
        if session is not None:
            self.bytes -= session.bytes
            self.partitions -= len(session.partitions)
            self._groups[key.group] -= 1
            if not self._groups[key.group]:
                del self._groups[key.group]
            keys = self._by_connection[session.connection]
            keys.discard(key)
            if not keys:
                del self._by_connection[session.connection]
        return session

    def closed(self, connection: int) -> list[Session]:
        """A connection was closed: forget its sessions, and return them."""
        keys = list(self._by_connection.get(connection, ()))
        return [one for one in map(self.remove, keys) if one is not None]

    # ---- rules -------------------------------------------------------------------------------

    def _known(self, key: Key) -> Session:
        session = self._all.get(key)
        if session is None:
            why = f"no share session of member {key.member} in group {key.group}"
            raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND, why)
        return session

    def _in_epoch(self, key: Key, epoch: int) -> Session:
        session = self._known(key)
        if session.epoch != epoch:
            why = f"share session epoch: found {epoch}, wanted {session.epoch}"
            raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, why)
        return session

    def _admit(self, session: Session) -> None:
        self._check(Room(1, session.bytes))
        self._all[session.key] = session
        self._groups[session.key.group] += 1
        self._by_connection.setdefault(session.connection, set()).add(session.key)
        self.bytes += session.bytes
        self.partitions += len(session.partitions)

    def _check(self, needs: Room) -> None:
        if not self.has_room(needs):
            why = (f"share sessions: found {len(self._all)} with about {self.bytes} bytes, wanted "
                   f"at most {self.sessions_max} with {self.bytes_max} bytes")  # fmt: skip
            raise NoRoom(why, needs)


def next_epoch(epoch: int) -> int:
    """The epoch of the request after this one."""
    return 1 if epoch >= EPOCH_MAX else epoch + 1
