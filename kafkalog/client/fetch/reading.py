"""Hands out fetched records in order, decoded block by block."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import length_hint

from kafkalog import errors
from kafkalog.client.calls.groups import CommittedOffset
from kafkalog.client.fetch.fetched import Fetched
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.link.failures import about
from kafkalog.log.fetched import Decoder, Rows
from kafkalog.log.scan.rows import CHUNK
from kafkalog.log.scan.scan import COLUMNS, ScanBatch
from kafkalog.types import Record, TopicPartition

__all__ = ["Reading"]

_NONE: Iterator[Record] = iter(())


class Reading:
    """Answers in the order in which they arrived, and how far each partition was read.

    At most one answer per broker is kept here: the next one is in flight, and is received when
    these are read.  One thread.
    """

    def __init__(self, fetcher: Fetcher) -> None:
        """`fetcher`: its positions follow these after a seek or a loss."""
        self.fetcher = fetcher
        self._positions: dict[TopicPartition, int] = {}
        self._queue: deque[Fetched] = deque()
        self._now: Fetched | None = None
        self._blocks: Iterator[Rows] = iter(())
        self._rows: Rows | None = None
        self._made = 0
        """Rows made from the current block."""
        self._count = 0
        """Records handed out from earlier blocks."""
        self._items = _NONE
        """Records that were made and not handed out."""
        self._records: Decoder | None = None
        self._columns: Decoder | None = None
        self._problem: errors.KafkalogError | None = None

    # ---- positions ---------------------------------------------------------------------

    def position(self, tp: TopicPartition) -> int | None:
        """The offset after the last record that was handed out; None: not known yet."""
        if self._now is not None and self._now.tp == tp:
            self._settle()
        return self._positions.get(tp)

    def lag(self, tp: TopicPartition, stable: bool) -> int:
        """Records from the last one handed out, except for the current block, to the end that the
        last answer reported; `stable`: only committed ones.  0: not known.  From any thread."""
        at, ends = self._positions.get(tp), self.fetcher.ends.get(tp)
        if at is None or ends is None:
            return 0
        end = ends.last_stable_offset if stable else ends.high_watermark
        return max(end - at, 0)

    def reached(self, tp: TopicPartition) -> CommittedOffset | None:
        """The position as it is committed; None: not known yet."""
        at = self.position(tp)
        return None if at is None else CommittedOffset(at, self.epoch(tp, at))

    def _settle(self) -> None:
        """Update the position to what was used of the current block."""
        if self._now is not None and self._rows is not None:
            row, offsets = self._made - length_hint(self._items), self._rows.offsets
            at = offsets[row] if row < len(offsets) else offsets[-1] + 1
            self._positions[self._now.tp] = at

    def epoch(self, tp: TopicPartition, offset: int) -> int:
        """The leader epoch of the record before an offset that was read; -1: not known."""
        return self.fetcher.epochs.before(tp, offset)

    def seek(self, tp: TopicPartition, offset: int, fetch: bool = True, epoch: int = -1) -> None:
        """Continue at `offset`; `fetch` False: not now, the partition is paused; `epoch`: as in
        Fetcher.seek."""
        self.drop(tp)
        self._positions[tp] = offset
        self.fetcher.seek(tp, offset, epoch)
        if not fetch:
            del self.fetcher.positions[tp]

    def go_on(self, tp: TopicPartition) -> None:
        """Fetch again from the position, if it is known: this detects a new leader or a recreated
        topic."""
        if (at := self.position(tp)) is not None:
            self.drop(tp)
            self.fetcher.core.go_on(tp, at)

    def pause(self, tp: TopicPartition) -> None:
        """Drop fetched records that were not read; they are fetched again later."""
        self.drop(tp)

    def forget(self, tp: TopicPartition) -> None:
        """Stop reading the partition."""
        self.drop(tp)
        self._positions.pop(tp, None)
        self.fetcher.core.forget(tp)

    def drop(self, tp: TopicPartition) -> None:
        """Stop handing out and fetching a partition; its position stays."""
        self.fetcher.core.pause(tp)
        if self._now is not None and self._now.tp == tp:
            self._settle()
            self._end()
        if any(one.tp == tp for one in self._queue):
            self._queue = deque(one for one in self._queue if one.tp != tp)
        if self._problem is not None and self._problem.partition == tp:
            self._problem = None

    def _end(self) -> None:
        self._use(None)
        self._now, self._blocks = None, iter(())

    @property
    def count(self) -> int:
        """Records that were handed out.  From any thread, which may see an older count."""
        return self._count + self._made - length_hint(self._items)

    def _use(self, rows: Rows | None) -> None:
        self._count += self._made - length_hint(self._items)
        for _ in self._items:  # a caller may still iterate over it
            pass
        self._rows, self._made, self._items = rows, 0, _NONE

    def _make(self, most: int) -> list[Record]:
        """More records of the block; empty: there are none."""
        if self._rows is None:
            return []
        found = self._rows.records(self._made, most)
        self._made += len(found)
        return found

    # ---- records -----------------------------------------------------------------------

    def add(self, fetched: list[Fetched]) -> None:
        """Append new answers."""
        self._queue += fetched

    @property
    def empty(self) -> bool:
        """True if no records are left to return."""
        return not self._queue and self._now is None

    def take(self, count: int) -> list[Record]:
        """Up to `count` records, from the partitions in turn; empty: there are none.

        Raises: CorruptMessage and the errors of a scan, after the records before the damage.
        """
        found = list(islice(self._items, count))
        try:
            while len(found) < count:
                if more := self._make(count - len(found)):
                    found = found + more if found else more
                elif not self._more():
                    break
        except errors.KafkalogError as problem:
            if not found:
                raise
            self._problem = problem
        return found

    def take_block(self) -> Iterator[Record] | None:
        """Some records, None if there are none; iterating over them moves the position.

        Raises: as `take`.
        """
        while not length_hint(self._items):
            if made := self._make(CHUNK):
                self._items = iter(made)
            elif not self._more():
                return None
        return self._items

    def _more(self) -> bool:
        """True if there is a next block, which may be empty.  Raises: as `take`."""
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        if self._now is None:
            if not self._queue:
                return False
            self._now = now = self._queue.popleft()
            if self._records is None:
                self._records = Decoder(check_crcs=self.fetcher.options.check_crcs)
            self._blocks = self._records.records(*now.tp, now.data, now.start, now.aborted)
        self._settle()
        tp, behind = self._now.tp, self._now.next_offset
        self._use(None)
        try:
            rows = next(self._blocks, None)
        except errors.KafkalogError as problem:
            self._retreat(tp)
            about(tp, problem)
            raise
        if rows is None:
            self._end()
            self._positions[tp] = behind
        else:
            self._use(rows)
        return True

    def _retreat(self, tp: TopicPartition) -> None:
        """After damage: stay before it, so that the next read raises again."""
        self._use(None)
        self.drop(tp)
        self.fetcher.positions[tp] = self._positions[tp]

    def take_columns(self) -> list[ScanBatch]:
        """All fetched records, as columns.  Raises: as `take`."""
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        if self._now is not None:  # the rest of a block that `take` has begun
            now = self._now
            self._settle()
            self._end()
            self._queue.appendleft(now._replace(start=self._positions[now.tp]))
        if self._columns is None:
            self._columns = Decoder(COLUMNS, check_crcs=self.fetcher.options.check_crcs)
        found: list[ScanBatch] = []
        while self._queue:
            one = self._queue.popleft()
            blocks = self._columns.batches(*one.tp, one.data, one.start, one.aborted)
            try:
                for batch in blocks:
                    found.append(batch)
                    self._count += len(batch)
                    self._positions[one.tp] = batch.last_offset + 1
            except errors.KafkalogError as problem:
                self._retreat(one.tp)
                about(one.tp, problem)
                if not found:
                    raise
                self._problem = problem
                break
            self._positions[one.tp] = one.next_offset
        return found
