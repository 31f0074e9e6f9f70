"""A scan over the partitions of a topic, decoded by several threads, in order."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kafkalog._native import lib
from kafkalog.arguments import whole_number
from kafkalog.errors import ArgumentError, ForkedHandle
from kafkalog.log.scan.cuts import batch_starts
from kafkalog.log.scan.scan import Columnar, Scan, column_bits, new_pool
from kafkalog.system import processors

if TYPE_CHECKING:
    from kafkalog.log.log import Log

__all__ = ["TopicScan"]

PIECE_BYTES = 16 << 20
"""About how much of a log one thread decodes in one go."""
PIECE_BLOCKS = 4
"""Decoded blocks of a piece that were not taken yet; at this number its thread waits."""
AHEAD_BYTES = 256 << 20
"""Bytes of decoded blocks that were not taken yet: a batch that compressed well is one block,
whatever its size.  Each thread may hold one more."""
PIECES_AHEAD = 1
"""Pieces started ahead, in addition to one per thread."""
THREADS_MAX = 64
THREADS_DEFAULT_MAX = 8
"""The default on a machine with many processors: each thread has blocks in memory."""


class TopicScan(Columnar):
    """Partitions as columns, one after another, each in the order of its offsets.

    As `Scan`, but several threads decode ahead of the reader.  At most
    (`threads` + PIECES_AHEAD) times PIECE_BLOCKS batches of about `batch_bytes` are in memory; of
    larger ones about AHEAD_BYTES, and one per thread.
    """

    def __init__(
        self,
        logs: Sequence[Log],
        *,
        threads: int | None = None,
        within: tuple[int, int] | None = None,
        only_partition: int | None = None,
        **options: Any,
    ) -> None:
        """See `Store.scan`, which makes it.  `options`: those of `Log.scan` except start and stop.

        `within`: the wanted offsets (first, end) of each partition, as far as they exist.
        `only_partition`: skip all others; None: skip none.
        """
        usable = min(processors(), THREADS_DEFAULT_MAX)
        count = usable if threads is None else threads
        self._threads = whole_number("threads", count, 1, THREADS_MAX)
        for name in ("start", "stop"):
            if name in options:
                raise ArgumentError(
                    f"{name}: an offset of one partition, but this scan covers many; scan its log"
                )
        self._logs = tuple(
            log for log in logs if only_partition is None or log.partition == only_partition
        )
        self._within = within
        self._options = options
        self._columns, _ = column_bits(options.get("columns"))
        self._scans = [log.scan(**options) for log in self._logs]  # raises bad options now

    def __repr__(self) -> str:
        return f"TopicScan({len(self._logs)} partitions: {', '.join(self._columns)})"

    def count(self) -> int:
        """The number of records: see `Scan.count`."""
        return sum(count for _, count in self.counts())

    def counts(self) -> Iterator[tuple[int, int]]:
        """The number of records of each partition, in order; a partition may come in parts.

        Raises: as `count`.
        """
        scans = self._scans if self._within is None else self._pieces(self._ends())
        for scan in scans:
            yield scan._log.partition, scan.count()

    def _pass(self, columns: int) -> _Ordered:
        return _Ordered(self._pieces(self._ends()), columns, self._threads)

    def _ends(self) -> list[int]:
        """Where a pass that begins now ends in each partition."""
        found = []
        for log in self._logs:
            scan = log.scan(**self._options)  # not shared: passes may begin at once
            scan._pass(0).close()
            found.append(scan.end_offset)
        return found

    def _pieces(self, ends: Sequence[int]) -> Iterator[Scan]:
        """Scans that together cover the range, in order, cut where batches begin."""
        for log, end in zip(self._logs, ends, strict=True):
            first = log.start_offset  # a segment has entries for its deleted part, too
            begin: int | None = None
            if self._within is not None:
                if self._within[0] > first:
                    begin = first = self._within[0]
                end = min(end, self._within[1])
                if first >= end:
                    continue
            starts, _ = batch_starts(log, PIECE_BYTES, first, end)
            cuts = [begin, *(start for start in starts if first < start < end), end]
            for start, stop in pairwise(cuts):
                yield log.scan(start, stop, **self._options)


class _Work:
    """Shared by the threads of a pass.  Not its iterator: dropping that ends the threads."""

    def __init__(self, pieces: Iterator[Scan], columns: int, most: int) -> None:
        self.pid = os.getpid()
        self.lock = threading.Condition()
        self.pieces = pieces
        self.columns = columns
        self.most = most
        self.pool = new_pool(columns, most * PIECE_BLOCKS)
        self.begun: deque[_Piece] = deque()
        """In order; the first is being read."""
        self.ahead_bytes = 0
        """Bytes of blocks that were not taken yet."""
        self.all_begun = self.over = False

    def end(self) -> None:
        """End the pass: nothing reads it any more.  A forked child, which has not got the threads,
        does nothing."""
        if self.pid != os.getpid():
            return
        with self.lock:
            self.over = True
            for piece in self.begun:
                piece.problem = None
            self.begun.clear()
            self.lock.notify_all()

    def run(self) -> None:
        """The work of one thread: decode piece after piece."""
        while (piece := self._next()) is not None:
            self._decode(piece)

    def _next(self) -> _Piece | None:
        with self.lock:
            self.lock.wait_for(lambda: self.over or len(self.begun) < self.most)
            if self.over or self.all_begun:
                return None
            piece = _Piece()
            try:
                # Under the lock, so that threads append their pieces in the pieces' order.
                piece.scan = next(self.pieces, None)
            except BaseException as problem:
                piece.problem, piece.over = problem, True
            self.all_begun = piece.scan is None
            if piece.scan is not None or piece.problem is not None:
                self.begun.append(piece)
            self.lock.notify_all()
            return piece if piece.scan is not None else None

    def _decode(self, piece: _Piece) -> None:
        assert piece.scan is not None
        problem: BaseException | None = None
        try:
            blocks = piece.scan._pass(self.columns, self.pool)
            try:
                for block in blocks:
                    if not self._put(piece, block):
                        break
            finally:
                blocks.close()
        except BaseException as found:
            problem = found
        with self.lock:
            piece.problem, piece.over = None if self.over else problem, True
            # An error whose traceback refers back to it is garbage with memoryviews in it, which
            # can crash Python's collector: https://github.com/python/cpython/issues/77894
            problem = None
            self.lock.notify_all()

    def _put(self, piece: _Piece, block: Any) -> bool:
        with self.lock:
            self.lock.wait_for(lambda: self.over or self._has_room(piece, block))
            piece.blocks.append(block)
            self.ahead_bytes += lib.kl_block_memory(block)
            self.lock.notify_all()
            return not self.over

    def _has_room(self, piece: _Piece, block: Any) -> bool:
        """True if a block may be queued; a block that the reader waits for always may."""
        if not piece.blocks and piece is self.begun[0]:
            return True
        full = self.ahead_bytes + lib.kl_block_memory(block) > AHEAD_BYTES
        return not full and len(piece.blocks) < PIECE_BLOCKS

    def take(self) -> Any:
        """The next block; None after the last one.

        Raises: why a piece could not be read, after its blocks; ForkedHandle.
        """
        if self.pid != os.getpid():
            raise ForkedHandle("the threads of this scan are the parent process's: begin another")
        with self.lock:
            while True:
                self.lock.wait_for(self._known)
                if self.over or not self.begun:
                    return None
                piece = self.begun[0]
                if piece.blocks:
                    block = piece.blocks.popleft()
                    self.ahead_bytes -= lib.kl_block_memory(block)
                    self.lock.notify_all()
                    return block
                self.begun.popleft()
                self.lock.notify_all()
                problem, piece.problem = piece.problem, None
                try:
                    if problem is not None:
                        raise problem
                finally:
                    del problem  # as in _decode

    def _known(self) -> bool:
        """True if `take` can return or raise without waiting."""
        if self.over or not self.begun:
            return self.over or self.all_begun
        return bool(self.begun[0].blocks) or self.begun[0].over


class _Piece:
    """The part that one thread decodes."""

    def __init__(self) -> None:
        self.scan: Scan | None = None
        self.blocks: deque[Any] = deque()
        self.problem: BaseException | None = None
        self.over = False
        """No more blocks will come."""


class _Ordered:
    """One pass: an iterator over the `kl_block`s of all pieces, in their order."""

    def __init__(self, pieces: Iterator[Scan], columns: int, threads: int) -> None:
        self._work = _Work(pieces, columns, threads + PIECES_AHEAD)
        self._threads = [
            threading.Thread(target=self._work.run, name="kafkalog-scan", daemon=True)
            for _ in range(threads)
        ]
        self._ended = weakref.finalize(self, self._work.end)
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError:
            self.close()
            raise

    def __iter__(self) -> _Ordered:
        return self

    def __next__(self) -> Any:
        block = self._work.take()
        if block is None:
            raise StopIteration
        return block

    def close(self) -> None:
        """Release the logs and the memory; blocks already taken stay valid."""
        self._ended()
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()
