"""Calls that differ between operating systems: Linux's own, and a form for all others.

For C the same is in `_native/base/system.h`.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

__all__ = ["Wake", "ends_with_parent", "parent_descriptor", "private_file", "processors"]

LINUX = sys.platform == "linux"
"""True if Linux's own calls are used; a test sets it to False."""

MEMORY = "/dev/shm"
"""A folder in memory; elsewhere it does not exist."""

PR_SET_PDEATHSIG = 1


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if LINUX else os.cpu_count() or 1


class Wake:
    """Wakes a thread that polls `read_fd`.  After `close` both descriptors are -1."""

    def __init__(self) -> None:
        if LINUX:
            self.read_fd = self.write_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        else:
            self.read_fd, self.write_fd = os.pipe()
            for end in (self.read_fd, self.write_fd):
                os.set_blocking(end, False)

    def ring(self) -> None:
        """End the wait, or the next one; a full pipe does so, too."""
        with suppress(BlockingIOError):
            os.write(self.write_fd, (1).to_bytes(8, sys.byteorder))

    def clear(self) -> None:
        """It has rung: the next wait waits."""
        with suppress(BlockingIOError):
            while len(os.read(self.read_fd, 4096)) == 4096:
                pass

    def close(self) -> None:
        """It must not be polled any more."""
        ends = {self.read_fd, self.write_fd} - {-1}
        self.read_fd = self.write_fd = -1
        for end in ends:
            os.close(end)


@contextmanager
def private_file(content: bytes) -> Iterator[str]:
    """The path of a file with a secret, for a library that reads files only.

    On Linux it is in memory, and has no name that another process could open; elsewhere it is a
    temporary file that only this user may read, and it is gone after the block.
    """
    if LINUX:
        number = os.memfd_create("kafkalog", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{number}"
    else:
        import tempfile

        number, path = tempfile.mkstemp(prefix="kafkalog-")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            yield path
    finally:
        if not LINUX:
            os.unlink(path)


def parent_descriptor() -> int | None:
    """A descriptor that becomes readable when the process that started this one is gone.

    Not PR_SET_PDEATHSIG, which reports the end of the parent's thread: Java's and Go's come and go.
    None: the system has no such thing.
    """
    with suppress(OSError):
        if LINUX:
            return os.pidfd_open(os.getppid())
        if sys.platform == "darwin":
            import select

            queue = select.kqueue()
            kind, change, note = select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT
            queue.control([select.kevent(os.getppid(), kind, change, note)], 0)
            return os.dup(queue.fileno())
    return None


def ends_with_parent() -> Callable[[], object] | None:
    """For `preexec_fn` of a new process: it ends when its parent is gone, however that ended.

    Everything is imported here: a forked child may hang on a lock of the import, or of
    the dynamic linker, that another thread had.  None: only Linux can; elsewhere a killed parent
    leaves it running.
    """
    if not LINUX:
        return None
    import ctypes
    import signal

    return partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, signal.SIGTERM)
