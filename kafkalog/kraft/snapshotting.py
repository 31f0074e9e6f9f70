"""Writes snapshots of the metadata by size and time, and removes what they replace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.disk.directory import Directory
from kafkalog.errors import KafkalogError, told_once
from kafkalog.kraft.records import encode
from kafkalog.kraft.snapshots import SnapshotName, list_snapshots, render_snapshot
from kafkalog.logs.limit import limited
from kafkalog.metadata.changes import snapshot_entries

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.directory.manager import Manager
    from kafkalog.kraft.loading import Loaded
    from kafkalog.log.log import Log
    from kafkalog.metadata.image import MetadataImage

__all__ = ["Snapshotting"]

_logger = limited(__name__)

SNAPSHOTS_KEPT = 2


class Snapshotting:
    """The snapshots of one metadata log.  One thread at a time."""

    def __init__(
        self, manager: Manager, log: Log, clean_up: Callable[[], None] | None = None
    ) -> None:
        """None is due.  `clean_up`: removes what a new snapshot replaces; None: this does it."""
        self._manager, self._log, self._other_clean_up = manager, log, clean_up
        self._written_bytes = 0  # since the last snapshot
        self._since_s = manager.clock.monotonic_s()
        self._not_taken: object = None  # why the last one failed

    def written(self, count_bytes: int) -> None:
        """So many bytes of records were written to the log."""
        self._written_bytes += count_bytes

    def take_if_due(self, loaded: Loaded) -> None:
        """Write a snapshot by metadata.log.max.record.bytes.between.snapshots and
        metadata.log.max.snapshot.interval.ms; a failure is logged."""
        config, now_s = self._manager.config, self._manager.clock.monotonic_s()
        every_s = config.metadata_log_max_snapshot_interval_ms / 1000
        late = self._written_bytes > 0 and 0 < every_s <= now_s - self._since_s
        many = config.metadata_log_max_record_bytes_between_snapshots
        if not late and self._written_bytes < many:
            return
        try:
            self.take(loaded)
        except (KafkalogError, OSError) as error:
            # Nothing is lost: the log has everything.
            known, self._not_taken = self._not_taken, told_once(error)
            if known != self._not_taken:
                _logger.error("%s: no snapshot: %s", self._log.path, error)

    def take(self, loaded: Loaded, image: MetadataImage | None = None) -> SnapshotName | None:
        """Write a snapshot of `image`, by default what `loaded` has; None during a transaction, or
        before the first record.

        Deletes all older ones except one; truncates a log larger than metadata.max.retention.bytes.
        Raises: IoFailed, NoSpace.
        """
        image = image or loaded.replay.image
        name = SnapshotName(image.offset + 1, image.epoch)
        if loaded.replay.in_transaction or name.offset == 0:
            return None
        self._manager.folders.sync()  # readers that start with it do not see removals
        # removed
        values = [encode(record, fields, image) for record, fields in snapshot_entries(image)]
        times_ms = (image.timestamp_ms, self._manager.clock.now_ms())
        data = render_snapshot(values, image.epoch, times_ms, loaded.kraft_version, loaded.voters)
        with Directory(self._log.path) as folder:
            folder.replace(name.file(), data)
            self._written_bytes, self._not_taken = 0, None
            self._since_s = self._manager.clock.monotonic_s()
            if self._other_clean_up is None:
                self._clean_up(folder)
        if self._other_clean_up is not None:
            self._other_clean_up()
        return name

    def _clean_up(self, folder: Directory) -> None:
        kept = list_snapshots(self._log.path)
        while len(kept) > SNAPSHOTS_KEPT:
            folder.unlink(kept.pop(0).file())
        if self._log.size_bytes > self._manager.config.metadata_max_retention_bytes:
            self._log.roll()
            # A reader that finds the newest damaged uses the one before it.
            self._log.delete_before(kept[0].offset)
