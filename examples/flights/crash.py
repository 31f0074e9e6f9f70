"""A writer that is killed: what it had acknowledged is still there.

Run as a program, this is the writer: it reads the topic `flights` and appends each record to
the topic `flights-live`, one call per record, and writes each returned offset to a
pipe.  The reader of the pipe knows what was acknowledged.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import layout
from source import Flight
from tour import check, say, table

from kafkalog import Log

ACK = struct.Struct("<iq")
"""Partition and offset of one acknowledged record."""
KILL_AFTER = 60_000
"""Acknowledged records; the year has 336,776."""


def write_until_killed(directory: Path, ack_fd: int) -> None:
    """The child: copy record by record, round robin, and acknowledge each."""
    with layout.open_directory(directory) as manager:
        live = layout.logs_of(manager, layout.LIVE)
        sources = [log.read() for log in layout.logs_of(manager, layout.TOPIC)]
        while sources:
            for records in list(sources):
                record = next(records, None)
                if record is None:
                    sources.remove(records)
                    continue
                offset = live[record.partition].append(
                    record.value, key=record.key, timestamp_ms=record.timestamp_ms
                )
                os.write(ack_fd, ACK.pack(record.partition, offset))


def run_and_kill(directory: Path) -> list[int]:
    """Start the writer, kill -9 it in the middle; the last acknowledged offset per partition."""
    read_fd, write_fd = os.pipe()
    writer = subprocess.Popen(
        [sys.executable, __file__, str(directory), str(write_fd)], pass_fds=[write_fd]
    )
    os.close(write_fd)
    acknowledged = [-1] * layout.PARTITIONS
    count, rest = 0, b""
    # An acknowledgement is 12 bytes, written whole: after the kill we read on to the end of
    # the pipe, since what is there was acknowledged too.
    while chunk := os.read(read_fd, 1 << 16):
        rest += chunk
        whole = len(rest) - len(rest) % ACK.size
        for partition, offset in ACK.iter_unpack(rest[:whole]):
            acknowledged[partition] = offset
            count += 1
        rest = rest[whole:]
        if count >= KILL_AFTER and writer.returncode is None:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
    os.close(read_fd)
    status = writer.wait()
    check(status == -signal.SIGKILL, f"the writer was killed after {count:,} acknowledgements")
    return acknowledged


def same_records(log: Log, flights: list[Flight], count: int) -> bool:
    """True if the first `count` records of `log` are these flights, byte for byte."""
    found = log.read(stop=count)
    return all(
        (record.offset, record.timestamp_ms, record.key, record.value) == (offset, *flight)
        for offset, (record, flight) in enumerate(zip(found, flights[:count], strict=True))
    )


def kill_and_recover(directory: Path, parted: list[list[Flight]]) -> None:
    """Kill a writer in the middle, open the directory again, compare with the source."""
    say("a child appends flight by flight, and reports each offset it got back through a pipe")
    acknowledged = run_and_kill(directory)
    rows, kept = [], True
    with layout.open_directory(directory) as manager:
        logs = layout.logs_of(manager, layout.LIVE)
        for partition, (log, last) in enumerate(zip(logs, acknowledged, strict=True)):
            kept &= log.end_offset > last
            kept &= same_records(log, parted[partition], last + 1)
            rows.append(
                [
                    f"{layout.LIVE}-{partition}",
                    f"{last:,}",
                    f"{log.end_offset - 1:,}",
                    f"{log.recovery.segments_recovered}",
                    f"{log.recovery.truncated_bytes:,}",
                ]
            )
    table(["partition", "last acked", "last found", "segments checked", "bytes cut"], rows)
    check(kept, "every acknowledged record is there, byte for byte, at its offset")


if __name__ == "__main__":
    write_until_killed(Path(sys.argv[1]), int(sys.argv[2]))
