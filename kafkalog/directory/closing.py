"""Many logs closed at once, with one wait for the disk."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress

from kafkalog.directory.jobs.flushes import flush_all
from kafkalog.directory.parallel import in_parallel
from kafkalog.disk.checkpoint import DirectoryState, tell_unclean
from kafkalog.disk.directory import Directory
from kafkalog.errors import KafkalogError, NoSpace
from kafkalog.log.handle import Handle

__all__ = ["abandon_logs", "close_logs", "vouch"]

TOGETHER_MIN = 16
"""From so many logs on, what the file system has to write anyway is waited for once."""
_TELLING_KERNEL = (5, 8)
"""Linux: since then syncfs(2) tells of writes that failed."""


def close_logs(
    logs: Sequence[Handle], directory: Directory, threads: int, written: bool
) -> list[Exception]:
    """Close the logs of a directory that is about to close; what failed.

    `written`: something may have been, and is flushed first.  Nothing may vouch for any of them
    when there is a failure.
    """
    if written and len(logs) >= TOGETHER_MIN and _kernel() >= _TELLING_KERNEL:
        return _close_together(logs, directory)
    failures = flush_all(logs) if written else []
    closed = in_parallel(threads, logs, lambda log: log.close())
    return failures + [error for error in closed if error is not None]


def abandon_logs(logs: Sequence[Handle]) -> dict[str, int]:
    """End them as a crash does: nothing is flushed or written down.  By each log's folder: below
    which offset it was on disk, as far as that can be seen.
    """
    flushed = {}
    for log in logs:
        with suppress(KafkalogError):  # it has been closed since, and so flushed
            flushed[log.path] = log.flushed_offset
        log.abandon()
    return flushed


def vouch(state: DirectoryState, closed: bool, whole: bool) -> None:
    """Write down what the logs left as they closed, and, when all is `whole`, the clean marker.

    Of what was not `closed` nothing is vouched for.  A full disk only costs the next open time.
    """
    try:
        state.save({} if closed else None, {}, {}, {})
        if closed and whole:
            state.mark_clean()
    except NoSpace as error:
        tell_unclean(state.path, error)


def _kernel() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _close_together(logs: Sequence[Handle], directory: Directory) -> list[Exception]:
    """Each file of each log has its own fsync; ten thousand logs have seventy thousand."""
    closed = in_parallel(1, logs, lambda log: log.close(sync=False))
    failures = [error for error in closed if error is not None]
    try:
        directory.sync_all()
    except Exception as error:
        failures.append(error)
    return failures
