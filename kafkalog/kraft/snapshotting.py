"""Writes snapshots of the metadata by size and time, and removes what they replace."""

from __future__ import annotations

import threading
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, NamedTuple

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
AGAIN_S, AGAIN_MAX_S = 1.0, 60.0
"""Until a snapshot that failed is tried again; doubled each time."""


class _Content(NamedTuple):
    """The content of one snapshot; nothing of it changes any more."""

    image: MetadataImage
    kraft_version: int
    voters: bytes | None
    log_bytes: int
    """Bytes of the log's records that no earlier snapshot has."""

    @property
    def name(self) -> SnapshotName:
        return SnapshotName(self.image.offset + 1, self.image.epoch)


class Snapshotting:
    """The snapshots of one metadata log.  One thread at a time."""

    def __init__(
        self, manager: Manager, log: Log, written: Callable[[], None] | None = None
    ) -> None:
        """None is due.

        `written`: snapshots that are due are written in a thread of their own, which then calls
        this; it removes what they replace.  None: the calling thread does all of that.
        """
        self._manager, self._log, self._after = manager, log, written
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # guards what follows
        self._written_bytes = 0  # since the last snapshot
        self._since_s = manager.clock.monotonic_s()
        self._not_taken: object = None  # why the last one failed
        self._again_s, self._pause_s = -inf, AGAIN_S

    def written(self, count_bytes: int) -> None:
        """So many bytes of records were written to the log."""
        with self._lock:
            self._written_bytes += count_bytes

    def take_if_due(self, loaded: Loaded) -> None:
        """Write a snapshot by metadata.log.max.record.bytes.between.snapshots and
        metadata.log.max.snapshot.interval.ms; a failure is logged."""
        if self._thread is not None and self._thread.is_alive():
            return
        if not self._is_due() or (content := self._content(loaded)) is None:
            return
        if self._after is None:
            self._try(content)
            return
        name = f"kafkalog snapshot {content.name.offset}"
        thread = threading.Thread(target=self._try, args=(content,), name=name, daemon=True)
        with suppress(RuntimeError):  # no thread can be started now, or any more: as a failed write
            thread.start()
            self._thread = thread

    def join(self) -> None:
        """Wait for the snapshot that is being written, if any."""
        if self._thread is not None:
            self._thread.join()

    def _is_due(self) -> bool:
        config, now_s = self._manager.config, self._manager.clock.monotonic_s()
        every_s = config.metadata_log_max_snapshot_interval_ms / 1000
        many = config.metadata_log_max_record_bytes_between_snapshots
        with self._lock:
            if now_s < self._again_s:
                return False
            late = self._written_bytes > 0 and 0 < every_s <= now_s - self._since_s
            return late or self._written_bytes >= many

    def _try(self, content: _Content) -> None:
        try:
            self._write(content)
        except Exception as error:
            # Nothing is lost: the log has everything.
            with self._lock:
                self._again_s = self._manager.clock.monotonic_s() + self._pause_s
                self._pause_s = min(2 * self._pause_s, AGAIN_MAX_S)
            known, self._not_taken = self._not_taken, told_once(error)
            if known != self._not_taken:
                expected = isinstance(error, KafkalogError | OSError)
                _logger.error("%s: no snapshot: %s", self._log.path, error,
                              exc_info=None if expected else error)  # fmt: skip

    def _content(self, loaded: Loaded, image: MetadataImage | None = None) -> _Content | None:
        """The content of a snapshot that is taken now; None: there can be none."""
        image = image or loaded.replay.image
        content = _Content(image, loaded.kraft_version, loaded.voters, self._written_bytes)
        return None if loaded.replay.in_transaction or content.name.offset == 0 else content

    def take(self, loaded: Loaded, image: MetadataImage | None = None) -> SnapshotName | None:
        """Write a snapshot of `image`, by default what `loaded` has, in this thread; None during a
        transaction, or before the first record.

        Deletes all older ones except one; truncates a log larger than metadata.max.retention.bytes.
        Raises: IoFailed, NoSpace.
        """
        content = self._content(loaded, image)
        if content is None:
            return None
        self._write(content)
        return content.name

    def _write(self, content: _Content) -> None:
        image = content.image
        self._manager.folders.sync()  # readers that start with it do not see removed folders
        values = [encode(record, fields, image) for record, fields in snapshot_entries(image)]
        times_ms = (image.timestamp_ms, self._manager.clock.now_ms())
        data = render_snapshot(values, image.epoch, times_ms, content.kraft_version, content.voters)
        with Directory(self._log.path) as folder:
            folder.replace(content.name.file(), data)
            with self._lock:
                self._written_bytes -= content.log_bytes
                self._not_taken, self._since_s = None, self._manager.clock.monotonic_s()
                self._again_s, self._pause_s = -inf, AGAIN_S
            if self._after is None:
                self._clean_up(folder)
        if self._after is not None:
            self._after()

    def _clean_up(self, folder: Directory) -> None:
        kept = list_snapshots(self._log.path)
        while len(kept) > SNAPSHOTS_KEPT:
            folder.unlink(kept.pop(0).file())
        if self._log.size_bytes > self._manager.config.metadata_max_retention_bytes:
            self._log.roll()
            # A reader that finds the newest damaged uses the one before it.
            self._log.delete_before(kept[0].offset)
