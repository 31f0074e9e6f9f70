"""While the disk holds one call, only callers that need its result wait for it."""

from __future__ import annotations

import errno
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog._native import check, ffi, lib
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully
from tests.support import batches
from tests.support.waiting import LIMIT_S

Wait = Callable[..., None]

CONFIG = {
    "segment.bytes": 4_000,
    "index.interval.bytes": 500,
    "file.delete.delay.ms": 60_000,
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": 0,
}
PATIENCE_S = LIMIT_S
COUNT = 60

READER = """
import sys, kafkalog
with kafkalog.Log(sys.argv[1], mode="r") as log:
    print(len({r.key for r in log.read()}), log.end_offset)
"""


def fill(log: kafkalog.Log, count: int = COUNT) -> None:
    for i in range(count):
        log.append(b"v" * 300, key=b"k%d" % (i % 7), timestamp_ms=1_000 + i)


@pytest.fixture
def disk(native_test: tuple[Any, Any]) -> Iterator[Any]:
    _, lib = native_test
    lib.kl_io_reset()
    yield lib
    lib.kl_io_reset()


class OthersHeld(AssertionError):
    """The held call was another thread's, perhaps the note after a flush."""


class NotHeld(Exception):
    """The work ended first: it makes no such call, or fewer."""


@contextmanager
def held(
    disk: Any, call: bytes, work: Callable[[], object], wait_until: Wait, nth: int = 1
) -> Iterator[None]:
    """Run `work` in a thread, held in its nth such call; other threads' calls pass."""
    pool = ThreadPoolExecutor(1)
    disk.kl_io_hold_one(call, nth)
    try:
        working = pool.submit(work)
        wait_until(lambda: disk.kl_io_waiting(call) == 1 or working.done(), "the call is held")
        if working.done():
            working.result()
            raise NotHeld
        yield
        if working.done():
            raise OthersHeld
        disk.kl_io_hold(call, disk.KL_HOLD_NONE)
        working.result(timeout=PATIENCE_S)
    finally:
        disk.kl_io_reset()
        pool.shutdown()


def meanwhile(
    log: kafkalog.Log, other: kafkalog.Log, log_start: int, *, writes: bool = True
) -> None:
    """Calls of other threads on this log and another: each ends, with the right result.  Without
    `writes` this log is only read."""

    def write(log: kafkalog.Log) -> None:
        end = log.end_offset
        assert log.append(b"meanwhile", key=b"now", timestamp_ms=9_000 + end) == end
        assert next(iter(log.read(end))).value == b"meanwhile"
        assert log.offset_at(9_000 + end) == end

    def read(log: kafkalog.Log, log_start: int) -> None:
        end = log.end_offset
        assert log.start_offset == log_start
        records = list(log.read(log_start))
        offsets = [r.offset for r in records]
        assert offsets[0] >= log_start and offsets[-1] == end - 1
        assert offsets == sorted(set(offsets))
        assert log.scan(log_start).to_arrow().num_rows == len(offsets)
        assert log.offset_at(max(r.timestamp_ms for r in records)) in offsets
        assert log.aborted(log_start, end) == ()
        assert log.segments[-1].next_offset == end

    def uses(log: kafkalog.Log, log_start: int, writes: bool) -> None:
        if writes:
            write(log)
        read(log, log_start)

    def elsewhere() -> None:
        command = [sys.executable, "-c", READER, str(log.path)]
        out = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert out.returncode == 0, out.stderr
        keys, end = map(int, out.stdout.split())
        assert end == log.end_offset and keys == len({r.key for r in log.read()})

    pool = ThreadPoolExecutor(1)
    try:
        for work in (
            lambda: uses(other, other.start_offset, True),
            lambda: uses(log, log_start, writes),
            elsewhere,
        ):
            pool.submit(work).result(timeout=PATIENCE_S)
    finally:
        pool.shutdown(wait=False)


@pytest.fixture
def logs(tmp_path: Path, disk: Any) -> Iterator[tuple[kafkalog.Log, kafkalog.Log]]:
    """Two logs of several segments, reopened so that no index is in memory."""
    for name in ("log-0", "log-1"):
        with kafkalog.Log(tmp_path / name, config=CONFIG) as log:
            fill(log)
    with (
        kafkalog.Log(tmp_path / "log-0", config=CONFIG) as log,
        kafkalog.Log(tmp_path / "log-1", config=CONFIG) as other,
    ):
        assert len(log.segments) > 4
        for each in (log, other):  # removes the marker of a closed folder
            each.append(b"first", key=b"k0", timestamp_ms=2_000)
        yield log, other
        disk.kl_io_reset()


def delete_segments(log: kafkalog.Log, before_offset: int) -> int:
    """The log's own part of a deletion; returns how many segments it deleted."""
    deleted, bases = ffi.new("size_t *"), ffi.new("int64_t[]", 1)
    check(lib.kl_log_delete_segments(log._c, before_offset, bases, 1, deleted))
    return int(deleted[0])


@pytest.mark.parametrize("call", [b"fsync", b"renameat"])
def test_retention_that_waits_for_the_disk(
    disk: Any, logs: tuple[kafkalog.Log, kafkalog.Log], wait_until: Wait, call: bytes
) -> None:
    log, other = logs
    before = log.segments[3].base_offset
    with held(disk, call, lambda: delete_segments(log, before), wait_until):
        meanwhile(log, other, before)
    assert log.start_offset == before
    assert log.verify(deep=True).clean


def test_a_segment_that_retention_must_sync_first(
    disk: Any, logs: tuple[kafkalog.Log, kafkalog.Log], wait_until: Wait
) -> None:
    """Records before the new start are not deleted until the records after it are on disk."""
    log, other = logs
    disk.kl_io_hold(b"fdatasync", disk.KL_HOLD_ALL)
    fill(log)
    wait_until(lambda: disk.kl_io_waiting(b"fdatasync") == 1, "the round of the rolls is held")
    start, before = log.start_offset, log.segments[-2].base_offset
    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(delete_segments, log, before)
        try:
            wait_until(lambda: disk.kl_io_waiting(b"fdatasync") == 2, "so is the deletion")
            meanwhile(log, other, start)
            assert not deleting.done()
        finally:
            disk.kl_io_reset()
        assert deleting.result(timeout=PATIENCE_S) > 5
    assert log.start_offset == before


def test_compaction_that_waits_for_the_disk(
    disk: Any, logs: tuple[kafkalog.Log, kafkalog.Log], wait_until: Wait
) -> None:
    """Held at each of its syncs of the folder: before, during and after the swap."""
    log, other = logs
    syncs = 0
    fill(log)
    log.roll()
    keys = {r.key: r.value for r in log.read()}
    for nth in range(1, 7):
        try:
            for again in range(5):
                fill(log, 20)
                log.roll()
                log.flush()  # otherwise the roll's own syncs might be held
                try:
                    with held(disk, b"fsync", log.compact, wait_until, nth):
                        meanwhile(log, other, log.start_offset)
                    break
                except OthersHeld:
                    assert again < 4
            syncs += 1
        except NotHeld:
            break
    assert syncs >= 3
    assert {r.key for r in log.read()} == {*keys, b"now"}
    assert log.verify(deep=True).clean


def test_a_cold_index_that_waits_for_the_disk(
    disk: Any, logs: tuple[kafkalog.Log, kafkalog.Log], wait_until: Wait
) -> None:
    """Only the index of one sealed segment is being read; other segments and the end are free."""
    log, other = logs
    [*_, sealed, _active] = log.segments
    first = sealed.base_offset + 5
    log.close()
    with kafkalog.Log(log.path, config=CONFIG) as log:
        list(log.read(0, 1))
        with held(disk, b"openat", lambda: list(log.read(first, first + 1)), wait_until):
            end = log.append(b"meanwhile", key=b"now", timestamp_ms=9_000)
            assert next(iter(log.read(end))).value == b"meanwhile"
            assert next(iter(log.read(0, 1))).offset == 0
            assert other.offset_at(1_005) == 5


@pytest.mark.parametrize("call", [b"openat", b"pwrite", b"renameat", b"unlinkat"])
def test_a_roll_that_waits_for_the_disk(
    disk: Any, logs: tuple[kafkalog.Log, kafkalog.Log], wait_until: Wait, call: bytes
) -> None:
    log, other = logs
    log.flush()
    segments, end = len(log.segments), log.end_offset
    with ThreadPoolExecutor(1) as pool:
        with held(disk, call, log.roll, wait_until):
            appending = pool.submit(log.append, b"behind", key=b"now", timestamp_ms=3_000)
            meanwhile(log, other, 0, writes=False)
            assert not appending.done()
        assert appending.result(timeout=PATIENCE_S) == end
    assert len(log.segments) == segments + 1
    assert log.segments[-1].base_offset == end
    assert log.verify(deep=True).clean


def test_an_append_that_rolls(
    disk: Any, logs: tuple[kafkalog.Log, kafkalog.Log], wait_until: Wait
) -> None:
    """Its batch has its offset before the roll."""
    log, other = logs
    log.flush()
    segments, end = len(log.segments), log.end_offset
    with held(disk, b"renameat", lambda: fill(log, 20), wait_until):
        meanwhile(log, other, 0, writes=False)
        log.flush()  # existing records do not wait for a roll
    assert log.end_offset == end + 20
    assert len(log.segments) > segments
    assert log.verify(deep=True).clean


def test_a_new_leader_epoch_that_waits_for_the_disk(
    disk: Any, logs: tuple[kafkalog.Log, kafkalog.Log], wait_until: Wait
) -> None:
    log, other = logs
    log.flush()
    with held(disk, b"renameat", lambda: check(lib.kl_log_set_leader_epoch(log._c, 7)), wait_until):
        meanwhile(log, other, 0, writes=False)
    log.append(b"led", key=b"k", timestamp_ms=3_000)
    assert log.epochs[-1].epoch == 7


def test_a_first_append_that_waits_for_the_disk(
    disk: Any, logs: tuple[kafkalog.Log, kafkalog.Log], wait_until: Wait
) -> None:
    """It durably removes the marker of a closed folder."""
    log, other = logs
    log.close()
    with (
        kafkalog.Log(log.path, config=CONFIG) as log,
        held(disk, b"unlinkat", lambda: fill(log, 1), wait_until),
    ):
        meanwhile(log, other, 0, writes=False)


@pytest.mark.parametrize("sealed", [False, True], ids=["in the last", "in a sealed one"])
@pytest.mark.parametrize("call", [b"fsync", b"fdatasync", b"ftruncate"])
def test_a_truncation_that_waits_for_the_disk(
    disk: Any,
    logs: tuple[kafkalog.Log, kafkalog.Log],
    wait_until: Wait,
    call: bytes,
    sealed: bool,
) -> None:
    """At each of its syncs readers no longer see truncated records, except before the first change,
    when notes of them are removed; an append waits until it is done."""
    log, other = logs
    times = 0
    for nth in range(1, 12):
        fill(log, 25)
        log.flush()
        [*_, before, active] = log.segments
        end = log.end_offset
        cut = before.base_offset + 2 if sealed else active.base_offset + 1
        with ThreadPoolExecutor(1) as pool:
            try:
                with held(disk, call, lambda cut=cut: log.truncate(cut), wait_until, nth):
                    times += log.end_offset == cut
                    assert log.end_offset in (end, cut)
                    appending = pool.submit(log.append, b"new", key=b"n", timestamp_ms=4_000)
                    meanwhile(log, other, 0, writes=False)
                    assert not appending.done()
            except NotHeld:
                break
            assert appending.result(timeout=PATIENCE_S) == cut
        assert [r.value for r in log.read(cut)] == [b"new"]
        assert log.verify(deep=True).clean
    assert times >= (0 if sealed and call == b"ftruncate" else 1)


@pytest.mark.parametrize("call", [b"fsync", b"renameat"])
def test_a_log_that_begins_again_and_waits_for_the_disk(
    disk: Any, logs: tuple[kafkalog.Log, kafkalog.Log], wait_until: Wait, call: bytes
) -> None:
    log, other = logs
    times = 0
    for nth in range(1, 12):
        fill(log, 25)
        log.flush()
        before, start = (log.start_offset, log.end_offset), 1_000 * nth
        with ThreadPoolExecutor(1) as pool:
            try:
                with held(
                    disk,
                    call,
                    lambda start=start: truncate_fully(handle_of(log), start),
                    wait_until,
                    nth,
                ):
                    seen = log.start_offset, log.end_offset
                    assert seen in (before, (start, start))
                    times += seen == (start, start)
                    assert len(list(log.read(seen[0]))) == seen[1] - seen[0]
                    assert other.append(b"meanwhile", key=b"now") == other.end_offset - 1
                    if seen != before:
                        new = pool.submit(log.append, b"new", key=b"n", timestamp_ms=4_000)
            except NotHeld:
                break
            if seen == before:
                new = pool.submit(log.append, b"new", key=b"n", timestamp_ms=4_000)
            assert new.result(timeout=PATIENCE_S) == start
        assert [r.value for r in log.read(start)] == [b"new"]
        assert log.verify(deep=True).clean
    assert times >= 1


@pytest.mark.parametrize("call", [b"fsync", b"fdatasync", b"renameat"])
def test_a_close_that_waits_for_the_disk(
    disk: Any, logs: tuple[kafkalog.Log, kafkalog.Log], wait_until: Wait, call: bytes
) -> None:
    """When it is done the log is closed, also for an append that was waiting."""
    log, other = logs
    log.flush()
    end = log.end_offset
    with ThreadPoolExecutor(1) as pool:
        with held(disk, call, lambda: check(lib.kl_log_close(log._c)), wait_until):
            appending = pool.submit(log.append, b"late", key=b"n", timestamp_ms=4_000)
            meanwhile(log, other, 0, writes=False)
            assert not appending.done()
        with pytest.raises(kafkalog.errors.Closed):
            appending.result(timeout=PATIENCE_S)
    with suppress(kafkalog.errors.Closed):  # the log under it is closed already
        log.close()
    with kafkalog.Log(log.path, config=CONFIG) as again:
        assert again.end_offset == end
        assert again.verify(deep=True).clean


def test_a_flush_that_waits_for_the_disk(
    disk: Any, logs: tuple[kafkalog.Log, kafkalog.Log], wait_until: Wait
) -> None:
    log, other = logs
    log.append(b"unflushed", key=b"k", timestamp_ms=3_000)
    with held(disk, b"fdatasync", log.flush, wait_until):
        meanwhile(log, other, 0)


def test_a_flush_that_gives_up_is_counted_once(disk: Any, tmp_path: Path, wait_until: Wait) -> None:
    """Either the round or the flush itself counts it; otherwise the process would stop here."""
    with kafkalog.Log(tmp_path / "log-0") as log:
        log.append(b"unflushed")
        disk.kl_io_hold_one(b"fdatasync", 1)
        assert lib.kl_log_flush(log._c, ffi.new("int64_t *", -1), 300) == lib.KL_E_TIMEOUT
        wait_until(lambda: disk.kl_io_waiting(b"fdatasync") == 1, "the round is held")
        assert lib.kl_log_flush(log._c, ffi.new("int64_t *", -1), 1) == lib.KL_E_TIMEOUT
        disk.kl_io_hold(b"fdatasync", disk.KL_HOLD_NONE)
        wait_until(lambda: log.flushed_offset == 1, "it is on disk")


def test_a_purge_that_waits_for_the_disk(
    disk: Any, logs: tuple[kafkalog.Log, kafkalog.Log], wait_until: Wait
) -> None:
    log, other = logs
    before = log.segments[3].base_offset
    delete_segments(log, before)

    with held(disk, b"unlinkat", lambda: purge(log), wait_until):
        meanwhile(log, other, before)


def purge(log: kafkalog.Log) -> int:
    """Remove all .deleted files; returns how many there were."""
    files, left = ffi.new("size_t *"), ffi.new("size_t *")
    check(lib.kl_log_purge(log._c, 2**63 - 1, files, left))
    return int(files[0])


def test_a_purge_in_vain_asks_the_disk_once_and_waits_for_nobody(
    disk: Any, logs: tuple[kafkalog.Log, kafkalog.Log], wait_until: Wait
) -> None:
    """Ten thousand logs are asked each second where files go at once."""
    log, _ = logs
    known = (1_000, 1_000)  # a time of the folder
    os.utime(log.path, known)
    assert purge(log) == 0
    before = disk.kl_io_calls(ffi.NULL), disk.kl_io_calls(b"fstatat")
    assert purge(log) == 0
    after = disk.kl_io_calls(ffi.NULL), disk.kl_io_calls(b"fstatat")
    assert after == (before[0] + 1, before[1] + 1)
    delete_segments(log, log.segments[3].base_offset)
    with ThreadPoolExecutor(1) as pool:
        with held(disk, b"unlinkat", lambda: purge(log), wait_until):
            os.utime(log.path, known)
            assert pool.submit(purge, log).result(PATIENCE_S) == 0
        log.close()
        with pytest.raises(kafkalog.errors.Closed):
            purge(log)


def test_a_slice_that_is_sent_while_its_bytes_are_cut_off(
    disk: Any, tmp_path: Path, wait_until: Wait
) -> None:
    """The log continues in another file; the receiver gets exactly the promised old bytes."""
    with kafkalog.Log(tmp_path / "log-0") as log:
        for i in range(20):
            log.append(b"old%04d" % i, timestamp_ms=i)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with held(disk, b"sendfile", lambda: log.send_to(ours, 0), wait_until):
                log.truncate(5)
                for i in range(20):
                    log.append(b"new%04d" % i, timestamp_ms=i)
            sent = theirs.recv(1 << 20)
        assert [b"old%04d" % i in sent for i in range(20)] == [True] * 20
        assert b"new" not in sent
        assert [r.value for r in log.read(3, 7)] == [b"old0003", b"old0004", b"new0000", b"new0001"]
        assert log.verify(deep=True).clean


def asleep(thread_id: int) -> bool:
    said = Path(f"/proc/self/task/{thread_id}/stat").read_text()
    return said.rpartition(")")[2].split()[0] == "S"


def test_a_follower_that_waited_for_a_deletion_looks_at_the_log_again(
    tmp_path: Path, disk: Any, wait_until: Wait
) -> None:
    """An empty log begins at the batch that contains its start.  While this append waited for the
    deletion that emptied the log, another one came, which must not be removed."""
    with kafkalog.Log(tmp_path / "t-0") as log:
        log.append_many([b"v"] * 10)
        log.roll()

        def follow(base: int) -> object:
            return log.append_as_follower(
                batches.batch([batches.Row(b"w", timestamp_ms=1)] * 5, base_offset=base)
            )

        with ThreadPoolExecutor(1) as first:
            thread_id = first.submit(threading.get_native_id).result()
            with held(disk, b"renameat", lambda: log.delete_before(10), wait_until):
                assert (log.start_offset, log.end_offset) == (10, 10)
                waiting = first.submit(follow, 8)  # 8 to 12
                wait_until(lambda: asleep(thread_id), "it waits for the deletion")
                follow(10)
            with pytest.raises(kafkalog.UnexpectedAppendOffset):
                waiting.result(timeout=PATIENCE_S)
        assert [r.offset for r in log.read()] == [10, 11, 12, 13, 14]


def test_a_flush_learns_of_a_failed_sync_by_the_file_cache(
    tmp_path: Path, disk: Any, wait_until: Wait
) -> None:
    """The kernel reports the failure to one of two syncs, but the flush must not claim that all is
    on disk."""
    first, second = kafkalog.Log(tmp_path / "a-0"), kafkalog.Log(tmp_path / "b-0")
    second.append(b"x")
    second.flush()
    lib.kl_set_max_open_files(1)
    try:
        first.append(b"x")  # its file is open, with unsynced data
        disk.kl_io_fail(b"fdatasync", 1, errno.EIO, 0, 0)
        disk.kl_io_hold_one(b"fdatasync", 1)
        with ThreadPoolExecutor(1) as other, ThreadPoolExecutor(1) as flusher:
            thread_id = flusher.submit(threading.get_native_id).result()
            opening = other.submit(second.append, b"y")  # needs a file: the first log's is closed
            wait_until(lambda: disk.kl_io_waiting(b"fdatasync") == 1, "the cache syncs it")
            flushing = flusher.submit(first.flush)
            wait_until(lambda: asleep(thread_id) or flushing.done(), "it waits for that sync")
            disk.kl_io_hold(b"fdatasync", disk.KL_HOLD_NONE)
            opening.result(timeout=PATIENCE_S)
            with pytest.raises(kafkalog.errors.StorageOffline):
                flushing.result(timeout=PATIENCE_S)
    finally:
        disk.kl_io_reset()
        lib.kl_set_max_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        second.close()
        with suppress(kafkalog.KafkalogError):
            first.close()
