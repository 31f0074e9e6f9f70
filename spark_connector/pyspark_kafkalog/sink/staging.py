"""Rows that wait for the driver: one log per task, in it the rows of each target together.

Below the staging folder: `<sink>/<batch>/<attempt>`, which is the log.  It belongs to one attempt
of one task; the driver only takes those that a successful task has named.  Nothing waits for the
disk here: what a crash loses is computed again.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from ..worker import settle
from .options import WriteOptions
from .rows import TARGETS_MAX, Rows, SinkError, Target, by_target

if TYPE_CHECKING:
    from kafkalog import Log

GATHER_BYTES = 32 << 20
"""Rows that are sorted by target in one step: each target then costs one append."""
BATCH_BYTES = 256 << 10
"""The size of a staged record batch."""
LEFT_S = 7 * 24 * 3600
"""A sink's folder without new files for this long belongs to a dead job."""
_CONFIG = {"max.message.bytes": 2**31 - 1, "message.timestamp.after.max.ms": 2**63 - 1}
"""The target and the producer decide what is a valid record."""
READ_BYTES = 4 << 20
"""Bytes of staged batches read at a time."""
NEVER_MS = 2**63 - 1
"""Later than every timestamp."""


class Run(NamedTuple):
    """Batches of a staged log that belong to one target: offsets, and their bytes."""

    start: int
    stop: int
    size: int


@dataclass(frozen=True)
class Part:
    """The staged rows of a target."""

    folder: str
    topic: str
    partition: int | None
    records: int
    runs: tuple[Run, ...]
    """In their order."""
    oldest_ms: int = NEVER_MS
    """The smallest timestamp."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The rows staged by one task."""

    sink: str
    batch: str
    folder: str
    host: str
    parts: tuple[Part, ...]
    staged_with: str
    """kafkalog's version."""
    query: str = ""
    """Id of a stream, which a checkpoint keeps."""
    run: str = ""
    """Id of the query's run, for a batch write in foreachBatch."""
    checkpoints: str = ""
    """spark.sql.streaming.checkpointLocation of a stream."""


@dataclass
class _Attempt:
    """The staged log of one attempt of a task, and where in it the rows of each target are."""

    folder: str
    runs: dict[Target, list[Run]] = field(default_factory=dict)
    oldest_ms: dict[Target, int] = field(default_factory=dict)
    log: Log | None = None

    def add(self, target: Target, rows: Rows) -> None:
        """Raises: SinkError, KafkalogError, OSError."""
        import kafkalog

        if self.log is None:
            os.mkdir(self.folder)  # not those above it: the driver removes them with the batch
            self.log = kafkalog.Log(self.folder, topic="staged", partition=0, config=_CONFIG)
        if target not in self.runs and len(self.runs) >= TARGETS_MAX:
            raise SinkError(f"a task writes to more than {TARGETS_MAX} topics and partitions")
        before = self.log.size_bytes
        there = self.log.append_many(
            rows.values, rows.keys, rows.timestamps_ms, rows.headers, batch_bytes=BATCH_BYTES
        )
        run = Run(there.base_offset, there.last_offset + 1, self.log.size_bytes - before)
        runs = self.runs.setdefault(target, [])
        if runs and runs[-1].stop == run.start:
            run = Run(runs[-1].start, run.stop, runs[-1].size + run.size)
            runs.pop()
        runs.append(run)
        oldest_ms = int(min(rows.timestamps_ms.min(), self.oldest_ms.get(target, NEVER_MS)))
        self.oldest_ms[target] = oldest_ms

    def parts(self) -> tuple[Part, ...]:
        """The staged parts."""
        return tuple(
            Part(
                self.folder,
                *target,
                sum(run.stop - run.start for run in runs),
                tuple(runs),
                self.oldest_ms[target],
            )
            for target, runs in self.runs.items()
        )

    def close(self) -> None:
        """Close the log."""
        if self.log is not None:
            self.log.close()


def stage(
    batches: Iterable[Any], options: WriteOptions, sink: str, batch: str, query: str = "",
    run: str = "", checkpoints: str = "",
) -> Staged:  # fmt: skip
    """Put the rows of one task into its own log.  Runs on an executor.

    Raises: SinkError; then nothing of this attempt is left.
    """
    import kafkalog

    _make_home(options.staging)
    attempt = os.path.join(options.staging, sink, batch, uuid.uuid4().hex)
    try:
        os.makedirs(os.path.dirname(attempt), exist_ok=True)
        with closing(_Attempt(attempt)) as made:
            for some in gathered(batches, options):
                for target, rows in by_target(some, options, int(time.time() * 1000)):
                    made.add(target, rows)
        parts = made.parts()
        settle()
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
    return Staged(sink, batch, attempt, host, parts, kafkalog.__version__, query, run, checkpoints)


def gathered(batches: Iterable[Any], options: WriteOptions) -> Iterator[Any]:
    """The batches without empty ones; if a column names targets, joined to large ones."""
    import pyarrow as pa

    waiting: list[Any] = []
    waiting_bytes = 0
    for batch in batches:
        if not len(batch):
            continue
        if options.topic is not None and "partition" not in batch.schema.names:
            yield batch
            continue
        waiting.append(batch)
        waiting_bytes += batch.nbytes
        if waiting_bytes >= GATHER_BYTES:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting, waiting_bytes = [], 0
    if waiting:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


def _make_home(folder: str) -> None:
    """Create the staging folder; where anybody may write, for its owner alone.

    Raises: SinkError, if it is not our own there, or cannot be created.
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
    """The problem of a folder in a place where anybody may have created it, such as /tmp."""
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


@contextmanager
def staged_log(folder: str) -> Iterator[Log]:
    """The log that a task staged.  Runs on the driver.

    Raises: SinkError if it is missing; errors of reading it.
    """
    import kafkalog

    try:
        log = kafkalog.Log(folder, mode="r", topic="staged", partition=0)
    except (kafkalog.errors.NotFound, FileNotFoundError) as error:
        raise SinkError(
            f"{folder}: not found on the driver {socket.gethostname()}; option 'stagingDir' "
            "must name a folder that the driver and all executors see at the same path"
        ) from error
    with log:
        yield log


def staged_batches(log: Log, part: Part) -> Iterator[bytes]:
    """The record batches of a part in their order, some at a time.

    Raises: SinkError if the log does not hold what was staged; OffsetOutOfRange.
    """
    from kafkalog.batch.walk import next_offset

    for run in part.runs:
        offset, left = run.start, run.size
        while left > 0:
            # The next run begins after `left` bytes.  The producer checks the checksums.
            data = log.read_batches(offset, min(READ_BYTES, left), check_crcs=False)
            yield data
            offset, left = next_offset(data) or offset, left - len(data)
            if not data or left < 0:
                break
        if (offset, left) != (run.stop, 0):
            raise SinkError(
                f"{part.folder}: found staged rows up to offset {offset}, wanted {run.stop}"
            )


def forget(options: WriteOptions, sink: str, batch: str) -> None:
    """Remove what was staged for a batch, and for earlier ones of the sink."""
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
    """Remove what long-dead jobs left."""
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
