"""Notifications in one folder of the tree: sequential znodes, each of which names what changed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.reading import watched_children
from kafkalog.zookeeper.session import Delete, Session

__all__ = ["OBSOLETE_MS", "Notifications", "Notified", "is_obsolete", "new_names"]

OBSOLETE_MS = 15 * 60 * 1000
"""The age at which Kafka's brokers delete a notification; one that was away for longer reads all
again."""
PURGED_AT_ONCE = 1000
_NUMBERED = re.compile(r".*[^0-9]([0-9]{10})")


class Notified(NamedTuple):
    """A notification."""

    path: str
    data: bytes | None


def new_names(names: Sequence[str], last: str) -> list[str] | None:
    """The notifications after `last` (empty: it is not known), in order; None: some are missing,
    as they were deleted before they were read."""
    numbers = {name: int(match[1]) for name in names if (match := _NUMBERED.fullmatch(name))}
    new = sorted((name for name in numbers if name > last), key=numbers.__getitem__)
    if not new:
        return []
    match = _NUMBERED.fullmatch(last)
    first = int(match[1]) + 1 if match else numbers[new[0]]
    return new if [numbers[name] for name in new] == [*range(first, first + len(new))] else None


def is_obsolete(znode: Znode, now_ms: int) -> bool:
    """True if a notification is old enough to be deleted."""
    return 0 < znode.created_ms < now_ms - OBSOLETE_MS


class Notifications:
    """Those of one folder that were not read yet.  One thread at a time."""

    def __init__(self, session: Session, folder: str) -> None:
        """`folder`: it may be missing until the first notification comes."""
        self._session, self._folder = session, folder
        self._last = ""

    def begin(self) -> None:
        """Watch the folder from now on; what it has counts as read.

        Raises: ZooKeeperAway, BadZnode: it may not be listed.
        """
        self._last = max(watched_children(self._session, self._folder), default="")

    def look(self, now_ms: int) -> list[Notified] | None:
        """Those that came since the last look; None: some of them are missing.  Deletes obsolete
        ones, if others came.

        Raises: ZooKeeperAway, BadZnode: it may not be listed.
        """
        names = watched_children(self._session, self._folder)
        new = new_names(names, self._last)
        if new == []:
            return []
        self._purge(names, now_ms)
        if new is None:
            return None
        paths = [f"{self._folder}/{name}" for name in new]
        znodes = self._session.look([(path, False, False) for path in paths])
        self._last = new[-1]
        found = [Notified(path, znode.data) for path, znode in zip(paths, znodes, strict=True)
                 if isinstance(znode, Znode)]  # fmt: skip
        return found if len(found) == len(new) else None

    def _purge(self, names: Sequence[str], now_ms: int) -> None:
        for name in sorted(names)[:PURGED_AT_ONCE]:
            path = f"{self._folder}/{name}"
            znode = self._session.read(path)
            if znode is None:
                continue  # another broker was quicker
            if not is_obsolete(znode, now_ms):
                break
            self._session.commit([Delete(path)])
