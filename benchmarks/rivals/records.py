"""The fields of a record in other stores, to be iterated: a fair comparison with a Record.

Both hold number, time, key and value and give them back as a tuple, without headers or the
names of topic and partition, which a Record also has.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["Rows", "lmdb_rows", "sqlite_rows"]

Rows = list[tuple[int, int, bytes, bytes]]
"""Number, time in ms, key, value."""
_HEAD = struct.Struct(">qi")
"""Time and length of the key, before key and value."""


def sqlite_rows(path: Path, rows: Rows) -> Callable[[], Iterator[tuple[object, ...]]]:
    """`rows` in a table; returns a function that iterates over them."""
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE record (number INTEGER PRIMARY KEY, ms INTEGER, key BLOB, value BLOB)")
    db.executemany("INSERT INTO record VALUES (?, ?, ?, ?)", rows)
    db.commit()
    return lambda: db.execute("SELECT number, ms, key, value FROM record ORDER BY number")


def lmdb_rows(path: Path, rows: Rows) -> Callable[[], Iterator[tuple[object, ...]]]:
    """`rows` with packed values, unpacked by struct; returns a function that iterates over them."""
    import lmdb

    env = lmdb.open(str(path), map_size=2 << 30, sync=False)
    with env.begin(write=True) as transaction, transaction.cursor() as cursor:
        cursor.putmulti(
            ((n.to_bytes(8, "big"), _HEAD.pack(ms, len(key)) + key + value)
             for n, ms, key, value in rows),
            append=True,
        )  # fmt: skip

    def iterate() -> Iterator[tuple[object, ...]]:
        number_of, unpack, start = int.from_bytes, _HEAD.unpack_from, _HEAD.size
        with env.begin() as transaction, transaction.cursor() as cursor:
            for name, data in cursor:
                ms, key_bytes = unpack(data)
                middle = start + key_bytes
                yield number_of(name, "big"), ms, data[start:middle], data[middle:]

    return iterate
