"""An open log of this process: the data plane's handle, and its users.

A Log is what a caller holds; several Logs, and the jobs of a data directory, may share one
handle.  It ends when the last of them has released it, or when its owner ends it.
"""

import os
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from kafkalog._native import check, direct_handle, ffi, lib
from kafkalog.clock import Clock, SystemClock
from kafkalog.config.topic import TopicConfig, compresses
from kafkalog.disk.checkpoint import DirectoryState, tell_unclean
from kafkalog.errors import NoSpace
from kafkalog.log.opening import LogOpen, log_config, open_native
from kafkalog.types import TopicPartition

__all__ = ["WAIT_SLICE_MS", "Handle", "Owner", "states"]

WAIT_SLICE_MS = 50
"""How long C may wait before Python checks for signals."""


class Owner(Protocol):
    """The owner of an open log's lock: what the log reports to it and asks of it."""

    @property
    def state(self) -> DirectoryState:
        """Where the log's checkpoints and the clean-shutdown marker are."""

    def opened(self, log: "Handle") -> None:
        """The log is open."""

    def closing(self, log: "Handle", all_synced: bool) -> None:
        """The log is about to close: remember its offsets.

        `all_synced`: they are written down only once all of the log is on disk; otherwise
        it was flushed.
        """

    def gone(self, log: "Handle") -> None:
        """The log's folder was removed: there is nothing to remember."""

    def closed(self, tp: TopicPartition, whole: bool) -> None:
        """The log is closed, or could not be opened; `whole`: it needs no recovery."""


class Handle:
    """A kl_log, open or closed.  Safe to use from many threads."""

    def __init__(self, path: str, how: LogOpen, owner: Owner) -> None:
        """Open it; the caller is its first user.

        Raises: UnsupportedForMessageFormat, NotFound, CorruptLog, IoFailed; before that, it reports
        to the owner that the log is closed.
        """
        self.path = path
        self.tp = how.tp
        self.mode = how.mode
        self.clock: Clock = how.clock
        self.owner = owner
        self._pid = os.getpid()
        self._change = threading.Condition(threading.Lock())  # guards the next three
        self._users = 1
        self._ender: int | None = None  # the thread that closes it, or did
        self._ended = False
        self.single_compressed = 0
        """Single-record appends that were compressed."""
        self.told_ahead = -1
        """The base of the segment that retention has reported as held by a future timestamp."""
        self._obey(how.config)
        self.c: Any = None
        """The kl_log."""
        try:
            self.c, self.recovery = open_native(path, how)
            if self.mode == "w":
                owner.state.note_derived(self.tp, -1)  # until it is closed
            owner.opened(self)
        except BaseException:
            if self.c is not None:
                lib.kl_log_abandon(self.c)
            owner.closed(self.tp, False)
            raise

    def _obey(self, config: TopicConfig) -> None:
        self.config = config
        self.compresses = compresses(config)
        """True if the topic has its own codec."""
        self.max_decompressed_bytes = config.kafkalog_max_decompressed_bytes

    def configure(self, config: TopicConfig) -> None:
        """Apply `config` from the next append on.

        Raises: Closed.
        """
        check(lib.kl_log_configure(self.c, log_config(config)))
        self._obey(config)

    def husk(self) -> "Handle":
        """A closed handle of the same log, for a user that has released it."""
        out = ffi.new("kl_log **")
        check(lib.kl_log_husk(os.fsencode(self.path), out))
        left = Handle.__new__(Handle)
        left.__dict__.update(self.__dict__)
        left.c = ffi.gc(out[0], lib.kl_log_free)
        return left

    def direct(self) -> Any:
        """Appends without cffi; None with another clock than the machine's, which C reads."""
        return direct_handle(self.c) if type(self.clock) is SystemClock else None

    def __repr__(self) -> str:
        return self.path

    # ---- its users -------------------------------------------------------------------------

    def take(self) -> bool:
        """Become a user; False if it has ended, or is ending.  See give_back."""
        with self._change:
            if self.ending:
                return False
            self._users += 1
            return True

    def give_back(self) -> None:
        """Stop being a user; the last one closes it.

        Raises: as close.
        """
        if self.forked():
            return
        with self._change:
            self._users -= 1
            last = self._users == 0
        if last:
            self.close()

    def forked(self) -> bool:
        """True if another process, the parent of this one, opened it."""
        # Its locks may be held by threads that this process does not have.
        return self._pid != os.getpid()

    # ---- its end ---------------------------------------------------------------------------

    def close(self, sync: bool = True) -> None:
        """Flush, write indexes and the producers' snapshot, let the owner remember the offsets.

        Its users get Closed.  Idempotent; returns when the log is closed, also when another thread
        closes it.  `sync` False: one of many logs whose owner puts all on disk before anything
        vouches for them.

        On a full disk the files of a clean close may be missing: a warning says so, and the next
        open recovers.

        Raises: StorageOffline, IoFailed; even then the log is closed, and is recovered when
        it is opened again.
        """
        if not self._begin_end():
            return
        whole = False
        try:
            if self.mode == "w":
                if sync:
                    self.flush()
                self.owner.closing(self, not sync)
            check(lib.kl_log_close(self.c) if sync else lib.kl_log_close_unsynced(self.c))
            if self.mode == "w":
                self.owner.state.note_derived(self.tp, int(lib.kl_log_derived_sum(self.c)))
            whole = True
        except NoSpace as error:
            tell_unclean(self.path, error)
        finally:
            self._end(whole)

    def discard(self) -> None:
        """End it after its folder was removed: nothing is written or waited for."""
        if self._begin_end():
            try:
                self.owner.gone(self)
            finally:
                self._end(True)

    def abandon(self) -> None:
        """End it as in a crash: nothing is written, and its owner vouches for nothing."""
        if self._begin_end():
            self._end(False)

    def _begin_end(self) -> bool:
        if self.forked():
            lib.kl_log_abandon(self.c)
            return False
        me = threading.get_ident()
        with self._change:
            if self._ender is None:
                self._ender = me
                return True
            # The same thread may come here from inside its own close, through a signal handler.
            while not self._ended and self._ender != me:
                self._change.wait()
            return False

    def _end(self, whole: bool) -> None:
        try:
            lib.kl_log_abandon(self.c)
            self.owner.closed(self.tp, whole)
        finally:
            with self._change:
                self._ended = True
                self._change.notify_all()

    @property
    def ending(self) -> bool:
        """True if it is closed or closing."""
        return self._users == 0 or self._ender is not None

    @property
    def ended(self) -> bool:
        """True if it is closed."""
        return self._ended

    # ---- its state -------------------------------------------------------------------------

    def state(self) -> Any:
        """The current kl_log_state."""
        found = ffi.new("kl_log_state *")
        check(lib.kl_log_get(self.c, found))
        return found

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return int(self.state().log_start_offset)

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return int(self.state().log_end_offset)

    @property
    def flushed_offset(self) -> int:
        """All records below it are on disk."""
        return int(self.state().flushed_offset)

    @property
    def high_watermark(self) -> int:
        """Readers see the records below it."""
        return int(self.state().high_watermark)

    def show_until(self, offset: int | None) -> None:
        """Let the high watermark follow the end up to `offset`, as other replicas allow; None:
        without a limit.  It never goes back.

        Raises: Closed, StorageOffline.
        """
        check(lib.kl_log_show_until(self.c, (1 << 63) - 1 if offset is None else offset))

    def many(self, kind: str, function: Any, *args: int) -> Any:
        """An array of `kind` that a function of the data plane fills."""
        count, room = ffi.new("size_t *", 16), 0
        while room < count[0]:
            room = count[0]
            out = ffi.new(f"{kind}[]", room)
            check(function(self.c, *args, out, room, count))
        return out[0 : count[0]]

    def flush_start(self) -> None:
        """Request a flush without waiting; `flush` reports its outcome."""
        lib.kl_log_flush_start(self.c, ffi.new("int64_t *"))

    def flush(self) -> None:
        """Return when everything appended before the call is on disk.

        Raises: StorageOffline, Closed; IoFailed, NoMemory, NoSpace, which are temporary.
        """
        target = ffi.new("int64_t *", -1)
        # Signals go to the main thread; the others may do the sync themselves.
        sees_signals = threading.current_thread() is threading.main_thread()
        wait_ms = WAIT_SLICE_MS if sees_signals else -1
        while (status := lib.kl_log_flush(self.c, target, wait_ms)) == lib.KL_E_TIMEOUT:
            pass
        check(status)

    def lead(self, epoch: int) -> None:
        """Stamp this leader epoch on batches appended from now on.

        Raises: Closed.
        """
        check(lib.kl_log_set_leader_epoch(self.c, epoch))

    def expire_producers(self, before_ms: int) -> None:
        """Forget idempotent producers whose last batch is older.

        Raises: Closed.
        """
        check(lib.kl_log_expire_producers(self.c, before_ms, ffi.new("size_t *")))


def states(handles: Sequence[Handle]) -> tuple[Any, Any]:
    """As Handle.state, for many at the same time: each call of C lets other threads run first, and
    a thousand calls wait for them a thousand times.

    Returns a kl_log_state[], and a kl_status[] with the outcome of each.  A row of an array lives
    as long as the array: keep that.
    """
    found = ffi.new("kl_log_state[]", len(handles))
    statuses = ffi.new("kl_status[]", len(handles))
    lib.kl_log_get_each([one.c for one in handles], len(handles), found, statuses)
    return found, statuses
