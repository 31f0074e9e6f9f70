"""Logs that wait for the disk do not wait for each other."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from tests.support.waiting import LIMIT_S

Wait = Callable[..., None]

SYNC_THREADS = 16
"""THREADS_MAX of _native/base/sync.c."""


@pytest.fixture
def held(native_test: tuple[Any, Any]) -> Iterator[Any]:
    """The test build's library; every fdatasync waits until it is released."""
    _, lib = native_test
    lib.kl_io_reset()
    lib.kl_io_hold(b"fdatasync", 1)
    yield lib
    lib.kl_io_reset()


def test_many_logs_are_synced_at_once(held: Any, tmp_path: Path, wait_until: Wait) -> None:
    """One log per sync thread at once; the others follow."""
    count = SYNC_THREADS + 8
    before = sync_threads()  # threads for other disks that earlier tests wrote to
    with ExitStack() as stack:
        logs = [kafkalog.Log(tmp_path / f"log-{i}") for i in range(count)]
        for log in logs:
            stack.callback(log.close)
            log.append(b"value")
        with ThreadPoolExecutor(count) as pool:
            stack.callback(held.kl_io_reset)
            flushes = [pool.submit(log.flush) for log in logs]
            wait_until(lambda: held.kl_io_waiting(b"fdatasync") == SYNC_THREADS, "all are busy")
            assert not any(flush.done() for flush in flushes)
            held.kl_io_hold(b"fdatasync", 0)
            for flush in flushes:
                flush.result()
        assert [log.flushed_offset for log in logs] == [1] * count
        assert len(sync_threads() - before) <= SYNC_THREADS


def sync_threads() -> set[str]:
    """The ids of this process's sync threads."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it may have ended
            if (task / "comm").read_text().startswith("kafkalog-sync"):
                found.add(task.name)
    return found


def test_one_log_that_waits_holds_up_no_other(
    native_test: tuple[Any, Any], tmp_path: Path, wait_until: Wait
) -> None:
    """A disk call of one log hangs; another log is still flushed."""
    _, lib = native_test
    lib.kl_io_reset()
    with (
        kafkalog.Log(tmp_path / "slow-0") as slow,
        kafkalog.Log(tmp_path / "quick-0") as quick,
        ThreadPoolExecutor(1) as pool,
    ):
        slow.append(b"value")
        quick.append(b"value")
        lib.kl_io_hold(b"fdatasync", 1)
        try:
            waiting = pool.submit(slow.flush)
            wait_until(lambda: lib.kl_io_waiting(b"fdatasync") == 1, "the slow one syncs")
            # Waiting jobs stay; later ones do not.
            lib.kl_io_hold(b"fdatasync", lib.KL_HOLD_WAITING)
            quick.flush()
            assert not waiting.done()
        finally:
            lib.kl_io_reset()
        waiting.result()


def test_a_round_after_a_disk_that_stalled(held: Any, tmp_path: Path, wait_until: Wait) -> None:
    """A round waits for other flushers for half the time of the last one, but not for minutes."""
    held.kl_failpoint_reset()
    with kafkalog.Log(tmp_path / "t-0") as log, ThreadPoolExecutor(2) as pool:
        log.append(b"value")
        first = pool.submit(log.flush)
        wait_until(lambda: held.kl_io_waiting(b"fdatasync") == 1, "it syncs")
        log.append(b"value")
        second = pool.submit(log.flush)  # then the next round waits for two
        wait_until(lambda: held.kl_failpoint_hits(b"flush.joined") == 2, "it waits, too")
        held.kl_io_stall(600_000)
        held.kl_io_hold(b"fdatasync", 0)
        first.result(LIMIT_S)
        second.result(LIMIT_S)
        assert log.flushed_offset == 2


def test_a_forked_child_has_sync_threads_of_its_own(tmp_path: Path) -> None:
    """The parent's threads do not exist in it, whatever they were doing at the fork."""
    program = """
        import os, sys, kafkalog
        from concurrent.futures import ThreadPoolExecutor
        def flushed(name):
            with kafkalog.Log(os.path.join(sys.argv[1], name)) as log:
                log.append(b"value")
                log.flush()
                return log.flushed_offset
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(flushed, [f"parent-{i}" for i in range(8)])) == [1] * 8
        child = os.fork()
        if not child:
            with ThreadPoolExecutor(4) as pool:
                found = list(pool.map(flushed, [f"child-{i}" for i in range(8)]))
            os._exit(found != [1] * 8)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
