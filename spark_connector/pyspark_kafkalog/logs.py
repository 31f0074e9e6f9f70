"""The part that touches logs: find the partition folders, ask each log, read a range.

kafkalog and pyarrow are imported on first use, so that listing data sources stays light.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .options import BadOption, Key, ReadOptions
from .plan import DataLoss, Ends, Places, Range, lost, task_bytes, within

if TYPE_CHECKING:
    from kafkalog import Log

_log = logging.getLogger("pyspark_kafkalog")
_STEPS = 64
"""How many places, at most, are remembered for each task's worth of bytes."""


class ReadError(RuntimeError):
    """A task could not read its range."""


@dataclass(frozen=True)
class Survey:
    """What one log answered when the read was planned."""

    ends: Ends
    places: Places
    start_found: int | None
    stop_found: int | None
    identity: str
    """Of the log: see `identity`."""


def partition_folders(path: str) -> dict[Key, str]:
    """The partitions at `path`: of a data directory, of a plain folder, or the one it is.

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


def identity(folder: str) -> str:
    """What tells a partition from one that has its name later: the topic's id, or the folder's.

    Raises: FileNotFoundError.
    """
    from kafkalog.disk import layout
    from kafkalog.errors import CorruptLog

    try:
        with open(os.path.join(folder, layout.PARTITION_METADATA), "rb") as file:
            return str(layout.parse_partition_metadata(file.read(1 << 12)))
    except (FileNotFoundError, CorruptLog):  # torn by a power cut: the next owner mends it
        return _inode(folder)


def _inode(folder: str) -> str:
    return f"inode {os.stat(folder).st_ino}"


def open_log(folder: str, key: Key) -> Log:
    """A log for reading, whoever writes it meanwhile."""
    from kafkalog import Log

    return Log(folder, mode="r", topic=key[0], partition=key[1])


def survey(
    folder: str, key: Key, options: ReadOptions, start_ms: int | None, stop_ms: int | None
) -> Survey:
    """Ask one log for its ends, the places of its batches, and offsets by time (ms, or None).

    A partition that was never written to is there, and empty.

    Raises: DataLoss when the folder has gone meanwhile.
    """
    from kafkalog import NotFound
    from kafkalog.disk import layout

    try:
        known = identity(folder)
        if not layout.look_for_segments(folder):
            return Survey(Ends(0, 0), Places([0], [0]), None, None, known)
        return _survey(folder, key, options, (start_ms, stop_ms), known)
    except (NotFound, FileNotFoundError) as error:
        raise DataLoss(
            f"{key[0]}-{key[1]}: {folder} was deleted while the read was planned "
            "(failOnDataLoss=false leaves it out)"
        ) from error


def _survey(
    folder: str, key: Key, options: ReadOptions, times: tuple[int | None, int | None], known: str
) -> Survey:
    start_ms, stop_ms = times
    with open_log(folder, key) as log:
        return Survey(
            ends=_ends(log, options.isolation),
            places=_places(log, task_bytes(log.size_bytes, options) // _STEPS),
            start_found=None if start_ms is None else log.offset_at(start_ms),
            stop_found=None if stop_ms is None else log.offset_at(stop_ms),
            identity=known,
        )


def _ends(log: Log, isolation: str) -> Ends:
    committed = isolation == "read_committed"
    return Ends(log.start_offset, log.last_stable_offset if committed else log.high_watermark)


def _places(log: Log, step_bytes: int) -> Places:
    """Batch boundaries from the sparse offset indexes, about `step_bytes` apart.

    An entry (offset, position) says that a batch at `position` ends with `offset`, so the next
    one begins at offset + 1, at most an index interval and a batch later: about where the next
    entry points.
    """
    import numpy as np

    offsets: list[int] = []
    bytes_before: list[int] = []
    size, end = 0, log.start_offset
    for segment in log.segments:
        index = segment.offset_index
        begins = index["relative_offset"].astype("i8") + segment.base_offset + 1
        positions = np.append(index["position"][1:], segment.size_bytes)[: len(begins)]
        # The indexes of a log that nobody closed may end in entries that mean nothing.
        sound = _grows(np, segment.base_offset, begins) & _grows(np, 0, positions)
        sound &= begins < segment.next_offset
        begins, positions = begins[sound], positions[sound]
        keep = np.diff(positions // max(1, step_bytes), prepend=0) > 0
        offsets += [segment.base_offset, *begins[keep].tolist()]
        bytes_before += [size, *(positions[keep].astype("i8") + size).tolist()]
        size, end = size + segment.size_bytes, segment.next_offset
    if not offsets or end > offsets[-1]:
        offsets.append(end)
        bytes_before.append(size)
    return Places(offsets, bytes_before)


def _grows(np: Any, first: int, numbers: Any) -> Any:
    """Which numbers are above all before them and above `first`."""
    return numbers > np.maximum.accumulate(np.concatenate(([first], numbers[:-1])))


@dataclass(frozen=True)
class Piece:
    """A range as a task reads it."""

    folder: str
    range: Range
    identity: str


def read_range(piece: Piece, columns: Sequence[str], options: ReadOptions) -> Iterator[Any]:
    """The records of a range as `pyarrow.RecordBatch`es, columns in the order asked for.

    With failOnDataLoss false what has gone is left out, and a warning says so.

    Raises: DataLoss, ReadError; both name the partition, the offsets and this host.
    """
    import pyarrow as pa

    from kafkalog import KafkalogError

    key, wanted = piece.range.key, piece.range
    where = f"{key[0]}-{key[1]}, offsets {wanted.start} to {wanted.stop}, in {piece.folder}"
    where += f" on {socket.gethostname()}"
    try:
        yield from _read(piece, columns, options, where)
    except (KafkalogError, OSError, pa.ArrowException) as error:
        raise ReadError(f"{where}: {type(error).__name__}: {error}") from error


def _read(piece: Piece, columns: Sequence[str], options: ReadOptions, where: str) -> Iterator[Any]:
    from kafkalog import NotFound, OffsetOutOfRange

    at, stop = piece.range.start, piece.range.stop
    while at < stop:
        try:
            found = identity(piece.folder)
            # A folder without a topic's id gets one when a broker or a store takes it over.
            if piece.identity not in (found, _inode(piece.folder)):
                told = f"another log than the one that was planned ({found}, {piece.identity})"
                _is_lost(f"{where}: {told}: the topic was deleted and made anew", options)
                return
            with open_log(piece.folder, piece.range.key) as log:
                ends = _ends(log, options.isolation)
                asked = Range(piece.range.key, at, stop)
                there = within(asked, ends)
                if there != asked:
                    _is_lost(f"{where}: {lost(asked, ends, options.isolation)}", options)
                for batch, behind in _batches(log, there, columns, options):
                    yield batch
                    at = behind
            return
        except OffsetOutOfRange as error:  # retention was quicker: from the new start on
            if options.fail_on_data_loss:
                raise DataLoss(f"{where}: deleted while it was read: {error}") from error
        except (NotFound, FileNotFoundError) as error:
            gone = "no such folder"
            if os.path.isdir(os.path.dirname(piece.folder)):
                _is_lost(f"{where}: {gone}: the topic was deleted", options)
                return
            raise ReadError(
                f"{where}: {gone}; every executor must see the data at the path of the driver"
            ) from error


def _batches(
    log: Log, there: Range, columns: Sequence[str], options: ReadOptions
) -> Iterator[tuple[Any, int]]:
    """Record batches, each with the offset behind it as far as somebody may go on there."""
    import pyarrow as pa

    wanted = list(columns)
    resumes = not options.fail_on_data_loss and "offset" not in wanted
    asked = [*wanted, "offset"] if resumes else wanted
    at = there.start
    scan = log.scan(there.start, there.stop, columns=asked, isolation=options.isolation)
    for some in scan:  # not as one stream: Arrow would make every failure an OSError
        batch = pa.record_batch(some)
        if not options.fail_on_data_loss and len(batch):
            at = batch.column("offset")[-1].as_py() + 1
        yield batch.select(wanted), at


def _is_lost(told: str, options: ReadOptions) -> None:
    """Raises: DataLoss, where that is wanted."""
    if options.fail_on_data_loss:
        raise DataLoss(told)
    _log.warning("%s", told)
