"""Rows that wait for the driver: a log for each topic and partition that a task writes to.

Below the staging folder: `<sink>/<batch>/<attempt>/<number>`.  An attempt's folder belongs to
one try of one task; the driver takes those alone that a task that ended well has named.  Nothing
waits for the disk here: what a crash takes is computed again.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from .options import WriteOptions
from .rows import TARGETS_MAX, Rows, SinkError, Target, by_target

BATCH_BYTES = 256 << 10
"""Of a staged record batch."""
LEFT_S = 7 * 24 * 3600
"""A sink's folder that nothing was put into for so long is of a job that died."""
_CONFIG = {"max.message.bytes": 2**31 - 1, "message.timestamp.after.max.ms": 2**63 - 1}
"""What a record may be is the target's to say, and the producer's."""
READ_BYTES = 4 << 20
"""Of staged batches at a time."""


@dataclass(frozen=True)
class Part:
    """The staged rows of a target."""

    folder: str
    topic: str
    partition: int | None
    records: int


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task staged."""

    sink: str
    batch: str
    folder: str
    host: str
    parts: tuple[Part, ...]
    staged_with: str
    """kafkalog's version."""
    query: str = ""
    """Of a stream: its id, which a checkpoint keeps."""
    run: str = ""
    """Of a batch write in foreachBatch: the id of the query's run."""


class _Open:
    """A staged log that rows are added to."""

    def __init__(self, folder: str, target: Target) -> None:
        import kafkalog

        self.folder, self.target = folder, target
        self.records = 0
        self.log = kafkalog.Log(folder, topic="staged", partition=0, config=_CONFIG)

    def add(self, rows: Rows) -> None:
        self.log.append_many(
            rows.values, rows.keys, rows.timestamps_ms, rows.headers, batch_bytes=BATCH_BYTES
        )
        self.records += len(rows.values)

    def part(self) -> Part:
        return Part(self.folder, self.target.topic, self.target.partition, self.records)


def stage(
    batches: Iterable[Any], options: WriteOptions, sink: str, batch: str, query: str = "",
    run: str = "",
) -> Staged:  # fmt: skip
    """Put the rows of one task into logs of its own.  Runs on an executor.

    Raises: SinkError; nothing of this attempt is left then.
    """
    import kafkalog

    _make_home(options.staging)
    attempt = os.path.join(options.staging, sink, batch, uuid.uuid4().hex)
    opened: dict[Target, _Open] = {}
    try:
        with ExitStack() as stack:
            for some in batches:
                if not len(some):
                    continue
                for target, rows in by_target(some, options, int(time.time() * 1000)):
                    if target not in opened:
                        if len(opened) >= TARGETS_MAX:
                            raise SinkError(
                                f"a task writes to more than {TARGETS_MAX} topics and partitions"
                            )
                        folder = os.path.join(attempt, str(len(opened)))
                        os.makedirs(attempt, exist_ok=True)
                        opened[target] = _Open(folder, target)
                        stack.callback(opened[target].log.close)
                    opened[target].add(rows)
        parts = tuple(one.part() for one in opened.values())
    except (kafkalog.KafkalogError, OSError) as error:
        shutil.rmtree(attempt, ignore_errors=True)
        raise SinkError(
            f"staging below {options.staging} on {socket.gethostname()}: "
            f"{type(error).__name__}: {error}"
        ) from error
    except BaseException:
        shutil.rmtree(attempt, ignore_errors=True)
        raise
    host = socket.gethostname()
    return Staged(sink, batch, attempt, host, parts, kafkalog.__version__, query, run)


def _make_home(folder: str) -> None:
    """Make the staging folder; where anybody may put one, for its owner alone.

    Raises: SinkError, when it is not our own there, or cannot be made.
    """
    above = os.path.dirname(folder)
    try:
        os.makedirs(above, exist_ok=True)
        os.mkdir(folder, 0o700 if _anybody_writes(above) else 0o777)
    except FileExistsError:
        pass
    except OSError as error:
        raise SinkError(
            f"staging below {folder} on {socket.gethostname()}: {type(error).__name__}: {error}"
        ) from error
    if why := _strange(folder):
        raise SinkError(
            f"staging folder {folder} on {socket.gethostname()}: found {why}, wanted a folder of "
            f"the user {os.geteuid()}: remove it, or name another place with option 'stagingDir'"
        )


def _strange(folder: str) -> str | None:
    """What is wrong with a folder in a place where anybody may have put it, as /tmp is."""
    try:
        if not _anybody_writes(os.path.dirname(folder)):
            return None
        found = os.lstat(folder)
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(found.st_mode):
        return "a link" if stat.S_ISLNK(found.st_mode) else "a file"
    if found.st_uid != os.geteuid():
        return f"one of the user {found.st_uid}"
    return "one that anybody may write to" if found.st_mode & stat.S_IWOTH else None


def _anybody_writes(folder: str) -> bool:
    return bool(os.stat(folder).st_mode & stat.S_IWOTH)


def staged_batches(part: Part) -> Iterator[bytes]:
    """The record batches of a part in their order, some at a time.  Runs on the driver.

    Raises: SinkError when the folder is not there, or does not hold what was staged.
    """
    import kafkalog
    from kafkalog.batch.walk import next_offset

    try:
        with kafkalog.Log(part.folder, mode="r", topic="staged", partition=0) as log:
            found = log.end_offset - log.start_offset
            if found != part.records:
                raise SinkError(f"{part.folder}: found {found} staged rows, wanted {part.records}")
            offset = log.start_offset
            while offset < log.end_offset:
                data = log.read_batches(offset, READ_BYTES, check_crcs=False)  # the producer does
                yield data
                offset = next_offset(data) or log.end_offset
    except (kafkalog.NotFound, FileNotFoundError) as error:
        raise SinkError(
            f"{part.folder}: not found on the driver {socket.gethostname()}; option 'stagingDir' "
            "must name a folder that the driver and all executors see at the same path"
        ) from error


def forget(options: WriteOptions, sink: str, batch: str) -> None:
    """Remove what was staged for a batch, and for those of the sink before it."""
    home = os.path.join(options.staging, sink)
    for name in _names(home):
        older = name.isdecimal() and batch.isdecimal() and int(name) < int(batch)
        if name == batch or older:
            shutil.rmtree(os.path.join(home, name), ignore_errors=True)
    for folder in (home, options.staging):
        try:
            os.rmdir(folder)
        except OSError:
            return  # not empty, or not there


def sweep(options: WriteOptions, now_s: float) -> None:
    """Remove what jobs left that died long ago."""
    if _strange(options.staging):
        return
    for name in _names(options.staging):
        home = os.path.join(options.staging, name)
        places = [home, *(os.path.join(home, one) for one in _names(home))]
        try:
            newest_s = max(os.stat(place).st_mtime for place in places)
        except OSError:
            continue  # somebody else removes it
        if now_s - newest_s > LEFT_S:
            shutil.rmtree(home, ignore_errors=True)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
