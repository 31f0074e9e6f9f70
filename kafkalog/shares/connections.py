"""The connections of members: which have ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from kafkalog.shares.news import SHARE

__all__ = ["Connections", "Ended"]


class Ended(NamedTuple):
    """Connections by their numbers."""

    gone: set[int]
    """They are closed."""
    silent: set[int]
    """They are open, but no more requests come on them."""


class Connections:
    """Asks the network for the ends of connections.  For one thread."""

    def __init__(
        self,
        connected: Callable[[Sequence[int]], Sequence[tuple[bool, bool]]],
        departures: Callable[[], int],
    ) -> None:
        """`connected`: which connections are open, and on which more requests may come;
        `departures`: how often that has changed, for any connection."""
        self._connected, self._departures = connected, departures
        self._seen = 0
        self._pause_until_s = 0.0

    def some_ended(self) -> bool:
        """True if any connection has ended since `ended` was called, which costs little to ask; but
        False for a while after that took long, however many end."""
        return self._departures() != self._seen and time.monotonic() >= self._pause_until_s

    def ended(self, numbers: Collection[int]) -> Ended:
        """Those of these connections that have ended.

        Raises: KafkalogError: the broker is being closed.
        """
        began_s = time.monotonic()
        self._seen = self._departures()  # before: what ends in the meantime is looked for again
        those = list(numbers)
        found = list(zip(those, self._connected(those), strict=True))
        end_s = time.monotonic()
        self._pause_until_s = end_s + (end_s - began_s) * (SHARE - 1)
        gone = {one for one, (is_open, _) in found if not is_open}
        return Ended(gone, {one for one, (_, speaks) in found if not speaks} - gone)
