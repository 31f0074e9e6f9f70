"""Removals: what was renamed to go stays for file.delete.delay.ms, as readers may be at it.

Where the disk is full it goes at once.
"""

import logging
import os
import shutil
import threading
from collections.abc import Iterable

from kafkalog.config.declare import FOREVER
from kafkalog.directory.jobs.place import Place, each, ticks_ms
from kafkalog.disk.layout import MarkedFolder
from kafkalog.disk.space import is_full
from kafkalog.log.handle import Handle
from kafkalog.log.removal import purge

__all__ = ["JOB", "Removals"]

JOB = "removal"
"""Of the scheduler."""

_logger = logging.getLogger(__name__)

PERIOD_MS_MIN, PERIOD_MS_MAX = 1_000, 60_000


class Removals:
    """The folders of a directory that are to go, and when.  Any thread."""

    def __init__(self, place: Place, marked: Iterable[MarkedFolder]) -> None:
        """`marked`: folders found at the start; those being deleted go on from there."""
        self._place = place
        self._lock = threading.Lock()  # guards what follows
        self.leaving: dict[str, int] = {}
        """When each goes (monotonic)."""
        self._stopping = False
        for folder in marked:
            if folder.kind == "delete":
                self.later(folder.name, place.config.topic.file_delete_delay_ms)

    @property
    def period_ms(self) -> int:
        """How often to look."""
        delay_ms = self._place.config.topic.file_delete_delay_ms
        return min(max(delay_ms, PERIOD_MS_MIN), PERIOD_MS_MAX)

    def later(self, name: str, delay_ms: int) -> None:
        """Remove a folder that was renamed, after `delay_ms`."""
        with self._lock:
            self.leaving[name] = ticks_ms(self._place) + delay_ms

    def stop(self) -> None:
        """Let a run that takes long end soon."""
        self._stopping = True

    def run(self) -> None:
        """Remove .deleted files and -delete folders whose file.delete.delay.ms is over."""
        place, full = self._place, is_full(self._place.path)
        now_ms, wall_ms = ticks_ms(place), place.clock.now_ms()
        with self._lock:
            over = [name for name, at_ms in self.leaving.items() if full or at_ms <= now_ms]

        def clear(log: Handle) -> None:
            purge(log, FOREVER if full else wall_ms - log.config.file_delete_delay_ms)

        def remove(name: str) -> None:
            if self._stopping:
                return  # there may be thousands; the next start goes on
            _remove(os.path.join(place.path, name))
            with self._lock:
                del self.leaving[name]

        # Files of open logs, too, when a folder cannot be removed: that is tried again.
        try:
            if over:
                # Else a power cut could bring one back under its old name, its id gone already.
                place.folders.sync()
            each(place, over, remove)
        finally:
            each(place, place.handles(), clear)


def _remove(path: str) -> None:
    """A folder and what is in it; of a link nothing but itself."""
    if os.path.islink(path):
        target = os.path.realpath(path)
        os.unlink(path)
        _logger.info("%s: was a link, and is removed; what it led to stays: %s", path, target)
    elif os.path.lexists(path):
        shutil.rmtree(path)
