"""Notifications in one folder of the tree: sequential znodes, each of which names what changed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.reading import watched_children
from kafkalog.zookeeper.session import Delete, Session

__all__ = [
    "OBSOLETE_MS", "PURGED_AT_ONCE", "Notifications", "Notified", "is_obsolete", "new_numbers",
    "numbered",
]  # fmt: skip

OBSOLETE_MS = 15 * 60 * 1000
"""The age at which Kafka's brokers delete a notification; one that was away for longer reads all
again."""
PURGED_AT_ONCE = 1000
"""Old notifications that are deleted after others were read."""
_NUMBER = re.compile(r"[0-9]{10}")


class Notified(NamedTuple):
    """A notification."""

    path: str
    data: bytes | None


def numbered(names: Iterable[str], prefix: str) -> dict[int, str]:
    """The notifications among the children of a folder, by their numbers, in order."""
    found = ((name.removeprefix(prefix), name) for name in names if name.startswith(prefix))
    return dict(sorted((int(end), name) for end, name in found if _NUMBER.fullmatch(end)))


def new_numbers(there: Collection[int], last: int) -> list[int] | None:
    """Those after `last` (-1: none was read before), in order; None: some may be missing, as they
    were deleted before they were read."""
    new = sorted(number for number in there if number > last)
    if not new:  # if the last one was deleted, newer ones may be, too
        return [] if last < 0 or last in there else None
    return new if new == [*range(last + 1, last + 1 + len(new))] else None


def is_obsolete(znode: Znode, now_ms: int) -> bool:
    """True if a notification is old enough to be deleted; `now_ms`: by the clock of ZooKeeper, such
    as the time at which the newest one was created."""
    return 0 < znode.created_ms < now_ms - OBSOLETE_MS


class Notifications:
    """Those of one folder that were not read yet.  One thread at a time."""

    def __init__(self, session: Session, folder: str, prefix: str) -> None:
        """`folder`: it may be missing until the first notification comes.  `prefix`: of the
        notifications' names; other children are ignored."""
        self._session, self._folder, self._prefix = session, folder, prefix
        self._last = -1
        self._newest_ms = 0  # by the clock of ZooKeeper

    def begin(self) -> None:
        """Watch the folder from now on; what it has counts as read.

        Raises: ZooKeeperAway, BadZnode: it may not be listed.
        """
        self._last = max(self._there(), default=-1)

    def look(self) -> list[Notified] | None:
        """Those that came since the last look; None: some of them are missing.  Deletes obsolete
        ones, if others came.

        Raises: ZooKeeperAway, BadZnode: it may not be listed.
        """
        there = self._there()
        new = new_numbers(there, self._last)
        if not new:
            return None if new is None else []
        paths = [self._path(there[number]) for number in new]
        znodes = self._session.look([(path, False, False) for path in paths])
        found = [(path, znode) for path, znode in zip(paths, znodes, strict=True)
                 if isinstance(znode, Znode)]  # fmt: skip
        self._newest_ms = max([self._newest_ms, *(znode.created_ms for _, znode in found)])
        self._purge([name for number, name in there.items() if number < new[0]])
        self._last = new[-1]
        whole = len(found) == len(new)
        return [Notified(path, znode.data) for path, znode in found] if whole else None

    def _there(self) -> dict[int, str]:
        return numbered(watched_children(self._session, self._folder), self._prefix)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _purge(self, names: Sequence[str]) -> None:
        """Delete those of these, the oldest first, that are obsolete."""
        for path in map(self._path, names[:PURGED_AT_ONCE]):
            znode = self._session.read(path)
            if znode is None:
                continue  # another broker was quicker
            if not is_obsolete(znode, self._newest_ms):
                break
            self._session.commit([Delete(path)])
