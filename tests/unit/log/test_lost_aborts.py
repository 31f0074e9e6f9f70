"""A missing `.txnindex`: aborted transactions are found again, whatever needs them first."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog._native import check
from tests.support import batches
from tests.support.batches import Row
from tests.support.waiting import LIMIT_S

TIME_MS = 1_700_000_000_000
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
LIST = f"{0:020}.txnindex"
COMMITTED = [(0, b"committed"), (3, b"other"), (4, b"tail")]


def append_aborted(log: kafkalog.Log, sequence: int = 0) -> None:
    row = Row(b"aborted", key=b"k", timestamp_ms=TIME_MS)
    log.append_batches(
        batches.batch([row], producer_id=7, producer_epoch=0, base_sequence=sequence,
                      transactional=True)
    )  # fmt: skip
    log.append_marker(7, 0, commit=False, timestamp_ms=TIME_MS)


def committed(log: kafkalog.Log) -> list[tuple[int, bytes | None]]:
    return [(r.offset, r.value) for r in log.read(isolation="read_committed")]


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    """A key's committed value, then an aborted one, in a sealed segment without its list."""
    path = tmp_path / "log-0"
    with kafkalog.Log(path, config=COMPACTED) as log:
        log.append(b"committed", key=b"k", timestamp_ms=TIME_MS)
        append_aborted(log)
        log.append(b"other", key=b"z", timestamp_ms=TIME_MS)
        log.roll()
        log.append(b"tail", key=b"t", timestamp_ms=TIME_MS)
        assert committed(log) == COMMITTED
    (path / LIST).unlink()
    return path


def expect(path: Path, wanted: list[tuple[int, bytes]]) -> None:
    """Check the log in both modes, and with verify."""
    for mode in ("w", "r"):
        with kafkalog.Log(path, mode=mode, config=COMPACTED) as log:
            assert committed(log) == wanted
            assert log.verify(deep=True).clean, log.verify().findings


def test_a_compaction_keeps_the_committed_value(lost: Path) -> None:
    """It is the first to need the list: no reader has asked before."""
    with kafkalog.Log(lost, config=COMPACTED) as log:
        assert log.compact().records_after == 2
        assert committed(log) == COMMITTED
    expect(lost, COMMITTED)


def test_a_compaction_below_an_abort_marker(tmp_path: Path) -> None:
    """The transaction ends in a later segment, and that one's list is missing."""
    path = tmp_path / "log-0"
    with kafkalog.Log(path, config=COMPACTED) as log:
        log.append(b"committed", key=b"k", timestamp_ms=TIME_MS)
        row = Row(b"aborted", key=b"k", timestamp_ms=TIME_MS)
        log.append_batches(
            batches.batch([row], producer_id=7, producer_epoch=0, base_sequence=0,
                          transactional=True)
        )  # fmt: skip
        log.roll()
        log.append_marker(7, 0, commit=False, timestamp_ms=TIME_MS)
        log.roll()
        log.append(b"tail", key=b"t", timestamp_ms=TIME_MS)
    (path / f"{2:020}.txnindex").unlink()
    with kafkalog.Log(path, config=COMPACTED) as log:
        log.compact()
        assert committed(log) == [(0, b"committed"), (3, b"tail")]
    expect(path, [(0, b"committed"), (3, b"tail")])


def test_a_cut_in_the_segment_keeps_its_list(lost: Path) -> None:
    """The sealed segment becomes the active one, and no side-car vouches for its list any more."""
    with kafkalog.Log(lost, config=COMPACTED) as log:
        log.truncate(3)
        assert committed(log) == [(0, b"committed")]
    expect(lost, [(0, b"committed")])


@pytest.mark.parametrize("mode", ["r", "w"])
def test_of_the_last_segment_of_a_directory_that_kafka_closed(tmp_path: Path, mode: str) -> None:
    """Kafka's marker has no checksum of it: a producer with transactions is a reason to look."""
    from kafkalog.directory.manager import Manager

    root = tmp_path / "data"
    with Manager(root) as manager:
        manager.create_topic("events")
        log = manager.get("events", 0)
        log.append(b"committed", key=b"k", timestamp_ms=TIME_MS)
        append_aborted(log)
        log.append(b"tail", key=b"t", timestamp_ms=TIME_MS)
    (root / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":-1}')
    (root / "events-0" / LIST).unlink()
    with kafkalog.Log(root / "events-0", mode=mode) as log:
        assert committed(log) == [(0, b"committed"), (3, b"tail")]
        assert [(a.first_offset, a.last_offset) for a in log.aborted(0, 4)] == [(1, 2)]


def test_a_list_that_is_looked_for_during_a_truncation(
    lost: Path, native_test: tuple[Any, Any], wait_until: Callable[..., None]
) -> None:
    """A list is not rebuilt if segments changed after the look, so the next look must find it still
    unknown."""
    _, lib = native_test
    with kafkalog.Log(lost, config=COMPACTED) as log:
        log.append(b"cut", key=b"c", timestamp_ms=TIME_MS)
        log.roll()
        log.append(b"deleted", key=b"c", timestamp_ms=TIME_MS)
        log.flush()  # a roll's background work renames files, too
        lib.kl_io_reset()
        with ThreadPoolExecutor(2) as pool:
            try:
                lib.kl_io_hold_one(b"renameat", 1)  # shown as truncated, not renamed yet
                cutting = pool.submit(lib.kl_log_truncate, log._c, 5)
                wait_until(lambda: lib.kl_io_waiting(b"renameat") == 1, "a segment is going")
                lib.kl_io_hold_one(b"openat", 1)
                looking = pool.submit(log.aborted, 0, 4)
                wait_until(lambda: lib.kl_io_waiting(b"openat") == 1, "the list is looked for")
                lib.kl_io_hold_one(b"fsync", 1)  # renamed, the truncated one not copied yet
                lib.kl_io_hold(b"renameat", lib.KL_HOLD_NONE)
                wait_until(lambda: lib.kl_io_waiting(b"fsync") == 1, "the segment is gone")
                lib.kl_io_hold(b"openat", lib.KL_HOLD_NONE)
                found = looking.result(timeout=LIMIT_S)
            finally:
                lib.kl_io_reset()
            check(cutting.result(timeout=LIMIT_S))
        assert [(one.first_offset, one.last_offset) for one in found] == [(1, 2)]
        assert committed(log) == COMMITTED
    expect(lost, COMMITTED)


def looks(lib: Any, log: kafkalog.Log, start: int, stop: int) -> int:
    """How many segments are read for aborted transactions in [start, stop)."""
    lib.kl_failpoint_reset()
    assert log.aborted(start, stop) == ()
    return int(lib.kl_failpoint_hits(b"log.aborted.look"))


def test_where_nothing_was_aborted_no_segment_is_asked_twice(
    tmp_path: Path, native_test: tuple[Any, Any]
) -> None:
    """A read_committed reader asks at each step; it must not read all later segments each time."""
    _, lib = native_test
    with kafkalog.Log(tmp_path / "log-0") as log:
        append_aborted(log)  # offsets 0 and 1
        for i in range(40):
            log.append(b"v", timestamp_ms=TIME_MS + i)
            log.roll()
        assert looks(lib, log, 2, 3) == 41
        assert looks(lib, log, 2, 3) == 2  # the range's own segment, and the active one
        assert looks(lib, log, 20, 21) == 1
        log.append(b"v", timestamp_ms=TIME_MS)
        log.roll()
        assert looks(lib, log, 20, 21) == 2  # the newly rolled one, too
        assert looks(lib, log, 20, 21) == 1
        log.delete_before(10)
        assert looks(lib, log, 20, 21) == 1
    lib.kl_failpoint_reset()


def test_an_abort_in_a_segment_that_was_quiet_before_a_cut_is_found(tmp_path: Path) -> None:
    """The truncation makes a sealed segment active again; only then it gets one."""
    with kafkalog.Log(tmp_path / "log-0") as log:
        for i in range(10):
            log.append(b"v", timestamp_ms=TIME_MS + i)
            log.roll()
        assert log.aborted(0, 10) == ()
        log.truncate(5)
        append_aborted(log)
        log.roll()
        log.append(b"tail", timestamp_ms=TIME_MS)
        assert [(a.producer_id, a.first_offset) for a in log.aborted(0, 7)] == [(7, 5)]
        assert [r.offset for r in log.read(isolation="read_committed")] == [0, 1, 2, 3, 4, 7]


def test_a_query_of_aborted_transactions_keeps_no_side_car(tmp_path: Path) -> None:
    """Otherwise a question about all segments would leave 0.02 % of the log in memory."""
    path = tmp_path / "log-0"
    with kafkalog.Log(path) as log:
        for i in range(5):
            log.append(b"v", timestamp_ms=TIME_MS + i)
            log.roll()
    with kafkalog.Log(path) as log:
        assert log.aborted(0, 5) == ()
        shutil.copy(path / f"{2:020}.chk", path / f"{3:020}.chk")
        with pytest.raises(kafkalog.errors.CorruptMessage, match="is segment 2's"):
            list(log.read(3))
