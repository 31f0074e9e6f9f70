"""Timers as data: what to call, and when."""

from heapq import heappop, heappush

__all__ = ["Key", "Timers"]

Key = tuple[str, int, str, str]
"""Kind, partition, group, member: what a timer is for; setting it again moves it."""


class Timers:
    """Keys and their times, ms of the monotonic clock.  One thread only.

    A timer that moves to a later time, as a session does with each heartbeat, costs no
    more than a dict's assignment: its place in the heap is corrected when it comes up.
    """

    def __init__(self) -> None:
        self._at: dict[Key, int] = {}
        self._queued: dict[Key, int] = {}  # the earliest time at which the heap holds the key
        self._heap: list[tuple[int, Key]] = []

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, key: Key) -> bool:
        return key in self._at

    def set(self, key: Key, at_ms: int) -> None:
        """Let the key come up at `at_ms`, and not at the time set before."""
        self._at[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._queued[key] = at_ms
            heappush(self._heap, (at_ms, key))

    def cancel(self, key: Key) -> None:
        """Forget the key, if it is there."""
        self._at.pop(key, None)

    def next_ms(self) -> int | None:
        """When the first timer is due; None without any.  May be early, never late."""
        while self._heap:
            at_ms, key = self._heap[0]
            if self._at.get(key) == at_ms and self._queued.get(key) == at_ms:
                return at_ms
            self._correct()
        return None

    def due(self, now_ms: int) -> Key | None:
        """Take out the first key whose time has come; None when there is none."""
        at_ms = self.next_ms()
        if at_ms is None or at_ms > now_ms:
            return None
        _, key = heappop(self._heap)
        del self._queued[key], self._at[key]
        return key

    def _correct(self) -> None:
        """Put the heap's first entry where it belongs, or drop it."""
        queued_ms, key = heappop(self._heap)
        if self._queued.get(key) != queued_ms:
            return  # an earlier entry was put in front of it
        at_ms = self._at.get(key)
        if at_ms is None:
            del self._queued[key]
        else:
            self._queued[key] = at_ms
            heappush(self._heap, (at_ms, key))
