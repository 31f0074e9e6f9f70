"""The steps that need only the log: write, look, find, count, delete, dump, verify, draw."""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

import layout
import pyarrow as pa
import pyarrow.compute as pc
from source import NEW_YORK, Flight, new_york_ms, read_rows
from tour import bar, check, code, megabytes, say, table

from kafkalog.batch.partitioner import partition_for_key
from kafkalog.cli import main as kafkalog_main
from kafkalog.directory.manager import Manager
from kafkalog.inspect.picture import describe, draw

BATCH_BYTES = 128 << 10
WIDTH = 110


def by_partition(flights: list[Flight]) -> list[list[Flight]]:
    """The flights of each partition: a carrier's key decides, as with Kafka's Java client."""
    carriers = {flight.key for flight in flights}
    home = {carrier: partition_for_key(carrier, layout.PARTITIONS) for carrier in carriers}
    parted: list[list[Flight]] = [[] for _ in range(layout.PARTITIONS)]
    for flight in flights:
        parted[home[flight.key]].append(flight)
    return parted


def write(manager: Manager, parted: list[list[Flight]]) -> None:
    """Append the year, partition by partition."""
    code('log.append_many(values, keys, timestamps_ms, compression="zstd")')
    began = time.perf_counter()
    for log, flights in zip(layout.logs_of(manager, layout.TOPIC), parted, strict=True):
        times, keys, values = zip(*flights, strict=True)
        span = log.append_many(values, keys, times, compression="zstd", batch_bytes=BATCH_BYTES)
        check(span.count == len(flights), f"{log.topic}-{log.partition}: {span.count:,} records")
        log.flush()
    seconds = time.perf_counter() - began
    count = sum(map(len, parted))
    raw = sum(len(f.key) + len(f.value) for flights in parted for f in flights)
    say(
        f"{count:,} records, {megabytes(raw)} of keys and values, compressed and on disk in "
        f"{seconds:.2f} s: {count / seconds:,.0f} records/s, {raw / seconds / 1e6:,.0f} MB/s"
    )


def show(manager: Manager, parted: list[list[Flight]]) -> None:
    """Print the files on disk now."""
    code("log.segments, log.size_bytes")
    rows = []
    stored = plain = 0
    for log, flights in zip(layout.logs_of(manager, layout.TOPIC), parted, strict=True):
        raw = sum(len(flight.key) + len(flight.value) for flight in flights)
        entries = [(len(s.offset_index), len(s.time_index)) for s in log.segments]
        rows.append(
            [
                f"{log.topic}-{log.partition}",
                f"{log.end_offset:,}",
                f"{len(log.segments)}",
                megabytes(log.size_bytes),
                f"{raw / log.size_bytes:.1f}",
                f"{sum(by_offset for by_offset, _ in entries)}",
                f"{sum(by_time for _, by_time in entries)}",
                " ".join(sorted({flight.key.decode() for flight in flights})),
            ]
        )
        stored, plain = stored + log.size_bytes, plain + raw
    head = ["partition", "records", "segments", "on disk", "ratio", "offset index", "time index"]
    table([*head, "carriers"], rows)
    say(f"{megabytes(plain)} of keys and values in {megabytes(stored)}: {plain / stored:.1f} to 1")


def find(manager: Manager, flights: list[Flight]) -> None:
    """The first flight of 4 July, through the time index of each partition."""
    midnight = new_york_ms(2013, 7, 4)
    code("log.offset_at(4 July 2013, 0:00 in New York)")
    found = []
    began = time.perf_counter()
    logs = layout.logs_of(manager, layout.TOPIC)
    offsets = [log.offset_at(midnight) for log in logs]
    micros = (time.perf_counter() - began) * 1e6
    for log, offset in zip(logs, offsets, strict=True):
        if offset is not None:
            found.append(log[offset])
    say(f"four lookups, {micros:,.0f} µs together: offsets {', '.join(map(str, offsets))}")
    first = min(found, key=lambda record: record.timestamp_ms)
    flight = json.loads(first.value or b"null")
    when = datetime.fromtimestamp(first.timestamp_ms / 1000, NEW_YORK)
    say(
        f"first: {flight['carrier']} {flight['flight']} from {flight['origin']} to "
        f"{flight['dest']}, {when:%A %d %B, %H:%M}, offset {first.offset} of "
        f"{first.topic}-{first.partition}"
    )
    wanted = next(f for f in flights if f.timestamp_ms >= midnight)
    check(first.timestamp_ms == wanted.timestamp_ms, "a walk over the source finds the same time")


def departures(manager: Manager) -> None:
    """Columns into Arrow, and departures by hour of the day in New York."""
    code("log.scan().to_arrow()")
    began = time.perf_counter()
    tables = [log.scan().to_arrow() for log in layout.logs_of(manager, layout.TOPIC)]
    whole = pa.concat_tables(tables)
    seconds = time.perf_counter() - began
    say(
        f"all columns: {whole.num_rows:,} rows, {megabytes(whole.nbytes)} of Arrow in "
        f"{seconds:.2f} s: {whole.num_rows / seconds:,.0f} rows/s"
    )
    # Count by whole hours since 1970 UTC first: then only 8,760 hours, instead of all rows, have
    # to be converted to New York time.
    hours = pc.divide(pc.cast(whole["timestamp"], pa.int64()), 3_600_000_000)
    counted: Counter[int] = Counter()
    for entry in pc.value_counts(hours.combine_chunks()):
        local = datetime.fromtimestamp(entry["values"].as_py() * 3600, NEW_YORK)
        counted[local.hour] += entry["counts"].as_py()
    largest = max(counted.values())
    for hour in range(24):
        say(f"{hour:02d}:00  {bar(counted[hour], largest):<44} {counted[hour]:>7,}")
    wanted = Counter(read_rows()["hour"].to_pylist())
    check(counted == wanted, "the same as counted by the column `hour` of the source")


def delete_half(manager: Manager) -> None:
    """Everything before July, by its offset."""
    july = new_york_ms(2013, 7, 1)
    code("log.delete_before(log.offset_at(1 July 2013))")
    rows = []
    for log in layout.logs_of(manager, layout.TOPIC):
        size, segments, offset = log.size_bytes, len(log.segments), log.offset_at(july)
        assert offset is not None, "every carrier flew after July"
        log.delete_before(offset)
        rows.append(
            [
                f"{log.topic}-{log.partition}",
                f"{log.start_offset:,}",
                f"{segments} → {len(log.segments)}",
                f"{megabytes(size)} → {megabytes(log.size_bytes)}",
            ]
        )
        first = next(iter(log.read()))
        check(
            first.offset == offset and first.timestamp_ms >= july,
            f"{log.topic}-{log.partition} begins on "
            f"{datetime.fromtimestamp(first.timestamp_ms / 1000, NEW_YORK):%d %B, %H:%M}",
        )
    table(["partition", "first offset", "segments", "on disk"], rows)


def run_cli(*arguments: str, lines: int = 1000) -> int:
    """The command line in this process, as a user would type it; its first `lines` lines."""
    code("kafkalog " + " ".join(os.path.relpath(a) if a[:1] == "/" else a for a in arguments))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = kafkalog_main(list(arguments))
    shown = printed.getvalue().splitlines()
    for line in shown[:lines]:
        say(line if len(line) <= WIDTH else line[: WIDTH - 1] + "…")
    if len(shown) > lines:
        say(f"… and {len(shown) - lines:,} more lines")
    return status


def dump(directory: Path) -> None:
    """A batch of the oldest segment with its records, as Kafka's own tool shows it."""
    oldest = min((directory / f"{layout.TOPIC}-1").glob("*.log"))
    status = run_cli("dump", "--records", "--max-batches", "1", str(oldest), lines=8)
    check(status == 0, "dump read the batch")


def verify(directory: Path) -> None:
    """Structure and checksum of every batch, and that no index entry misleads."""
    check(run_cli("verify", str(directory)) == 0, "verify says clean")


def picture(manager: Manager, path: Path, title: str) -> None:
    """Draw the topic."""
    shapes = [describe(log) for log in layout.logs_of(manager, layout.TOPIC)]
    path.write_text(draw(title, shapes), encoding="utf-8")
    say(f"{os.path.relpath(path)}: {path.stat().st_size / 1e3:,.0f} kB, for any browser")
