"""Looks at the logs of a stream, ninety times a second while it waits for records.

The ends of open logs are read each time: their writer shows them in a page of memory.  Which
partitions exist, and whether they are the same, is checked once a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from .. import plan
from ..options import Key, Selection, StreamOptions
from ..places import Place
from ..places.identity import is_of_topic
from ..plan import Marks, Range
from .admission import Head

LIST_MS = 1000
"""How often the partitions are listed."""
REST = 9
"""After a slow look (many partitions, brokers, more files than may be open), none is made for this
many times as long: requests in that time get the last result."""


class Watch:
    """Watches the logs of one stream."""

    def __init__(self, place: Place, options: StreamOptions, now_ms: Callable[[], int]) -> None:
        self.place = place
        self._options = options
        self._now_ms = now_ms
        self._listed_ms: int | None = None
        self._known: dict[Key, str] = {}
        self._seen = Head()
        self._rests_until_ms = 0

    def require(self) -> None:
        """Raises: BadOption if a named topic or partition does not exist."""
        plan.choose(self._options.selection, self.place.present())

    def head(self, fresh: bool = False) -> Head:
        """What all logs hold now; `fresh`: list the partitions first."""
        now_ms = self._now_ms()
        if now_ms < self._rests_until_ms and not fresh:
            return self._seen
        if fresh or self._listed_ms is None or now_ms - self._listed_ms >= LIST_MS:
            present = self.place.present()
            keys = plan.choose(_present(self._options.selection, present), present)
            self._known = self.place.identities(keys)
            self._listed_ms = now_ms
        ends = self.place.ends(list(self._known))
        known = {key: self._known[key] for key in ends}
        ids = {topic: one for (topic, _), one in known.items() if is_of_topic(one)}
        self._seen = Head(ends, known, ids, self._options.only_flushed)
        done_ms = self._now_ms()
        self._rests_until_ms = done_ms + REST * (done_ms - now_ms)
        return self._seen

    def marks(self, ranges: Sequence[Range]) -> Mapping[Key, Marks]:
        """Where batches begin in these ranges."""
        return self.place.marks(ranges, self._options)

    def fine_marks(self, ranges: Sequence[Range]) -> Mapping[Key, Marks]:
        """The same, dense enough to cut a micro-batch by its bytes."""
        size = min(self._options.max_bytes, self._options.max_trigger_bytes or 1)
        return self.place.marks(ranges, replace(self._options, max_bytes=size))


def _present(selection: Selection, present: Sequence[Key]) -> Selection:
    """The named ones that exist: topics may be deleted and created while a stream runs."""
    if selection.topics is not None:
        topics = {topic for topic, _ in present}
        return Selection(topics=tuple(one for one in selection.topics if one in topics))
    if selection.assigned is not None:
        there = set(present)
        return Selection(assigned=tuple(key for key in selection.assigned if key in there))
    return selection
