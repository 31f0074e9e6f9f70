"""Two calls that change one log, one held by the disk: the other waits, or does not need it."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog._native import check, ffi, lib
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully
from tests.support import batches
from tests.support.batches import Row
from tests.unit.log.test_held_disk import (
    CONFIG,
    PATIENCE_S,
    NotHeld,
    Wait,
    disk,
    fill,
    held,
    logs,
    meanwhile,
)

__all__ = ["disk", "logs"]  # fixtures


NOW_MS = 1_700_000_000_000
DELETED = {**CONFIG, "cleanup.policy": "delete"}


def begin(log: kafkalog.Log, producer_id: int) -> None:
    """Begin a transaction with one record."""
    log.append_batches(
        batches.batch([Row(b"v" * 300, timestamp_ms=NOW_MS)], producer_id=producer_id,
                      producer_epoch=0, base_sequence=0, transactional=True)
    )  # fmt: skip


def end(log: kafkalog.Log, producer_id: int) -> None:
    log.append_marker(producer_id, 0, False, timestamp_ms=NOW_MS)


def abort(log: kafkalog.Log, producer_id: int) -> None:
    begin(log, producer_id)
    end(log, producer_id)


@pytest.fixture
def lost(tmp_path: Path, disk: Any) -> Iterator[tuple[kafkalog.Log, Path]]:
    """A log whose first segment has lost the list of its aborted transactions."""
    folder = tmp_path / "t-0"
    with kafkalog.Log(folder, config=DELETED) as log:
        log.append(b"first", timestamp_ms=NOW_MS)
        abort(log, 1)
        log.roll()
        abort(log, 2)
    file = folder / f"{0:020}.txnindex"
    file.unlink()
    with kafkalog.Log(folder, config=DELETED) as log:
        log.append(b"again", timestamp_ms=NOW_MS)
        abort(log, 3)
        log.flush()
        yield log, file
        disk.kl_io_reset()


def ask(log: kafkalog.Log) -> Callable[[], object]:
    return lambda: log.aborted(0, log.end_offset)


def test_a_lost_list_of_aborted_transactions_that_waits_for_the_disk(
    disk: Any, lost: tuple[kafkalog.Log, Path], wait_until: Wait
) -> None:
    """The thread that needs it rebuilds it, and no other thread waits."""
    log, file = lost

    def use() -> None:
        log.append(b"meanwhile", timestamp_ms=NOW_MS)
        assert list(log.read(3))[-1].value == b"meanwhile"
        assert [found.producer_id for found in log.aborted(3, log.end_offset)] == [2, 3]

    with ThreadPoolExecutor(1) as pool, held(disk, b"renameat", ask(log), wait_until):
        pool.submit(use).result(timeout=PATIENCE_S)
    assert [found.producer_id for found in log.aborted(0, log.end_offset)] == [1, 2, 3]
    assert file.exists()
    assert log.verify(deep=True).clean


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_lost_list_of_aborted_transactions_during_a_truncation(
    disk: Any, lost: tuple[kafkalog.Log, Path], wait_until: Wait, nth: int
) -> None:
    """The truncation writes the list of the segment that it truncates."""
    log, _ = lost
    with (
        suppress(NotHeld),
        held(disk, b"renameat", lambda: log.truncate(5), wait_until, nth),
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(log.aborted, 0, 5).result(timeout=PATIENCE_S)
        assert [found.producer_id for found in asked] == [1, 2]
    assert log.append(b"behind", timestamp_ms=NOW_MS) == 5
    assert [found.producer_id for found in log.aborted(0, 6)] == [1, 2]


@pytest.mark.parametrize("wholly", [False, True], ids=["in a segment", "fully"])
def test_a_truncation_during_a_compaction(
    disk: Any, logs: tuple[kafkalog.Log, kafkalog.Log], wait_until: Wait, wholly: bool
) -> None:
    """Both write a file with the suffix that an open removes."""
    log, other = logs
    cut = log.segments[0].base_offset if wholly else log.segments[1].base_offset - 2

    def truncate() -> None:
        if wholly:
            truncate_fully(handle_of(log), cut)
        else:
            log.truncate(cut)

    with ThreadPoolExecutor(1) as pool:
        with held(disk, b"pwrite", log.compact, wait_until):
            truncating = pool.submit(truncate)
            meanwhile(log, other, 0, writes=False)
            assert not truncating.done()
        truncating.result(timeout=PATIENCE_S)
    end = log.end_offset
    assert end <= cut and [r.offset for r in log.read(0) if r.offset >= end] == []
    assert log.append(b"behind", key=b"k0", timestamp_ms=3_000) == end
    found = log.verify(deep=True).findings
    assert {one.found for one in found} <= {".deleted"}
    assert not list(Path(log.path).glob("*.cleaned"))


def test_a_flush_while_a_copy_takes_a_segments_name(
    tmp_path: Path, disk: Any, wait_until: Wait
) -> None:
    """A sync round could open either file, and end before it is known which one counts."""
    tried = []
    for nth in range(1, 8):
        with kafkalog.Log(tmp_path / f"t-{nth}") as log:
            fill(log, 5)
            log.flush()
            fill(log, 5)
            piece, where = ffi.new("kl_slice *"), ffi.new("kl_read *")
            check(lib.kl_log_slice(log._c, 0, lib.KL_LOG_END, 100, 1, piece, where))
            with (
                suppress(NotHeld),
                held(disk, b"renameat", lambda log=log: log.truncate(8), wait_until, nth),
            ):
                if any(Path(log.path).glob("*.log.cleaned")):
                    tried.append(nth)
                    target = ffi.new("int64_t *", -1)
                    assert lib.kl_log_flush(log._c, target, 100) == lib.KL_E_TIMEOUT
                    assert log.flushed_offset == 5
            lib.kl_slice_drop(piece)
            log.flush()
            assert log.flushed_offset == log.end_offset
    assert tried


@pytest.mark.parametrize("cut", [6, 7])
def test_a_truncation_into_a_gap_that_compaction_left(tmp_path: Path, cut: int) -> None:
    """The log ends with the last batch before the gap; a crash loses no later record."""
    folder, crashed = tmp_path / "t-0", tmp_path / "crashed" / "t-0"
    with kafkalog.Log(folder, config=CONFIG) as log:
        for _ in range(8):
            log.append(b"old", key=b"k", timestamp_ms=1_000)
        log.roll()
        log.append(b"new", key=b"k", timestamp_ms=1_000)
        log.roll()
        log.delete_before(5)
        log.compact()
        log.truncate(cut)
        assert log.end_offset == 0
        log.append(b"one", key=b"k", timestamp_ms=2_000)
        log.append(b"two", key=b"k", timestamp_ms=2_000)
        log.flush()
        shutil.copytree(folder, crashed)
    for place in (folder, crashed):
        with kafkalog.Log(place, config=CONFIG) as log:
            assert [r.value for r in log.read(log.start_offset)] == [b"one", b"two"]
            assert {one.found for one in log.verify(deep=True).findings} <= {".deleted"}
            log.roll()
            log.compact()
            assert [r.value for r in log.read(log.start_offset)] == [b"two"]


def test_an_append_that_takes_back_its_bytes_and_waits_for_the_disk(
    disk: Any, logs: tuple[kafkalog.Log, kafkalog.Log], wait_until: Wait
) -> None:
    log, other = logs
    log.flush()
    end = log.end_offset

    def append() -> None:
        disk.kl_io_fail(b"pwrite", 1, errno.ENOSPC, 0, 0)
        with pytest.raises(kafkalog.errors.NoSpace):
            log.append(b"torn", key=b"k0", timestamp_ms=2_000)

    with held(disk, b"ftruncate", append, wait_until):
        meanwhile(log, other, 0, writes=False)
    assert log.append(b"whole", key=b"k0", timestamp_ms=2_000) == end
    assert log.verify(deep=True).clean


def test_an_abort_that_notes_itself_and_waits_for_the_disk(
    tmp_path: Path, disk: Any, wait_until: Wait
) -> None:
    with kafkalog.Log(tmp_path / "t-0", config=DELETED) as log:
        begin(log, 1)

        def use() -> None:
            assert [r.offset for r in log.read(0)] == [0]
            assert list(log.read(0, isolation="read_committed")) == []
            assert (log.end_offset, log.last_stable_offset) == (1, 0)

        with (
            ThreadPoolExecutor(1) as pool,
            held(disk, b"renameat", lambda: end(log, 1), wait_until),
        ):
            pool.submit(use).result(timeout=PATIENCE_S)
        assert [found.producer_id for found in log.aborted(0, 2)] == [1]
