"""How many logs end at once: closed with one wait for the disk, or thrown away."""

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkalog._native import check, lib
from kafkalog.directory.parallel import in_parallel

if TYPE_CHECKING:
    from kafkalog.directory.manager import Manager
    from kafkalog.log.log import Log

__all__ = ["close_logs", "discard"]

TOGETHER_MIN = 16
"""From so many logs on, what the file system has to write anyway is waited for once."""
_TELLING_KERNEL = (5, 8)
"""Linux: since then syncfs(2) tells of writes that failed."""


def close_logs(manager: "Manager", logs: Sequence["Log"]) -> list[Exception]:
    """Flush and close logs of a manager that is about to close; what failed.

    Nothing may vouch for any of them when there is a failure.
    """
    if manager.mode == "w" and len(logs) >= TOGETHER_MIN and _kernel() >= _TELLING_KERNEL:
        return _close_together(manager, logs)
    failures: list[Exception] = []
    if manager.mode == "w":
        failures += manager.upkeep.flush(logs)
    threads = manager.config.num_recovery_threads_per_data_dir
    closed = in_parallel(threads, logs, lambda log: log.close())
    return failures + [error for error in closed if error is not None]


def _kernel() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _close_together(manager: "Manager", logs: Sequence["Log"]) -> list[Exception]:
    """Each file of each log has its own fsync; ten thousand logs have seventy thousand."""
    failures: list[Exception] = []
    for log in logs:
        try:
            _close_unsynced(manager, log)
        except Exception as error:
            failures.append(error)
    try:
        manager.state.directory.sync_all()
    except Exception as error:
        failures.append(error)
    return failures


def _close_unsynced(manager: "Manager", log: "Log") -> None:
    if log._closed:
        return
    log._closed = True
    whole = False
    try:
        manager.upkeep.closing(log, all_synced=True)
        check(lib.kl_log_close_unsynced(log._c))
        whole = True
    finally:
        lib.kl_log_abandon(log._c)
        manager.closed(log._tp, whole)


def discard(manager: "Manager", log: "Log") -> None:
    """End a log whose folder was taken out: nothing of it is written or waited for."""
    if log._closed:
        return
    log._closed = True
    manager.upkeep.gone(log)
    lib.kl_log_abandon(log._c)
    manager.closed(log._tp, True)
