"""Logs open for reading, kept for the next use: reopening costs milliseconds, and after a writer's
crash it reads everything that was not flushed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..options import Key
from .identity import Inode, which

if TYPE_CHECKING:
    from kafkalog import Log

FILES_MAX = 2048
"""Approximate number of descriptors kept: a log has one for each segment."""
_SHARE = 4
"""The share of the process's descriptors."""


@dataclass
class _Held:
    log: Log
    which: tuple[Inode, Inode | None]
    """Another folder with its name, or another lock in it, means another log."""
    files: int
    users: int = 0
    dropped: bool = False


class Opened:
    """Logs by folder, the last used at the end.  One thread."""

    def __init__(self, files_max: int | None = None) -> None:
        """`files_max`: how many descriptors may stay open; None: what the process can spare."""
        self._files_max = _spare() if files_max is None else files_max
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._files = 0

    def __len__(self) -> int:
        return len(self._held)

    def held(self, folder: str) -> Log | None:
        """The open log of a folder, if the folder still has it.

        Raises: FileNotFoundError.
        """
        held = self._held.get(folder)
        if held is None:
            return None
        if which(folder) != held.which:
            self.forget(folder)
            return None
        self._held.move_to_end(folder)
        return held.log

    def get(self, folder: str, key: Key) -> Log:
        """The log in a folder; valid until the next call for another one.

        Raises: NotFound, FileNotFoundError; what opening a log does.
        """
        log = self.held(folder)
        if log is None:
            there = which(folder)
            log = self._open(folder, key)
            held = self._held[folder] = _Held(log, there, len(log.segments) + 1)
            self._files += held.files
            self._shrink(folder)
        return log

    @staticmethod
    def _open(folder: str, key: Key) -> Log:
        from kafkalog import Log

        return Log(folder, mode="r", topic=key[0], partition=key[1])

    @contextmanager
    def lent(self, folder: str, key: Key) -> Iterator[Log]:
        """The same, valid until the end of the block.  Raises: as `get`."""
        log = self.get(folder, key)
        held = self._held[folder]
        held.users += 1
        try:
            yield log
        finally:
            held.users -= 1
            if held.dropped and not held.users:
                log.close()

    def _shrink(self, newest: str) -> None:
        """Close the least recently used, until the rest is few enough."""
        if self._files <= self._files_max:
            return
        for folder, held in list(self._held.items()):
            if folder != newest and not held.users:
                self.forget(folder)
                if self._files <= self._files_max:
                    break

    def forget(self, folder: str) -> None:
        """Reopen it on its next use."""
        held = self._held.pop(folder, None)
        if held is None:
            return
        held.dropped = True
        self._files -= held.files
        if not held.users:
            held.log.close()

    def close(self) -> None:
        """Close all; a user that has borrowed one keeps it."""
        for folder in list(self._held):
            self.forget(folder)


def _spare() -> int:
    """How many descriptors may stay open."""
    try:
        import resource
    except ImportError:  # not of this system
        return FILES_MAX // _SHARE
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_MAX if limit == resource.RLIM_INFINITY else min(FILES_MAX, limit // _SHARE)
