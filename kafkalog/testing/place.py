"""Where the data of a test's broker is kept: in memory, where nothing waits for a disk.

Each process has a folder in /dev/shm for all its brokers, and holds a lock on it.  So other
processes see when it has ended, however it ended, and remove what it left.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kafkalog.system import MEMORY

__all__ = ["ROOM_BYTES", "Place", "in_memory"]

PREFIX = "kafkalog-tests-"
ROOM_BYTES = 1 << 30
"""With less of it free, data is kept on disk: a container may only have 64 MB of it."""

_lock = threading.Lock()  # guards what follows
_folder: tuple[int, str] | None = None
"""The folder of the process with this id."""


class Place:
    """A data directory to be created.  `keep` moves it to where it can be found afterwards."""

    def __init__(self, final: str | os.PathLike[str], *, on_disk: bool = False) -> None:
        """In memory if there is room, otherwise, or with `on_disk`, at `final`."""
        self.final = os.path.abspath(final)
        """Where it is after `keep`."""
        self.path = self.final
        """Where it is now."""
        folder = None if on_disk else _own_folder()
        if folder is not None:
            name = os.path.basename(self.final)
            self.path = os.path.join(tempfile.mkdtemp(dir=folder), name)

    def keep(self) -> None:
        """Move it to `final`; it must not be open."""
        if self.path != self.final and os.path.isdir(self.path):
            shutil.move(self.path, self.final)
        self.path = self.final

    def remove(self) -> None:
        """Remove it; it must not be open."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.path != self.final:
            shutil.rmtree(os.path.dirname(self.path), ignore_errors=True)


@contextmanager
def in_memory(otherwise: str) -> Iterator[str]:
    """The path of a data directory that is removed at the end of the block: in memory if there is
    room, otherwise below a new folder with that prefix."""
    if _own_folder() is None:
        with tempfile.TemporaryDirectory(prefix=otherwise, ignore_cleanup_errors=True) as path:
            yield path
        return
    place = Place("data")
    try:
        yield place.path
    finally:
        place.remove()


def _own_folder() -> str | None:
    """This process's folder in memory; None if there is no room."""
    global _folder
    with _lock:
        if not _has_room():
            return None
        if _folder is None or _folder[0] != os.getpid() or not os.path.isdir(_folder[1]):
            _sweep()
            path = _locked_folder()
            _folder = None if path is None else (os.getpid(), path)
            if path is not None:
                atexit.register(_remove, os.getpid(), path)
        return None if _folder is None else _folder[1]


def _forked() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def _has_room() -> bool:
    with suppress(OSError):
        found = os.statvfs(MEMORY)
        return os.access(MEMORY, os.W_OK) and found.f_bavail * found.f_frsize >= ROOM_BYTES
    return False


def _locked_folder() -> str | None:
    """A new folder.  Its descriptor, and with it the lock, stays open as long as the process
    lives."""
    for _ in range(10):
        try:
            path = tempfile.mkdtemp(prefix=PREFIX, dir=MEMORY)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # another process has just removed it
        if _take(descriptor) and os.path.isdir(path):
            return path
        os.close(descriptor)
    return None


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sweep() -> None:
    """Remove what ended processes left."""
    with suppress(OSError), os.scandir(MEMORY) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.stat().st_uid == os.getuid():
                _remove_if_left(entry.path)


def _remove_if_left(path: str) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if _take(descriptor):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(descriptor)


def _remove(process: int, path: str) -> None:
    if os.getpid() == process:  # not in a forked child
        shutil.rmtree(path, ignore_errors=True)
