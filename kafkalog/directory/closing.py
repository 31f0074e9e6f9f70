"""Closes many logs together, with one wait for the disk."""

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
"""From this many logs on, one wait covers everything the file system has to write anyway."""
_TELLING_KERNEL = (5, 8)
"""The first Linux whose syncfs(2) reports failed writes."""


def close_logs(
    logs: Sequence[Handle], directory: Directory, threads: int, written: bool
) -> list[Exception]:
    """Close the logs of a directory that is about to close; returns the failures.

    `written`: something may have been, and is flushed first.  After a failure nothing may vouch
    for any of them.
    """
    if written and len(logs) >= TOGETHER_MIN and _kernel() >= _TELLING_KERNEL:
        return _close_together(logs, directory)
    failures = flush_all(logs) if written else []
    closed = in_parallel(threads, logs, lambda log: log.close())
    return failures + [error for error in closed if error is not None]


def abandon_logs(logs: Sequence[Handle]) -> dict[str, int]:
    """End them as in a crash: nothing is flushed or written.  Returns by folder the offset below
    which each log was on disk, as far as that is known.
    """
    flushed = {}
    for log in logs:
        with suppress(KafkalogError):  # it was closed since, and so flushed
            flushed[log.path] = log.flushed_offset
        log.abandon()
    return flushed


def vouch(state: DirectoryState, closed: bool, whole: bool) -> None:
    """Write down the offsets of the closed logs, and, if all is `whole`, the clean-shutdown marker.

    Nothing vouches for logs that are not `closed`.  A full disk only makes the next open slower.
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
