"""Appends that survive kill -9: one record a call, many a call, whole batches.

On return the bytes are in the page cache, on every side: SQLite in WAL mode with
synchronous=NORMAL, LMDB with sync off, RocksDB with its write-ahead log and no sync.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kafkalog
from benchmarks.measure import Side, Want, scaled
from benchmarks.rivals.stores import Lmdb, Rocks, Sqlite, Store, available
from benchmarks.work import file_side, log_side, store_side, values

OURS, FLOOR = "kafkalog", "os.write of the same bytes"
# How much each does in about a quarter of a second.
ONE_BY_ONE = {Sqlite: 20_000, Lmdb: 60_000, Rocks: 60_000}
MANY = {Sqlite: 200_000, Lmdb: 300_000, Rocks: 200_000}
TRANSACTION = 1_000
ENVELOPE_BYTES = 61 + 9
"""The overhead of a record of 100 bytes in its own batch."""


def ahead(ours: str, rivals: list[Side]) -> list[Want]:
    return [Want(ours, than=side.name) for side in rivals]


def test_one_record_a_call(measure: Any, folder: Path) -> None:
    number = scaled(300_000)
    value = values(1)[0]

    def append(log: kafkalog.Log) -> None:
        append_one = log.append
        for same in repeat(value, number):
            append_one(same)

    def writer(fd: int) -> None:
        data, write = value + bytes(ENVELOPE_BYTES), os.write
        for _ in repeat(None, number):
            write(fd, data)

    stores = [
        store_side(kind, folder, "process", some, one_by_one(some, value))
        for kind in available()
        for some in [scaled(ONE_BY_ONE[kind])]
    ]
    measure(
        "append-one", "Append one record of 100 B a call", [
            log_side(OURS, folder, number, append), *stores,
            file_side(FLOOR, folder, number, writer),
        ], [Want(OURS, than=FLOOR, factor=0.8), *ahead(OURS, stores)], rounds=7,
        writes=number * (len(value) + ENVELOPE_BYTES),
    )  # fmt: skip


def one_by_one(number: int, value: bytes) -> Callable[[Store], object]:
    def run(store: Store) -> None:
        put = store.put
        for i in range(number):
            put(i, value)

    return run


def in_transactions(number: int) -> Callable[[Store], object]:
    chunks = [values(TRANSACTION)] * (number // TRANSACTION)

    def run(store: Store) -> None:
        for i, chunk in enumerate(chunks):
            store.put_many(i * TRANSACTION, chunk)

    return run


def test_many_records_a_call(measure: Any, folder: Path) -> None:
    number = scaled(500_000, 2 * TRANSACTION)
    rows = values(number)
    arrow, array = pa.array(rows, pa.binary()), np.array(rows)
    parts = [rows[at : at + TRANSACTION] for at in range(0, number, TRANSACTION)]

    def in_parts(log: kafkalog.Log) -> None:
        for part in parts:
            log.append_many(part)

    stores = [
        store_side(kind, folder, "process", some, in_transactions(some), f"{kind.name}, 1,000 each")
        for kind in available()
        for some in [scaled(MANY[kind], TRANSACTION)]
    ]
    lists, columns, small = f"{OURS}, a list", f"{OURS}, Arrow", f"{OURS}, lists of 1,000"
    measure(
        "append-many", "append_many of records of 100 B", [
            log_side(columns, folder, number, lambda log: log.append_many(arrow)),
            log_side(f"{OURS}, NumPy", folder, number, lambda log: log.append_many(array)),
            log_side(lists, folder, number, lambda log: log.append_many(rows)),
            log_side(small, folder, number, in_parts),
            *stores,
        ],
        [Want(lists, 4e6), Want(columns, 10e6), *ahead(small, stores)], rounds=7,
        writes=number * 2 * len(rows[0]),
    )  # fmt: skip


@pytest.mark.parametrize("value_bytes", [100, 1000])
@pytest.mark.parametrize("batch_bytes", [16 << 10, 1 << 20])
def test_whole_batches(measure: Any, folder: Path, batch_bytes: int, value_bytes: int) -> None:
    """As in a produce request: every checksum and every record is checked."""
    with kafkalog.Log(folder / "scratch-0") as log:
        log.append_many(values(3 * batch_bytes // value_bytes, value_bytes),
                        batch_bytes=batch_bytes)  # fmt: skip
        batch = log.read_batches(0, 1)
    number = scaled((128 << 20) // len(batch), 2)

    def append(log: kafkalog.Log) -> None:
        append_batches = log.append_batches
        for same in repeat(batch, number):
            append_batches(same)

    def writer(fd: int) -> None:
        write = os.write
        for same in repeat(batch, number):
            write(fd, same)

    size = f"{batch_bytes >> 10} KiB" if batch_bytes < 1 << 20 else "1 MiB"
    measure(
        f"append-batches-{batch_bytes >> 10}k-{value_bytes}",
        f"append_batches of {size}, records of {value_bytes:,} B", [
            log_side(OURS, folder, number * len(batch), append),
            file_side("write(2)", folder, number * len(batch), writer),
        ], [Want(OURS, than="write(2)", factor=0.7)], unit="B/s",
        writes=number * len(batch),
    )  # fmt: skip
