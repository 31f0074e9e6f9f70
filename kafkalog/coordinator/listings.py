"""ListGroups and ListTransactions, a slice at a time: the requests of others are served between two
slices, however many groups or transactional ids there are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from kafkalog.coordinator.step import Body, Call, Step
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["LISTINGS_BYTES_MAX", "LISTINGS_MAX", "SLICE", "Begin", "Listing", "Listings", "Shelf"]

SLICE = 20_000
"""Work between two looks at other requests, about 10 ms."""
LISTINGS_MAX = 100
LISTINGS_BYTES_MAX = 16 << 20
"""Requests that have not begun, and what they may take: once they do, later ones are to be
retried."""


class Shelf(Protocol):
    """A loaded partition of the journal."""

    closed: bool

    def live(self) -> Iterator[Any]:
        """The items that are not being deleted."""


class Listing:
    """One request, under way."""

    def __init__(self, request: Call, shards: Iterable[Shelf]) -> None:
        self.request = request
        self.found: list[Body] = []
        self.work = 0
        """Work so far, in units of about half a microsecond; `row` counts it."""
        self._left = _each(list(shards))

    @abstractmethod
    def row(self, one: Any, step: Step) -> Body | None:
        """The row of an item in the answer; None if it is not wanted, or gone by now."""

    @abstractmethod
    def answer(self, step: Step, code: ErrorCode) -> None:
        """Answer with what was found.  `code`: NONE if that is all that there is."""

    def go_on(self, step: Step) -> bool:
        """Look at a slice of what is left; True if that was all."""
        end = self.work + SLICE
        for one in self._left:
            row = self.row(one, step)
            if row is not None:
                self.found.append(row)
            if self.work >= end:
                return False
        return True


def _each(shards: list[Shelf]) -> Iterator[Any]:
    """The items of the partitions that are still open."""
    for shard in shards:
        for one in list(shard.live()):
            if shard.closed:
                break
            yield one


Begin = Callable[[Call, Iterable[Any]], Listing]


class Listings:
    """The requests under way: only the first one remembers items."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._first: Listing | None = None
        self._waiting: deque[Call] = deque()
        self._waiting_bytes = 0

    @property
    def busy(self) -> bool:
        """True if a request is under way."""
        return self._first is not None or bool(self._waiting)

    def add(self, request: Call) -> bool:
        """Let a request wait for `go_on`; False if too many wait."""
        if len(self._waiting) >= LISTINGS_MAX or self._waiting_bytes >= LISTINGS_BYTES_MAX:
            return False
        self._waiting.append(request)
        self._waiting_bytes += request.size
        return True

    def go_on(self, shards: Iterable[Shelf], code: ErrorCode, step: Step) -> None:
        """Do a slice of the first request, and answer it if that was the last.

        `shards`: those of a request that begins; `code`: see Listing.answer.
        """
        if self._first is None:
            request = self._waiting.popleft()
            self._waiting_bytes -= request.size
            self._first = self._begin(request, shards)
        if self._first.go_on(step):
            self._first.answer(step, code)
            self._first = None
