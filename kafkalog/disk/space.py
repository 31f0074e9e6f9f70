"""A disk that is full: whether it is, and some space that is kept for what must be written then."""

import errno
import os
from contextlib import suppress

__all__ = ["RESERVE", "Reserve", "is_full"]

RESERVE = ".kafkalog_reserve"
RESERVE_BYTES = 256 << 10
"""Some thousand records of the metadata, or the files that a few of them take with them."""
LEAST_BYTES = 4096
FULL_BYTES = 1 << 20
"""With less than this a disk is full: the next write may be refused."""
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def is_full(path: str) -> bool:
    """Whether next to nothing more can be written to the file system of `path`."""
    with suppress(OSError):
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize < FULL_BYTES
    return False


class Reserve:
    """A file whose blocks are given away on a full disk, to operations that free space.

    One thread at a time.  What cannot be kept is not there: nothing relies on it.
    """

    def __init__(self, directory: str) -> None:
        """Nothing is written yet."""
        self._path = os.path.join(directory, RESERVE)
        self._given = True

    def keep(self) -> None:
        """Take what was given away back, as far as there is room."""
        if not self._given:
            return
        with suppress(OSError):
            fd = self._open(os.O_CREAT)
            try:
                self._given = not _allocate(fd)
            finally:
                os.close(fd)

    def give(self) -> bool:
        """Give it to the next writer; False: there is none."""
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
    """All of it, else half, and so on; whether it is all."""
    size = RESERVE_BYTES
    while size >= LEAST_BYTES:
        try:
            os.posix_fallocate(fd, 0, size)
            return size == RESERVE_BYTES
        except OSError as problem:
            if problem.errno not in _NO_SPACE:
                return True  # this file system has no such call: it is not tried again
            os.ftruncate(fd, 0)
            size //= 2
    return False
