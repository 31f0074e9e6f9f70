"""The log itself, from Python: operations without a rival.

Records are 100 bytes; a log is on the file system of the folder that is measured, in the page
cache on return.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kafkalog
from benchmarks.measure import Side, Want, scaled
from benchmarks.work import lines, log_side, values

OURS = "kafkalog"
RECORDS = 500_000
LOOKUPS = 2_000
IMPORT = (
    "import time; start = time.perf_counter(); import kafkalog; kafkalog.Log;"
    "print(time.perf_counter() - start)"
)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_append_many_compressed(measure: Any, folder: Path, codec: str) -> None:
    number = scaled(RECORDS // 2, 1_000)
    column = pa.array(lines(number), pa.binary())

    def run(log: kafkalog.Log) -> None:
        log.append_many(column, compression=codec)

    sides = [log_side(OURS, folder, number, run)]
    measure(f"append-{codec}", f"append_many from Arrow, {codec}", sides)


def test_count(measure: Any, folder: Path) -> None:
    number = scaled(RECORDS, 1_000)
    with kafkalog.Log(folder / "full-0") as log:
        log.append_many(values(number), batch_bytes=16 << 10)
        side = Side(OURS, number, lambda: log.scan().count())
        measure("scan-count", "Count records, from batch headers", [side])


def test_lookups_from_python(measure: Any, folder: Path) -> None:
    """On a log of small batches, as producers make them."""
    number = scaled(RECORDS, 1_000)
    with kafkalog.Log(folder / "lookups-0", config={"segment.bytes": 8 << 20}) as log:
        log.append_many(values(number), timestamps_ms=list(range(number)), batch_bytes=16 << 10)
        wanted = random.Random(1).choices(range(number), k=LOOKUPS)

        def by_time() -> None:
            for timestamp_ms in wanted:
                log.offset_at(timestamp_ms)

        def by_offset() -> None:
            for offset in wanted:
                log.read_batches(offset, 16 << 10)

        time_name, offset_name = f"{OURS}: offset_at", f"{OURS}: read_batches, 16 KiB"
        sides = [Side(time_name, LOOKUPS, by_time), Side(offset_name, LOOKUPS, by_offset)]
        wants = [Want(time_name, 10e-6), Want(offset_name, 10e-6)]
        measure("lookup-python", "Lookups, from Python", sides, wants, unit="s", rounds=9)


def test_import(measure: Any) -> None:
    """In a new process, as that process measures it."""

    def run() -> float:
        done = subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True)
        return float(done.stdout)

    sides = [Side(OURS, 1, run)]
    measure(
        "open-import", "import kafkalog, with Log", sides, [Want(OURS, 60e-3)], unit="s", rounds=9
    )
