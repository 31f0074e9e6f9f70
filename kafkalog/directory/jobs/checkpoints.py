"""Checkpoints: what a start after a kill can skip."""

from collections.abc import Callable

from kafkalog.directory.jobs.place import Place, each
from kafkalog.log.handle import Handle
from kafkalog.log.owner import offsets_of
from kafkalog.types import TopicPartition

__all__ = ["Checkpoints"]


class Checkpoints:
    """Writes down the offsets of open logs."""

    def __init__(self, place: Place) -> None:
        """For the open logs of `place`, in its files."""
        self._place = place

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

        each(self._place, self._place.handles(), note)
        return found

    def closing(self, log: Handle, all_synced: bool = False) -> None:
        """Remember the offsets of a log that is about to close.

        `all_synced`: they are written down only once all of it is on disk.
        """
        offsets = offsets_of(log)
        if all_synced:
            offsets = offsets._replace(recovery_point=log.end_offset)
        self._place.state.note(*offsets)
