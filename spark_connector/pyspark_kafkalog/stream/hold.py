"""A stream's retention hold: rewritten as the stream advances, and periodically while it waits."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..options import HoldOptions
from .offsets import Offsets

if TYPE_CHECKING:
    from kafkalog.disk.holds import Hold

RENEWALS = 4
"""How often a hold is renewed within its lifetime."""


class Holder:
    """Keeps one hold up to date.  It expires by itself: a source is not notified when its query
    stops."""

    def __init__(self, path: str, options: HoldOptions) -> None:
        self._path = path
        self._options = options
        self._said: Offsets | None = None
        self._said_ms = 0

    def tell(self, at: Offsets, now_ms: int) -> None:
        """Hold everything from `at` on.  Cheap if it was called recently.

        `now_ms`: of the wall clock, with which deletion compares the end of a hold; if that clock
        was set back, the hold is written again.

        Raises: ArgumentError, NotFound, IoFailed.
        """
        due = not 0 <= now_ms - self._said_ms < self._options.age_ms // RENEWALS
        if at == self._said and not due:
            return
        from kafkalog.disk.holds import write_hold

        write_hold(_root(self._path), self._hold(at, now_ms), now_ms)
        self._said, self._said_ms = at, now_ms

    def _hold(self, at: Offsets, now_ms: int) -> Hold:
        from kafkalog.disk.holds import Hold
        from kafkalog.types import TopicPartition

        offsets = {TopicPartition(*key): offset for key, offset in at.at.items()}
        until_ms = now_ms + self._options.age_ms
        return Hold(self._options.name, until_ms, self._options.max_bytes, offsets)


def _root(path: str) -> str:
    """The directory that contains the partitions' folders."""
    from kafkalog.disk import layout

    path = os.path.abspath(os.path.expanduser(path))
    return os.path.dirname(path) if layout.holds_segments(path) else path
