"""Scripted changes of a log, to be recorded: each performs one protocol of the engine."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from kafkalog.log.log import handle_of
from kafkalog.types import TopicPartition
from tests.damage.crash.ledger import key_of, value_of
from tests.damage.crash.work import Report, Writer
from tests.damage.enumerate.judge import die
from tests.support import batches

RETENTION_BYTES = 2000
CONFIG: dict[str, object] = {
    "segment.bytes": 1400, "index.interval.bytes": 200, "file.delete.delay.ms": 0,
    "retention.bytes": RETENTION_BYTES,
}  # fmt: skip
LOG_FOLDER = "log-0"


class Scribe(Writer):
    """A writer on a small log, with the rarer changes."""

    config = CONFIG

    def open_transaction(self, producer: int, sequence: int, count: int) -> None:
        """One batch of a transaction that stays open."""
        self.report("append", self.number, count)
        rows = [batches.Row(value_of(n), key_of(n), 1) for n in self._take(count)]
        span = self.log.append_batches(batches.batch(
            rows, producer_id=producer, producer_epoch=0, base_sequence=sequence,
            transactional=True))  # fmt: skip
        self.report("returned", span.base_offset, span.last_offset)

    def end_transaction(self, producer: int, commit: bool) -> None:
        self.report("marker")
        self.report("returned", self.log.append_marker(producer, 0, commit))

    def follow(self, count: int, epoch: int) -> None:
        """Append the records of a leader of that epoch."""
        self.report("append", self.number, count)
        rows = [batches.Row(value_of(n), key_of(n), 1) for n in self._take(count)]
        span = self.log.append_as_follower(
            batches.batch(rows, base_offset=self.log.end_offset, leader_epoch=epoch)
        )
        self.report("returned", span.base_offset, span.last_offset)

    def checkpoint(self) -> None:
        """Write checkpoints as a data directory does every minute."""
        tp = TopicPartition(self.log.topic, self.log.partition)
        handle_of(self.log).owner.state.save(recovery_points={tp: self.log.flushed_offset})

    def retain(self) -> None:
        """Delete the segments that retention.bytes no longer keeps."""
        segments = list(self.log.segments)
        over = sum(s.size_bytes for s in segments) - RETENTION_BYTES
        while segments[0].size_bytes <= over:
            over -= segments.pop(0).size_bytes
        assert segments[0].base_offset > self.log.start_offset
        self.report("delete", segments[0].base_offset)
        self.log.apply_retention()
        self.report("returned")

    def reopened(self) -> "Scribe":
        """Close it, and open it again."""
        self.quiet("close")
        return Scribe(self.report, self.log.path, self.number)

    def killed(self) -> "Scribe":
        """Kill it, and open it again."""
        die(self.log)
        self.report("recover")  # which waits for its own syncs
        return Scribe(self.report, self.log.path, self.number)


def prepared(report: Report, root: Path) -> Scribe:
    """A log of some segments with committed and aborted transactions, closed and opened again."""
    writer = Scribe(report, str(root / LOG_FOLDER))
    writer.append_many(3, "lz4")
    writer.transaction(2, False)
    writer.quiet("roll")
    writer.transaction(1, True)
    writer = writer.reopened()
    writer.append()
    writer.transaction(1, False)
    writer.quiet("flush")
    return writer


# ---- the protocols; each ends with a handle that die() ends -----------------------------------


def append(writer: Scribe) -> Scribe:
    writer.append()
    writer.append_many(3, "zstd")
    writer.append()
    writer.append()
    return writer


def flush(writer: Scribe) -> Scribe:
    writer.append()
    writer.quiet("flush")
    writer.append_many(5, None)
    writer.quiet("flush")
    writer.append()
    return writer


def roll(writer: Scribe) -> Scribe:
    """By request and by size, flushed and not."""
    writer.append()
    writer.quiet("roll")
    writer.append()
    writer.append_many(8, None)
    writer.quiet("flush")
    writer.append_many(8, None)
    return writer


def checkpoint(writer: Scribe) -> Scribe:
    """The recovery point follows the flushes, to a segment's end and into a segment."""
    writer.transaction(1, False)
    writer.quiet("flush")
    writer.checkpoint()
    writer.quiet("roll")
    writer.append()
    writer.quiet("flush")
    writer.checkpoint()
    writer.append()
    writer.quiet("roll")
    writer.transaction(1, False)
    return writer


def reopen(writer: Scribe) -> Scribe:
    writer.append()
    writer = writer.reopened()
    writer.append()
    writer.quiet("roll")
    writer.append()
    return writer.reopened()


def recover(writer: Scribe) -> Scribe:
    """A kill, and the open after it."""
    writer.append_many(6, None)
    writer.transaction(1, False)
    writer = writer.killed()
    writer.append()
    writer.quiet("flush")
    writer.append()
    return writer.killed()


def truncate(writer: Scribe) -> Scribe:
    """Within the last segment, over several, and of records that were never flushed."""
    writer.append_many(3, None)
    writer.truncate(writer.log.end_offset - 2)
    writer.append()
    writer.append()
    writer.quiet("flush")
    writer.quiet("roll")
    writer.append()
    writer.truncate(writer.log.segments[-1].base_offset - 1)
    writer.append_many(7, None)
    writer.quiet("flush")
    writer.append()
    return writer


def truncate_batch(writer: Scribe) -> Scribe:
    """Inside a batch that the checkpoints cover: it is removed whole, and they are lowered."""
    writer.append_many(3, None)
    writer = writer.reopened()
    writer.delete(writer.log.end_offset - 2)
    writer.truncate(writer.log.end_offset - 1)
    writer.append()
    writer.quiet("flush")
    writer.append_many(4, None)
    writer = writer.reopened()
    writer.truncate(writer.log.end_offset - 1)
    writer.quiet("roll")
    writer.append()
    writer.quiet("flush")
    return writer


def truncate_transactions(writer: Scribe) -> Scribe:
    """Markers are removed, so their transactions are open again."""
    writer.open_transaction(7, 0, 2)
    writer.end_transaction(7, False)
    writer.quiet("roll")
    writer.append()
    writer.quiet("flush")
    writer.truncate(writer.log.end_offset - 2)
    writer.end_transaction(7, True)
    writer.quiet("flush")
    return writer


def truncate_fully(writer: Scribe) -> Scribe:
    """To a later start and to an earlier one."""
    writer.append()
    writer.restart(writer.log.end_offset + 3)
    writer.append()
    writer.quiet("flush")
    writer.restart(5)
    writer.append()
    writer.quiet("flush")
    return writer


def delete(writer: Scribe) -> Scribe:
    """Into a segment, to a segment's base, and everything."""
    writer.delete(writer.log.start_offset + 1)
    writer.append()
    writer.delete(writer.log.segments[-1].base_offset)
    writer.append()
    writer.delete(writer.log.end_offset)
    writer.append()
    writer.quiet("flush")
    return writer


def retain(writer: Scribe) -> Scribe:
    writer.append_many(12, None)
    writer.retain()
    writer.append_many(9, None)
    writer.quiet("flush")
    writer.retain()
    writer.append()
    return writer


def transactions(writer: Scribe) -> Scribe:
    """Interleaved, over a roll, one left open."""
    writer.open_transaction(1, 0, 2)
    writer.open_transaction(2, 0, 1)
    writer.append()
    writer.end_transaction(1, False)
    writer.quiet("roll")
    writer.open_transaction(1, 2, 1)
    writer.end_transaction(2, False)
    writer.end_transaction(1, True)
    writer.quiet("flush")
    writer.open_transaction(3, 0, 2)
    return writer


def aborted_then_closed(writer: Scribe) -> Scribe:
    """Aborted transactions in a segment that a clean close vouches for."""
    writer.transaction(1, False)
    writer.transaction(1, False)
    writer = writer.reopened()
    writer.append()
    writer.quiet("flush")
    return writer


def epochs(writer: Scribe) -> Scribe:
    """Leaders change; a truncation removes an epoch."""
    writer.follow(2, 3)
    writer.follow(1, 3)
    writer.quiet("roll")
    writer.follow(2, 5)
    writer.quiet("flush")
    writer.truncate(writer.log.end_offset - 2)
    writer.follow(2, 6)
    writer.quiet("flush")
    return writer


PROTOCOLS: dict[str, Callable[[Scribe], Scribe]] = {
    f.__name__: f
    for f in (append, flush, roll, checkpoint, reopen, recover, truncate, truncate_batch,
              truncate_transactions, truncate_fully, delete, retain, transactions,
              aborted_then_closed, epochs)
}  # fmt: skip


class Cleaned(Scribe):
    """A writer on a compacted log: every record has a key."""

    config: ClassVar = {**CONFIG, "cleanup.policy": "compact", "segment.bytes": 500}

    def fill(self, count: int) -> None:
        for _ in range(count):
            self.number += key_of(self.number) is None
            self.append()

    def compact(self) -> None:
        """Below the active segment only the last record of a key must stay."""
        self.report("compact", self.log.segments[-1].base_offset)
        self.log.compact()
        self.report("returned")


def compact(report: Report, root: Path) -> Cleaned:
    """Twice, the second time over the result of the first, with unflushed records between them."""
    writer = Cleaned(report, str(root / LOG_FOLDER))
    writer.fill(14)
    writer.quiet("flush")
    writer.fill(1)
    report("begin")
    writer.compact()
    writer.fill(4)
    writer.quiet("flush")
    writer.compact()
    writer.fill(1)
    return writer


class Merged(Cleaned):
    """Its segments are small enough to be merged."""

    config: ClassVar = {**Cleaned.config, "segment.bytes": CONFIG["segment.bytes"]}


def merge(report: Report, root: Path) -> Merged:
    """Several segments become one, which gets the first one's name."""
    writer = Merged(report, str(root / LOG_FOLDER))
    for _ in range(3):
        writer.fill(2)
        writer.quiet("roll")
    writer.quiet("flush")
    writer.fill(1)
    report("begin")
    writer.compact()
    writer.fill(1)
    return writer


def create(report: Report, root: Path) -> Scribe:
    """A new log."""
    report("begin")
    writer = Scribe(report, str(root / LOG_FOLDER))
    writer.append()
    writer.quiet("flush")
    writer.append_many(8, None)
    return writer


ALONE = {"create": create, "compact": compact, "merge": merge}  # from nothing
NAMES = (*ALONE, *PROTOCOLS)


def config_of(name: str) -> dict[str, object]:
    """The settings with which its crash states are opened: a compacted log as one that is no
    longer compacted, as recovery then tells gaps from holes only by the recovery point.
    """
    return {**CONFIG, "segment.bytes": 500} if name == "compact" else dict(CONFIG)


def run(name: str, report: Report, root: Path) -> None:
    """Perform a protocol from its mark `begin` on; ends as a killed process does."""
    if name in ALONE:
        writer = ALONE[name](report, root)
    else:
        writer = prepared(report, root)
        report("begin")
        writer = PROTOCOLS[name](writer)
    die(writer.log)
