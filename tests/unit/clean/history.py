"""A random history of a compacted log, and what compaction should leave of it."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import kafkalog
from kafkalog.clock import ManualClock
from tests.support import batches

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RETENTION_MS = 1_000
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": 3_000,
    "index.interval.bytes": 200,
    "delete.retention.ms": RETENTION_MS,
    "file.delete.delay.ms": 0,
}
LOST: tuple[tuple[str, ...], ...] = (
    (),
    (".kafka_cleanshutdown", "*.snapshot", "*.txnindex", "*.index"),
    *((pattern,) for pattern in ("*.snapshot", "*.txnindex", "*.index", "*.timeindex")),
)
"""Patterns of files to delete before the log is opened again: none, all but the batches, or one
kind."""


class Entry(NamedTuple):
    """One record that was appended."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None
    batch: int  # the first offset of its batch
    producer: int


def shown(records: list[Entry]) -> list[tuple[int, int, bytes, bytes | None]]:
    return [(e.offset, e.timestamp_ms, e.key, e.value) for e in records]


def read(
    log: kafkalog.Log, start: int | None = None, isolation: str = "read_uncommitted"
) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(r.offset, r.timestamp_ms, r.key, r.value) for r in log.read(start, None, isolation)]


class History:
    """A log, the records that were appended to it, and which of them are left."""

    def __init__(self, path: Path, rng: random.Random, first_ms: int = 0, **config: object) -> None:
        """`first_ms`: timestamp in ms that no record is older than."""
        self.rng = rng
        self.first_ms = first_ms
        self.clock = ManualClock()
        self.config = {**CONFIG, **config}
        self.path = path
        self.log = self.open()
        self.left: list[Entry] = []
        self.aborted: set[int] = set()
        self.horizons: dict[int, int] = {}  # of batches, by their first offset
        self.keys = [b"key-%d" % i for i in range(rng.choice((3, 20, 100)))]
        self.open_transactions: dict[int, list[int]] = {}  # producer to offsets
        self.sequences: dict[int, int] = {}

    def open(self) -> kafkalog.Log:
        return kafkalog.Log(self.path, config=self.config, clock=self.clock)

    # ---- what happens -------------------------------------------------------------------

    def rows(self) -> list[batches.Row]:
        rng = self.rng
        count = rng.randint(1, rng.choice((2, 40)))
        return [
            batches.Row(
                None if rng.random() < 0.2 else rng.choice((b"", b"v", b"value " * 10)) * 2,
                rng.choice(self.keys),
                self.first_ms + 1_000 + rng.randrange(100_000),
                [("h", rng.randbytes(2))] if rng.random() < 0.2 else (),
            )
            for _ in range(count)
        ]

    def append(self) -> None:
        """A batch of one of several kinds of producers."""
        rng = self.rng
        producer = rng.choice((-1, -1, 1, 2, 3, 4))  # 3 and 4 are transactional
        rows, codec = self.rows(), rng.choice(CODECS)
        transactional = producer in (3, 4)
        while True:
            sent = batches.batch(
                rows,
                codec=codec,
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=self.sequences.get(producer, 0) if producer >= 0 else -1,
                transactional=transactional,
            )
            if len(sent) <= self.config["segment.bytes"]:
                break
            rows = rows[: len(rows) // 2]  # a log refuses a batch that no segment can hold
        if producer >= 0:
            self.sequences[producer] = self.sequences.get(producer, 0) + len(rows)
        base = self.log.append_batches(sent).base_offset
        entries = [
            Entry(base + i, row.timestamp_ms, row.key or b"", row.value, base, producer)
            for i, row in enumerate(rows)
        ]
        self.left += entries
        if transactional:
            offsets = self.open_transactions.setdefault(producer, [])
            offsets += [e.offset for e in entries]
        self.clock.advance(rng.randrange(50))

    def end_transaction(self) -> None:
        if not self.open_transactions:
            return
        producer = self.rng.choice(sorted(self.open_transactions))
        commit = self.rng.random() < 0.6
        offsets = self.open_transactions.pop(producer)
        # Older than every record, so that it never answers a lookup by time.
        self.log.append_marker(producer, 0, commit, timestamp_ms=self.first_ms)
        if not commit:
            self.aborted.update(offsets)

    def compact(self, act: Callable[[], int]) -> None:
        """`act` compacts the log and returns the offset up to which it did."""
        now_ms = self.clock.now_ms()
        end = act()
        latest = {
            e.key: e.offset for e in self.left if e.offset < end and e.offset not in self.aborted
        }
        kept = []
        for e in self.left:
            over = now_ms >= self.horizons.get(e.batch, now_ms + 1)
            last = latest.get(e.key) == e.offset and e.offset not in self.aborted
            if e.offset >= end or (last and not (e.value is None and over)):
                kept.append(e)
        for e in kept:
            if e.offset < end and e.value is None:
                self.horizons.setdefault(e.batch, now_ms + RETENTION_MS)
        self.left = kept

    def step(self) -> None:
        chance = self.rng.random()
        if chance < 0.75:
            self.append()
        elif chance < 0.9:
            self.end_transaction()
        elif chance < 0.95:
            self.log.roll()
        else:
            self.clock.advance(self.rng.randrange(2 * RETENTION_MS))

    def reopen(self, lost: tuple[str, ...]) -> None:
        """Close the log, delete the files that match `lost` (see LOST), and open it again."""
        self.log.close()
        for pattern in lost:
            for path in self.path.glob(pattern):
                path.unlink()
        self.log = self.open()

    # ---- what must hold ------------------------------------------------------------------

    def check(self) -> None:
        log, rng = self.log, self.rng
        assert read(log) == shown(self.left)
        stable = log.last_stable_offset
        committed = [e for e in self.left if e.offset < stable and e.offset not in self.aborted]
        assert read(log, isolation="read_committed") == shown(committed)
        for _ in range(5):
            start = rng.randint(log.start_offset, log.end_offset)
            assert read(log, start) == shown([e for e in self.left if e.offset >= start])
        for _ in range(5):
            time_ms = self.first_ms + 1_000 + rng.randrange(101_000)
            first = next((e for e in self.left if e.timestamp_ms >= time_ms), None)
            found = log.find_time(time_ms)
            assert (found and found[:2]) == (first and first[:2])
        largest = max(self.left, key=lambda e: e.timestamp_ms, default=None)
        if largest is not None:
            found = log.find_largest_time()
            assert found is not None
            assert found[:2] == largest[:2]
        report = log.verify(deep=True)
        assert report.clean, report.findings

    def producers(self) -> list[tuple[int, int, int, int]]:
        """Producer id, epoch, last sequence and open transaction's start, which must survive."""
        return [
            (p.producer_id, p.producer_epoch, p.last_sequence, p.txn_start_offset)
            for p in self.log.producers
        ]
