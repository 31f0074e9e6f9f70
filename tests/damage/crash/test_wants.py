"""Shortages pass: without descriptors, memory or space a call fails, and the log goes on.

Only a failed write-back is final, and every log learns of it.
"""

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog import NoSpace
from kafkalog.errors import IoFailed, NoMemory, StorageOffline

pytestmark = pytest.mark.slow

CONFIG = {"segment.bytes": 2000, "file.delete.delay.ms": 0}
PASSES = (IoFailed, NoMemory, NoSpace)
WANTS = {"EMFILE": errno.EMFILE, "ENFILE": errno.ENFILE, "ENOMEM": errno.ENOMEM}


@pytest.fixture
def lib(native_test) -> Iterator[object]:
    native_test[1].kl_io_reset()
    yield native_test[1]
    native_test[1].kl_io_reset()
    native_test[1].kl_set_max_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


@pytest.fixture
def log(memory_path: Path, lib) -> Iterator[kafkalog.Log]:
    with kafkalog.Log(memory_path / "log-0", config=CONFIG) as log:
        for number in range(20):
            log.append(b"%d" % number * 100, timestamp_ms=1)
        log.flush()
        yield log
    with kafkalog.Log(memory_path / "log-0", config=CONFIG) as again:
        assert again.recovery.segments_recovered == 0
        assert again.verify().clean


def append(log: kafkalog.Log) -> None:
    log.append(b"more" * 100, timestamp_ms=1)


def append_until_it_rolls(log: kafkalog.Log) -> None:
    segments = len(log.segments)
    while len(log.segments) == segments:
        append(log)


def flush(log: kafkalog.Log) -> None:
    append(log)
    log.flush()


def rolled_and_flushed(log: kafkalog.Log) -> None:
    log.roll()
    log.flush()


def retention(log: kafkalog.Log) -> None:
    log.delete_before(min(log.start_offset + 5, log.end_offset))


def delete_all(log: kafkalog.Log) -> None:
    log.delete_before(log.end_offset)


CHANGES = [append, append_until_it_rolls, flush, rolled_and_flushed, retention, delete_all]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("want", WANTS)
def test_no_want_is_final(log, lib, want, change):
    """Each open, each allocation of blocks or memory in turn may fail the call; the log goes on."""
    for call in (b"openat", b"fallocate", b"alloc"):
        for nth in range(1, 12):
            for sticky in (0, 1):
                append(log)
                end = log.end_offset
                lib.kl_io_reset()
                lib.kl_set_max_open_files(1)  # so that files are opened repeatedly
                assert lib.kl_io_fail(call, nth, WANTS[want], sticky, 0) == 0
                try:
                    change(log)
                except PASSES:
                    assert log.end_offset >= end
                lib.kl_io_reset()
                assert log.append(b"goes on", timestamp_ms=1) == log.end_offset - 1
                log.flush()
                change(log)


def test_a_sync_that_was_not_tried_is_tried_again(log, lib, wait_until):
    """Without any call: records may be held back until the sync is done."""
    lib.kl_io_hold(b"fdatasync", lib.KL_HOLD_ALL)
    log.roll()
    append(log)
    lib.kl_io_fail(b"openat", 1, errno.EMFILE, 1, 0)
    lib.kl_io_hold(b"fdatasync", lib.KL_HOLD_NONE)
    with pytest.raises(PASSES):
        log.flush()
    assert log.flushed_offset < log.end_offset
    lib.kl_io_reset()
    wait_until(lambda: log.flushed_offset == log.end_offset, "all is on disk")


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.ENOMEM])
def test_a_write_back_that_failed_is_final_whatever_its_reason(memory_path, lib, error):
    log = kafkalog.Log(memory_path / "log-0", config=CONFIG)
    append(log)
    lib.kl_io_fail(b"fdatasync", 1, error, 0, 0)
    with pytest.raises(StorageOffline):
        log.flush()
    with pytest.raises(StorageOffline):
        append(log)
    with pytest.raises(StorageOffline):
        log.close()


def test_a_write_that_the_disk_refused_is_final(memory_path, lib):
    log = kafkalog.Log(memory_path / "log-0", config=CONFIG)
    append(log)
    lib.kl_io_fail(b"pwrite", 1, errno.EIO, 0, 0)
    with pytest.raises(IoFailed):
        append(log)
    with pytest.raises(StorageOffline):
        append(log)
    with pytest.raises(StorageOffline):
        log.close()


def test_a_file_with_unsynced_bytes_stays_open(memory_path, lib):
    """Otherwise a later open and sync of it would not report the failed write-back."""
    lib.kl_set_max_open_files(4)
    log = kafkalog.Log(memory_path / "log-0")
    append(log)
    before = os.stat(memory_path / "log-0" / f"{0:020d}.log").st_ino
    logs = [kafkalog.Log(memory_path / f"other{n}-0") for n in range(20)]
    for other in logs:
        append(other)
        other.flush()

    def is_open() -> bool:
        found = (os.stat(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _lives(fd))
        return before in {one.st_ino for one in found}

    assert is_open()
    log.flush()
    for other in logs:
        append(other)
        other.flush()
    assert not is_open()
    for other in [log, *logs]:
        other.close()


def _lives(fd: str) -> bool:
    return os.path.exists(f"/proc/self/fd/{fd}")


def test_a_failed_sync_of_the_cache_takes_the_log_offline(memory_path, lib):
    """More files were written than may be open: the failed sync was for closing one of them."""
    lib.kl_set_max_open_files(2)
    logs = [kafkalog.Log(memory_path / f"log{n}-0") for n in range(6)]
    lib.kl_io_reset()
    lib.kl_io_fail(b"fdatasync", 1, errno.EIO, 0, 0)
    for log in logs:
        append(log)
    assert lib.kl_io_calls(b"fdatasync") > 0
    lib.kl_io_reset()
    told = 0
    for log in logs:
        try:
            log.flush()
        except StorageOffline:
            told += 1
    assert told == 1
    for log in logs:
        try:
            log.close()
        except StorageOffline:
            told -= 1
    assert told == 0


@pytest.mark.parametrize("sticky", [0, 1])
def test_a_first_opening_without_descriptors_is_done_again(memory_path, lib, sticky):
    """It may leave work half done: a folder without a segment, or without the list of epochs."""
    for nth in range(1, 40):
        lib.kl_io_reset()
        assert lib.kl_io_fail(b"openat", nth, errno.EMFILE, sticky, 0) == 0
        with contextlib.suppress(PASSES):
            kafkalog.Log(memory_path / f"log{nth}-0", config=CONFIG).close()
        lib.kl_io_reset()
        with kafkalog.Log(memory_path / f"log{nth}-0", config=CONFIG) as log:
            append(log)
            assert log.verify().clean
