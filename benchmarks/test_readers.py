"""Sixteen processes read a log while one appends to it.

The writer has the first processor to itself and the readers share the others, with readers
and without: what is measured is what readers cost the writer through locks, caches and the
kernel, not how the scheduler divides processors.  Every reader follows the log from its end
and makes a Record of each record, as fast as it can.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from benchmarks.measure import Side, Want, scaled
from benchmarks.work import values

READERS = 16
RECORDS = 200_000
FOLLOW = """
import sys, kafkalog
with kafkalog.Log(sys.argv[1], mode="r") as log:
    print("ready", flush=True)
    for _record in log.follow():
        pass
"""


@pytest.fixture
def processors() -> Iterator[list[int]]:
    """The processors of this process, which runs on the first one during the test."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("one processor only: readers would take the writer's time")
    os.sched_setaffinity(0, allowed[:1])
    yield allowed
    os.sched_setaffinity(0, allowed)


@pytest.fixture
def followed(folder: Path, processors: list[int]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The readers of `read-0`, stopped; SIGCONT continues them."""
    with kafkalog.Log(folder / "read-0"):
        pass
    command = [sys.executable, "-c", FOLLOW, str(folder / "read-0")]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(READERS)]
    try:
        for process in started:
            os.sched_setaffinity(process.pid, processors[1:])
        for process in started:
            assert process.stdout and process.stdout.readline(), "a reader did not start"
        tell(started, signal.SIGSTOP)
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def tell(processes: list[subprocess.Popen[bytes]], what: signal.Signals) -> None:
    for process in processes:
        process.send_signal(what)


def test_readers(measure: Any, folder: Path, followed: list[subprocess.Popen[bytes]]) -> None:
    number, value = scaled(RECORDS, 1_000), values(1)[0]

    def append(log: kafkalog.Log) -> None:
        append_one = log.append
        for same in repeat(value, number):
            append_one(same)

    def begin() -> int:
        tell(followed, signal.SIGCONT)
        return READERS

    def end(_: int) -> None:
        assert all(process.poll() is None for process in followed), "a reader ended"
        tell(followed, signal.SIGSTOP)

    with kafkalog.Log(folder / "alone-0") as alone, kafkalog.Log(folder / "read-0") as read:
        with_readers, by_itself = f"kafkalog, {READERS} readers", "kafkalog, no reader"
        sides = [
            Side(with_readers, number, lambda _: append(read), begin, end),
            Side(by_itself, number, lambda: append(alone)),
        ]
        wants = [Want(with_readers, than=by_itself, factor=0.9)]
        measure("readers", "Append one record a call while others read", sides, wants, rounds=9)
