"""Readers in other processes of a log whose writer has no state page."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import kafkalog
from tests.support import cases

ROLLS = """
import sys, kafkalog
with kafkalog.Log(sys.argv[1]) as log:
    log.roll()
    log.append(b"behind the roll")
"""
AHEAD_NS = 50 * 10**9
"""Less than a time of the far future, which tells of each change."""


def test_a_roll_within_a_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    """A file system's clock ticks every few milliseconds, so that a folder that changes after a
    look may keep its modification time.  Here the tick is ahead, to be the same each time.
    """
    path = tmp_path / "log-0"
    with kafkalog.Log(path) as log:
        log.append(b"first")
    tick_ns = time.time_ns() + AHEAD_NS
    os.utime(path, ns=(tick_ns, tick_ns))
    with kafkalog.Log(path, mode="r") as reader:
        assert reader.end_offset == 1
        assert reader.end_offset == 1
        subprocess.run([sys.executable, "-c", ROLLS, path], check=True, cwd=cases.ROOT)
        os.utime(path, ns=(tick_ns, tick_ns))
        assert reader.end_offset == 2
        assert reader[1].value == b"behind the roll"
