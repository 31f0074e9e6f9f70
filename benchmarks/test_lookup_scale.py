"""Lookups by offset and by time: how they grow with the log.

The loops are in C (lookups.c); the logs are sparse files, uncompressed, in batches of 16 KiB
of 100-byte records.  A lookup by offset finds the file, the place and the length of the batch;
one by time finds the record, which means that its batch is read and its checksum checked.
"""

from __future__ import annotations

import inspect
import os
import resource
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import kafkalog
from benchmarks import lookups, sparse
from benchmarks.measure import Side, Want, scaled

pytestmark = pytest.mark.skipif(lookups.compiler() is None, reason="no C compiler")

WANTED = 2_000
GIB, MIB = 1 << 30, 1 << 20
LIMIT_S = 5e-6
FLAT = 0.9
"""Within 10 %."""
OPEN_FILES = 20_000
ABOUT = f"{inspect.cleandoc(__doc__)}\n\n{inspect.cleandoc(sparse.__doc__)}"


class Pair(NamedTuple):
    """Two logs that differ in one thing only."""

    large: sparse.SparseLog
    large_log: kafkalog.Log
    small: sparse.SparseLog
    small_log: kafkalog.Log


def pair(folder: Path, large: tuple[int, int], small: tuple[int, int]) -> Iterator[Pair]:
    """Logs of (segments, bytes of a segment), open."""
    count = scaled(WANTED, 50)
    built = [
        sparse.build(folder / f"{name}-0", *shape, count, seed)
        for seed, (name, shape) in enumerate((("large", large), ("small", small)))
    ]
    with kafkalog.Log(built[0].path) as one, kafkalog.Log(built[1].path) as other:
        for log in (one, other):
            assert log.recovery.segments_recovered == log.recovery.indexes_rebuilt == 0
        yield Pair(built[0], one, built[1], other)


@pytest.fixture
def sizes(folder: Path) -> Iterator[Pair]:
    """100 GB and 100 MB, in segments of 1 GiB."""
    yield from pair(folder, (scaled(100, 2), GIB), (1, 100 * MIB))


@pytest.fixture
def counts(folder: Path) -> Iterator[Pair]:
    """10,000 and 10 segments of 1 MiB each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(OPEN_FILES, hard) if hard != resource.RLIM_INFINITY else OPEN_FILES
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield from pair(folder, (scaled(10_000, 20), MIB), (10, MIB))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def in_memory(log: sparse.SparseLog) -> Side:
    """Python's bisect over the first offset of each batch, as an array in memory."""
    firsts = np.arange(log.batch_count, dtype=np.int64) * log.batch_records
    wanted = log.wanted.tolist()
    view = memoryview(firsts)

    def run() -> None:
        for offset in wanted:
            bisect_right(view, offset)

    return Side("bisect in memory, from Python", len(wanted), run)


def by_offset(name: str, log: kafkalog.Log, of: sparse.SparseLog) -> Side:
    return Side(name, len(of.wanted), lambda: lookups.by_offset(log, of.wanted, of.batch_bytes))


def by_time(name: str, log: kafkalog.Log, of: sparse.SparseLog) -> Side:
    return Side(name, len(of.wanted), lambda: lookups.by_time(log, of.wanted))


READ_BYTES = 8 << 10
"""Bytes that a lookup by offset reads: about two index intervals."""


def bare_reads(name: str, of: sparse.SparseLog) -> Side:
    """pread(2) alone, at the places that a lookup reads, from files that are open already."""
    segments = sorted(of.path.glob("*.log"))
    per_segment = of.batch_count // len(segments)
    number = of.wanted // of.batch_records
    before = np.maximum(number % per_segment - 1, 0) * of.batch_bytes
    positions = np.ascontiguousarray(before, np.int64)
    used = (number // per_segment).tolist()

    def opened() -> np.ndarray:
        fds = {i: os.open(segments[i], os.O_RDONLY) for i in set(used)}
        return np.array([fds[i] for i in used], np.int32)

    def closed(fds: np.ndarray) -> None:
        for fd in set(fds.tolist()):
            os.close(fd)

    def run(fds: np.ndarray) -> float:
        lookups.pread(fds, positions, READ_BYTES)
        return lookups.pread(fds, positions, READ_BYTES)

    return Side(name, len(used), run, opened, closed)


def floors(logs: Pair) -> list[Side]:
    return [
        bare_reads("pread(2) alone, in the large one", logs.large),
        bare_reads("pread(2) alone, in the small one", logs.small),
    ]


def wants(large: str, small: str) -> list[Want]:
    return [Want(large, LIMIT_S), Want(large, than=small, factor=FLAT)]


@pytest.mark.parametrize("kind", [by_offset, by_time])
def test_size(measure: Any, sizes: Pair, kind: Callable[..., Side]) -> None:
    large, small = "kafkalog, 100 GB", "kafkalog, 100 MB"
    by = kind.__name__.replace("_", " ")
    sides = [
        kind(large, sizes.large_log, sizes.large),
        kind(small, sizes.small_log, sizes.small),
        in_memory(sizes.large),
        *floors(sizes),
    ]
    measure(
        f"lookup-{by[3:]}-bytes", f"Lookup {by}, in C, by size of the log", sides,
        wants(large, small), unit="s", rounds=9, about=ABOUT,
    )  # fmt: skip


@pytest.mark.parametrize("kind", [by_offset, by_time])
def test_segments(measure: Any, counts: Pair, kind: Callable[..., Side]) -> None:
    large, small = "kafkalog, 10,000 segments", "kafkalog, 10 segments"
    by = kind.__name__.replace("_", " ")
    sides = [
        kind(large, counts.large_log, counts.large),
        kind(small, counts.small_log, counts.small),
        in_memory(counts.large),
        *floors(counts),
    ]
    measure(
        f"lookup-{by[3:]}-segments", f"Lookup {by}, in C, by number of segments", sides,
        wants(large, small), unit="s", rounds=9, about=ABOUT,
    )  # fmt: skip
