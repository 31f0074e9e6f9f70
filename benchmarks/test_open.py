"""Opening a log of ten segments: after a clean close, and after kill -9.

The folder is in memory (tmpfs): what is measured is kafkalog's part.  After the kill only the
records after the recovery point are read again; the floor under that is a loop that reads the
same bytes and computes CRC-32C over them.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import kafkalog
from benchmarks.measure import Side, Want, scaled
from benchmarks.work import values
from kafkalog._native import ffi, lib

OURS = "kafkalog"
SEGMENT_BYTES = 100_000_000
SEGMENTS = 10
TAIL_SEGMENTS = 3
"""The last segments, which are not flushed when the process is killed."""
CHUNK_BYTES = 1 << 20


def config() -> dict[str, object]:
    return {"segment.bytes": scaled(SEGMENT_BYTES, 200_000)}


def fill(log: kafkalog.Log, segments: int) -> None:
    """Append `segments` full segments, in batches of 16 KiB."""
    rows = values(scaled(100_000, 1_000))
    wanted = log.size_bytes + segments * scaled(SEGMENT_BYTES, 200_000)
    while log.size_bytes < wanted - len(rows) * 110:
        log.append_many(rows, batch_bytes=16 << 10)


def test_open_after_a_clean_close(measure: Any, memory: Path) -> None:
    path = memory / "clean-0"
    with kafkalog.Log(path, config=config()) as log:
        fill(log, SEGMENTS)

    def reopen() -> None:
        log = kafkalog.Log(path, config=config())
        opened.append(log)

    opened: list[kafkalog.Log] = []
    # Only the opening is timed, not the close of the round before.
    side = Side(f"{OURS}, writer", 1, lambda _: reopen(), lambda: 0, lambda _: opened.pop().close())

    def read() -> None:
        opened.append(kafkalog.Log(path, mode="r"))

    reader = Side(f"{OURS}, reader", 1, lambda _: read(), lambda: 0,
                  lambda _: opened.pop().close())  # fmt: skip
    work = f"Open after a clean close, {SEGMENTS} segments of 100 MB"
    measure("open-clean", work, [side, reader], [Want(side.name, 5e-3)], unit="s", rounds=15)


def killed(path: Path) -> int:
    """A log whose writer was killed; returns the bytes that it had not flushed."""
    with kafkalog.Log(path, config=config()) as log:
        fill(log, SEGMENTS - TAIL_SEGMENTS)
        before = log.size_bytes
    child = os.fork()
    if child == 0:
        fill(kafkalog.Log(path, config=config()), TAIL_SEGMENTS)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    return sum(file.stat().st_size for file in path.glob("*.log")) - before


def test_open_after_a_kill(measure: Any, memory: Path) -> None:
    path = memory / "killed-0"
    tail_bytes = killed(path)
    small = [file for file in path.iterdir() if file.suffix != ".log"]
    kept = memory / "kept"
    kept.mkdir()
    for file in small:
        shutil.copy(file, kept)
    seen: list[kafkalog.Log] = []

    def as_killed() -> int:
        """Put everything except the batches back as the kill left it."""
        for file in path.iterdir():
            if file.suffix != ".log":
                file.unlink()
        for file in kept.iterdir():
            shutil.copy(file, path)
        return 0

    def run(_: int) -> None:
        seen.append(kafkalog.Log(path, config=config()))

    def done(_: int) -> None:
        log = seen.pop()
        assert log.recovery.segments_recovered <= TAIL_SEGMENTS + 1
        assert log.recovery.truncated_bytes == 0
        log.close()

    sides = [
        Side(OURS, tail_bytes, run, as_killed, done),
        Side("read and CRC-32C alone", tail_bytes, lambda: checksum_tail(path, tail_bytes)),
    ]
    measure(
        "open-killed", "Open after kill -9, per byte of the unflushed tail", sides,
        [Want(OURS, 3e9)], unit="B/s", rounds=7,
    )  # fmt: skip


def checksum_tail(path: Path, tail_bytes: int) -> None:
    """The last `tail_bytes` of the log's files, read by chunks."""
    buffer = bytearray(CHUNK_BYTES)
    data = ffi.from_buffer("uint8_t[]", buffer)
    for file in sorted(path.glob("*.log"), reverse=True):
        if tail_bytes <= 0:
            return
        with file.open("rb", buffering=0) as source:
            source.seek(max(0, file.stat().st_size - tail_bytes))
            while got := source.readinto(buffer):
                lib.kl_crc32c(data, got)
                tail_bytes -= got
