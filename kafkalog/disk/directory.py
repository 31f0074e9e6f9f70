"""A directory held open: small files replaced durably, names changed, one owner at a time."""

import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from kafkalog._native import check, failure, ffi, lib
from kafkalog.errors import CorruptLog, KafkalogError, NotFound

__all__ = ["Directory"]


class Directory:
    """A directory; names are single components in it, and links are not followed.

    Safe to use from many threads.  What it replaces, renames or creates is on disk on return,
    except between `gather` and `settle`.
    """

    def __init__(
        self, path: str | os.PathLike[str], create: bool = False, *, gather: bool = False
    ) -> None:
        """Open the directory at `path`; `create` first creates it, mode 0700, and its missing
        parents; `gather`: if it was missing, without waiting for the disk, see `gather`.

        Raises: NotFound, IoFailed.
        """
        self.path = os.fspath(path)
        self._lock = threading.Lock()  # guards what follows
        self._gathered: set[str] | None = None
        """Paths that `settle` must sync, relative to this directory; None: nothing is gathered."""
        made = _missing(self.path) if create and gather else 0
        how = lib.KL_CREATE_UNSYNCED if made else lib.KL_CREATE if create else lib.KL_CREATE_NOT
        out = ffi.new("kl_dir **")
        check(lib.kl_dir_open(os.fsencode(self.path), how, out))
        self._c: Any = ffi.gc(out[0], lib.kl_dir_free)
        if made:
            self._gathered = {"/".join([".."] * level) for level in range(1, made + 1)}

    def identify(self) -> tuple[tuple[int, int, int], tuple[int, int, int] | None]:
        """The identity of the directory, and of its `.lock`, if there is one that can be opened.

        Each is the inode, whose number may be reused at once, and the birth (ns since 1970) and
        the version, which distinguish them; 0 if the file system does not report it.

        Raises: Closed, IoFailed.
        """
        found = ffi.new("kl_identity[2]")
        check(lib.kl_dir_identify(self._c, found, found + 1))
        own, lock = ((int(one.inode), int(one.born_ns), int(one.version)) for one in found)
        return own, lock if lock[0] else None

    def gather(self) -> None:
        """From now on nothing waits for the disk, until `settle` waits for everything at once.

        A power cut before that may leave any part of it, even of a file that existed before: only
        for a directory whose contents nothing relies on.
        """
        with self._lock:
            self._gathered = self._gathered or set()

    @property
    def gathers(self) -> bool:
        """True if writes reach the disk only with `settle`."""
        with self._lock:
            return self._gathered is not None

    def settle(self, more: Iterable[str] = ()) -> None:
        """Put on disk what was gathered, and `more`, paths from here; nothing if nothing is
        gathered.

        Raises: IoFailed.
        """
        with self._lock:
            gathered, self._gathered = self._gathered, None
        if gathered is not None:
            self._sync(gathered.union(more))

    def _sync(self, names: Iterable[str]) -> None:
        """Sync all at once, which takes little longer than one."""
        kept = [ffi.new("char[]", os.fsencode(name)) for name in sorted(names)]
        check(lib.kl_dir_sync_names(self._c, ffi.new("char *[]", kept), len(kept)))

    def replace(self, name: str, data: bytes) -> None:
        """Replace the file `name` by `data` as a whole: a crash leaves the old or the new one."""
        with self._lock:
            if self._gathered is not None:
                check(lib.kl_dir_place(self._c, os.fsencode(name), data, len(data)))
                self._gathered.update({name, "."})
                return
        check(lib.kl_dir_replace(self._c, os.fsencode(name), data, len(data)))

    def replace_all(self, files: Mapping[str, bytes]) -> None:
        """Like `replace`, with two waits for the disk however many files there are.

        Raises: IoFailed, NoSpace; if a new one could not be written, none is replaced.
        """
        if len(files) < 2 or self.gathers:
            for name, data in files.items():
                self.replace(name, data)
            return
        new = {name: f"{name}.tmp" for name in files}
        try:
            for name, data in files.items():
                check(lib.kl_dir_place(self._c, os.fsencode(new[name]), data, len(data)))
            self._sync(new.values())
            for name in files:
                self.rename(new[name], name, sync=False)
                del new[name]
        except BaseException:
            for temporary in new.values():
                with suppress(KafkalogError):  # the first failure says more
                    self.unlink(temporary)
            raise
        self.sync()

    def read(self, name: str, limit_bytes: int) -> bytes | None:
        """The bytes of the file `name`; None if there is none.

        Raises: CorruptLog if it is longer than `limit_bytes`; IoFailed.
        """
        size = ffi.new("size_t *", 4096)
        while size[0] <= limit_bytes:
            room = size[0]
            buffer = bytearray(room)
            status = lib.kl_dir_read(
                self._c, os.fsencode(name), ffi.from_buffer(buffer), room, size
            )
            if status == lib.KL_OK:
                return bytes(memoryview(buffer)[: size[0]])
            if status == lib.KL_E_NOT_FOUND:
                return None
            if status != lib.KL_E_BUFFER_TOO_SMALL:
                raise failure(status)
        path = os.path.join(self.path, name)
        raise CorruptLog(f"{path}: found {size[0]} bytes, wanted at most {limit_bytes}")

    def make(self, name: str) -> None:
        """Create the sub-directory `name`, mode 0700."""
        check(lib.kl_dir_make(self._c, os.fsencode(name)))
        self.sync()

    def make_with(self, folder: str, name: str, data: bytes) -> None:
        """Create the sub-directory `folder` with a file in it; `sync` makes the folder durable."""
        folder_bytes, name_bytes = os.fsencode(folder), os.fsencode(name)
        check(lib.kl_dir_make_with(self._c, folder_bytes, name_bytes, data, len(data)))

    def rename(self, old: str, new: str, sync: bool = True) -> None:
        """Rename an entry; `sync` False: the caller calls `sync`."""
        check(lib.kl_dir_rename(self._c, os.fsencode(old), os.fsencode(new)))
        if sync:
            self.sync()

    def sync(self, files: Iterable[str] = ()) -> None:
        """Put the names in it on disk, and the contents of `files`, paths from here.

        Raises: IoFailed.
        """
        names = {".", *files}
        with self._lock:
            if self._gathered is not None:
                self._gathered.update(names)
                return
        self._sync(names)

    def sync_all(self) -> None:
        """Put everything on its file system on disk: one wait, not one per file.

        Raises: IoFailed, also for any write to it that failed since this object was created.
        """
        check(lib.kl_dir_sync_all(self._c))

    def unlink(self, name: str) -> None:
        """Remove the file `name`, if there is one."""
        try:
            check(lib.kl_dir_unlink(self._c, os.fsencode(name)))
        except NotFound:
            return

    def lock(self) -> None:
        """Take `.lock` until close.

        Raises: Locked, naming the owner's pid.
        """
        check(lib.kl_dir_lock(self._c))

    def locked(self) -> bool:
        """True if some process or handle holds `.lock`."""
        return bool(lib.kl_dir_locked(self._c))

    def close(self) -> None:
        """Release the lock and the directory; harmless when repeated."""
        lib.kl_dir_close(self._c)

    def __enter__(self) -> "Directory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _missing(path: str) -> int:
    """How many directories must be created for `path`, from the lowest up."""
    count = 0
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        count, path = count + 1, os.path.dirname(path)
    return count
