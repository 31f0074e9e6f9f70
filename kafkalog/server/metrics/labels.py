"""Limits the number of series: which topics, partitions and groups have their own labels."""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable
from typing import Any, Generic, TypeVar

__all__ = ["Labels"]

K = TypeVar("K", bound=Hashable)


class Labels(Generic[K]):
    """The first names that came have labels of their own for as long as they exist; later ones, at
    the same time in their order, have none, also once there would be room: a sum that lost one
    of its parts would look like a restart.  Safe to use from many threads."""

    def __init__(self, most: int) -> None:
        """`most`: so many have a label of their own."""
        self._most = most
        self._lock = threading.Lock()  # guards what follows
        self._shown: set[K] = set()
        self._others: set[K] = set()

    def shown(self, names: Collection[Any]) -> set[K]:
        """Those of `names`, which are all that exist, with a label of their own."""
        with self._lock:
            there = set(names)
            self._shown &= there
            self._others &= there
            for name in sorted(there - self._shown - self._others):
                (self._shown if len(self._shown) < self._most else self._others).add(name)
            return set(self._shown)
