"""The part that touches logs: find the partition folders, ask each log, read a range.

kafkalog and pyarrow are imported on first use, so that listing data sources stays light.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .options import BadOption, Key, ReadOptions
from .plan import DataLoss, Ends, Places, Range, lost, task_bytes, within

if TYPE_CHECKING:
    from kafkalog import Log

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
    found = {(tp.topic, tp.partition): os.path.join(path, name) for tp, name in names}
    return {key: folder for key, folder in found.items() if layout.holds_segments(folder)}


def open_log(folder: str, key: Key) -> Log:
    """A log for reading, whoever writes it meanwhile."""
    from kafkalog import Log

    return Log(folder, mode="r", topic=key[0], partition=key[1])


def survey(
    folder: str, key: Key, options: ReadOptions, start_ms: int | None, stop_ms: int | None
) -> Survey:
    """Ask one log for its ends, the places of its batches, and offsets by time (ms, or None)."""
    with open_log(folder, key) as log:
        return Survey(
            ends=_ends(log, options.isolation),
            places=_places(log, task_bytes(log.size_bytes, options) // _STEPS),
            start_found=None if start_ms is None else log.offset_at(start_ms),
            stop_found=None if stop_ms is None else log.offset_at(stop_ms),
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


def read_range(
    folder: str, piece: Range, columns: Sequence[str], options: ReadOptions
) -> Iterator[Any]:
    """The records of a range as `pyarrow.RecordBatch`es, columns in the order asked for.

    Raises: DataLoss, ReadError; both name the partition, the offsets and this host.
    """
    import pyarrow as pa

    from kafkalog import KafkalogError

    where = f"{piece.key[0]}-{piece.key[1]}, offsets {piece.start} to {piece.stop}, in {folder}"
    where += f" on {socket.gethostname()}"
    if not os.path.isdir(folder):
        raise ReadError(
            f"{where}: no such folder; every executor must see the data at the path of the driver"
        )
    try:
        with open_log(folder, piece.key) as log:
            ends = _ends(log, options.isolation)
            there = within(piece, ends)
            if there != piece and options.fail_on_data_loss:
                raise DataLoss(f"{where}: {lost(piece, ends, options.isolation)}")
            scan = log.scan(
                there.start, there.stop, columns=list(columns), isolation=options.isolation
            )
            with pa.RecordBatchReader.from_stream(scan) as batches:
                for batch in batches:
                    yield batch.select(list(columns))
    except (KafkalogError, OSError, pa.ArrowException) as error:
        raise ReadError(f"{where}: {type(error).__name__}: {error}") from error
