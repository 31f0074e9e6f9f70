"""After a failed step nothing crashes, nothing is left over, no other file is touched."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog._native import check, ffi, lib
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully
from tests.unit.log.test_held_disk import CONFIG, Wait, delete_segments, fill, held
from tests.unit.log.test_old_looks import waits_for_a_lock

NO_SPACE = 2, errno.ENOSPC


@pytest.fixture
def no_segment(native_test: tuple[Any, Any]) -> Iterator[Any]:
    """A function: after a call the next segment cannot be created."""
    _, hooks = native_test
    hooks.kl_failpoint_reset()
    yield lambda: hooks.kl_failpoint_set(b"segment.create.before_file", *NO_SPACE, 1)
    hooks.kl_failpoint_reset()


def log_files(folder: Path) -> list[Path]:
    return list((folder / "t-0").glob("*.log"))


def page_of(folder: Path) -> Path:
    found = os.stat(folder)
    name = f"{found.st_dev:x}-{found.st_ino:x}"
    return Path(f"/dev/shm/kafkalog-{os.geteuid()}") / name


def test_a_log_that_lost_its_last_segment_leaves_no_page(tmp_path: Path, no_segment: Any) -> None:
    """Otherwise its readers would wait for the end of a change that never ends."""
    log = kafkalog.Log(tmp_path / "t-0", config=CONFIG)
    fill(log)
    assert page_of(log.path).exists()
    no_segment()
    with pytest.raises(errors.KafkalogError):
        truncate_fully(handle_of(log), 1000)
    lib.kl_log_abandon(log._c)
    assert not page_of(log.path).exists()


@pytest.mark.parametrize("reached", [1, 2, 3])
def test_a_deletion_that_failed_goes_on_where_it_stopped(
    tmp_path: Path, native_test: tuple[Any, Any], reached: int
) -> None:
    """It does not continue with later ones: an open of the folder would then find a gap."""
    hooks = native_test[1]
    with kafkalog.Log(tmp_path / "t-0", config=CONFIG) as log:
        fill(log)
        bases = [one.base_offset for one in log.segments]
        hooks.kl_failpoint_reset()
        hooks.kl_failpoint_set(b"delete.before_segment", *NO_SPACE, reached)
        with pytest.raises(errors.NoSpace):
            delete_segments(log, bases[3])
        hooks.kl_failpoint_reset()
        assert log.start_offset == bases[3]
        left = sorted(int(path.stem) for path in log_files(tmp_path))
        assert left == bases[reached - 1 :]
        assert delete_segments(log, bases[4]) == 5 - reached
        assert sorted(int(path.stem) for path in log_files(tmp_path)) == bases[4:]
        assert log.verify(deep=True).clean


def test_a_log_begins_again_only_when_no_old_name_is_left(
    tmp_path: Path, native_test: tuple[Any, Any]
) -> None:
    """Its first segment may have the name of one that a failed deletion left."""
    hooks = native_test[1]
    with kafkalog.Log(tmp_path / "t-0", config=CONFIG) as log:
        fill(log)
        before = log.segments[3].base_offset
        hooks.kl_failpoint_reset()
        hooks.kl_failpoint_set(b"delete.before_segment", *NO_SPACE, 1)
        with pytest.raises(errors.NoSpace):
            delete_segments(log, before)
        hooks.kl_failpoint_reset()
        truncate_fully(handle_of(log), 0)
        assert log.append(b"new", key=b"k") == 0
        assert delete_segments(log, 1) == 1
        assert log.append(b"newer", key=b"k") == 1
        assert [path.stem for path in log_files(tmp_path)] == [f"{1:020}"]
    with kafkalog.Log(tmp_path / "t-0", config=CONFIG) as log:
        assert [r.value for r in log.read()] == [b"newer"]


def test_an_open_that_cannot_begin_again_fails(tmp_path: Path, no_segment: Any) -> None:
    """The log start is above the end, and there is no room for a segment at the start."""
    with kafkalog.Log(tmp_path / "t-0") as log:
        fill(log)
    config = ffi.new("kl_log_config *", {"segment_bytes": 4_000, "segment_index_bytes": 4_000})
    how = ffi.new("kl_open *", {"mode": 1, "log_start_offset": 1_000, "recovery_point": -1})
    out, recovery = ffi.new("kl_log **"), ffi.new("kl_recovery *")
    no_segment()
    path = os.fsencode(log.path)
    assert lib.kl_log_open(path, config, how, ffi.NULL, out, recovery) == lib.KL_E_NO_SPACE
    assert out[0] == ffi.NULL


def test_a_reader_loses_its_segments(tmp_path: Path) -> None:
    """After a failed refresh the reader keeps what it saw before."""
    with kafkalog.Log(tmp_path / "t-0", config=CONFIG) as log:
        fill(log)
    with kafkalog.Log(tmp_path / "t-0", mode="r") as reader:
        assert len(reader.segments) > 4
        for path in (tmp_path / "t-0").iterdir():
            path.unlink()
        for _ in range(2):
            with pytest.raises(errors.KafkalogError, match="holds no log"):
                reader.refresh()
        bytes_, buffer = ffi.new("size_t *"), ffi.new("uint8_t[]", 1000)
        check(lib.kl_log_read_at(reader._c, 0, 0, buffer, 1000, bytes_))
        assert bytes_[0] > 300


@pytest.mark.parametrize("call", [b"pread", b"fstat"])
def test_a_late_reader_writes_no_index_of_a_segment_that_is_gone(
    tmp_path: Path, native_test: tuple[Any, Any], wait_until: Any, call: bytes
) -> None:
    """It saw the segment before the deletion, and rebuilds an index that it no longer finds."""
    folder = tmp_path / "t-0"
    with kafkalog.Log(folder, config=CONFIG) as log:
        fill(log)
    bases = sorted(int(path.stem) for path in folder.glob("*.log"))

    def read(log: kafkalog.Log) -> None:
        with contextlib.suppress(errors.OffsetOutOfRange):  # the records are deleted
            list(log.read(bases[0] + 3))

    with kafkalog.Log(folder, config=CONFIG) as log:
        log.append(b"first", key=b"k0")
        log.flush()  # a sync opens its file, too
        with held(native_test[1], call, lambda: read(log), wait_until):
            assert delete_segments(log, bases[2]) == 2
        segments = {path.stem for path in folder.glob("*.log")}
        assert {path.stem for path in folder.glob("*.*index")} <= segments


def test_a_late_reader_takes_back_the_index_of_a_segment_that_went(
    tmp_path: Path, native_test: tuple[Any, Any], wait_until: Any
) -> None:
    """It saw the segment's name before the deletion, and wrote the index after it."""
    folder = tmp_path / "t-0"
    with kafkalog.Log(folder, config=CONFIG) as log:
        fill(log)
    bases = sorted(int(path.stem) for path in folder.glob("*.log"))

    def read(log: kafkalog.Log) -> None:
        with contextlib.suppress(errors.OffsetOutOfRange):  # the records are deleted
            list(log.read(bases[1] + 3))

    with kafkalog.Log(folder, config=CONFIG) as log:
        log.append(b"first", key=b"k0")
        (folder / f"{bases[1]:020}.index").unlink()
        with held(native_test[1], b"renameat", lambda: read(log), wait_until):
            assert delete_segments(log, bases[2]) == 2
        segments = {path.stem for path in folder.glob("*.log")}
        assert {path.stem for path in folder.glob("*.*index")} <= segments


def test_an_index_entry_at_position_0_is_none(tmp_path: Path) -> None:
    """No writer makes one; neither an appended index nor a reader of the page accepts one."""
    folder = tmp_path / "t-0"
    with kafkalog.Log(folder, config=CONFIG) as log:
        fill(log)
    index = min(folder.glob("*.index"))
    whole = index.read_bytes()
    index.with_suffix(".chk").unlink()
    index.write_bytes(struct.pack(">ii", 1, 0) + whole)
    with kafkalog.Log(folder, config=CONFIG) as log:
        assert next(iter(log.read(1))).offset == 1
        assert log.segments[0].offset_index_entries == len(whole) // 8
    assert index.read_bytes() == whole


STEPS = [
    (b"renameat", errno.ENOSPC),
    (b"openat", errno.EMFILE),
    (b"statx", errno.ENOMEM),
    (b"pwrite", errno.ENOSPC),
]


@pytest.mark.parametrize(("call", "wrong"), STEPS, ids=[f"{c.decode()} {w}" for c, w in STEPS])
def test_a_compaction_that_fails_leaves_a_log_that_goes_on(
    tmp_path: Path, native_test: tuple[Any, Any], call: bytes, wrong: int
) -> None:
    """It fails at each of its calls, and leaves no half-made file."""
    hooks = native_test[1]
    for nth in range(1, 100):
        with kafkalog.Log(tmp_path / f"t-{nth}", config=CONFIG) as log:
            fill(log, 12)
            log.roll()
            log.flush()
            last = {r.key: r.value for r in log.read()}
            hooks.kl_io_fail(call, nth, wrong, 0, 0)
            failed = True
            with contextlib.suppress(errors.NoSpace, errors.NoMemory, errors.IoFailed):
                log.compact()
                failed = False
            done = hooks.kl_io_calls(call) < nth
            hooks.kl_io_reset()
            if failed or call != b"renameat":  # a failed rename may pass unreported, and leave one
                assert not list(Path(log.path).glob("*.cleaned"))
                assert not list(Path(log.path).glob("*.swap"))
            log.append(b"behind", key=b"b")
            log.compact()
            assert {r.key: r.value for r in log.read()} == {**last, b"b": b"behind"}
            found = {one.found for one in log.verify(deep=True).findings}
            assert found <= {".deleted", ".cleaned"}
        if done:
            break
    assert nth > 2


@pytest.mark.parametrize(
    ("call", "wrong"), [(b"openat", errno.EMFILE), (b"fdatasync", errno.EIO)], ids=["open", "sync"]
)
def test_a_torn_tail_that_cannot_be_kept_says_why(
    tmp_path: Path, native_test: tuple[Any, Any], call: bytes, wrong: int
) -> None:
    """The error has the system's errno, which shows whether it may pass; this holds even if the
    half copy cannot be removed.  The tail is not cut then."""
    hooks = native_test[1]
    folder = tmp_path / "t-0"
    with kafkalog.Log(folder) as log:
        log.append(b"whole")
    torn = folder / f"{0:020}.log"
    torn.write_bytes(torn.read_bytes() + b"torn")
    (folder / ".kafka_cleanshutdown").unlink(missing_ok=True)
    seen = 0
    for nth in range(1, 100):
        before = torn.read_bytes()
        hooks.kl_io_fail(call, nth, wrong, 0, 0)
        hooks.kl_io_fail(b"unlinkat", 1, errno.EIO, 0, 0)
        try:
            kafkalog.Log(folder).close()
            break
        except errors.IoFailed as problem:
            if "what recovery cuts off cannot be kept" in str(problem):
                assert problem.errno == wrong
                assert torn.read_bytes() == before
                seen += 1
        finally:
            hooks.kl_io_reset()
    assert seen


def test_an_offline_log_names_the_first_failure(
    tmp_path: Path, native_test: tuple[Any, Any]
) -> None:
    hooks = native_test[1]
    log = kafkalog.Log(tmp_path / "t-0", config=CONFIG)
    fill(log, 1)
    hooks.kl_io_fail(b"fdatasync", 1, errno.EIO, 0, 0)
    for call in (log.flush, lambda: fill(log, 1), log.roll, log.flush, lambda: log.truncate(0)):
        with pytest.raises(
            errors.StorageOffline, match=r"0\.log: cannot fdatasync: Input/output error"
        ):
            call()
    hooks.kl_io_reset()
    with pytest.raises(errors.StorageOffline, match="Input/output error"):
        log.close()


@pytest.mark.parametrize("call", [b"openat", b"statx"])
def test_a_sync_that_cannot_open_its_file_is_retriable(
    tmp_path: Path, native_test: tuple[Any, Any], call: bytes
) -> None:
    """Nothing was synced, so nothing is lost: the next sync succeeds."""
    hooks = native_test[1]
    for nth in range(1, 12):
        with kafkalog.Log(tmp_path / f"t-{nth}", config=CONFIG) as log:
            hooks.kl_io_hold(b"fdatasync", hooks.KL_HOLD_ALL)  # of the round that a roll requests
            fill(log, 12)  # a segment that was sealed has files to be synced
            hooks.kl_io_fail(call, nth, errno.EIO, 0, 0)
            hooks.kl_io_hold(b"fdatasync", hooks.KL_HOLD_NONE)
            # The failure may hit the roll's round, for which nobody waits.
            with contextlib.suppress(errors.IoFailed):
                log.flush()
            hooks.kl_io_reset()
            fill(log, 1)
            log.flush()
            assert log.flushed_offset == log.end_offset == 13


def test_a_flush_tells_that_no_file_could_be_opened(
    tmp_path: Path, native_test: tuple[Any, Any]
) -> None:
    """Not as a lack of memory.  The roll's round opens files, too."""
    hooks = native_test[1]
    with kafkalog.Log(tmp_path / "t-0", config=CONFIG) as log:
        hooks.kl_io_hold(b"fdatasync", hooks.KL_HOLD_ALL)
        fill(log, 12)
        hooks.kl_io_fail(b"openat", 1, errno.EIO, 1, 0)
        hooks.kl_io_hold(b"fdatasync", hooks.KL_HOLD_NONE)
        # Which file or directory comes first depends on how far the round got.
        with pytest.raises(errors.IoFailed, match=r"could be opened|cannot open") as told:
            log.flush()
        assert told.value.errno == errno.EIO
        hooks.kl_io_reset()
        log.flush()
        assert log.flushed_offset == log.end_offset == 12


def test_a_close_during_a_failure_is_not_clean(
    tmp_path: Path, native_test: tuple[Any, Any], wait_until: Wait
) -> None:
    """An append takes the log offline while a close waits for it; all before it is on disk."""
    hooks, closing = native_test[1], list[int]()
    hooks.kl_io_reset()
    log = kafkalog.Log(tmp_path / "t-0")
    log.append_many([b"v"] * 5, timestamps_ms=[1_000] * 5)
    log.flush()

    def close() -> None:
        closing.append(threading.get_native_id())
        log.close()

    with ThreadPoolExecutor(2) as pool:
        hooks.kl_io_hold_one(b"renameat", 1)
        later_ms = 1_000 + 30 * 86_400_000  # it rolls first
        append = pool.submit(log.append, b"w", timestamp_ms=later_ms)
        wait_until(lambda: hooks.kl_io_waiting(b"renameat") == 1, "the roll is held")
        hooks.kl_io_fail(b"pwrite", 4, errno.EIO, 0, 0)
        close_ = pool.submit(close)
        wait_until(lambda: bool(closing) and waits_for_a_lock(closing[0]), "the close waits")
        hooks.kl_io_hold(b"renameat", hooks.KL_HOLD_NONE)
        with pytest.raises(errors.KafkalogError):
            append.result()
        with pytest.raises(errors.StorageOffline, match="closed as it is"):
            close_.result()
    hooks.kl_io_reset()
    assert not (tmp_path / "t-0" / ".kafka_cleanshutdown").exists()
    with kafkalog.Log(tmp_path / "t-0") as log:
        assert [record.value for record in log.read()] == [b"v"] * 5


def test_an_append_after_a_torn_one_reserves_blocks(
    tmp_path: Path, native_test: tuple[Any, Any]
) -> None:
    """Removing the torn bytes frees their blocks, too.  So a full disk shows when blocks are
    reserved again, a failure that passes, and not at the write."""
    hooks = native_test[1]
    with kafkalog.Log(tmp_path / "t-0", config=CONFIG) as log:
        fill(log, 1)
        hooks.kl_io_reset()
        try:
            for call in (b"pwrite", b"ftruncate"):
                assert hooks.kl_io_fail(call, 1, errno.ENOSPC, 0, 0) == 0
            with pytest.raises(errors.NoSpace):
                log.append(b"torn", key=b"k", timestamp_ms=1_000)
            assert hooks.kl_io_calls(b"fallocate") == 0, "there was room"
            assert hooks.kl_io_fail(b"fallocate", 1, errno.ENOSPC, 1, 0) == 0
            writes = hooks.kl_io_calls(b"pwrite")
            with pytest.raises(errors.NoSpace):
                log.append(b"refused", key=b"k", timestamp_ms=1_000)
            assert hooks.kl_io_calls(b"pwrite") == writes
        finally:
            hooks.kl_io_reset()
        assert log.append(b"next", key=b"k", timestamp_ms=1_000) == 1
        assert log.verify(deep=True).clean
