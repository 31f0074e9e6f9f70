"""Compares replicas of one partition record by record, as their batches are read in step.

Replicas of a compacted topic are cleaned at different times.  Until all of them are, they may
rightly differ in what compaction removes (superseded records, records without a key or of aborted
transactions, tombstones, markers) and in what it rewrites: a batch's length, checksum, delete
horizon and timestamps' base, and batches without records.  A record that a replica still has is the
same on all: key, value, headers, timestamp, leader epoch, producer and sequence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

from kafkalog.batch.control import control_kind
from kafkalog.batch.decode import body_of, decoded_records
from kafkalog.batch.walk import whole_batches
from kafkalog.cli.common import preview
from kafkalog.client.calls.copies import Batch
from kafkalog.errors import KafkalogError
from kafkalog.types import Record, TopicPartition

__all__ = ["PENDING_MAX", "TOLD_MAX", "Comparing", "Copy", "Unreadable"]

TOLD_MAX = 10
"""Differences shown per partition; the rest is counted."""
PENDING_MAX = 200_000
"""Keys that are looked for at the same time, of records that some replica lacks: some 60 MB."""
TRANSACTIONAL = 16
ABORT, COMMIT = 0, 1
KINDS = {ABORT: "abort", COMMIT: "commit"}
SEQUENCES = 1 << 31


class Unreadable(Exception):
    """The rest of a replica cannot be read."""

    def __init__(self, node: int, why: KafkalogError) -> None:
        super().__init__(str(why))
        self.node = node


class Item(NamedTuple):
    """A record, or a control record."""

    offset: int
    content: tuple[Any, ...]
    """The fields that are equal on all replicas."""
    key: bytes | None
    """None: compaction removes it."""
    tombstone: bool
    producer: int
    """Producer id of a record in a transaction, or of a marker; -1: neither."""
    ends: int
    """The type of a marker: abort, commit; -1: the batch is no marker."""
    shown: dict[str, Any]


class Copy:
    """One replica as it is read.  All methods raise Unreadable."""

    def __init__(
        self, node: int, tp: TopicPartition, batches: Iterator[Batch], start: int, end: int
    ) -> None:
        """Only records from `start` to below `end` are items."""
        self.node = node
        self.opened: deque[Item] = deque()
        """The records of the batches opened so far."""
        self.read_bytes = 0
        self.head: Batch | None = None
        """The next batch; None if there is none."""
        self._tp = tp
        self._start, self._end = start, end
        self._batches = batches
        self.advance()

    def advance(self) -> None:
        """Skip the batch."""
        try:
            self.head = next(self._batches, None)
        except KafkalogError as problem:
            raise Unreadable(self.node, problem) from None
        self.read_bytes += len(self.head.data) if self.head else 0

    def item(self) -> Item | None:
        """The next record; opens batches as needed."""
        while not self.opened and self.head is not None:
            try:
                found = items_of(self._tp, self.head)
                self.opened.extend(one for one in found if self._start <= one.offset < self._end)
            except KafkalogError as problem:
                raise Unreadable(self.node, problem) from None
            self.advance()
        return self.opened[0] if self.opened else None


def items_of(tp: TopicPartition, found: Batch) -> Iterator[Item]:
    """The records of a batch.  Raises: CorruptMessage and other errors of decoding."""
    for batch, data in whole_batches(found.data, check_crc=False):
        whole = bytes(data)
        first, last = int(batch.base_sequence), int(batch.base_offset)
        transactional = bool(batch.attributes & TRANSACTIONAL)
        producer = int(batch.producer_id) if transactional else -1
        common = (
            int(batch.leader_epoch), int(batch.producer_id), int(batch.producer_epoch),
            transactional, found.control,
        )  # fmt: skip
        for record in decoded_records(batch, body_of(batch, whole)):
            sequence = -1 if first < 0 else (first + record.offset - last) % SEQUENCES
            content = (
                record.timestamp_ms, record.key, record.value, tuple(record.headers), sequence,
                *common,
            )  # fmt: skip
            if not found.control:
                yield Item(record.offset, content, record.key, record.value is None, producer, -1,
                           _shown(record))  # fmt: skip
                continue
            kind = control_kind(record.key)
            ends = kind if kind in KINDS else -1
            yield Item(record.offset, content, None, False, producer, -1 if ends is None else ends,
                       _marker_shown(record, kind, common[1], common[2]))  # fmt: skip


def _shown(record: Record) -> dict[str, Any]:
    return {
        "timestamp": record.timestamp_ms,
        "key": preview(record.key, 20),
        "value": preview(record.value, 40),
    }


def _marker_shown(record: Record, kind: int | None, producer: int, epoch: int) -> dict[str, Any]:
    name = "none" if kind is None else KINDS.get(kind, str(kind))
    value = f"of producer {producer}, epoch {epoch}: {(record.value or b'').hex()}"
    return {"timestamp": record.timestamp_ms, "key": f"control record {name}", "value": value}


@dataclass
class _Absent:
    """A record that some replica lacks."""

    offset: int
    producer: int
    """Producer id of its open transaction; -1: none, or it is committed."""
    nodes: dict[str, Any]
    """As in a difference."""


class Comparing:
    """The findings so far."""

    def __init__(self, compacted: bool, pending_max: int = PENDING_MAX) -> None:
        """`compacted`: whether replicas may lack what compaction removes."""
        self.compacted = compacted
        self.records = 0
        """How many records were compared."""
        self.missing = 0
        """Records that only some replicas have compacted away so far."""
        self.unchecked = 0
        """Some of them whose absence was not explained: there were too many at once."""
        self.different = 0
        self.differences: list[dict[str, Any]] = []
        """The first differences."""
        self._pending_max = pending_max
        self._pending: dict[bytes, list[_Absent]] = {}
        """By the key's digest: to be explained by a later record or an abort."""
        self._count = 0
        """How many these are."""
        self._touched: dict[int, dict[bytes, int]] = {}
        """By producer, the keys of these in its open transaction, and its last record of each."""

    @property
    def pending(self) -> int:
        """How many absences are not explained yet: a later record or marker may do so."""
        return self._count

    def compare(
        self, copies: Sequence[Copy], progress: Callable[[int, int], object] = lambda *_: None
    ) -> None:
        """Compare whole batches while they are equal byte for byte, otherwise their records.

        `progress` gets the records and bytes so far.  Raises: Unreadable.
        """
        while True:
            first = copies[0].head
            if (
                not self._pending
                and first is not None
                and all(c.head and c.head.data == first.data and not c.opened for c in copies)
            ):
                self.records += 0 if first.control else first.record_count
                for copy in copies:
                    copy.advance()
            elif not self._next_record(copies):
                return
            progress(self.records, sum(copy.read_bytes for copy in copies))

    def _next_record(self, copies: Sequence[Copy]) -> bool:
        """Compare the next offset that some replica has; False if none has more."""
        heads = {copy.node: copy.item() for copy in copies}
        at = min((item.offset for item in heads.values() if item is not None), default=None)
        if at is None:
            return False
        there = {n: item for n, item in heads.items() if item is not None and item.offset == at}
        for copy in copies:
            if copy.node in there:
                copy.opened.popleft()
        one = next(iter(there.values()))
        self.records += one.content[-1] is False  # not a control record
        shown = {str(n): there[n].shown if n in there else None for n in heads}
        self.explain(one)
        if len({item.content for item in there.values()}) > 1:
            self._differ(at, shown)
        elif len(there) < len(copies):
            self._absent(one, shown)
        return True

    def _differ(self, offset: int, shown: dict[str, Any]) -> None:
        self.different += 1
        if len(self.differences) < TOLD_MAX:
            self.differences.append({"offset": offset, "nodes": shown})

    def _absent(self, item: Item, shown: dict[str, Any]) -> None:
        """A replica lacks a record that another one has."""
        if not self.compacted:
            self._differ(item.offset, shown)
            return
        self.missing += 1
        if item.key is None or item.tombstone:
            return
        if self._count >= self._pending_max:
            self.unchecked += 1
            return
        digest = _digest(item.key)
        self._pending.setdefault(digest, []).append(_Absent(item.offset, item.producer, shown))
        self._count += 1
        if item.producer >= 0:
            self._touched.setdefault(item.producer, {})[digest] = item.offset

    def explain(self, item: Item) -> None:
        """A later record supersedes those of its key, once its transaction is committed; an abort
        removes those of its transaction."""
        if not self._pending:
            return
        if item.ends >= 0:
            self._end(item.producer, item.ends == ABORT)
        elif item.key is not None and (digest := _digest(item.key)) in self._pending:
            if item.producer >= 0:
                self._touched.setdefault(item.producer, {})[digest] = item.offset
            else:
                self._count -= len(self._pending.pop(digest))

    def _end(self, producer: int, aborted: bool) -> None:
        """A transaction ends."""
        for digest, last in self._touched.pop(producer, {}).items():
            left = []
            for one in self._pending.pop(digest, []):
                if one.producer == producer if aborted else one.offset < last:
                    self._count -= 1
                    continue
                if one.producer == producer:
                    one.producer = -1
                left.append(one)
            if left:
                self._pending[digest] = left

    def explain_all(self, tp: TopicPartition, batches: Iterable[Batch]) -> None:
        """Look for explanations in batches behind those that were compared."""
        for batch in batches:
            if not self._pending:
                return
            for item in items_of(tp, batch):
                self.explain(item)

    def finish(self) -> None:
        """Report everything still unexplained as a difference."""
        for absent in sorted(chain.from_iterable(self._pending.values()), key=lambda x: x.offset):
            self.missing -= 1
            self._differ(absent.offset, absent.nodes)
        self._pending.clear()
        self._count = 0


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()
