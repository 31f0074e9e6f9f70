"""A full disk: how to detect it, and some space that is kept for what must be written then."""

import errno
import os
from contextlib import suppress

__all__ = ["RESERVE", "Reserve", "is_full"]

RESERVE = ".kafkalog_reserve"
RESERVE_BYTES = 256 << 10
"""Room for some thousand metadata records, or for the files that a few of them create."""
LEAST_BYTES = 4096
FULL_BYTES = 1 << 20
"""With less than this free, a disk is full: the next write may be refused."""
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def is_full(path: str) -> bool:
    """True if almost nothing more can be written to the file system of `path`."""
    with suppress(OSError):
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize < FULL_BYTES
    return False


class Reserve:
    """A file whose blocks are given up on a full disk, for operations that free space.

    One thread at a time.  It may have no blocks, if there is no room: nothing relies on it.
    """

    def __init__(self, directory: str) -> None:
        """Nothing is written yet."""
        self._path = os.path.join(directory, RESERVE)
        self._given = True

    def keep(self) -> None:
        """Reserve again what was given up, as far as there is room."""
        if not self._given:
            return
        with suppress(OSError):
            fd = self._open(os.O_CREAT)
            try:
                self._given = not _allocate(fd)
            finally:
                os.close(fd)

    def give(self) -> bool:
        """Free the space for the next writer; False: there was none."""
        self._given = True
        with suppress(OSError):
            fd = self._open(0)
            try:
                had = os.fstat(fd).st_blocks > 0
                os.ftruncate(fd, 0)
            finally:
                os.close(fd)
            return had
        return False

    def _open(self, flags: int) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)


def _allocate(fd: int) -> bool:
    """Allocate all of it, otherwise half, and so on; returns whether it is all."""
    size = RESERVE_BYTES
    while size >= LEAST_BYTES:
        try:
            os.posix_fallocate(fd, 0, size)
            return size == RESERVE_BYTES
        except OSError as problem:
            if problem.errno not in _NO_SPACE:
                return True  # not supported by this file system: do not try again
            os.ftruncate(fd, 0)
            size //= 2
    return False
