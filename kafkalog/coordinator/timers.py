"""Timers as data: what to call, and when."""

from heapq import heapify, heappop, heappush

__all__ = ["Key", "Timers"]

STALE_MAX = 1_000
"""Entries of the heap that no timer needs, in addition to as many as there are timers: beyond that
the heap is built again, as each entry holds the names of its key."""

Key = tuple[str, int, str, str]
"""Kind, partition, group, member: what a timer is for; setting it again replaces it."""


class Timers:
    """Keys and their times, in ms of the monotonic clock.  One thread only.

    Moving a timer to a later time, as each heartbeat does with a session, costs no more than a
    dict's assignment: its place in the heap is corrected when it is due.
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
        """Set the key's timer for `at_ms`, instead of any time set before."""
        self._at[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._queued[key] = at_ms
            heappush(self._heap, (at_ms, key))
            self._bound()

    def cancel(self, key: Key) -> None:
        """Forget the key, if it is there."""
        if self._at.pop(key, None) is not None:
            self._bound()

    def next_ms(self) -> int | None:
        """When the first timer is due; None if there is none.  May be early, never late."""
        while self._heap:
            at_ms, key = self._heap[0]
            if self._at.get(key) == at_ms and self._queued.get(key) == at_ms:
                return at_ms
            self._correct()
        return None

    def due(self, now_ms: int) -> Key | None:
        """Remove and return the first key that is due; None if there is none."""
        at_ms = self.next_ms()
        if at_ms is None or at_ms > now_ms:
            return None
        _, key = heappop(self._heap)
        del self._queued[key], self._at[key]
        return key

    def _bound(self) -> None:
        """Drop the entries of cancelled and moved timers once they are too many."""
        if len(self._heap) > 2 * len(self._at) + STALE_MAX:
            self._queued = dict(self._at)
            self._heap = [(at_ms, key) for key, at_ms in self._at.items()]
            heapify(self._heap)

    def _correct(self) -> None:
        """Put the heap's first entry in its place, or drop it."""
        queued_ms, key = heappop(self._heap)
        if self._queued.get(key) != queued_ms:
            return  # an earlier entry was added
        at_ms = self._at.get(key)
        if at_ms is None:
            del self._queued[key]
        else:
            self._queued[key] = at_ms
            heappush(self._heap, (at_ms, key))
