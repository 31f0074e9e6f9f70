"""Flushes: records stay only in memory for at most flush.ms."""

import threading
from collections.abc import Iterable

from kafkalog.config.topic import flush_period_ms
from kafkalog.directory.jobs.place import Place, each, ticks_ms
from kafkalog.directory.scheduler import Scheduler
from kafkalog.errors import Closed
from kafkalog.log.handle import Handle
from kafkalog.types import TopicPartition

__all__ = ["JOB", "Flushes", "flush_all", "flush_due"]

JOB = "flush"
"""The scheduler's period, which the settings of logs shorten."""

# flush.ms may be 0; a thread that checks more often than this would do nothing else.
FLUSH_PERIOD_MS_MIN = 10


def flush_due(flushed_ms: int, period_ms: int, now_ms: int) -> bool:
    """True if a log that was last fully flushed at `flushed_ms` is due."""
    return now_ms - flushed_ms >= period_ms


def flush_all(logs: Iterable[Handle]) -> list[Exception]:
    """Flush many logs together, through the sync threads; returns the failures."""
    logs = list(logs)
    failures: list[Exception] = []
    for log in logs:
        # A failure appears again in the wait below, with the log's own message.
        log.flush_start()
    for log in logs:
        try:
            log.flush()
        except Closed:
            continue
        except Exception as error:
            failures.append(error)
    return failures


class Flushes:
    """The time since each open log has had something to flush.  Any thread."""

    def __init__(self, place: Place) -> None:
        """For the open logs of `place`."""
        self._place = place
        self._lock = threading.Lock()  # guards what follows
        self._clean_ms: dict[TopicPartition, int] = {}  # when nothing was left to flush
        self._period_ms = place.config.log_flush_scheduler_interval_ms

    @property
    def period_ms(self) -> int:
        """How often to check."""
        return max(self._period_ms, FLUSH_PERIOD_MS_MIN)

    def opened(self, log: Handle) -> None:
        """Watch a log from now on."""
        with self._lock:
            self._clean_ms[log.tp] = ticks_ms(self._place)

    def configured(self, log: Handle, scheduler: Scheduler) -> None:
        """Check for logs to flush as often as a log's settings now require."""
        period_ms = flush_period_ms(log.config)
        with self._lock:
            sooner = period_ms < self._period_ms
            if sooner:
                self._period_ms = period_ms
        if sooner:
            scheduler.set_period(JOB, self.period_ms)

    def gone(self, tp: TopicPartition) -> None:
        """Stop watching a log."""
        with self._lock:
            self._clean_ms.pop(tp, None)

    def run(self) -> None:
        """Flush every log whose records have been only in memory for too long."""
        now_ms = ticks_ms(self._place)
        late: list[Handle] = []

        def look(log: Handle) -> None:
            clean = log.flushed_offset >= log.end_offset
            with self._lock:
                since_ms = self._clean_ms.get(log.tp, now_ms)
                due = not clean and flush_due(since_ms, flush_period_ms(log.config), now_ms)
                if clean or due:
                    self._clean_ms[log.tp] = now_ms
            if due:
                late.append(log)

        each(self._place, self._place.handles(), look)
        for error in flush_all(late):
            raise error
