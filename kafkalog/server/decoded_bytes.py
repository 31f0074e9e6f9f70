"""The memory of decoded requests that wait, for the journal, a disk or another node."""

import threading

__all__ = ["COUNTED_BYTES", "DECODED_BYTES_MAX", "DecodedBytes"]

DECODED_BYTES_MAX = 268_435_456
"""Beyond that, large requests are refused until others are answered.  Frames have a bound of their
own, queued.max.request.bytes; decoded, they may take a hundred times as much."""
COUNTED_BYTES = 65_536
"""Smaller requests are not counted, and never refused: a connection has one at a time."""


class DecodedBytes:
    """Counts requests from COUNTED_BYTES on.  Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0

    def add(self, count: int) -> bool:
        """Count a request; False if so much is kept that it must be refused."""
        with self._lock:
            if self._bytes >= DECODED_BYTES_MAX:
                return False
            self._bytes += count
            return True

    def remove(self, count: int) -> None:
        """A counted request has ended."""
        with self._lock:
            self._bytes -= count
