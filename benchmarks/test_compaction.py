"""Compaction, compared with Kafka's own log cleaner on copies of the same folder.

Four versions of each key on average, in segments of 16 MiB; everything but an empty active
segment is cleaned.  Kafka's cleaner is called as a broker's cleaner thread calls it, with its
default settings, one thread, in a Java process that has cleaned such folders before.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kafkalog
from benchmarks.measure import Side, Want, scaled
from benchmarks.rivals import kafka_cleaner
from benchmarks.work import lines
from tests.support import apache

OURS, KAFKA = "kafkalog", f"Kafka {apache.VERSION}, LogCleaner"
RECORDS, KEYS = 600_000, 150_000
SEGMENT_BYTES = 16 << 20
CONFIG = {"cleanup.policy": "compact", "segment.bytes": SEGMENT_BYTES, "file.delete.delay.ms": 0}


@pytest.fixture(params=["none", "lz4"])
def dirty(folder: Path, request: pytest.FixtureRequest) -> Path:
    """A log to be cleaned, closed."""
    number = scaled(RECORDS, 1_000)
    drawn = np.random.default_rng(3).integers(0, max(1, number * KEYS // RECORDS), number)
    keys = [b"%016d" % key for key in drawn.tolist()]
    with kafkalog.Log(folder / "dirty-0", config=CONFIG) as log:
        log.append_many(lines(number), keys=keys, compression=request.param, batch_bytes=16 << 10)
        log.roll()
    return folder / "dirty-0"


@pytest.fixture
def cleaner() -> Iterator[kafka_cleaner.Cleaner | None]:
    """Kafka's cleaner; None if it cannot run."""
    if kafka_cleaner.unavailable():
        yield None
        return
    with kafka_cleaner.Cleaner(SEGMENT_BYTES) as made:
        yield made


def linked(source: str, target: str) -> None:
    """Sealed segments are never written to: both cleaners make new files."""
    if source.endswith(".log") and os.stat(source).st_size:
        os.link(source, target)
    else:
        shutil.copy(source, target)


def gone(path: Path) -> None:
    # Kafka may still be removing files there.
    shutil.rmtree(path, ignore_errors=True)


def test_compaction(
    measure: Any, dirty: Path, cleaner: kafka_cleaner.Cleaner | None, request: Any
) -> None:
    numbers = count()
    size = sum(file.stat().st_size for file in dirty.glob("*.log"))

    def copied() -> Path:
        # Kafka reads topic and partition out of the folder's name.
        path = dirty.with_name(f"copy-{next(numbers)}")
        return Path(shutil.copytree(dirty, path, copy_function=linked))

    def opened() -> kafkalog.Log:
        return kafkalog.Log(copied(), config=CONFIG)

    def closed(log: kafkalog.Log) -> None:
        assert log.size_bytes < size
        log.close()
        shutil.rmtree(log.path)

    sides = [Side(OURS, size, lambda log: log.compact() and None, opened, closed)]
    if cleaner is not None:
        sides.append(Side(KAFKA, size, cleaner.clean, copied, gone))
    codec = request.node.callspec.params["dirty"]
    measure(
        f"compaction-{codec}",
        f"Compaction, {'uncompressed' if codec == 'none' else codec}, bytes of the dirty log",
        sides, [Want(OURS, than=KAFKA, factor=3)], unit="B/s", rounds=5, jvm=True,
    )  # fmt: skip
