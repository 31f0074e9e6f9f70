"""Embedded stores that a log of records is often put into: SQLite, LMDB, RocksDB.

Each keeps a record under its number, as a log keeps it under its offset.  How safe a write is
on return is named in kafkalog's own terms: `process` survives the end of the process by kill -9
(it is in the page cache), `power` also a power cut (it is on disk).  All are set up as their
manuals say for that and no more, and otherwise left at their defaults.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

__all__ = ["STORES", "Store", "available"]

_MAP_BYTES = 2 << 30


class Store(ABC):
    """A store in the folder `path`, for values of bytes."""

    name: ClassVar[str]
    package: ClassVar[str]

    @abstractmethod
    def __init__(self, path: Path, durability: str) -> None:
        """Open it; `durability`: process or power."""

    @abstractmethod
    def put(self, number: int, value: bytes) -> None:
        """One record, in its own transaction."""

    @abstractmethod
    def put_many(self, first: int, values: Sequence[bytes]) -> None:
        """Records in one transaction."""

    @abstractmethod
    def rows(self) -> Iterator[tuple[Any, bytes]]:
        """All records in the order of their numbers."""

    @abstractmethod
    def close(self) -> None:
        """Release the files."""


class Sqlite(Store):
    """A table of an integer key and a blob, in WAL mode."""

    name = "SQLite WAL"
    package = "sqlite3"

    def __init__(self, path: Path, durability: str) -> None:
        path.mkdir()
        # The connection commits each statement by itself, unless a transaction was begun.
        self._db = sqlite3.connect(path / "records.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        level = {"process": "NORMAL", "power": "FULL"}[durability]
        self._db.execute(f"PRAGMA synchronous={level}")
        self._db.execute("CREATE TABLE record (number INTEGER PRIMARY KEY, value BLOB NOT NULL)")

    def put(self, number: int, value: bytes) -> None:
        self._db.execute("INSERT INTO record VALUES (?, ?)", (number, value))

    def put_many(self, first: int, values: Sequence[bytes]) -> None:
        self._db.execute("BEGIN")
        rows = zip(count(first), values, strict=False)
        self._db.executemany("INSERT INTO record VALUES (?, ?)", rows)
        self._db.execute("COMMIT")

    def rows(self) -> Iterator[tuple[Any, bytes]]:
        return self._db.execute("SELECT number, value FROM record ORDER BY number")

    def close(self) -> None:
        self._db.close()


class Lmdb(Store):
    """Big-endian numbers as keys, appended in order."""

    name = "py-lmdb"
    package = "lmdb"

    def __init__(self, path: Path, durability: str) -> None:
        import lmdb

        # Without sync the pages are written, not flushed: the page cache has them.
        self._env = lmdb.open(str(path), map_size=_MAP_BYTES, sync=durability == "power")

    def put(self, number: int, value: bytes) -> None:
        with self._env.begin(write=True) as transaction:
            transaction.put(number.to_bytes(8, "big"), value, append=True)

    def put_many(self, first: int, values: Sequence[bytes]) -> None:
        items = [(n.to_bytes(8, "big"), value) for n, value in enumerate(values, first)]
        with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(items, append=True)

    def rows(self) -> Iterator[tuple[Any, bytes]]:
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            yield from cursor

    def close(self) -> None:
        self._env.close()


class Rocks(Store):
    """Big-endian numbers as keys; the write-ahead log is on."""

    name = "rocksdict"
    package = "rocksdict"

    def __init__(self, path: Path, durability: str) -> None:
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        self._db = rocksdict.Rdict(str(path), options)
        self._batch = rocksdict.WriteBatch
        self._write = rocksdict.WriteOptions()
        self._write.sync = durability == "power"
        self._db.set_write_options(self._write)

    def put(self, number: int, value: bytes) -> None:
        self._db[number.to_bytes(8, "big")] = value

    def put_many(self, first: int, values: Sequence[bytes]) -> None:
        batch = self._batch(raw_mode=True)
        for number, value in enumerate(values, first):
            batch.put(number.to_bytes(8, "big"), value)
        self._db.write(batch, self._write)

    def rows(self) -> Iterator[tuple[Any, bytes]]:
        return iter(self._db.items())

    def close(self) -> None:
        self._db.close()


STORES: tuple[type[Store], ...] = (Sqlite, Lmdb, Rocks)


def available(*stores: type[Store]) -> list[type[Store]]:
    """Those of `stores` (all of them) whose package is installed."""
    return [store for store in stores or STORES if find_spec(store.package)]
