"""`kafkalog ingest`: appends the lines of files to a topic."""

import argparse
import functools
import os
import sys
from itertools import compress
from typing import TYPE_CHECKING, Any

from kafkalog.cli.blocks import read_blocks
from kafkalog.cli.common import (
    CODECS,
    CommandError,
    UsageError,
    add_dir,
    count_argument,
    json_line,
    plural,
    repeated,
    settings_of,
    show_bytes,
    warn,
)
from kafkalog.cli.inputs import Block, Input, Shape
from kafkalog.cli.progress import Progress
from kafkalog.cli.record_options import (
    add_errors,
    add_fields,
    add_times,
    check_files,
    left_out,
    shape_of,
)

if TYPE_CHECKING:
    from kafkalog.directory.manager import Manager
    from kafkalog.log.log import Log

EXAMPLES = """\
example:
  kafkalog ingest app.log.gz --dir data --topic app --compression zstd \\
      --timestamp-regex '^(\\S+ \\S+)' --timestamp-format '%Y-%m-%d %H:%M:%S,%f'
  kafkalog ingest orders.csv --dir data --topic orders --partitions 3 --key customer --timestamp at
"""

APPEND_BYTES = 1 << 20
WAITING_BYTES_MAX = 64 << 20  # of all partitions together


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "file",
        nargs="+",
        help="text, JSON lines or CSV, also .gz and .zst; - is standard input",
    )
    add_dir(parser)
    parser.add_argument(
        "--partitions",
        type=count_argument,
        metavar="N",
        help="partitions, if the topic is created now (default 1)",
    )
    parser.add_argument(
        "--compression", choices=CODECS, default="none", help="the codec of the batches"
    )
    parser.add_argument(
        "--format",
        choices=("auto", "text", "json", "csv"),
        default="auto",
        help="one record per line, object or row; auto decides by the file's name",
    )
    repeated(
        parser,
        "--set",
        metavar="NAME=VALUE",
        help="a topic setting (docs/settings.md) for this run, such as segment.bytes=67108864",
    )
    add_errors(parser)
    add_fields(parser)
    add_times(parser)
    parser.add_argument("--json", action="store_true", help="the summary as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Append everything; what was appended before a failure stays."""
    from kafkalog.directory.manager import Manager
    from kafkalog.kraft.offline import heed

    shape = shape_of(options)
    settings = settings_of(options.set)
    check_files(options.file, shape, options.format)
    with Manager(
        options.dir, topic_config=lambda name: settings if name == options.topic else None
    ) as manager:
        heed(manager)
        if settings and manager.has_source:
            raise UsageError(
                f"--set: found {', '.join(settings)}, wanted none: {options.dir} has metadata, and "
                "the topic's settings in it apply to every writer"
            )
        writer = Writer(_logs(manager, options), options.compression)
        shape = shape._replace(limit_bytes=writer.limit)
        run = _Run(options, shape, writer)
        try:
            run.all()
        finally:
            run.progress.clear()
        writer.flush()
        run.summary()
    return 0


def _logs(manager: "Manager", options: argparse.Namespace) -> "list[Log]":
    """The topic's logs, created if it is new.  Raises: UsageError, InvalidTopic."""
    if options.topic not in manager.topics():
        from kafkalog.kraft.offline import create_topic

        create_topic(manager, options.topic, options.partitions or 1)
    found = manager.partitions(options.topic)
    if options.partitions not in (None, len(found)):
        raise UsageError(
            f"--partitions: topic {options.topic!r} exists with {len(found)}, "
            f"found {options.partitions}"
        )
    return [manager.get(tp.topic, tp.partition) for tp in found]


class Writer:
    """Records by partition, appended a megabyte at a time.

    A key decides its partition as in Kafka's Java client; records without a key go to one
    partition until a batch is full, then to the next.
    """

    def __init__(self, logs: "list[Log]", compression: str) -> None:
        self.logs = logs
        self.compression = compression
        self.values: list[list[bytes]] = [[] for _ in logs]
        self.keys: list[list[bytes | None]] = [[] for _ in logs]
        self.times: list[list[int]] = [[] for _ in logs]
        self.waiting = [0] * len(logs)
        self.turn = 0
        self.records = 0
        self.bytes = 0
        self.stored_before = sum(log.size_bytes for log in logs)
        self.place = functools.lru_cache(maxsize=1 << 16)(self._place)
        # Header, lengths and deltas of a batch with one record take less than 128 bytes.
        self.limit = min(log.config.max_message_bytes for log in logs) - 128

    def _place(self, key: bytes) -> int:
        from kafkalog.batch.partitioner import partition_for_key

        return partition_for_key(key, len(self.logs))

    def add(self, block: Block, now_ms: int) -> None:
        """Add the records of a block; append partitions that have reached a megabyte."""
        times: Any = block.times
        if times is not None and None in times:
            times = [now_ms if time_ms is None else time_ms for time_ms in times]
        if len(self.logs) > 1 and block.keys is not None:
            self._deal(block, times or [now_ms] * len(block.values))
        elif isinstance(block.values, list):
            times = times or [now_ms] * len(block.values)
            self._put(self.turn, block.values, block.keys, times)
        else:
            self._append_waiting(self.turn)
            self._append(self.turn, block.values, block.keys, times)

    def _deal(self, block: Block, times: list[int]) -> None:
        """Distribute records to their partitions."""
        values = block.values if isinstance(block.values, list) else block.values.to_pylist()
        keys, place = block.keys or [], self.place
        spots = [-1 if key is None else place(key) for key in keys]
        for at in range(-1, len(self.logs)):
            if (mine := spots.count(at)) == 0:
                continue
            if mine == len(spots):
                rows: Any = (values, keys, times)
            else:
                chosen = [spot == at for spot in spots]
                rows = [list(compress(column, chosen)) for column in (values, keys, times)]
            self._put(self.turn if at < 0 else at, *rows)
        if sum(self.waiting) > WAITING_BYTES_MAX:
            self.flush_waiting()

    def _put(
        self, at: int, values: list[bytes], keys: "list[bytes | None] | None", times: list[int]
    ) -> None:
        self.values[at] += values
        self.keys[at] += [None] * len(values) if keys is None else keys
        self.times[at] += times
        self.waiting[at] += sum(map(len, values))
        if keys is not None:
            self.waiting[at] += sum(map(len, filter(None, keys)))
        if self.waiting[at] >= APPEND_BYTES:
            self._append_waiting(at)

    def _append_waiting(self, at: int) -> None:
        values, keys, times = self.values[at], self.keys[at], self.times[at]
        self.values[at], self.keys[at], self.times[at], self.waiting[at] = [], [], [], 0
        if values:
            self._append(at, values, None if keys.count(None) == len(keys) else keys, times)

    def _append(self, at: int, values: Any, keys: Any, times: list[int] | None) -> None:
        self.logs[at].append_many(
            values, keys=keys, timestamps_ms=times, compression=self.compression
        )
        self.records += len(values)
        if isinstance(values, list):
            self.bytes += sum(map(len, values))
        else:
            self.bytes += values.nbytes - 4 * len(values)  # without Arrow's offsets
        if at == self.turn:
            self.turn = (self.turn + 1) % len(self.logs)

    def flush_waiting(self) -> None:
        """Append all pending records."""
        for at in range(len(self.logs)):
            self._append_waiting(at)

    def flush(self) -> None:
        """Append all pending records, and flush everything to disk."""
        self.flush_waiting()
        for log in self.logs:
            log.flush()


class _Run:
    """One run of the command: its progress, and its errors."""

    def __init__(self, options: argparse.Namespace, shape: Shape, writer: Writer) -> None:
        self.options = options
        self.shape = shape
        self.writer = writer
        self.errors = 0
        self.blank = 0
        sizes = [0 if p == "-" else os.path.getsize(p) for p in options.file]
        self.progress = Progress(0 if "-" in options.file else sum(sizes))
        self.read_before = 0

    def all(self) -> None:
        """Read every input in turn; after an interrupt, appended records stay."""
        try:
            for path in self.options.file:
                self._one(path)
        except KeyboardInterrupt:
            self.progress.clear()
            warn(f"interrupted after {plural(self.writer.records, 'record')}")
            raise

    def _one(self, path: str) -> None:
        from kafkalog.clock import SystemClock

        clock = SystemClock()
        source = Input(path)
        try:
            for block in read_blocks(source, self.shape, functools.partial(self.bad, source.name)):
                self.blank += block.blank
                self.writer.add(block, clock.now_ms())
                if path == "-":
                    self.writer.flush_waiting()  # a user of a pipe wants to see it now
                done = self.read_before + source.position()
                self.progress.update(self.writer.records, done)
            self.read_before += source.position()
        finally:
            source.close()

    def bad(self, name: str, line: int, why: str) -> None:
        """Count an invalid line; too many of them end the run."""
        self.errors += 1
        if self.errors > self.options.max_errors:
            self.writer.flush()
            allowed = f" ({self.errors} errors)" if self.options.max_errors else ""
            raise CommandError(
                f"{name}:{line}: {why}{allowed}; {plural(self.writer.records, 'record')} before "
                "it appended"
            )
        self.progress.clear()
        warn(f"{name}:{line}: {why}; skipped")

    def summary(self) -> None:
        """Print the summary on stdout."""
        writer, seconds = self.writer, self.progress.seconds()
        stored = sum(log.size_bytes for log in writer.logs) - writer.stored_before
        files, parts = len(self.options.file), len(writer.logs)
        ratio = f", {writer.bytes / stored:.1f} to 1" if stored > 0 else ""
        if self.options.json:
            print(json_line({
                "topic": self.options.topic, "partitions": parts, "files": files,
                "records": writer.records, "bytes": writer.bytes, "stored_bytes": stored,
                "seconds": round(seconds, 3), "skipped": self.errors, "blank": self.blank,
            }), flush=True)  # fmt: skip
            return
        skipped = left_out(self.errors, self.blank)
        print(
            f"{plural(writer.records, 'record')} ({show_bytes(writer.bytes)}) from "
            f"{plural(files, 'file')} into {self.options.topic} ({plural(parts, 'partition')}) "
            f"in {seconds:.2f} s: "
            f"{writer.records / seconds:,.0f} records/s, {show_bytes(writer.bytes / seconds)}/s; "
            f"stored in {show_bytes(stored)}{ratio}{skipped}"
        )
        sys.stdout.flush()
