"""The metadata for a broker in the same process as a replica: changes instead of fetches."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkalog.errors import Closed, Timeout
from kafkalog.metadata.differences import difference

if TYPE_CHECKING:
    from kafkalog.client.link.transport import Address
    from kafkalog.metadata.image import Change, MetadataImage

__all__ = ["Followed", "SeenLeader"]

WAITING_MAX = 1_000
"""Changes that may wait for the broker; more become one."""
PAUSE_S = 0.02


class SeenLeader(NamedTuple):
    """The quorum, as the replica knows it."""

    epoch: int
    leader: int
    """-1: not known."""
    address: Address | None


class _Replica(Protocol):
    @property
    def broken(self) -> Exception | None: ...
    @property
    def caught_up(self) -> bool: ...
    @property
    def ends(self) -> bool: ...
    @property
    def epoch(self) -> int: ...
    @property
    def problem(self) -> Exception | None: ...
    @property
    def unanswered(self) -> str: ...
    def seen(self) -> tuple[int, Address | None]: ...


class _Source(Protocol):
    def listen(self, changed: Callable[[Change], None]) -> MetadataImage: ...
    def deafen(self, changed: Callable[[Change], None]) -> None: ...


class Followed:
    """A replica's metadata as one broker follows them.  `run` is for one thread."""

    def __init__(
        self, replica: _Replica, source: _Source, lock: threading.RLock | None
    ) -> None:  # fmt: skip
        """`lock` is held while a change is handed over."""
        self._replica, self._source = replica, source
        self._lock = lock or threading.RLock()
        self._news = threading.Condition()  # guards what follows
        self._waiting: deque[Change] = deque()
        self._ended = False
        self.image: MetadataImage = source.listen(self._changed)
        """The metadata that the broker has."""

    @property
    def seen(self) -> SeenLeader:
        """The quorum's leader."""
        return SeenLeader(self._replica.epoch, *self._replica.seen())

    def look(self) -> None:
        """The replica may have ended, or be broken."""
        with self._news:
            self._news.notify()

    def _changed(self, change: Change) -> None:
        with self._news:
            self._waiting.append(change)
            if len(self._waiting) > WAITING_MAX:
                whole = difference(self._waiting[0].old, change.new)
                self._waiting = deque([whole])
            self._news.notify()

    def catch_up(self, at_most_s: float, ends: threading.Event) -> None:
        """Wait until the metadata have all that the quorum's present leader has committed.

        Raises: Timeout; Closed: `ends` was set; ArgumentError, CorruptLog: this cluster cannot be
        followed.
        """
        end_s = time.monotonic() + at_most_s
        while not self._replica.caught_up:
            if ends.is_set():
                raise Closed("the metadata are not there, and the process ends")
            if (broken := self._replica.broken) is not None:
                raise broken
            if time.monotonic() >= end_s or self._replica.ends:
                why = self._lacking()
                raise Timeout(f"the metadata are not there after {at_most_s:g} s: {why}")
            with self._news:
                self._news.wait(PAUSE_S)
        with self._lock, self._news:
            self._waiting, left = deque(), self._waiting
            if left:
                self.image = left[-1].new

    def _lacking(self) -> str:
        """Why the metadata are not there."""
        if self._replica.problem is not None:
            return str(self._replica.problem)
        leader, address = self._replica.seen()
        why = "no leader of the quorum is known"
        if address is not None:
            why = f"node {leader} at {address} leads the quorum, and its metadata have not come"
        return "; ".join(filter(None, (why, self._replica.unanswered)))

    def run(self, changed: Callable[[Change], None]) -> None:
        """Hand over each change, with the lock held, until `close`.

        Raises: Closed: the replica has ended; ArgumentError, CorruptLog: this cluster cannot be
        followed any more.
        """
        while True:
            with self._news:
                while not self._waiting and not self._ended:
                    if self._replica.ends:
                        raise Closed("this node's replica of the metadata log has ended")
                    if (broken := self._replica.broken) is not None:
                        raise broken
                    self._news.wait()
                if self._ended:
                    return
                change = self._waiting.popleft()
            with self._lock:
                self.image = change.new
                changed(change)

    def close(self) -> None:
        """Follow no more."""
        with self._news:
            if self._ended:
                return
            self._ended = True
            self._news.notify_all()
        self._source.deafen(self._changed)
