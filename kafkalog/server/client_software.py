"""The software of the clients of open connections, as ApiVersions names it (KIP-511)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

__all__ = ["TEXT_CHARACTERS", "UNKNOWN", "ClientSoftware"]

SOFTWARE_MAX = 16_384
"""Connections whose software is remembered."""
SWEEP_MIN = 1_024
"""With fewer, nobody looks for those that are closed."""
TEXT_CHARACTERS = 250
"""Longer client ids and names of software are cut."""
UNKNOWN = "unknown"
"""Kafka's word for the software of a client that has not named it."""

Names = tuple[str, str]
"""Name and version."""


class ClientSoftware:
    """Names by connection.  Safe to use from many threads.

    A client names its software before it has authenticated.  So what is kept has a bound, names of
    closed connections go first, and then those of which nothing else was heard yet: connections
    that never authenticate cannot displace those of others.
    """

    def __init__(self, connected: Callable[[Sequence[int]], list[tuple[bool, bool]]]) -> None:
        """`connected`: as Reactor.connected."""
        self._connected = connected
        self._lock = threading.Lock()  # guards what follows
        self._new: dict[int, Names] = {}
        self._used: dict[int, Names] = {}
        self._sweep_at = min(SWEEP_MIN, SOFTWARE_MAX)

    def note(self, connection: int, name: str, version: str) -> None:
        """A client has named its software."""
        names = name[:TEXT_CHARACTERS], version[:TEXT_CHARACTERS]
        with self._lock:
            if connection in self._used:
                self._used[connection] = names
                return
            self._new[connection] = names
            if len(self._new) + len(self._used) > self._sweep_at:
                self._sweep()

    def of(self, connection: int) -> Names:
        """The software of a client that may send requests: its connection has authenticated."""
        with self._lock:
            names = self._new.pop(connection, None)
            if names is not None:
                self._used[connection] = names
            return self._used.get(connection, (UNKNOWN, UNKNOWN))

    def _sweep(self) -> None:
        """Forget closed connections, and more if most of the room is taken all the same, so that
        the next sweep comes only after many more connections."""
        for some in (self._new, self._used):
            numbers = list(some)
            for number, (is_open, _) in zip(numbers, self._connected(numbers), strict=True):
                if not is_open:
                    del some[number]
        for some in (self._new, self._used):
            while some and len(self._new) + len(self._used) > SOFTWARE_MAX * 3 // 4:
                del some[next(iter(some))]
        count = len(self._new) + len(self._used)
        self._sweep_at = min(max(2 * count, SWEEP_MIN), SOFTWARE_MAX)
