"""Records that were shown and that a copy must drop are kept next to its log.

A leader that was elected without being in sync lacks records of the others, and they are cut to
its log: Kafka's `unclean.leader.election.enable`.  Acknowledged records may be among them, and an
operator may want them back.
"""

from __future__ import annotations

import os

from kafkalog.batch.walk import whole_batches
from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import segment_name
from kafkalog.errors import CorruptLog, IoFailed, KafkalogError
from kafkalog.log.log import Log

__all__ = ["FILES_MAX", "keep"]

FILES_MAX = 1000
"""As many `.damaged` files as a recovery lets lie in a folder, too."""
PIECE_BYTES = 1 << 20


def keep(log: Log, start: int, end: int) -> str:
    """Copy the batches of these offsets into a file next to the log, on disk when this returns; its
    path.  The first batch may begin before `start`.

    Raises: CorruptLog: there are too many such files; IoFailed, and what a read raises.  Then
    there is no copy, and no half of one.
    """
    try:
        return _keep(log, start, end)
    except OSError as problem:
        if isinstance(problem, KafkalogError):
            raise
        raise IoFailed(f"{log.path}: could not keep what must be cut: {problem}") from problem


def _keep(log: Log, start: int, end: int) -> str:
    path = _free(str(log.path), start)
    try:
        with open(path, "xb") as file:
            at = start
            while at < end:
                records = log.read_batches(at, PIECE_BYTES, "log_end")
                file.write(records)
                at = _behind(records)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        if os.path.exists(path):
            os.unlink(path)
        raise
    with Directory(str(log.path)) as folder:
        folder.sync()
    return path


def _behind(records: bytes) -> int:
    """The offset behind the last of whole batches."""
    end = -1
    for batch, _ in whole_batches(records):
        end = batch.last_offset + 1
    return end


def _free(folder: str, start: int) -> str:
    kept = [name for name in os.listdir(folder) if ".damaged" in name]
    if len(kept) >= FILES_MAX:
        raise CorruptLog(
            f"{folder}: {len(kept)} files with what was taken out of the log lie there, wanted "
            f"fewer than {FILES_MAX}: nothing was cut; move them elsewhere or delete them"
        )
    path = os.path.join(folder, segment_name(start, ".log.damaged"))
    number, found = 0, path
    while os.path.exists(found):
        number += 1
        found = f"{path}.{number}"
    return found
