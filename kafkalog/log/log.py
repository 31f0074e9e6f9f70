"""One partition's log: the Python interface of the data plane."""

from __future__ import annotations

import os
import threading
import weakref
from _thread import start_new_thread
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, overload

from kafkalog._native import append_batches_direct, check, failure, ffi, lib
from kafkalog.arguments import INT16_MAX, INT32_MAX, bytes_like, whole_number
from kafkalog.batch.columns import Columns, Rows
from kafkalog.batch.encode import target_codec
from kafkalog.clock import Clock
from kafkalog.config.topic import TopicConfig
from kafkalog.errors import ArgumentError, KafkalogError
from kafkalog.log import reading
from kafkalog.log.appending import (
    BATCH_BYTES,
    NO_HEADERS,
    append_batches,
    append_columns,
    append_expected,
    append_row,
    quick,
    span_of,
)
from kafkalog.log.figures import log_metrics
from kafkalog.log.handle import Handle
from kafkalog.log.hooks import Lent, hooks
from kafkalog.log.isolation import COMMITTED, bound_of
from kafkalog.log.lookup import find_time, milliseconds
from kafkalog.log.outgoing import READ_BYTES, read_batches, send_batches
from kafkalog.log.owner import open_log
from kafkalog.log.reading import Follow, Near, record_at, records_in, wait_for
from kafkalog.log.removal import apply_retention, delete_before, truncate
from kafkalog.log.retention import Expiry
from kafkalog.log.segments import Segment, list_segments
from kafkalog.types import (
    AbortedTransaction,
    AppendedOffsets,
    FoundOffset,
    Header,
    LeaderEpoch,
    ProducerState,
    Record,
    SentBatches,
)

if TYPE_CHECKING:
    import socket
    from datetime import datetime

    from kafkalog.log.compaction import Compaction, Limits
    from kafkalog.log.scan.scan import Scan
    from kafkalog.report import Report

__all__ = ["Log", "handle_of", "log_over"]


class Log:
    """An append-only log of records in Kafka's format, in its own folder.

    One handle writes (mode "w"), any number of processes read at the same time (mode "r").
    An append is in the operating system's page cache on return, so it survives the process;
    flush makes it durable.  Safe to use from many threads; in a forked child every call
    raises ForkedHandle.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: str = "w",
        config: Mapping[str, object] | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Open the log in the folder `path`; mode "w" creates it if it is missing.

        `config`: topic settings by Kafka's names (docs/settings.md); nothing is ever deleted
        unless one of them says so.  Topic and partition come from the folder's name,
        `orders-0`; without a number it is partition 0.  Inside a data directory, the
        directory's own lock and checkpoints are used.

        Raises: Locked with the owner's pid, NotFound (mode "r"), UnknownSetting,
        InvalidSetting, UnsupportedForMessageFormat (message formats 0 and 1), IoFailed.
        """
        self._begin(open_log(path, mode, config, (topic, partition), clock))

    def _begin(self, lent: Lent) -> None:
        handle = lent.handle
        self.path = handle.path
        self.topic, self.partition = handle.tp
        self.mode = handle.mode
        self.recovery = handle.recovery
        """The result of the recovery at opening."""
        self._handle = handle
        self._c = handle.c
        self._direct = handle.direct()
        self._give_back = lent.give_back
        self._ending = threading.RLock()  # a signal handler may run inside a close
        self._closed = False
        self._near: Near | None = None
        self._forgotten: weakref.finalize[..., Log] | None = None
        if lent.shared:
            # A Log dropped without close is still released.  In its own thread, since the garbage
            # collector runs anywhere, also where the locks that this takes are held.
            self._forgotten = weakref.finalize(
                self, start_new_thread, _give_back_quietly, (self.path, lent.give_back)
            )
            self._forgotten.atexit = False

    @property
    def config(self) -> TopicConfig:
        """The settings in effect."""
        return self._handle.config

    @property
    def _max_decompressed(self) -> int:
        return self._handle.max_decompressed_bytes

    @property
    def closed(self) -> bool:
        """True if it was closed, by this program or by its data directory."""
        return self._closed or self._handle.ended

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"mode={self.mode!r}"
        return f"Log({self.path!r}, {state})"

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise ArgumentError(
            f"log {self.path}: an open Log cannot be copied or pickled; pass its path, and "
            "open that where the log is needed"
        )

    def close(self) -> None:
        """Flush, write indexes, producer snapshot and checkpoints, release the lock.

        Idempotent; returns when the log is closed, also if another thread closes it.  Waits of
        other threads end with Closed.  In a data directory the log stays open for its other
        users in this process.

        On a full disk the files of a clean close may be missing: a warning says so, and the next
        open recovers.

        Raises: StorageOffline, IoFailed, NoMemory; the log is closed then, too, and recovered when
        it is opened again.
        """
        if self._handle.forked():
            self._closed = True
            self._handle.abandon()
            return
        with self._ending:
            if self._closed:
                return
            self._closed = True
            if self._forgotten is not None:
                self._forgotten.detach()
            try:
                self._give_back()
            finally:
                if not self._handle.ended:
                    self._handle = self._handle.husk()
                    self._c = self._handle.c
                    self._direct = self._handle.direct()

    # ---- what it holds ---------------------------------------------------------------------

    def _state(self) -> Any:
        return self._handle.state()

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return int(self._state().log_start_offset)

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return int(self._state().log_end_offset)

    @property
    def flushed_offset(self) -> int:
        """All records below it are on disk."""
        return int(self._state().flushed_offset)

    @property
    def high_watermark(self) -> int:
        """Readers see the records below it."""
        return int(self._state().high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended: where read_committed stops."""
        return int(self._state().last_stable_offset)

    @property
    def size_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return int(self._state().size_bytes)

    @property
    def leader_epoch(self) -> int:
        """The epoch that appended batches carry."""
        return int(self._state().leader_epoch)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments in the order of offsets; the last one is active."""
        return list_segments(self._handle)

    @property
    def producers(self) -> tuple[ProducerState, ...]:
        """Idempotent producers that the log remembers, by producer id."""
        found = self._handle.many("kl_producer", lib.kl_log_producers)
        return tuple(
            ProducerState(
                p.producer_id, p.producer_epoch, p.last_sequence, p.last_offset, p.offset_delta,
                p.last_timestamp_ms, p.coordinator_epoch, p.txn_start_offset,
            )
            for p in found
        )  # fmt: skip

    @property
    def epochs(self) -> tuple[LeaderEpoch, ...]:
        """Leader epochs and where each began, ascending."""
        found = self._handle.many("kl_epoch", lib.kl_log_epochs)
        return tuple(LeaderEpoch(entry.epoch, entry.start_offset) for entry in found)

    def metrics(self) -> dict[str, float]:
        """The log's figures now, by name (docs/metrics.md)."""
        return log_metrics(self._handle)

    def refresh(self) -> None:
        """See what another process has written since; reads do so automatically."""
        check(lib.kl_log_refresh(self._c))

    # ---- appending --------------------------------------------------------------------------

    @quick
    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[Header] = NO_HEADERS,
        timestamp_ms: int | None = None,
        expected_offset: int | None = None,
    ) -> int:
        """Append one record; returns its offset.  In the page cache on return.

        `timestamp_ms`: None is now, -1 no timestamp, else at least 0.  A value of None is a
        tombstone.  `expected_offset`: append only if the record gets this offset, that is, if
        nobody has appended since.

        Raises: ArgumentError, UnexpectedAppendOffset, MessageTooLarge, InvalidRecord,
        InvalidTimestamp, NoSpace (passes when space returns), StorageOffline (final),
        ReadOnly, Closed, ForkedHandle.
        """
        return append_row(self._handle, value, key, headers, timestamp_ms, expected_offset)

    def append_many(
        self,
        values: Rows,
        keys: Rows = None,
        timestamps_ms: Any = None,
        headers: Sequence[Iterable[Header] | None] | None = None,
        compression: str | None = None,
        batch_bytes: int | None = None,
        expected_offset: int | None = None,
    ) -> AppendedOffsets:
        """Append rows: lists, Arrow or NumPy columns of one length.

        Rows are put into batches of about `batch_bytes` (1 MiB, at most max.message.bytes); each
        is one write, and whole or absent after a crash.  Several batches are not atomic: a crash,
        or an error partway, leaves a prefix.  `compression`: none, gzip, snappy, lz4, zstd; the
        topic's own compression.type overrides it.

        With `expected_offset` all rows are one batch, which is appended only if the first
        of them gets this offset.

        Raises: as append; ArgumentError, which names the column, what was found and wanted;
        MessageTooLarge for rows that must be one batch and do not fit.
        """
        size = BATCH_BYTES
        if batch_bytes is not None:
            size = whole_number("batch_bytes", batch_bytes, 1)
        columns = Columns(values, keys, timestamps_ms, headers)
        codec = target_codec(self.config, compression)
        if expected_offset is not None:
            return append_expected(self._handle, columns, codec, expected_offset)
        return append_columns(self._handle, columns, codec, size)

    def append_batches(self, buffer: bytes) -> AppendedOffsets:
        """Append whole record batches as a producer sent them (base offset 0): all or none.

        Headers, checksums, every record and the producers' sequences are checked before
        anything is appended; offsets, epoch and, under LogAppendTime, times are set.  They go
        into one segment with one write; only a crash during it can leave a part of them, the
        first ones.  A batch that an idempotent producer repeats is not appended again; the result
        is then that of the first append.

        Raises: CorruptMessage, InvalidRecord, MessageTooLarge, RecordListTooLarge (more than
        segment.bytes), InvalidTimestamp, OutOfOrderSequenceNumber, InvalidProducerEpoch,
        InvalidTxnState.
        """
        if type(buffer) is not bytes:
            buffer = bytes(bytes_like("buffer", buffer))
        handle = self._handle
        if self._direct is not None and not handle.compresses:
            found = append_batches_direct(self._direct, buffer, handle.clock.now_ms())
            if isinstance(found, tuple):
                base_offset, last_offset, sync_due = found
                if sync_due:
                    handle.flush()
                return span_of(base_offset, last_offset)
            if found is not None:
                raise failure(found)
        return append_batches(handle, buffer)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int = 0,
        timestamp_ms: int | None = None,
    ) -> int:
        """End the transaction of a producer here; returns the marker's offset.

        Raises: TransactionCoordinatorFenced, InvalidProducerEpoch.
        """
        kind = lib.KL_CONTROL_COMMIT if commit else lib.KL_CONTROL_ABORT
        done = ffi.new("kl_appended *")
        now_ms = self._handle.clock.now_ms() if timestamp_ms is None else timestamp_ms
        whole_number("producer_id", producer_id, 0)
        whole_number("producer_epoch", producer_epoch, 0, INT16_MAX)
        whole_number("coordinator_epoch", coordinator_epoch, -1, INT32_MAX)
        whole_number("timestamp_ms", now_ms, -1)
        check(lib.kl_log_append_marker(
            self._c, producer_id, producer_epoch, coordinator_epoch, kind, now_ms, done
        ))  # fmt: skip
        return int(done.base_offset)

    def flush(self) -> None:
        """Return when everything appended before the call is on disk.

        Calls of many threads share one sync.  The first failure is final.  Ctrl-C ends the wait;
        the sync continues.

        Raises: StorageOffline.
        """
        self._handle.flush()

    # ---- reading ------------------------------------------------------------------------------

    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        start_time_ms: int | None = None,
        stop_time_ms: int | None = None,
        columns: Sequence[str] | None = None,
        key: bytes | None = None,
        key_prefix: bytes | None = None,
        isolation: str = COMMITTED,
        batch_rows: int = 32_768,
        batch_bytes: int = 8 << 20,
        check_crcs: bool = True,
    ) -> Scan:
        """Records as columns, by default committed ones: see Scan."""
        from kafkalog.log.scan.scan import Scan

        return Scan(
            self, start, stop, start_time_ms=start_time_ms, stop_time_ms=stop_time_ms,
            columns=columns, key=key, key_prefix=key_prefix, isolation=isolation,
            batch_rows=batch_rows, batch_bytes=batch_bytes, check_crcs=check_crcs,
        )  # fmt: skip

    def read(
        self, start: int | None = None, stop: int | None = None,
        isolation: str = "read_uncommitted",
    ) -> Iterator[Record]:  # fmt: skip
        """Records from `start` (the log's start) up to `stop` or the current end.

        Control records are never shown, and offsets may have gaps.

        Raises: OffsetOutOfRange, CorruptMessage at a damaged batch.
        """
        return self.scan(start, stop, isolation=isolation).records()

    def __iter__(self) -> Iterator[Record]:
        """Every record that exists when the iteration begins, as `log[:]`."""
        return records_in(self, slice(None))

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Iterator[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Iterator[Record]:
        """`log[offset]`: one record, `log[-1]` the last; `log[start:stop]`: an iterator.

        Numbers are offsets, negative ones count records from the end.  A slice gives the part
        that exists, as with a list; `read` raises if its start does not exist.

        Raises: OffsetOutOfRange for a missing offset, also if compaction removed it or a marker
        has it.
        """
        if isinstance(index, slice):
            return records_in(self, index)
        return record_at(self, index)

    def follow(self, start: int | None = None, isolation: str = "read_uncommitted") -> Follow:
        """Records from `start` on (default: the end), then each new one; waits forever.

        Works with `for`, and with `async for`, which waits in its own thread.

        Raises: OffsetOutOfRange, CorruptMessage; Closed when another thread closes the log.
        """
        return Follow(self, start, isolation)

    def follow_arrow(
        self, start: int | None = None, *, timeout_ms: int | None = None, **options: Any
    ) -> reading.FollowColumns:
        """As follow, in batches of columns, which Arrow libraries read directly.

        Ends when nothing has arrived for `timeout_ms`; None: never.  `options`: see `scan`.
        """
        return reading.follow_columns(self, start, timeout_ms, **options)

    def wait(self, offset: int, timeout_ms: int, isolation: str = "read_uncommitted") -> bool:
        """True if there is something to read at `offset`, after at most `timeout_ms`.

        Raises: ArgumentError; Closed when another thread closes the log.
        """
        return wait_for(self, offset, timeout_ms, bound_of(isolation))

    def read_batches(
        self,
        offset: int,
        max_bytes: int = READ_BYTES,
        isolation: str = "read_uncommitted",
        check_crcs: bool = True,
    ) -> bytes:
        """Whole batches from the one that holds `offset` on, as they are on disk.

        At least one batch, however large; from one segment.  Empty at the end.  The
        `isolation` "log_end" reads beyond the high watermark, as a follower does.

        Raises: OffsetOutOfRange, CorruptMessage.
        """
        bound = bound_of(isolation, log_end=True)
        whole_number("offset", offset)
        whole_number("max_bytes", max_bytes, 0)
        return read_batches(self._handle, offset, max_bytes, bound, bool(check_crcs))

    def send_to(
        self, socket: socket.socket, start: int, max_bytes: int = READ_BYTES,
        isolation: str = "read_uncommitted",
    ) -> SentBatches:  # fmt: skip
        """Send whole batches from `start` on by sendfile: the bytes never enter Python.

        At least one batch unless `start` is the end.  A socket's own timeout applies.

        Raises: OffsetOutOfRange, PeerGone, Timeout (part of a batch may have been sent then).
        """
        return send_batches(self._handle, socket, start, max_bytes, bound_of(isolation))

    # ---- looking up ---------------------------------------------------------------------------

    def offset_at(self, time: int | datetime) -> int | None:
        """The first offset with a timestamp at or after `time`; None if there is none.

        `time`: milliseconds since 1970 UTC, or a datetime that knows its zone.

        Raises: ArgumentError.
        """
        found = self.find_time(time)
        return None if found is None else found.offset

    def find_time(self, time: int | datetime) -> FoundOffset | None:
        """As offset_at, with the record's own timestamp and its leader epoch.

        Source: Kafka's ListOffsets; transaction markers count, too.
        """
        return find_time(self._handle, milliseconds(time))

    def find_largest_time(self) -> FoundOffset | None:
        """The first record with the largest timestamp (ListOffsets' max_timestamp)."""
        return find_time(self._handle, None)

    def aborted(self, start: int, stop: int) -> tuple[AbortedTransaction, ...]:
        """Aborted transactions that touch the offsets [start, stop)."""
        bounds = whole_number("start", start), whole_number("stop", stop)
        found = self._handle.many("kl_aborted", lib.kl_log_aborted, *bounds)
        return tuple(
            AbortedTransaction(e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset)
            for e in found
        )

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) in the form of OffsetForLeaderEpoch; (-1, -1) if unknown."""
        whole_number("epoch", epoch, -1, INT32_MAX)
        found, end = ffi.new("int32_t *"), ffi.new("int64_t *")
        check(lib.kl_log_epoch_end(self._c, epoch, found, end))
        return found[0], end[0]

    # ---- taking away ----------------------------------------------------------------------------

    def roll(self) -> None:
        """Seal the active segment and begin a new one, unless it is empty."""
        check(lib.kl_log_roll(self._c))

    def truncate(self, offset: int) -> None:
        """Remove all records at and above `offset`, durably.

        Whole batches are removed: if `offset` is inside one, the end becomes lower.  If nothing is
        left above the start, deleted records below it are removed, too, and the empty log continues
        from where it ends.
        """
        truncate(self._handle, whole_number("offset", offset, 0))

    def delete_before(self, offset: int) -> None:
        """Make `offset` the log's start, durably; segments completely below it are deleted.

        Raises: OffsetOutOfRange above the high watermark.
        """
        delete_before(self._handle, whole_number("offset", offset))

    def apply_retention(self, now_ms: int | None = None) -> Expiry | None:
        """Delete the segments that retention.ms and retention.bytes no longer keep.

        Returns what was deleted and why, and what a reader's hold kept; None if nothing had
        expired. See docs/settings.md.
        """
        known = None if now_ms is None else whole_number("now_ms", now_ms, 0)
        return apply_retention(self._handle, known)

    def compact(self, limits: Limits | None = None) -> Compaction:
        """Keep only the last record of each key: see kafkalog.log.compaction.compact."""
        from kafkalog.log.compaction import compact

        return compact(self._handle, limits)

    # ---- a copy of another log --------------------------------------------------------------

    def append_as_follower(self, buffer: bytes) -> AppendedOffsets:
        """Append batches of a leader's log with their offsets and epochs unchanged: only for
        replicas of a log, to which nothing else may append.

        Raises: UnexpectedAppendOffset below the end, CorruptMessage.
        """
        view, done = bytes_like("buffer", buffer), ffi.new("kl_appended *")
        check(lib.kl_log_append_follower(self._c, ffi.from_buffer(view), len(view), done))
        return span_of(done.base_offset, done.last_offset)

    # ---- checking ---------------------------------------------------------------------------

    def verify(self, deep: bool = False) -> Report:
        """Check every file of the log; returns a report, and never raises on damage."""
        if self.mode == "w" and not self.closed:
            with suppress(KafkalogError):  # what cannot be flushed is checked as it is on disk
                self.flush()
        return hooks().verify(self.path, deep=deep)


def log_over(handle: Handle) -> Log:
    """A Log over a handle that the caller uses; closing the Log releases the handle."""
    log = Log.__new__(Log)
    log._begin(Lent(handle, handle.give_back))
    return log


def handle_of(log: Log) -> Handle:
    """The Log's handle, for the parts of kafkalog that work on it."""
    return log._handle


def _give_back_quietly(path: str, give_back: Callable[[], None]) -> None:
    try:
        give_back()
    except KafkalogError as error:
        from kafkalog.logs.limit import limited  # logging takes 10 ms to import

        limited(__name__).error("log %s, dropped without close: %s", path, error)
