"""Requests whose answers have many rows, a slice at a time: the requests of others are served
between two slices, however many groups or transactional ids there are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from kafkalog.coordinator.step import Body, Call, Step
from kafkalog.logs.limit import limited
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import Rows

__all__ = [
    "FEW", "LISTINGS_BYTES_MAX", "LISTINGS_MAX", "SLICE", "Begin", "Listing", "Listings", "Shelf",
    "each_of",
]  # fmt: skip

LOG = limited(__name__)

FEW = 100
"""A request that names no more things than this begins at once."""
SLICE = 20_000
"""Work between two looks at other requests, about 10 ms."""
LISTINGS_MAX = 100
LISTINGS_BYTES_MAX = 16 << 20
"""Requests that wait for their turn, and what they may take with their rows so far: once they do,
later ones are to be retried."""


class Shelf(Protocol):
    """A loaded partition of the journal."""

    closed: bool

    def live(self) -> Iterator[Any]:
        """The items that are not being deleted."""


class Listing:
    """One request, under way."""

    def __init__(self, request: Call, things: Iterable[Any], field: str | None) -> None:
        """`things`: those to look at; `field`: the list of the answer that has their rows, None if
        it has no such list."""
        self.request = request
        self.found: Any = [] if field is None else request.rows(field)
        self.work = 0
        """Work so far, in units of about half a microsecond; `row` counts it."""
        self._left = iter(things)

    @abstractmethod
    def row(self, one: Any, step: Step) -> Body | None:
        """The row of a thing in the answer; None if it is not wanted, or gone by now."""

    @abstractmethod
    def answer(self, step: Step, code: ErrorCode) -> None:
        """Answer with what was found.  `code`: NONE if that is all that there is."""

    @property
    def found_bytes(self) -> int:
        """The bytes of the rows found so far, once encoded."""
        return len(self.found.data) if isinstance(self.found, Rows) else 0

    def go_on(self, step: Step) -> bool:
        """Look at a slice of what is left; True if that was all."""
        end = self.work + SLICE
        rows = []
        for one in self._left:
            row = self.row(one, step)
            if row is not None:
                rows.append(row)
            if self.work >= end:
                self.found += rows
                return False
        self.found += rows
        return True


def each_of(shards: Collection[Shelf]) -> Iterator[Any]:
    """The items of the partitions that are open now and still are when it is their turn."""
    return _items(list(shards))


def _items(shards: list[Shelf]) -> Iterator[Any]:
    for shard in shards:
        for one in list(shard.live()):
            if shard.closed:
                break
            yield one


Begin = Callable[[Call], Listing]
Refuse = Callable[[Call, Step], None]


class _Waiting(NamedTuple):
    request: Call
    begin: Begin
    refuse: Refuse
    begun: Listing | None
    size: int


class Listings:
    """The requests under way, one after the other."""

    def __init__(self) -> None:
        self._first: tuple[Listing, Refuse] | None = None
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0

    @property
    def busy(self) -> bool:
        """True if a request is under way."""
        return self._first is not None or bool(self._waiting)

    def add(
        self, request: Call, begin: Begin, refuse: Refuse, begun: Listing | None = None
    ) -> bool:
        """Let a request wait for `go_on`; False if too many wait.

        `begin`: begins it in its turn, unless it has `begun`; `refuse`: answers it if it fails.
        """
        if len(self._waiting) >= LISTINGS_MAX or self._waiting_bytes >= LISTINGS_BYTES_MAX:
            return False
        size = request.size + (0 if begun is None else begun.found_bytes)
        self._waiting.append(_Waiting(request, begin, refuse, begun, size))
        self._waiting_bytes += size
        return True

    def go_on(self, code: ErrorCode, step: Step) -> None:
        """Do a slice of the first request, and answer it if that was the last.

        `code`: see Listing.answer.
        """
        if self._first is None:
            request, begin, refuse, begun, size = self._waiting.popleft()
            self._waiting_bytes -= size
            self._first = begun or begin(request), refuse
        first, self._first = self._first, None
        listing, refuse = first
        try:
            if listing.go_on(step):
                listing.answer(step, code)
            else:
                self._first = first
        except Exception:
            LOG.exception("an error of the coordinator")
            refuse(listing.request, step)
