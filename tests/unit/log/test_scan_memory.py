"""A scan's memory for compressed batches, however large they are decompressed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kafkalog

MIB = 1 << 20
LARGE = {"max.message.bytes": 1 << 30}
MEASURED = """
import resource, sys
import kafkalog
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
with kafkalog.Log(sys.argv[1], mode="r") as log:
    before = peak()
    for batch in log.scan(columns=["value"]):
        pass
    print(peak() - before)
"""


def test_large_batches_are_taken_one_by_one(tmp_path: Path) -> None:
    """6 of 32 MiB, 2 KB each on disk: a step must not hold them all at once with their rows."""
    with kafkalog.Log(tmp_path / "t-0", config=LARGE) as log:
        for _ in range(6):
            log.append_many([bytes(MIB)] * 32, compression="zstd", batch_bytes=1 << 30)
        assert log.size_bytes < MIB
    words = [sys.executable, "-c", MEASURED, str(tmp_path / "t-0")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=True)
    assert int(done.stdout) < 250 * MIB


MEASURED_TOPIC = """
import resource, sys
import kafkalog
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
with kafkalog.Store(sys.argv[1]) as store:
    before, rows = peak(), 0
    for batch in store.scan("t", columns=["value"], threads=8):
        rows += len(batch)
    print(rows, peak() - before)
"""


def test_read_ahead_of_all_threads_is_bounded(tmp_path: Path) -> None:
    """64 batches of 32 MiB in 8 partitions: unbounded, 36 of them, 1.2 GB, are decoded ahead."""
    with kafkalog.Store(tmp_path) as store:
        store.create_topic("t", 8, config=LARGE)
        first, *others = (store["t"][partition] for partition in range(8))
        for _ in range(8):
            first.append_many([bytes(MIB)] * 32, compression="zstd", batch_bytes=1 << 30)
        for log in others:
            log.append_as_follower(first.read_batches(0, MIB))
    words = [sys.executable, "-c", MEASURED_TOPIC, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=True)
    rows, grown = map(int, done.stdout.split())
    assert rows == 64 * 32
    assert grown < 850 * MIB  # 256 ahead, and for each of 8 threads a block and its records


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_large_and_small_ones_between_each_other(tmp_path: Path, codec: str) -> None:
    """Every record once, in order, however its batch is decoded."""
    sizes = [10, 9 * MIB, 20, 30, 30 * MIB, 30 * MIB, 30 * MIB, 40, *range(50, 120)]
    with kafkalog.Log(tmp_path / "t-0", config=LARGE) as log:
        for number, size in enumerate(sizes):
            log.append_many([bytes([number]) * size], compression=codec, batch_bytes=1 << 26)
        found = [value for some in log.scan(columns=["value"]) for value in some.numpy("value")]
    assert [(value[0], len(value)) for value in found] == list(enumerate(sizes))
