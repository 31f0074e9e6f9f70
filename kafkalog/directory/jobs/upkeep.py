"""A data directory's background work: its jobs, their periods, and the manager's notices to them.

Each job decides with pure functions and acts at the edge; kafkalog.directory.scheduler calls it.
"""

from collections.abc import Callable, Iterable
from functools import partial

from kafkalog.directory.jobs.checkpoints import Checkpoints
from kafkalog.directory.jobs.flushes import JOB as FLUSH
from kafkalog.directory.jobs.flushes import Flushes
from kafkalog.directory.jobs.place import Place, each
from kafkalog.directory.jobs.removals import JOB as REMOVAL
from kafkalog.directory.jobs.removals import Removals
from kafkalog.directory.jobs.retention import retain
from kafkalog.directory.scheduler import Job, Scheduler
from kafkalog.disk.layout import MarkedFolder
from kafkalog.log.handle import Handle

__all__ = ["Upkeep", "expire_producers"]


def expire_producers(place: Place) -> None:
    """Forget producers that were silent for producer.id.expiration.ms, in every open log."""
    before_ms = place.clock.now_ms() - place.config.producer_id_expiration_ms
    each(place, place.handles(), lambda log: log.expire_producers(before_ms))


class Upkeep:
    """The jobs of one directory; they run in its scheduler's thread, the methods in any."""

    def __init__(self, place: Place, marked: Iterable[MarkedFolder]) -> None:
        """`marked`: folders found at the start."""
        self._place = place
        self.flushes = Flushes(place)
        self.checkpoints = Checkpoints(place)
        self.removals = Removals(place, marked)

    def jobs(self) -> list[Job]:
        """Every job with its period."""
        place, config = self._place, self._place.config
        points = self.checkpoints
        periods: list[tuple[str, Callable[[], object], int]] = [
            ("retention", partial(retain, place), config.log_retention_check_interval_ms),
            (FLUSH, self.flushes.run, self.flushes.period_ms),
            ("recovery points", points.recovery_points,
             config.log_flush_offset_checkpoint_interval_ms),
            ("log starts", points.log_starts,
             config.log_flush_start_offset_checkpoint_interval_ms),
            ("high watermarks", points.high_watermarks,
             config.replica_high_watermark_checkpoint_interval_ms),
            ("producers", partial(expire_producers, place),
             config.producer_id_expiration_check_interval_ms),
            (REMOVAL, self.removals.run, self.removals.period_ms),
        ]  # fmt: skip
        delay_ms = config.log_initial_task_delay_ms
        return [
            Job(name, run, period_ms, min(delay_ms, period_ms)) for name, run, period_ms in periods
        ]

    def opened(self, log: Handle, scheduler: Scheduler) -> None:
        """Watch a log from now on."""
        if log.mode == "w" and log.recovery.segments_recovered > 1:
            log.flush_start()  # so that the next checkpoint spares a later kill that work
        self.flushes.opened(log)
        self.flushes.configured(log, scheduler)

    def closing(self, log: Handle, all_synced: bool = False) -> None:
        """Remember the offsets of a log that is about to close: see Checkpoints.closing."""
        self.checkpoints.closing(log, all_synced)
        self.gone(log)

    def gone(self, log: Handle) -> None:
        """Stop watching a log."""
        self.flushes.gone(log.tp)
