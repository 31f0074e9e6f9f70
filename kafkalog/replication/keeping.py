"""Backs up visible records that a replica must truncate, next to its log.

A leader that was elected out of sync lacks records of the other replicas, which truncate to its
log: Kafka's `unclean.leader.election.enable`.  Acknowledged records may be among them, and an
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
"""The most `.damaged` files in a folder; recovery has the same limit."""
PIECE_BYTES = 1 << 20


def keep(log: Log, start: int, end: int) -> str:
    """Copy the batches of these offsets into a file next to the log, synced on return; returns its
    path.  The first batch may begin before `start`.

    Raises: CorruptLog: there are too many such files; IoFailed, and errors of reading.  Then
    there is no backup, not even a partial one.
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
    """The offset after the last whole batch."""
    end = -1
    for batch, _ in whole_batches(records):
        end = batch.last_offset + 1
    return end


def _free(folder: str, start: int) -> str:
    kept = [name for name in os.listdir(folder) if ".damaged" in name]
    if len(kept) >= FILES_MAX:
        raise CorruptLog(
            f"{folder}: {len(kept)} backups of truncated records are there, wanted "
            f"fewer than {FILES_MAX}: nothing was truncated; move them elsewhere or delete them"
        )
    path = os.path.join(folder, segment_name(start, ".log.damaged"))
    number, found = 0, path
    while os.path.exists(found):
        number += 1
        found = f"{path}.{number}"
    return found
