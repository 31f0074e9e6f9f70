"""The workers of the crash tests: they change a log until something kills them."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafkalog
from kafkalog import _native
from kafkalog.clock import ManualClock
from kafkalog.disk.checkpoint import FLUSHED
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully as cut_fully
from tests.damage.crash.ledger import key_of, number_of, value_of
from tests.support import batches, trees

CONFIG = {"segment.bytes": 3000, "index.interval.bytes": 256, "file.delete.delay.ms": 0}
COMPACTED = CONFIG | {"cleanup.policy": "compact", "segment.bytes": 6000}
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
Report = Callable[..., None]


class Writer:
    """A log whose every change is reported before it begins and after it returned."""

    config = CONFIG

    def __init__(self, report: Report, path: str, number: int = 0) -> None:
        self.report = report
        self.number = number
        self.log = kafkalog.Log(path, config=self.config)
        found = [(r.offset, number_of(r.key, r.value)) for r in self.log.read()]
        report("found", self.log.start_offset, self.log.end_offset, found)

    def append(self) -> None:
        self.report("append", self.number, 1)
        offset = self.log.append(value_of(self.number), key=key_of(self.number), timestamp_ms=1)
        self.report("returned", offset, offset)
        self.number += 1

    def append_many(self, count: int, codec: str | None) -> None:
        self.report("append", self.number, count)
        numbers = self._take(count)
        span = self.log.append_many(
            [value_of(n) for n in numbers],
            keys=[key_of(n) for n in numbers],
            compression=codec,
            batch_bytes=900,
        )
        self.report("returned", span.base_offset, span.last_offset)

    def transaction(self, count: int, commit: bool) -> None:
        """One batch of a new producer, and the marker, which takes an offset, too."""
        producer = 1000 + self.number
        self.report("append", self.number, count)
        rows = [batches.Row(value_of(n), key_of(n), 1) for n in self._take(count)]
        sent = batches.batch(
            rows, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
        )
        span = self.log.append_batches(sent)
        self.report("returned", span.base_offset, span.last_offset)
        self.report("marker")
        self.report("returned", self.log.append_marker(producer, 0, commit))

    def truncate(self, offset: int) -> None:
        """Remove whole batches: the log ends where the batch that holds `offset` begins.

        If that is not above the start, deleted records are removed, too: the log starts over.
        """
        raw = self.log.read_batches(offset, isolation="log_end")
        floor = next(batches.headers(raw)).base_offset if raw else self.log.end_offset
        start = self.log.start_offset
        if min(offset, floor) <= start and self.log.segments[0].base_offset < start:
            self.report("restart", offset if offset <= start else floor)
            self.log.truncate(offset)
            self.report("returned")
            return
        self.report("truncate", offset, floor)
        self.log.truncate(offset)
        self.report("returned", self.log.end_offset)

    def restart(self, offset: int) -> None:
        self.report("restart", offset)
        cut_fully(handle_of(self.log), offset)
        self.report("returned")

    def delete(self, offset: int) -> None:
        self.report("delete", offset)
        self.log.delete_before(offset)
        self.report("returned")

    def quiet(self, kind: str) -> None:
        """A change that affects no record: flush, roll, close."""
        self.report(kind)
        getattr(self.log, kind)()
        self.report("returned")

    def _take(self, count: int) -> range:
        self.number += count
        return range(self.number - count, self.number)


def torture(report: Report, path: str, seed: int, number: int) -> None:
    """Open, report the content, sometimes verify it, and change it until killed."""
    rng = random.Random(seed)
    writer = Writer(report, path, number)
    if rng.random() < 0.2:
        verified = writer.log.verify()
        assert verified.clean, verified
    for _ in range(400):
        _change(writer, rng)
    if rng.random() < 0.5:
        writer.quiet("close")


def _change(writer: Writer, rng: random.Random) -> None:
    """One random change, drawn by weight."""
    log = writer.log
    chance = rng.random()
    if chance < 0.35:
        writer.append()
    elif chance < 0.60:
        writer.append_many(rng.randint(1, 30), rng.choice(CODECS))
    elif chance < 0.70:
        writer.transaction(rng.randint(1, 5), rng.random() < 0.5)
    elif chance < 0.78:
        writer.quiet("roll")
    elif chance < 0.86:
        writer.quiet("flush")
    elif chance < 0.92:
        writer.truncate(rng.randint(max(log.start_offset, log.end_offset - 60), log.end_offset))
    elif chance < 0.99:
        writer.delete(rng.randint(log.start_offset, log.end_offset))
    else:
        writer.restart(log.end_offset + rng.randint(0, 5))


# ---- scripted scenarios, each to be killed at every failpoint that it passes ----------------


def _prepared(report: Report, path: str) -> Writer:
    """A log of several segments, with an aborted transaction and compressed batches."""
    writer = Writer(report, path)
    for codec in CODECS:
        writer.append_many(12, codec)
        writer.transaction(2, codec is None)
    writer.quiet("flush")
    return writer


def append(writer: Writer) -> None:
    writer.append()
    writer.append()
    writer.append_many(8, None)
    writer.append_many(8, "zstd")
    writer.quiet("roll")
    writer.transaction(1, commit=False)  # two in one segment: the second is added to a file
    writer.transaction(1, commit=False)
    assert writer.log.aborted(writer.log.start_offset, writer.log.end_offset)


def roll(writer: Writer) -> None:
    writer.append()
    writer.quiet("roll")
    writer.append()
    for _ in range(20):  # and by size
        writer.append()


def flush(writer: Writer) -> None:
    writer.append()
    writer.quiet("flush")
    writer.append_many(40, None)
    writer.quiet("flush")


def truncate(writer: Writer) -> None:
    """Within the last segment, then over several."""
    writer.append_many(6, None)
    writer.truncate(writer.log.end_offset - 2)
    writer.append()
    writer.truncate(writer.log.start_offset + 5)
    writer.append()


def truncate_fully(writer: Writer) -> None:
    writer.restart(writer.log.end_offset + 7)
    writer.append()
    writer.restart(writer.log.start_offset)
    writer.append()


def delete(writer: Writer) -> None:
    """Into a batch, at a segment's base, and everything."""
    writer.delete(writer.log.start_offset + 3)
    writer.delete(writer.log.segments[-1].base_offset)
    writer.append()
    writer.delete(writer.log.end_offset)
    writer.append()


def close(writer: Writer) -> None:
    writer.append()
    writer.quiet("close")


def create(writer: Writer) -> None:
    """Another log, next to the prepared one."""
    path = Path(writer.log.path)
    for name in ("created-0", "created-1"):
        with kafkalog.Log(path.parent / name, config=CONFIG) as log:
            log.append(b"first")


def recover(writer: Writer) -> None:
    """Open what kill -9 leaves, with a torn tail and an unfinished swap."""
    path = Path(writer.log.path)
    writer.quiet("close")
    again = Writer(writer.report, str(path), writer.number)
    again.append_many(30, "lz4")
    again.transaction(3, commit=False)
    left = trees.copy_tree(path, path.with_name("left"))
    again.log.close()
    with max(left.glob("*.log")).open("ab") as tail:
        tail.write(b"torn" * 20)
    later = left / f"{again.number + 1000:020d}.log"
    later.write_bytes(batches.batch([batches.Row(b"x")], base_offset=again.number + 1000))
    first = min(left.glob("*.log"))
    first.with_name(f"{first.name}.swap").write_bytes(first.read_bytes())
    (left / f"{again.number:020d}.log.deleted").write_bytes(b"old")
    (left / FLUSHED).unlink(missing_ok=True)  # so that recovery reads more
    shutil.rmtree(path)
    left.rename(path)
    last = Writer(writer.report, str(path), again.number)
    last.append()


def checkpoint(writer: Writer) -> None:
    """A separate data directory: its folders, and its checkpoint files, written twice."""
    from kafkalog.directory.manager import Manager

    directory = Path(writer.log.path).parent / "data"
    for value in (b"first", b"second"):
        with Manager(directory) as manager:
            if not manager.partitions():
                manager.create_topic("topic", 2)
            log = manager.get("topic", 1)
            log.append(value)
            log.flush()
            log.delete_before(log.end_offset)
    with Manager(directory) as manager:
        manager.delete_partition("topic", 0)


def fill_compacted(path: Path) -> kafkalog.Log:
    """A log with work for compaction in each of several segments; always the same."""
    log = kafkalog.Log(path, config=COMPACTED, clock=ManualClock())
    for number in range(60):
        log.append_many(
            [value_of(number + i) for i in range(9)],
            keys=[b"key-%d" % ((number + i) % 14) for i in range(9)],
            timestamps_ms=[number] * 9,
            compression=CODECS[number % len(CODECS)],
        )
        if number % 8 == 0:
            sent = batches.batch(
                [batches.Row(b"x", b"y", 1)], producer_id=number, producer_epoch=0,
                base_sequence=0, transactional=True,
            )  # fmt: skip
            log.append_batches(sent)
            log.append_marker(number, 0, commit=number % 16 == 0, timestamp_ms=1)
    log.roll()
    return log


def compact(writer: Writer) -> None:
    """Twice, in another log next to the prepared one."""
    with fill_compacted(Path(writer.log.path).parent / "compacted-0") as log:
        log.compact()
        log.compact()


SCENARIOS: dict[str, Callable[[Writer], None]] = {
    f.__name__: f
    for f in (append, roll, flush, truncate, truncate_fully, delete, close, create, recover,
              checkpoint, compact)
}  # fmt: skip


def scenario(
    report: Report, path: str, name: str, failpoint: str | None = None, after: int = 1
) -> None:
    """Run one on a prepared log; kill at the `after`-th pass of a failpoint, or only count."""
    writer = _prepared(report, path)
    _native.lib.kl_failpoint_reset()
    if failpoint is not None:
        kill = _native.lib.KL_FP_KILL
        assert _native.lib.kl_failpoint_set(failpoint.encode(), kill, 0, after) == 0
    SCENARIOS[name](writer)
    report("hits", hits())


def failpoints() -> list[str]:
    count = _native.lib.kl_failpoint_count()
    return sorted(
        _native.ffi.string(_native.lib.kl_failpoint_name(i)).decode() for i in range(count)
    )


def hits() -> dict[str, int]:
    """How often each failpoint was passed since the last reset, if it was."""
    found = {name: _native.lib.kl_failpoint_hits(name.encode()) for name in failpoints()}
    return {name: count for name, count in found.items() if count}


def look(report: Report, path: str, number: int) -> None:
    """Open after a kill: report the content, verify it, and go on appending."""
    writer = Writer(report, path, number)
    verified = writer.log.verify()
    assert verified.clean, verified
    writer.append()
    writer.append_many(5, "lz4")
    writer.quiet("close")
    again = Writer(report, path, writer.number)
    assert again.log.recovery.truncated_bytes == 0


class Liar(Writer):
    """A canary: it acknowledges a flush without doing it."""

    def quiet(self, kind: str) -> None:
        if kind == "flush":
            self.report(kind)
            self.report("returned")
        else:
            super().quiet(kind)


def lie(report: Report, path: str) -> None:
    """Append and acknowledge until killed."""
    writer = Liar(report, path)
    while True:
        writer.append()
        writer.quiet("flush")


def outlive(report: Report, path: str) -> None:
    """Append and flush until the disk is gone; after that, still read, append and close."""
    log = kafkalog.Log(path, config=CONFIG)
    try:
        while True:
            log.append(value_of(log.end_offset))
            log.flush()
            report("flushed", log.flushed_offset)
    except kafkalog.KafkalogError as failure:
        report("refused", type(failure).__name__)
    for use in (lambda: list(log.read()), lambda: list(log.segments), lambda: log.append(b"x"),
                log.flush, log.roll, log.close):  # fmt: skip
        try:
            use()
        except kafkalog.KafkalogError as failure:
            report("refused", type(failure).__name__)
        else:
            report("went on")


WORKS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (torture, scenario, look, lie, outlive)
}
