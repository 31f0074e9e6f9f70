"""Reads a log as a sequence of records: iteration, `log[offset]`, slices, following."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from kafkalog._native import check, lib
from kafkalog.arguments import whole_number
from kafkalog.errors import ArgumentError, OffsetOutOfRange
from kafkalog.log.handle import WAIT_SLICE_MS
from kafkalog.log.isolation import COMMITTED, UNCOMMITTED, bound_of
from kafkalog.log.scan import rows
from kafkalog.types import Record

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from kafkalog.log.scan.scan import Scan, ScanBatch

__all__ = ["Follow", "Near", "record_at", "records_in", "wait_for"]

T = TypeVar("T")

NEAR_OFFSETS = 1 << 14
"""Two lookups this close may be in one batch: then the second one keeps it decoded."""
KEPT_BYTES_MAX = 8 << 20
"""Most bytes of keys and values in a decoded batch that is kept."""


class Source(Protocol):
    """The parts of a Log that reading needs."""

    path: str
    topic: str
    partition: int
    _c: Any
    _near: Near | None

    def _state(self) -> Any: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def scan(self) -> Callable[..., Scan]: ...
    def read(self, start: int | None = None, stop: int | None = None) -> Iterator[Record]: ...


# ---- ranges --------------------------------------------------------------------------------


def records_in(log: Source, part: slice) -> Iterator[Record]:
    """The records of `log[start:stop]` that exist; as with a list, nothing is out of range.

    Negative numbers count records from the end.  Records that retention deletes in the
    process are skipped.  Raises: ArgumentError, CorruptMessage.
    """
    if part.step not in (None, 1):
        raise ArgumentError(f"step: a slice of a log has no step; found {part.step!r}")
    start, stop = _bound(log, "start", part.start), _bound(log, "stop", part.stop)
    return _present(log, 0 if start is None else start, stop)


def _bound(log: Source, name: str, value: Any) -> int | None:
    if value is None:
        return None
    number = whole_number(name, value)
    return number if number >= 0 else from_end(log, -number)


def _present(log: Source, start: int, stop: int | None) -> Iterator[Record]:
    stop = log.high_watermark if stop is None else min(stop, log.high_watermark)
    while (start := max(start, log.start_offset)) < stop:
        try:
            for records, after in log.scan(start, stop, isolation=UNCOMMITTED).record_blocks():
                yield from records
                start = after
            return
        except OffsetOutOfRange:
            if start >= log.start_offset:  # not because the start has moved
                raise


def from_end(log: Source, count: int) -> int:
    """The offset of the record that is `count` from the end; the start if there are fewer.

    Offsets may have gaps, and markers occupy some, so the end is read in steps that double.
    """
    end, back = log.high_watermark, count
    while (start := max(end - back, log.start_offset)) < end:
        found: list[int] = []
        for batch in log.scan(start, end, columns=["offset"], isolation=UNCOMMITTED):
            found += batch.numpy("offset").tolist()
            del found[:-count]
        if len(found) == count:
            return found[0]
        if start <= log.start_offset:
            break
        back *= 2
    return log.start_offset


# ---- one record ----------------------------------------------------------------------------


class Near(NamedTuple):
    """Where `log[offset]` last found a record, and the batch if it is kept decoded."""

    generation: int
    """The version of the segments: it changes when existing bytes do."""
    offset: int
    block: Any = None
    offsets: Any = ()
    """The rows of the block, as a sequence."""


def record_at(log: Source, index: int) -> Record:
    """`log[index]`; a negative one counts records from the end.

    Raises: ArgumentError, OffsetOutOfRange.
    """
    offset = whole_number("offset", index)
    if offset < 0:
        wanted = -offset
        offset = from_end(log, wanted)
        if log.scan(offset, isolation=UNCOMMITTED).count() < wanted:
            raise OffsetOutOfRange(f"log {log.path}: it has fewer than {wanted} records")
    state, near = log._state(), log._near
    if near is None or near.generation != state.generation:
        near = None
    elif near.block is None and abs(offset - near.offset) < NEAR_OFFSETS:
        near = _decoded(log, min(offset, near.offset), state)
    if near is not None and state.log_start_offset <= offset < state.high_watermark:
        row = bisect_left(near.offsets, offset)
        if row < len(near.offsets) and near.offsets[row] == offset:
            log._near = near
            return rows.record(near.block, row, log.topic, log.partition)
    log._near = Near(state.generation, offset)
    for record in log.read(offset, offset + 1):
        return record
    raise OffsetOutOfRange(f"log {log.path}: no record at offset {offset}")


def _decoded(log: Source, start: int, state: Any) -> Near | None:
    """The batch at `start`, from there to its end; None if it is too large to keep."""
    start = max(start, state.log_start_offset)
    if start >= state.high_watermark:
        return None
    from kafkalog.log.scan.scan import first_block  # slow to import, needed only to read

    block = first_block(
        log.scan(start, isolation=UNCOMMITTED, batch_rows=1, batch_bytes=1), rows.RECORD_COLUMNS
    )
    if block is None or rows.string_bytes(block) > KEPT_BYTES_MAX:
        return None
    return Near(state.generation, start, block, rows.offsets(block))


# ---- following -----------------------------------------------------------------------------


def wait_for(log: Source, offset: int, timeout_ms: int, bound: int) -> bool:
    """See Log.wait."""
    offset, left_ms = whole_number("offset", offset), whole_number("timeout_ms", timeout_ms)
    while True:
        status = lib.kl_log_wait(log._c, offset, bound, max(min(left_ms, WAIT_SLICE_MS), 0))
        if status != lib.KL_E_TIMEOUT:
            check(status)
            return True
        left_ms -= WAIT_SLICE_MS
        if left_ms <= 0:
            return False


class _Follower:
    """The work of `async for` in its own thread, which exists while it is needed."""

    _pool: ThreadPoolExecutor | None = None

    async def _elsewhere(self, work: Callable[[], T]) -> T:
        import asyncio  # with its dependencies, half the import time of Log
        from concurrent.futures import ThreadPoolExecutor

        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "kafkalog follow")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the thread of `async for`."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None

    async def aclose(self) -> None:
        """As close, for `contextlib.aclosing`."""
        self.close()


class Follow(_Follower, Iterator[Record], AsyncIterator[Record]):
    """The records of a log from an offset on, forever: for `for` and for `async for`.

    One thread, or one task, at a time.  `async for` reads and waits in its own thread, which
    ends within 50 ms of the task's cancellation or of `close`.
    """

    def __init__(self, log: Source, start: int | None, isolation: str) -> None:
        """See Log.follow."""
        self._log = log
        self._isolation = isolation
        self._bound = bound_of(isolation)
        self._offset = log.end_offset if start is None else whole_number("start", start)
        self._records: Iterator[Record] = iter(())
        self._scan: Scan | None = None
        self._blocks: Iterator[tuple[Iterator[Record], int]] = iter(())
        self._seen_all = False

    def __iter__(self) -> Iterator[Record]:
        """The same records as `next` gives: a generator is faster."""
        while True:
            yield from self._records
            self._advance()

    def __next__(self) -> Record:
        while True:
            for record in self._records:
                return record
            self._advance()

    def __aiter__(self) -> Follow:
        return self

    async def __anext__(self) -> Record:
        while True:
            for record in self._records:
                return record
            await self._elsewhere(self._advance)

    def _advance(self) -> None:
        """The next block of records, or, at the end, a wait of at most one slice."""
        if self._seen_all:
            if not wait_for(self._log, self._offset, WAIT_SLICE_MS, self._bound):
                return
            self._seen_all = False
        if self._scan is None:
            self._scan = self._log.scan(self._offset, isolation=self._isolation)
            self._blocks = self._scan.record_blocks()
        try:
            block = next(self._blocks, None)
        except BaseException:
            self._scan = None
            raise
        if block is not None:
            self._records, self._offset = block
            return
        # The rest, up to the scan's end, has no records: markers, gaps.
        self._offset = max(self._offset, self._scan.end_offset)
        self._scan, self._seen_all = None, True


class FollowColumns(_Follower, Iterator["ScanBatch"], AsyncIterator["ScanBatch"]):
    """Batches of columns of a log as they come: for `for` and for `async for`, like Follow."""

    def __init__(self, steps: Iterator[ScanBatch | None]) -> None:
        """`steps`: batches; None when nothing came for a slice of time."""
        self._steps = steps

    def __next__(self) -> ScanBatch:
        for batch in self._steps:
            if batch is not None:
                return batch
        raise StopIteration

    def _step(self) -> tuple[ScanBatch | None, bool]:
        """The next batch and False; None and True at the end."""
        for batch in self._steps:
            return batch, False
        return None, True

    def __aiter__(self) -> FollowColumns:
        return self

    async def __anext__(self) -> ScanBatch:
        while True:
            batch, over = await self._elsewhere(self._step)
            if over:
                self.close()
                raise StopAsyncIteration
            if batch is not None:
                return batch


def follow_columns(
    log: Source, start: int | None, timeout_ms: int | None, **options: Any
) -> FollowColumns:
    """See Log.follow_arrow."""
    offset = log.end_offset if start is None else whole_number("start", start)
    if "stop" in options:
        raise ArgumentError("stop: `follow` has no end; `scan` has one")
    bound = bound_of(options.get("isolation", COMMITTED))
    if timeout_ms is not None:
        whole_number("timeout_ms", timeout_ms, 0)
    log.scan(offset, **options)  # errors in arguments are raised now, and not with the first batch
    return FollowColumns(_columns_from(log, offset, timeout_ms, bound, options))


def _columns_from(
    log: Source, offset: int, timeout_ms: int | None, bound: int, options: dict[str, Any]
) -> Iterator[ScanBatch | None]:
    while True:
        scan = log.scan(offset, **options)
        yield from scan
        # The rest, up to the scan's end, has no records: markers, gaps.
        offset = max(offset, scan.end_offset)
        left_ms = timeout_ms
        while True:
            slice_ms = WAIT_SLICE_MS if left_ms is None else min(WAIT_SLICE_MS, left_ms)
            if wait_for(log, offset, slice_ms, bound):
                break
            if left_ms is not None and (left_ms := left_ms - slice_ms) <= 0:
                return
            yield None
