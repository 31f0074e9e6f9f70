"""Partitions as folders on a file system: in a data directory, in a plain folder, or a single one.

kafkalog and pyarrow are imported on first use, so that listing data sources stays light.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import BadOption, DataLoss, ReadError
from ..options import LARGEST, Key, ReadOptions
from ..plan import Ends, Marks, Range, lost, task_bytes, within
from .identity import identity, is_of_folder, of_folder, same
from .opened import Opened
from .piece import Piece, columns_wanted, record_batches, tell_lost, told_damage

if TYPE_CHECKING:
    from kafkalog import Log

T = TypeVar("T")
_STEPS = 64
"""At most this many marks for each task's worth of bytes."""


class Directory:
    """The place of a path.  See Place."""

    def __init__(self, path: str, isolation: str) -> None:
        self.name = path
        self._isolation = isolation
        self._folders: dict[Key, str] = {}
        self._opened = Opened()

    def present(self) -> list[Key]:
        """As Place."""
        self._folders = partition_folders(self.name)
        return list(self._folders)

    def identities(self, keys: Sequence[Key]) -> dict[Key, str]:
        """As Place."""
        return self._of_each(keys, lambda key: identity(self._folders[key]))

    def ends(self, keys: Sequence[Key]) -> dict[Key, Ends]:
        """As Place."""
        return self._of_each(keys, self._ends)

    def _ends(self, key: Key) -> Ends:
        log = self._log_of(key)
        return Ends(0, 0) if log is None else ends_of(log, self._isolation)

    def at_times(self, times_ms: Mapping[Key, int]) -> dict[Key, int | None]:
        """As Place."""

        def found(key: Key) -> int | None:
            log = self._log_of(key)
            if log is None:
                return None
            largest = times_ms[key] == LARGEST
            record = log.find_largest_time() if largest else log.find_time(times_ms[key])
            return None if record is None else record.offset

        return self._of_each(times_ms, found)

    def marks(self, ranges: Sequence[Range], options: ReadOptions) -> dict[Key, Marks]:
        """As Place."""

        wanted = {one.key: one for one in ranges}

        def found(key: Key) -> Marks:
            log = self._log_of(key)
            if log is None:
                return Marks([0], [0])
            from kafkalog.log.scan.cuts import batch_starts

            step_bytes = task_bytes(log.size_bytes, options) // _STEPS
            return Marks(*batch_starts(log, step_bytes, wanted[key].start, wanted[key].stop))

        return self._of_each(wanted, found)

    def piece(self, there: Range, identity: str) -> Piece:
        """As Place."""
        return Piece(there, identity, self._folders[there.key])

    def read(self, piece: Piece, columns: Sequence[str], options: ReadOptions) -> Iterator[Any]:
        """As Place."""
        return read_range(self._opened, piece, columns, options)

    def told_gone(self, key: Key) -> str:
        """As Place."""
        return (
            f"{key[0]}-{key[1]}: {self._folders[key]} was deleted while the read was planned "
            "(failOnDataLoss=false leaves it out)"
        )

    def close(self) -> None:
        """As Place."""
        self._opened.close()

    def _of_each(self, keys: Iterable[Key], ask: Callable[[Key], T]) -> dict[Key, T]:
        """The result of `ask` for each that exists."""
        from kafkalog.errors import NotFound

        found = {}
        for key in keys:
            try:
                found[key] = ask(key)
            except (NotFound, FileNotFoundError):
                self._opened.forget(self._folders[key])
        return found

    def _log_of(self, key: Key) -> Log | None:
        """The log of a partition; None if it was never written: then it exists, and is empty."""
        from kafkalog.disk import layout

        folder = self._folders[key]
        log = self._opened.held(folder)
        if log is not None:
            return log
        return self._opened.get(folder, key) if layout.look_for_segments(folder) else None


def partition_folders(path: str) -> dict[Key, str]:
    """The partitions at `path`: in a data directory, in a plain folder, or the path itself.

    Folders that Kafka or kafkalog is about to delete have other names, and are left out.

    Raises: BadOption when there is no such directory.
    """
    from kafkalog.disk import layout

    path = os.path.abspath(os.path.expanduser(path))
    if not os.path.isdir(path):
        raise BadOption(f"option 'path': no directory {path} on {socket.gethostname()}")
    if layout.holds_segments(path):
        folder = layout.bare_folder(os.path.basename(path))
        return {(folder.topic, folder.partition): path}
    names = layout.list_directory(path).partitions.items()
    return {(tp.topic, tp.partition): os.path.join(path, name) for tp, name in names}


def ends_of(log: Log, isolation: str) -> Ends:
    """The readable offsets of a log now."""
    # The end first: if the start moves in between, the range is smaller, never too large.
    stop = log.last_stable_offset if isolation == "read_committed" else log.high_watermark
    flushed, start = log.flushed_offset, log.start_offset
    return Ends(start, max(start, stop), flushed)


def read_range(
    opened: Opened, piece: Piece, columns: Sequence[str], options: ReadOptions
) -> Iterator[Any]:
    """As Place.read."""
    import pyarrow as pa

    from kafkalog import KafkalogError

    key, wanted = piece.range.key, piece.range
    where = f"{key[0]}-{key[1]}, offsets {wanted.start} to {wanted.stop}, in {piece.folder}"
    where += f" on {socket.gethostname()}"
    try:
        yield from _read(opened, piece, columns, options, where)
    except (KafkalogError, OSError, pa.ArrowException) as error:
        opened.forget(piece.folder)  # the next attempt looks again
        told = told_damage(error, f"`kafkalog verify {piece.folder}`")
        raise ReadError(f"{where}: {told}") from error


def _read(
    opened: Opened, piece: Piece, columns: Sequence[str], options: ReadOptions, where: str
) -> Iterator[Any]:
    from kafkalog import OffsetOutOfRange
    from kafkalog.errors import NotFound

    at, stop = piece.range.start, piece.range.stop
    while at < stop:
        try:
            found = identity(piece.folder)
            # A folder without a topic id gets one when a broker or a store adopts it.
            planned = piece.identity
            if not same(planned, found) and not same(planned, of_folder(piece.folder)):
                told = f"another log than the one that was planned ({found}, {planned})"
                told += ": the topic was deleted and recreated"
                if is_of_folder(found):
                    told += ", or this is a copy: without partition.metadata a folder has no id, "
                    told += "and all tasks must see the very same"
                tell_lost(f"{where}: {told}", options)
                return
            with opened.lent(piece.folder, piece.range.key) as log:
                ends = ends_of(log, options.isolation)
                asked = Range(piece.range.key, at, stop)
                there = within(asked, ends)
                if there != asked:
                    tell_lost(f"{where}: {lost(asked, ends, options.isolation)}", options)
                scan = log.scan(
                    there.start, there.stop,
                    columns=columns_wanted(columns, options), isolation=options.isolation,
                )  # fmt: skip
                for batch, behind in record_batches(scan, there.start, columns, options):
                    yield batch
                    at = behind
            return
        except OffsetOutOfRange as error:  # retention was faster: from the new start on
            if options.fail_on_data_loss:
                raise DataLoss(f"{where}: deleted while it was read: {error}") from error
        except (NotFound, FileNotFoundError) as error:
            gone = "no such folder"
            if os.path.isdir(os.path.dirname(piece.folder)):
                tell_lost(f"{where}: {gone}: the topic was deleted", options)
                return
            raise ReadError(
                f"{where}: {gone}; every executor must see the data at the path of the driver"
            ) from error
