"""A data directory with something of everything, the same bytes each time it is made.

Two topics of two partitions of three segments, about 300 KiB: every codec, batches of one and
of many records, headers and nulls, idempotent and transactional producers, commits and aborts,
offsets without a record as compaction leaves them.  What was written is remembered, to compare
it with what is read.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from kafkalog.directory.manager import Manager
from kafkalog.log.isolation import UNCOMMITTED
from tests.support import batches
from tests.support.batches import Row

SETTINGS = {"segment.bytes": 26_000, "index.interval.bytes": 700}
FIRST_MS = 1_700_000_000_000
CODECS = tuple(batches.CODECS)
COLUMNS = ("offset", "timestamp", "key", "value", "headers", "timestampType", "leaderEpoch")
THINNED = "orders-1"
"""The partition that looks compacted."""
SEGMENT_FILE = re.compile(r"([^/]+)/(\d{20})(\.[a-z]+)")


@dataclass(frozen=True)
class Partition:
    """The expected content of one partition."""

    name: str
    """The name of its folder."""
    bases: tuple[int, ...]
    """The base offsets of its segments; the last one is active."""
    end: int
    table: pa.Table
    """Every record, in COLUMNS."""
    committed: pa.Table
    """The same for read_committed."""
    times: dict[int, int | None]
    """timestamp_ms -> the offset that offset_at returns."""


@dataclass(frozen=True)
class Reference:
    """The directory, its files, and their content."""

    path: Path
    partitions: dict[str, Partition]
    files: dict[str, bytes]
    """Every file by its path below the directory."""

    def write(self, edits: dict[str, bytes | None]) -> None:
        """Give files other bytes; None: remove them."""
        for name, data in edits.items():
            if data is None:
                (self.path / name).unlink(missing_ok=True)
            else:
                (self.path / name).write_bytes(data)

    def undo(self, edits: dict[str, bytes | None]) -> None:
        """Restore these files; new files are removed."""
        self.write({name: self.files.get(name) for name in edits})

    def restore(self) -> None:
        """Restore every file."""
        found = {str(p.relative_to(self.path)) for p in self.path.rglob("*") if p.is_file()}
        self.undo(dict.fromkeys(found | set(self.files)))


def table_of(log: Any, start: int | None = None, stop: int | None = None, **how: Any) -> pa.Table:
    """Records of a log as a table of COLUMNS, including those of all transactions."""
    return log.scan(start, stop, columns=COLUMNS, **{"isolation": UNCOMMITTED, **how}).to_arrow()


def _rows(rng: random.Random, clock: list[int], count: int) -> list[Row]:
    rows = []
    for _ in range(count):
        clock[0] += rng.choice([0, 1, 7, 500])
        word = b"%d " % rng.randrange(1000)
        value = None if rng.random() < 0.05 else (word * rng.randrange(1, 30))[: rng.randrange(120)]
        key = None if rng.random() < 0.3 else b"key-%d" % rng.randrange(50)
        headers = [("trace", word), ("none", None)][: rng.choice([0, 0, 0, 1, 2])]
        rows.append(Row(value, key, clock[0], headers))
    return rows


def _fill(log: Any, rng: random.Random) -> None:
    clock = [FIRST_MS]
    sequences = {5: 0, 6: 0, 7: 0}
    for number in range(42):
        for row in _rows(rng, clock, 5):
            log.append(row.value, key=row.key, timestamp_ms=row.timestamp_ms)
        codec = CODECS[number % len(CODECS)]
        log.append_batches(batches.batch(_rows(rng, clock, rng.randrange(1, 40)), codec=codec))
        pid = 5 + number % 3
        transactional = pid != 5
        for _ in range(2):
            rows = _rows(rng, clock, rng.randrange(1, 12))
            log.append_batches(
                batches.batch(
                    rows,
                    codec=rng.choice(CODECS),
                    producer_id=pid,
                    producer_epoch=0,
                    base_sequence=sequences[pid],
                    transactional=transactional,
                )
            )
            sequences[pid] += len(rows)
        if transactional:
            log.append_marker(pid, 0, commit=number % 4 != 2, timestamp_ms=clock[0])


def _fill_thinned(log: Any, rng: random.Random) -> None:
    clock = [FIRST_MS]
    for number in range(340):
        rows = _rows(rng, clock, rng.choice([1, 1, 2, 9]))
        offset = log.end_offset + rng.choice([0, 0, 1, 2, 8, 40])
        codec = CODECS[number % len(CODECS)]
        log.append_as_follower(batches.batch(rows, codec=codec, base_offset=offset, leader_epoch=0))


def make(path: Path) -> Reference:
    """Write the directory at `path`, which does not exist yet, and close it cleanly."""
    partitions = {}
    with Manager(path, topic_config=lambda topic: SETTINGS) as manager:
        for topic in ("flights", "orders"):
            manager.create_topic(topic, 2)
            for number in range(2):
                log = manager.get(topic, number)
                name = f"{topic}-{number}"
                (_fill_thinned if name == THINNED else _fill)(log, random.Random(name))
                assert len(log.segments) >= 3, log.segments
                times = range(FIRST_MS - 1, FIRST_MS + 160_000, 9973)
                partitions[name] = Partition(
                    name,
                    tuple(segment.base_offset for segment in log.segments),
                    log.end_offset,
                    table_of(log),
                    table_of(log, isolation="read_committed"),
                    {time: log.offset_at(time) for time in times},
                )
    files = {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    return Reference(path, partitions, files)
