"""A whole log into an Arrow table, compared with columnar files that hold the same table.

All sides work on one thread and end with the sum of the lengths of the value column.  The
columns are those in which a columnar file has no advantage but its layout: key, value, offset,
timestamp; the first row is all eight.  `the codec alone` decompresses the same bodies, already
in memory, with the library that the scan uses; `memcpy` copies as many bytes as the log has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kafkalog
from benchmarks.measure import Side, Want, scaled
from benchmarks.rivals import tables
from benchmarks.work import lines
from kafkalog._native import lib
from kafkalog.batch import codecs

OURS = "kafkalog"
RECORDS = 1_000_000
COLUMNS = ["key", "value", "offset", "timestamp"]


@pytest.fixture
def one_core(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither pyarrow nor the codecs use a second thread."""
    before = pa.cpu_count()
    pa.set_cpu_count(1)
    monkeypatch.setattr(codecs, "_threads", lambda: 1)
    yield
    pa.set_cpu_count(before)


class Filled(NamedTuple):
    """A log and what was put into it."""

    log: kafkalog.Log
    count: int


@pytest.fixture(params=["none", "zstd", "lz4"])
def filled(folder: Path, request: pytest.FixtureRequest) -> Iterator[Filled]:
    """Records of a 16 B key and about 90 B of words and numbers, as lines of a log are."""
    count = scaled(RECORDS, 1_000)
    rows, keys = lines(count), [b"%016d" % i for i in range(count)]
    with kafkalog.Log(folder / "scanned-0") as log:
        log.append_many(rows, keys=keys, compression=request.param, batch_bytes=256 << 10)
        yield Filled(log, count)


def value_bytes(table: Any) -> int:
    return int(pc.sum(pc.binary_length(table["value"])).as_py())


def table_side(name: str, count: int, read: Callable[[], Any]) -> Side:
    return Side(name, count, lambda: value_bytes(read()))


def codec_alone(log: kafkalog.Log, count: int) -> Side:
    """Every body of the log, decompressed in runs as a scan does it."""
    items, limit = list(bodies(log)), log.config.kafkalog_max_decompressed_bytes

    def run() -> None:
        for at in range(0, len(items), 32):
            codecs.decompress_many(items[at : at + 32], limit)

    return Side("the codec alone", count, run)


def bodies(log: kafkalog.Log) -> Iterator[tuple[int, bytes]]:
    """Codec and body of each batch; a batch is read whole, so `at` is always a batch's start."""
    offset = log.start_offset
    while offset < log.end_offset:
        batch = log.read_batches(offset, 1)
        records = int.from_bytes(batch[23:27], "big") + 1
        yield batch[22] & lib.KL_CODEC_MASK, batch[lib.KL_BATCH_HEADER_BYTES :]
        offset += records


def memcpy(log: kafkalog.Log, count: int) -> Side:
    source = np.ones(log.size_bytes, np.uint8)
    target = np.zeros(log.size_bytes, np.uint8)
    return Side("memcpy of the log's bytes", count, lambda: np.copyto(target, source))


@pytest.mark.usefixtures("one_core")
def test_scan(measure: Any, folder: Path, filled: Filled, request: Any) -> None:
    codec = request.node.callspec.params["filled"]
    packed = None if codec == "none" else codec
    log, count = filled
    ours = table_side(OURS, count, lambda: log.scan(columns=COLUMNS).to_arrow())
    table = log.scan(columns=COLUMNS).to_arrow()
    tables.write_ipc(folder / "rows.arrow", table, packed)
    tables.write_parquet(folder / "rows.parquet", table, packed)
    del table
    sides = [
        ours,
        table_side(f"{OURS}, all eight columns", count, lambda: log.scan().to_arrow()),
        table_side("pyarrow IPC file", count, lambda: tables.read_ipc(folder / "rows.arrow")),
        table_side("Parquet", count, lambda: tables.read_parquet(folder / "rows.parquet")),
    ]
    wants = [Want(OURS, 20e6)]
    if packed:
        sides.append(codec_alone(log, count))
        wants = [Want(OURS, than="the codec alone", factor=0.8)]
    sides.append(memcpy(log, count))
    name = "uncompressed" if packed is None else packed
    measure(f"scan-{codec}", f"Scan to Arrow, {name}", sides, wants, rounds=7)
