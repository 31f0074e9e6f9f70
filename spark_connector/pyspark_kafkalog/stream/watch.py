"""Looks at the logs of a stream, ninety times a second while it waits for records.

The ends of open logs are read each time: their writer shows them in a page of memory.  Which
partitions exist, and whether they are the same, is checked once a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import plan
from ..options import Key, Selection, StreamOptions
from ..places import Place
from ..places.identity import is_of_topic
from ..plan import Marks, Range
from .admission import Head

if TYPE_CHECKING:
    from kafkalog.clock import Clock

LIST_S = 1.0
"""How often the partitions are listed."""
REST = 9
"""After a look at many partitions, or at more files than may be open, none is made for this many
times the processor time that it took: requests in that time get the last result."""
REST_MAX_S = 1.0
"""But no longer than this."""


class Watch:
    """Watches the logs of one stream."""

    def __init__(
        self,
        place: Place,
        options: StreamOptions,
        clock: Clock,
        worked_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """`worked_s`: how long this thread has worked, which leaves out its waits for brokers."""
        self.place = place
        self._options = options
        self._clock = clock
        self._worked_s = worked_s
        self._listed_s: float | None = None
        self._known: dict[Key, str] = {}
        self._seen = Head()
        self._rests_until_s = 0.0

    def require(self) -> None:
        """Raises: BadOption if a named topic or partition does not exist."""
        plan.choose(self._options.selection, self.place.present())

    def head(self, fresh: bool = False) -> Head:
        """The state of all logs now; `fresh`: list the partitions first."""
        now_s, before_s = self._clock.monotonic_s(), self._worked_s()
        if now_s < self._rests_until_s and not fresh:
            return self._seen
        if fresh or self._listed_s is None or now_s - self._listed_s >= LIST_S:
            present = self.place.present()
            keys = plan.choose(_present(self._options.selection, present), present)
            self._known = self.place.identities(keys)
            self._listed_s = self._clock.monotonic_s()
        ends = self.place.ends(list(self._known))
        known = {key: self._known[key] for key in ends}
        ids = {topic: one for (topic, _), one in known.items() if is_of_topic(one)}
        self._seen = Head(ends, known, ids, self._options.only_flushed)
        rest_s = min(REST * (self._worked_s() - before_s), REST_MAX_S)
        self._rests_until_s = self._clock.monotonic_s() + rest_s
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
