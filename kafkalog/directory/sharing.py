"""One owner per directory in a process, shared by all its users."""

import os
import threading
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

__all__ = ["Shared"]

T = TypeVar("T")

TURNS = 64
"""How many directories may open and close at the same time in a process; more wait briefly."""


def _identity(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class Shared(Generic[T]):
    """Owners by device and inode of their directories, and how many users each has."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._owners: dict[tuple[int, int], tuple[T, int]] = {}
        self._turns = [threading.RLock() for _ in range(TURNS)]
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._owners = {}
        self._turns = [threading.RLock() for _ in range(TURNS)]

    def turn(self, path: str | os.PathLike[str]) -> AbstractContextManager[object]:
        """Held while the owner of a directory is found or created, or released and closed.

        Otherwise one thread would find the directory locked while another opens or closes it.
        Re-entrant: a signal handler may run inside.  Never taken while another lock is held.
        """
        return self._turns[hash(_identity(path)) % TURNS]

    def put(self, path: str, owner: T) -> None:
        """Make `owner` findable; it is its own first user."""
        if (key := _identity(path)) is not None:
            with self._lock:
                self._owners[key] = (owner, 1)

    def take(self, path: str | os.PathLike[str]) -> T | None:
        """The owner of a directory, with one more user; None if there is none here."""
        key = _identity(path)
        with self._lock:
            if key is None or key not in self._owners:
                return None
            owner, users = self._owners[key]
            self._owners[key] = (owner, users + 1)
            return owner

    def give_back(self, owner: T) -> bool:
        """Remove a user; returns whether it was the last one."""
        with self._lock:
            for key, (one, users) in self._owners.items():
                if one is owner:
                    self._owners[key] = (one, users - 1)
                    return users == 1
        return False

    def forget(self, owner: T) -> None:
        """Make the owner unfindable."""
        with self._lock:
            self._owners = {key: one for key, one in self._owners.items() if one[0] is not owner}
