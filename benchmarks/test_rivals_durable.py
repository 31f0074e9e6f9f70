"""Appends that survive a power cut: on return of every call the record is on disk.

The floor is a loop of pwrite(2) at the end of a growing file and fdatasync(2).  Sixteen writers
are compared with that loop in one thread, because the test is about group commit.
"""

from __future__ import annotations

import os
import threading
from itertools import repeat
from pathlib import Path
from typing import Any

import kafkalog
from benchmarks.measure import Side, Want, scaled
from benchmarks.rivals.stores import Lmdb, Sqlite, Store, available
from benchmarks.work import file_side, log_side, store_side, values

OURS, FLOOR = "kafkalog", "pwrite and fdatasync"
RECORDS = 150
WRITERS = 16
RECORD = values(1)[0]
ON_DISK = RECORD + bytes(70)
"""As large as the record's batch."""


def durable(log: kafkalog.Log, number: int) -> None:
    for _ in repeat(None, number):
        log.append(RECORD)
        log.flush()


def floor(folder: Path, number: int) -> Side:
    def run(fd: int) -> None:
        for i in range(number):
            os.pwrite(fd, ON_DISK, i * len(ON_DISK))
            os.fdatasync(fd)

    return file_side(FLOOR, folder, number, run)


def put_each(store: Store, number: int) -> None:
    for i in range(number):
        store.put(i, RECORD)


def stores(folder: Path, number: int) -> list[Side]:
    return [
        store_side(kind, folder, "power", number, lambda store: put_each(store, number), name)
        for kind, name in ((Sqlite, "SQLite WAL, synchronous=FULL"), (Lmdb, "py-lmdb, sync"))
        if kind in available()
    ]


def test_one_writer(measure: Any, folder: Path) -> None:
    number = scaled(RECORDS, 5)
    rivals = stores(folder, number)
    ours = log_side(OURS, folder, number, lambda log: durable(log, number))
    wants = [Want(OURS, than=FLOOR, factor=0.9), *(Want(OURS, than=side.name) for side in rivals)]
    work = "Durable append of 100 B, one writer"
    measure("durable-1", work, [ours, floor(folder, number), *rivals], wants, rounds=7)


def test_sixteen_writers(measure: Any, folder: Path) -> None:
    number = scaled(RECORDS, 5)

    def together(log: kafkalog.Log) -> None:
        threads = [threading.Thread(target=durable, args=(log, number)) for _ in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    rivals = stores(folder, number)
    ours = log_side(f"{OURS}, 16 threads", folder, WRITERS * number, together)
    wants = [Want(ours.name, than=FLOOR, factor=8)]
    work = "Durable append of 100 B, sixteen writers compared with one"
    measure("durable-16", work, [ours, floor(folder, number), *rivals], wants, rounds=7)
