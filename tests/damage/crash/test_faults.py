"""The N-th system call fails, for every N of every operation: once, or from then on.

Afterwards nothing acknowledged is lost, and the log either goes on or is offline for good: offline
after a failed fsync, which is final and never repeated.
"""

import contextlib
import errno
import hashlib
import itertools
import shutil
import tempfile
from pathlib import Path

import pytest

import kafkalog
from tests.damage.crash.ledger import key_of, number_of, value_of
from tests.support.effort import LONG

CONFIG = {"segment.bytes": 2000, "index.interval.bytes": 256, "file.delete.delay.ms": 0}
KINDS = (
    "openat", "close", "pread", "pwrite", "fdatasync", "fsync", "ftruncate", "fallocate",
    "fstat", "fstatat", "statx", "renameat", "unlinkat", "mkdirat", "futimens", "mmap",
    "copy_file_range",
)  # fmt: skip
SYNCS = {"fdatasync", "fsync"}
# Calls that may need disk space; for any other call ENOSPC would only repeat the test of EIO.
ROOM = (
    "openat", "pwrite", "fdatasync", "fsync", "ftruncate", "fallocate", "renameat", "mkdirat",
    "unlinkat", "copy_file_range", "mmap",
)  # fmt: skip
# close is left out: on Linux it has closed the file even when a signal came.
INTERRUPTIBLE = ("openat", "pread", "pwrite", "ftruncate", "fallocate", "fdatasync", "fsync")
TRANSFERS = ("pread", "pwrite", "copy_file_range")
RECORDS, MANY, CUT, EXTRA = 28, 16, 11, 1000
TIME_MS = 1_767_225_600_000
"""The same for all records, so that the same faults leave the same bytes."""

# name: (errno, from then on, bytes done instead of an error)
FAULTS = {
    "EIO once": (errno.EIO, 0, 0),
    "EIO for good": (errno.EIO, 1, 0),
    "ENOSPC once": (errno.ENOSPC, 0, 0),
    "ENOSPC for good": (errno.ENOSPC, 1, 0),
    "EINTR once": (errno.EINTR, 0, 0),
    "short once": (0, 0, 3),
    "short for good": (0, 1, 3),
}


def _numbers(numbers):
    return [value_of(n) for n in numbers], [key_of(n) for n in numbers]


def append(log):
    log.append(value_of(RECORDS), key=key_of(RECORDS), timestamp_ms=TIME_MS)


def append_many(log):
    values, keys = _numbers(range(RECORDS, RECORDS + MANY))
    times = [TIME_MS] * len(values)
    log.append_many(values, keys=keys, timestamps_ms=times, batch_bytes=900)


def flush(log):
    append(log)
    log.flush()


def roll(log):
    log.roll()


def truncate(log):
    log.truncate(log.start_offset + CUT)


def delete(log):
    log.delete_before(log.segments[-1].base_offset)


def read(log):
    assert numbers_of(log) == list(range(RECORDS))


def close(log):
    log.close()


OPERATIONS = {
    f.__name__: f for f in (append, append_many, flush, roll, truncate, delete, read, close)
}
ADDED = {"append": 1, "flush": 1, "append_many": MANY}


def numbers_of(log):
    return [number_of(r.key, r.value) for r in log.read()]


@pytest.fixture(scope="module")
def template(memory):
    """A closed log of several segments: record i is value_of(i), at offset i."""
    path = Path(tempfile.mkdtemp(dir=memory)) / "log-0"
    with kafkalog.Log(path, config=CONFIG) as log:
        for number in range(RECORDS):
            log.append(value_of(number), key=key_of(number))
        assert len(log.segments) > 3
    return path


@pytest.fixture(scope="module")
def clean():
    """Digests of folders that passed `verify`: most faults leave the same few."""
    return set()


def digest(folder):
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        found.update(f"{path.name} {path.stat().st_size} ".encode() + path.read_bytes())
    return found.digest()


class Trial:
    """One operation with one call that fails, and what must hold after it."""

    def __init__(self, lib, path, operation, clean):
        self.lib = lib
        self.path = path
        self.operation = operation
        self.clean = clean
        self.failed = None
        self.reached = False
        self.extra = False  # a record appended after the fault was acknowledged

    def run(self, kind, nth, fault):
        """Run the operation under the fault, then use the same handle without it."""
        number, sticky, short = FAULTS[fault]
        log = None if self.operation == "open" else kafkalog.Log(self.path, config=CONFIG)
        self.lib.kl_io_reset()
        assert self.lib.kl_io_fail(kind.encode(), nth, number, sticky, short) == 0
        try:
            if log is None:
                log = kafkalog.Log(self.path, config=CONFIG)
            else:
                OPERATIONS[self.operation](log)
        except kafkalog.KafkalogError as failure:
            assert str(failure), repr(failure)
            self.failed = failure
        self.reached = self.lib.kl_io_calls(kind.encode()) >= nth
        self.lib.kl_io_reset()
        if log is not None and self.operation != "close":
            self._go_on(log, kind)
        elif log is not None:
            log.close()

    def _go_on(self, log, kind):
        """Reads are right; an append succeeds or the log is offline; a failed sync is the last."""
        synced = self.failed is not None and kind in SYNCS
        self._allowed(numbers_of(log))
        try:
            log.append(value_of(EXTRA), key=key_of(EXTRA), timestamp_ms=TIME_MS)
            self.extra = True
        except kafkalog.errors.StorageOffline:
            for refused in (log.flush, lambda: log.append(b"x"), log.roll):
                with pytest.raises(kafkalog.errors.StorageOffline):
                    refused()
        if synced and self.operation == "flush":
            assert not self.extra, "appended after a failed sync"
        if self.extra and kind not in SYNCS:
            log.close()
            return
        # A roll's own sync, in its thread, may have met the fault and report it only now.
        with contextlib.suppress(kafkalog.errors.StorageOffline):
            log.close()
        if self.extra:
            return
        if synced:  # otherwise a roll's sync may be in progress
            assert not any(self.lib.kl_io_calls(kind.encode()) for kind in SYNCS)

    def _allowed(self, found):
        """Check that the log may hold `found` after the operation, done or failed."""
        before, added = list(range(RECORDS)), list(range(RECORDS, RECORDS + MANY))
        if self.operation in ADDED:
            added = added[: ADDED[self.operation]]
            if self.failed is None:
                assert found == before + added
            else:
                assert found == before + added[: len(found) - RECORDS]
        elif self.operation == "truncate":
            assert found == before[: len(found)]
            assert len(found) == CUT or (self.failed and len(found) > CUT)
        elif self.operation == "delete":
            assert found == before[RECORDS - len(found) :]
            assert found and (self.failed or len(found) < RECORDS)
        else:
            assert found == before

    def check(self):
        """A new start without faults finds everything, clean, and goes on."""
        with kafkalog.Log(self.path, config=CONFIG) as log:
            found = numbers_of(log)
            if EXTRA in found:
                assert found.pop() == EXTRA
            else:
                assert not self.extra, "an acknowledged record is gone"
            self._allowed(found)
            log.flush()
            bytes_now = digest(self.path)
            if bytes_now not in self.clean:
                verified = log.verify()
                assert verified.clean, verified
                self.clean.add(bytes_now)
            assert log.append(b"more") == log.end_offset - 1


def kinds_of(fault):
    """The calls that can fail with this fault."""
    if fault.startswith("short"):
        return TRANSFERS
    if fault.startswith("ENOSPC"):
        return ROOM
    return INTERRUPTIBLE if fault.startswith("EINTR") else KINDS


def calls():
    """Which call of a kind fails: each of the first, then one of three; in the long form each."""
    yield from range(1, 7)
    yield from itertools.count(7, 1 if LONG else 3)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("operation", [*OPERATIONS, "open"])
def test_nth_call_fails(operation, fault, template, clean, memory_path, native_test):
    _, lib = native_test
    lib.kl_io_reset()
    for kind in kinds_of(fault):
        for nth in calls():
            path = memory_path / f"{kind}-{nth}" / "log-0"
            shutil.copytree(template, path)
            trial = Trial(lib, path, operation, clean)
            try:
                trial.run(kind, nth, fault)
                trial.check()
            except BaseException:
                print(f"{operation}: {fault}, {kind} call {nth}, {trial.failed!r}")
                raise
            finally:
                lib.kl_io_reset()
            shutil.rmtree(path.parent)
            if not trial.reached:
                assert trial.failed is None
                break
            assert trial.failed is None or not fault.startswith(("EINTR", "short"))


def test_a_full_disk_is_named_and_passes(template, memory_path, native_test):
    """ENOSPC: the append reports it, the log stays readable, and goes on when space returns."""
    _, lib = native_test
    path = memory_path / "log-0"
    shutil.copytree(template, path)
    with kafkalog.Log(path, config=CONFIG) as log:
        lib.kl_io_reset()
        for kind in ("pwrite", "fallocate"):
            assert lib.kl_io_fail(kind.encode(), 1, errno.ENOSPC, 1, 0) == 0
        try:
            with pytest.raises(kafkalog.NoSpace) as refused:
                for _ in range(100):
                    log.append(value_of(7), key=key_of(7))
            assert "No space left on device" in str(refused.value)
            held = numbers_of(log)
            assert held[:RECORDS] == list(range(RECORDS))
        finally:
            lib.kl_io_reset()
        assert log.append(value_of(1), key=key_of(1)) == log.end_offset - 1
        log.flush()


def test_the_first_failed_sync_is_final(template, memory_path, native_test):
    """No second fsync is tried: the kernel may have dropped the pages that it could not write."""
    _, lib = native_test
    path = memory_path / "log-0"
    shutil.copytree(template, path)
    log = kafkalog.Log(path, config=CONFIG)
    append(log)
    lib.kl_io_reset()
    assert lib.kl_io_fail(b"fdatasync", 1, errno.EIO, 0, 0) == 0
    try:
        with pytest.raises(kafkalog.errors.StorageOffline):
            log.flush()
        assert lib.kl_io_calls(b"fdatasync") == 1
        for _ in range(3):
            with pytest.raises(kafkalog.errors.StorageOffline):
                log.flush()
            with pytest.raises(kafkalog.errors.StorageOffline):
                log.append(b"x")
        assert numbers_of(log)[:RECORDS] == list(range(RECORDS))
        with contextlib.suppress(kafkalog.errors.StorageOffline):
            log.close()
        assert lib.kl_io_calls(b"fdatasync") == 1
    finally:
        lib.kl_io_reset()
    with kafkalog.Log(path, config=CONFIG) as again:
        assert again.append(b"after a restart") >= RECORDS
