"""One Python object for each record, in order.

Twice: all fields (a Record is a tuple of nine; the stores give number, time, key and value),
and the bare pair of number and value, which a store's cursor gives and a scan of two columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from benchmarks.measure import Side, Want, scaled
from benchmarks.rivals import kafka_reader
from benchmarks.rivals.records import lmdb_rows, sqlite_rows
from benchmarks.rivals.stores import Lmdb, Sqlite, available
from benchmarks.work import values

# kafka-python reads its own files in a way that Python deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

OURS = "kafkalog"
RECORDS = 400_000
PYTHON_SHARE = 20
"""kafka-python decodes in Python: this fraction is enough to see its rate."""
T0 = 1_700_000_000_000


def drain(rows: Iterable[object]) -> None:
    for _row in rows:
        pass


def filled(folder: Path, count: int) -> kafkalog.Log:
    log = kafkalog.Log(folder / "records-0")
    keys = [b"%016d" % i for i in range(count)]
    log.append_many(values(count), keys=keys, timestamps_ms=list(range(T0, T0 + count)))
    return log


def test_all_fields(measure: Any, folder: Path) -> None:
    count = scaled(RECORDS, 1_000)
    rows = [(i, T0 + i, b"%016d" % i, value) for i, value in enumerate(values(count))]
    with filled(folder, count) as log:
        sides = [Side(f"{OURS}: Log.read", count, lambda: drain(log.read()))]
        from_sqlite = sqlite_rows(folder / "fields.db", rows)
        sides.append(Side("SQLite cursor, four fields", count, lambda: drain(from_sqlite())))
        if find_spec("lmdb"):
            from_lmdb = lmdb_rows(folder / "fields", rows)
            sides.append(
                Side("py-lmdb cursor, four fields unpacked", count, lambda: drain(from_lmdb()))
            )
        if kafka_reader.available():
            part = log.read_batches(0, log.size_bytes // PYTHON_SHARE)
            some = kafka_reader.read(part)
            sides.append(Side("kafka-python", some, lambda: kafka_reader.read(part)))
        wants = [Want(sides[0].name, 2e6), *(Want(sides[0].name, than=s.name) for s in sides[1:])]
        measure("iterate", "Iterate records as objects", sides, wants, rounds=7)


def test_number_and_value(measure: Any, folder: Path) -> None:
    count = scaled(RECORDS, 1_000)
    rows = values(count)
    stores = []
    for kind in available(Sqlite, Lmdb):
        stores.append(kind(folder / kind.package, "process"))
        for at in range(0, count, 10_000):
            stores[-1].put_many(at, rows[at : at + 10_000])

    with filled(folder, count) as log:

        def pairs() -> None:
            for batch in log.scan(columns=["offset", "value"]):
                drain(zip(batch.numpy("offset").tolist(), batch.numpy("value"), strict=True))

        sides = [
            Side(f"{OURS}: scan of two columns", count, pairs),
            *(Side(f"{s.name} cursor", count, lambda s=s: drain(s.rows())) for s in stores),
        ]
        wants = [Want(sides[0].name, than=side.name) for side in sides[1:]]
        measure("iterate-values", "Iterate pairs of number and value", sides, wants, rounds=7)
    for store in stores:
        store.close()
