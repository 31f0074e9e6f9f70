"""A directory held open: small files replaced durably, names changed, one owner at a time."""

import os
from types import TracebackType
from typing import Any

from kafkalog._native import check, failure, ffi, lib
from kafkalog.errors import CorruptLog, NotFound

__all__ = ["Directory"]


class Directory:
    """A directory; names are single components in it, and links are not followed.

    Safe to use from many threads.  What replaces, renames or makes is on disk on return.
    """

    def __init__(self, path: str | os.PathLike[str], create: bool = False) -> None:
        """Open the directory at `path`; `create` makes it first, mode 0700.

        Raises: NotFound, IoFailed.
        """
        self.path = os.fspath(path)
        out = ffi.new("kl_dir **")
        check(lib.kl_dir_open(os.fsencode(self.path), create, out))
        self._c: Any = ffi.gc(out[0], lib.kl_dir_free)

    def replace(self, name: str, data: bytes) -> None:
        """Replace the file `name` by `data` as a whole: a crash leaves the old or the new."""
        check(lib.kl_dir_replace(self._c, os.fsencode(name), data, len(data)))

    def read(self, name: str, limit_bytes: int) -> bytes | None:
        """The bytes of the file `name`; None when there is none.

        Raises: CorruptLog when it is longer than `limit_bytes`; IoFailed.
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
        """Make the sub-directory `name`, mode 0700."""
        check(lib.kl_dir_make(self._c, os.fsencode(name)))
        check(lib.kl_dir_sync(self._c))

    def make_with(self, folder: str, name: str, data: bytes) -> None:
        """Make the sub-directory `folder` with a file in it; `sync` makes the folder durable."""
        folder_bytes, name_bytes = os.fsencode(folder), os.fsencode(name)
        check(lib.kl_dir_make_with(self._c, folder_bytes, name_bytes, data, len(data)))

    def rename(self, old: str, new: str, sync: bool = True) -> None:
        """Give an entry another name; `sync` False: the caller calls `sync`."""
        check(lib.kl_dir_rename(self._c, os.fsencode(old), os.fsencode(new)))
        if sync:
            self.sync()

    def sync(self) -> None:
        """See to it that the names in it are on disk."""
        check(lib.kl_dir_sync(self._c))

    def sync_all(self) -> None:
        """See to it that everything on its file system is on disk: one wait, not one a file.

        Raises: IoFailed, also for any write to it that failed since this object was made.
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
        """Whether some process or handle holds `.lock`."""
        return bool(lib.kl_dir_locked(self._c))

    def close(self) -> None:
        """Release the lock and the directory; harmless when repeated."""
        lib.kl_dir_close(self._c)

    def __enter__(self) -> "Directory":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
