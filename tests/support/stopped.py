"""Processes that are stopped: others see them as dead, and they notice no time passing."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.support.waiting import wait_for

__all__ = ["stand_still", "standing_still"]


def stand_still(pid: int) -> None:
    """Stop a process.  On return all its threads have stopped: on a busy machine some still run for
    a while after the signal, and answer."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    wait_for(lambda: all(map(_stands, tasks.iterdir())), f"process {pid} has stopped")


def _stands(task: Path) -> bool:
    try:
        after_name = (task / "stat").read_text().rpartition(") ")[2]
    except (FileNotFoundError, ProcessLookupError):
        return True  # the thread has ended
    return after_name.startswith(("T", "t", "Z", "X"))


@contextlib.contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """The process is stopped inside the block."""
    try:
        stand_still(pid)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
