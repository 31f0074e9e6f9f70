"""The work behind a data directory: retention, periodic flushes, checkpoints, removals.

Each job decides with pure functions and acts at the edge; kafkalog.directory.scheduler calls it.
"""

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import TypeVar

from kafkalog.config.topic import TopicConfig, flush_period_ms
from kafkalog.directory.jobs.place import Place
from kafkalog.directory.scheduler import Job, Scheduler
from kafkalog.disk.layout import METADATA_TOPIC, MarkedFolder
from kafkalog.errors import Closed, UnknownTopicOrPartition
from kafkalog.log.handle import Handle
from kafkalog.log.owner import offsets_of
from kafkalog.log.removal import apply_retention, purge
from kafkalog.types import TopicPartition

__all__ = ["Upkeep", "flush_due", "retains"]

# flush.ms may be 0; a thread that looks more often than this would do nothing else.
FLUSH_PERIOD_MS_MIN = 10
REMOVAL_PERIOD_MS_MIN, REMOVAL_PERIOD_MS_MAX = 1_000, 60_000

T = TypeVar("T")
_logger = logging.getLogger(__name__)


def retains(config: TopicConfig) -> bool:
    """Whether a setting asks for segments to be deleted one day."""
    limited = config.retention_ms >= 0 or config.retention_bytes >= 0
    return limited and "delete" in config.cleanup_policy


def flush_due(flushed_ms: int, period_ms: int, now_ms: int) -> bool:
    """Whether a log that was last clean at `flushed_ms` is to be flushed."""
    return now_ms - flushed_ms >= period_ms


class Upkeep:
    """The jobs of one directory; they run in its scheduler's thread, the rest in any."""

    def __init__(self, place: Place, marked: Iterable[MarkedFolder]) -> None:
        """`marked`: folders found at the start; those being deleted go on from there."""
        self._place = place
        self._lock = threading.Lock()  # guards what follows
        self._clean_ms: dict[TopicPartition, int] = {}  # when nothing was left to flush
        self._leaving: dict[str, int] = {}  # folders to remove, and when (monotonic)
        self._stopping = False
        self._flush_period_ms = place.config.log_flush_scheduler_interval_ms
        for folder in marked:
            if folder.kind == "delete":
                self.remove_later(folder.name, place.config.topic.file_delete_delay_ms)

    def _now_ms(self) -> int:
        return round(self._place.clock.monotonic_s() * 1000)

    def jobs(self) -> list[Job]:
        """Every job with its period."""
        config = self._place.config
        delay_ms = config.log_initial_task_delay_ms
        removal_ms = config.topic.file_delete_delay_ms
        removal_ms = min(max(removal_ms, REMOVAL_PERIOD_MS_MIN), REMOVAL_PERIOD_MS_MAX)
        flush_ms = max(self._flush_period_ms, FLUSH_PERIOD_MS_MIN)
        periods: list[tuple[str, Callable[[], object], int]] = [
            ("retention", self.retention, config.log_retention_check_interval_ms),
            ("flush", self.flush_old, flush_ms),
            ("recovery points", self.recovery_points,
             config.log_flush_offset_checkpoint_interval_ms),
            ("log starts", self.log_starts,
             config.log_flush_start_offset_checkpoint_interval_ms),
            ("high watermarks", self.high_watermarks,
             config.replica_high_watermark_checkpoint_interval_ms),
            ("producers", self.producers, config.producer_id_expiration_check_interval_ms),
            ("removal", self.removal, removal_ms),
        ]  # fmt: skip
        return [Job(name, run, period_ms, min(delay_ms, period_ms))
                for name, run, period_ms in periods]  # fmt: skip

    # ---- what the manager tells ----------------------------------------------------------------

    def opened(self, log: Handle, scheduler: Scheduler) -> None:
        """Look after a log from now on."""
        if log.mode == "w" and log.recovery.segments_recovered > 1:
            log.flush_start()  # so that the next checkpoint spares another kill all that
        with self._lock:
            self._clean_ms[log.tp] = self._now_ms()
        self.configured(log, scheduler)

    def configured(self, log: Handle, scheduler: Scheduler) -> None:
        """Look for logs to flush as often as a log's settings now ask for it."""
        period_ms = flush_period_ms(log.config)
        with self._lock:
            sooner = period_ms < self._flush_period_ms
            if sooner:
                self._flush_period_ms = period_ms
        if sooner:
            scheduler.set_period("flush", max(period_ms, FLUSH_PERIOD_MS_MIN))

    def closing(self, log: Handle, all_synced: bool = False) -> None:
        """Remember the offsets of a log that is about to close.

        `all_synced`: nothing is written down before all of it is on disk.
        """
        offsets = offsets_of(log)
        if all_synced:
            offsets = offsets._replace(recovery_point=log.end_offset)
        self._place.state.note(*offsets)
        self.gone(log)

    def gone(self, log: Handle) -> None:
        """Look after a log no more."""
        with self._lock:
            self._clean_ms.pop(log.tp, None)

    def stop(self) -> None:
        """Let a job that takes long end soon: the scheduler is about to be stopped."""
        self._stopping = True

    def remove_later(self, name: str, delay_ms: int) -> None:
        """Remove a folder that was renamed, after `delay_ms`."""
        with self._lock:
            self._leaving[name] = self._now_ms() + delay_ms

    # ---- jobs ------------------------------------------------------------------------------------

    def _each(self, what: Iterable[T], work: Callable[[T], object]) -> None:
        """Do `work` for each; a failure of one does not keep it from the others."""
        first: Exception | None = None
        for one in what:
            try:
                work(one)
            except (Closed, UnknownTopicOrPartition):
                continue  # closed or deleted since the list was made
            except Exception as error:
                _logger.error("%s: %s: %s", self._place.path, one, error)
                first = first or error
        if first is not None:
            raise first

    def retention(self) -> None:
        """Delete what no setting keeps, in every log whose settings delete, open or not."""
        place = self._place
        # Open ones always: they may hold segments below their log start.
        wanted = {log.tp for log in place.handles()}
        for topic, tps in groupby(place.partitions(), lambda tp: tp.topic):
            if topic != METADATA_TOPIC and retains(place.topic_config(topic)):
                wanted.update(tp for tp in tps if tp not in wanted and place.folders.written(tp))
        now_ms = place.clock.now_ms()
        self._each(sorted(wanted), lambda tp: apply_retention(place.handle(tp), now_ms))

    def flush_old(self) -> None:
        """Flush every log whose records have been only in memory for too long."""
        now_ms = self._now_ms()
        late: list[Handle] = []
        for log in self._place.handles():
            tp = log.tp
            with self._lock:
                since_ms = self._clean_ms.get(tp, now_ms)
                if log.flushed_offset >= log.end_offset:
                    self._clean_ms[tp] = now_ms
                elif flush_due(since_ms, flush_period_ms(log.config), now_ms):
                    self._clean_ms[tp] = now_ms
                    late.append(log)
        for error in self.flush(late):
            raise error

    def flush(self, logs: Iterable[Handle]) -> list[Exception]:
        """Flush many logs at once, through the sync threads; what failed."""
        logs = list(logs)
        failures: list[Exception] = []
        for log in logs:
            # A failure shows again in the wait below, with the log's own words.
            log.flush_start()
        for log in logs:
            try:
                log.flush()
            except Closed:
                continue
            except Exception as error:
                failures.append(error)
        return failures

    def recovery_points(self) -> None:
        """Write recovery-point-offset-checkpoint."""
        state = self._place.state
        with state.lock:
            state.save(recovery_points=self._offsets(lambda log: log.flushed_offset))

    def log_starts(self) -> None:
        """Write log-start-offset-checkpoint."""
        state = self._place.state
        with state.lock:
            state.save(log_starts=self._offsets(lambda log: offsets_of(log).log_start))

    def high_watermarks(self) -> None:
        """Write replication-offset-checkpoint."""
        state = self._place.state
        with state.lock:
            state.save(high_watermarks=self._offsets(lambda log: log.high_watermark))

    def _offsets(self, of: Callable[[Handle], int | None]) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}

        def note(log: Handle) -> None:
            found[log.tp] = of(log)

        self._each(self._place.handles(), note)
        return found

    def producers(self) -> None:
        """Forget producers that were silent for producer.id.expiration.ms."""
        place = self._place
        before_ms = place.clock.now_ms() - place.config.producer_id_expiration_ms
        self._each(place.handles(), lambda log: log.expire_producers(before_ms))

    def removal(self) -> None:
        """Remove .deleted files and -delete folders whose file.delete.delay.ms is over."""
        now_ms, wall_ms = self._now_ms(), self._place.clock.now_ms()
        with self._lock:
            over = [name for name, at_ms in self._leaving.items() if at_ms <= now_ms]

        def remove(name: str) -> None:
            if self._stopping:
                return  # there may be thousands; the next start goes on
            path = os.path.join(self._place.path, name)
            if os.path.lexists(path):
                shutil.rmtree(path)
            with self._lock:
                del self._leaving[name]

        # Files of open logs, too, when a folder cannot be removed: that is tried again.
        try:
            self._each(over, remove)
        finally:
            self._each(
                self._place.handles(),
                lambda log: purge(log, wall_ms - log.config.file_delete_delay_ms),
            )
