"""Logs that members wait for: which of them have new records."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.log.handle import states

if TYPE_CHECKING:
    from kafkalog.log.handle import Handle
    from kafkalog.shares.entries import EntryKey

__all__ = ["Look", "News", "Seen"]

SLICE_S = 0.005
"""Time between two looks, at least."""
SHARE = 20
"""Looking takes at most one part in so many of the time."""
EMPTY_EVERY = 10
"""Partitions that were never written are looked at with each so many-th look."""


class Seen(NamedTuple):
    """A log as a member found it."""

    key: EntryKey
    handle: Handle | None
    """None: it was never written, and has no log."""
    committed: bool
    bound: int
    """Where the readable records ended."""


class Look:
    """One look at all watched logs, without a lock."""

    def __init__(self, watched: dict[EntryKey, Seen], empty: bool, owner: News) -> None:
        self._watched, self._empty, self._owner = watched, empty, owner

    def look(self) -> list[EntryKey]:
        """Those with new records."""
        began_s = time.monotonic()
        logs = [(key, one) for key, one in self._watched.items() if one.handle is not None]
        found = [key for key, one in self._watched.items() if one.handle is None and self._empty]
        if logs:
            table, statuses = states([one.handle for _, one in logs if one.handle is not None])
            for at, (key, one) in enumerate(logs):
                state = table[at]
                bound = state.last_stable_offset if one.committed else state.high_watermark
                if statuses[at] or bound != one.bound:
                    found.append(key)
        self._owner.slice_s = max(SLICE_S, (time.monotonic() - began_s) * SHARE)
        return found


class News:
    """The logs of share partitions for which members wait."""

    def __init__(self) -> None:
        """Nothing is watched."""
        self._watched: dict[EntryKey, Seen] = {}
        self._looks = 0
        self.slice_s = SLICE_S
        """How long to wait before the next look."""

    def __bool__(self) -> bool:
        return bool(self._watched)

    def watch(self, seen: Seen) -> None:
        """Report when the readable records of a log end elsewhere than they did."""
        self._watched[seen.key] = seen

    def forget(self, key: EntryKey) -> None:
        """Nobody waits for it any more."""
        self._watched.pop(key, None)

    def due(self) -> Look | None:
        """A look at what is watched now; None: nothing is."""
        if not self._watched:
            return None
        self._looks += 1
        return Look(dict(self._watched), self._looks % EMPTY_EVERY == 0, self)
