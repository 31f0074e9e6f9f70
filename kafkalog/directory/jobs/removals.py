"""Removals: renamed files stay for file.delete.delay.ms, as readers may be using them.

On a full disk they are removed immediately.
"""

import os
import threading
from collections.abc import Iterable

from kafkalog.config.declare import FOREVER
from kafkalog.directory.jobs.place import Place, each, ticks_ms
from kafkalog.disk.layout import MarkedFolder
from kafkalog.disk.space import is_full
from kafkalog.log.handle import Handle
from kafkalog.log.removal import deletions, purge
from kafkalog.logs.limit import limited

__all__ = ["JOB", "Removals"]

JOB = "removal"
"""The scheduler's default period."""

_logger = limited(__name__)

PERIOD_MS_MIN, PERIOD_MS_MAX = 1_000, 60_000


class Removals:
    """The folders of a directory to be removed, and when.  Any thread."""

    def __init__(self, place: Place, marked: Iterable[MarkedFolder]) -> None:
        """`marked`: folders found at the start, whose deletion continues."""
        self._place = place
        self._lock = threading.Lock()  # guards what follows
        self.leaving: dict[str, int] = {}
        """When each is due (monotonic)."""
        self._stopping = False
        self._swept: tuple[int, int] | None = None  # by `run` alone, as all names were then
        for folder in marked:
            if folder.kind == "delete":
                self.later(folder.name, place.config.topic.file_delete_delay_ms)

    @property
    def period_ms(self) -> int:
        """How often to check."""
        delay_ms = self._place.config.topic.file_delete_delay_ms
        return min(max(delay_ms, PERIOD_MS_MIN), PERIOD_MS_MAX)

    def later(self, name: str, delay_ms: int) -> None:
        """Remove a folder that was renamed, after `delay_ms`."""
        with self._lock:
            self.leaving[name] = ticks_ms(self._place) + delay_ms

    def stop(self) -> None:
        """Make a long run end soon."""
        self._stopping = True

    def run(self) -> None:
        """Remove .deleted files and -delete folders whose file.delete.delay.ms has passed."""
        place, full = self._place, is_full(self._place.path)
        now_ms, wall_ms = ticks_ms(place), place.clock.now_ms()
        with self._lock:
            over = [name for name, at_ms in self.leaving.items() if full or at_ms <= now_ms]

        names, left = (deletions(), place.openings), 0

        def clear(log: Handle) -> None:
            nonlocal left
            left += purge(log, FOREVER if full else wall_ms - log.config.file_delete_delay_ms)

        def remove(name: str) -> None:
            if self._stopping:
                return  # there may be thousands; the next start continues
            _remove(os.path.join(place.path, name))
            with self._lock:
                del self.leaving[name]

        # Files of open logs, too, even if a folder cannot be removed: that is retried.
        try:
            if over:
                # Otherwise a power cut could bring one back under its old name, without its id.
                place.folders.sync()
            each(place, over, remove)
        finally:
            # Ten thousand logs are not asked each second in which none has deleted anything.
            if names != self._swept:
                self._swept = None
                each(place, place.handles(), clear)
                self._swept = None if left else names


def _remove(path: str) -> None:
    """A folder and its contents; of a link only the link itself."""
    if os.path.islink(path):
        target = os.path.realpath(path)
        os.unlink(path)
        _logger.info("%s: was a link, and is removed; its target stays: %s", path, target)
    elif os.path.lexists(path):
        import shutil

        shutil.rmtree(path)
