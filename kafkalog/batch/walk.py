"""Walks over the batches in memory or in a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog._native import check, ffi, lib

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "BatchWalk",
    "Stop",
    "batch_dtype",
    "end_of",
    "error_message",
    "next_offset",
    "whole_batches",
]

WALK_BATCHES = 4096


# ---- in memory -------------------------------------------------------------------------------


def whole_batches(
    data: bytes | memoryview, check_crc: bool = True
) -> Iterator[tuple[Any, memoryview]]:
    """(kl_batch, its bytes) of each whole batch, from the start of `data`.

    An incomplete batch ends the walk, as a fetch may end in one.  The kl_batch is valid until
    the next one.

    Raises: CorruptMessage, UnsupportedForMessageFormat.
    """
    # Not from_buffer of the view: when the collector finds both in one cycle (a traceback's
    # frames), CPython 3.11 crashes in the view's release.
    start, view, pos = ffi.from_buffer("uint8_t[]", data), memoryview(data), 0
    size = len(view)
    batch = ffi.new("kl_batch *")
    # The magic, the 17th byte of a batch, identifies an old format.
    while size - pos >= 17:
        status = lib.kl_batch_parse(start + pos, size - pos, batch)
        if status == lib.KL_E_BUFFER_TOO_SMALL:
            return
        check(status)
        if check_crc:
            check(lib.kl_batch_check(start + pos, size - pos, batch))
        yield batch, view[pos : pos + batch.batch_bytes]
        pos += batch.batch_bytes


def end_of(data: bytes | memoryview) -> tuple[int, int] | None:
    """The offset after the last whole batch, and that batch's leader epoch; None when there is no
    batch.  CRCs are not checked.

    Raises: CorruptMessage, UnsupportedForMessageFormat if the first batch is damaged.
    """
    found, epoch = ffi.new("int64_t *"), ffi.new("int32_t *")
    check(lib.kl_batches_next(ffi.from_buffer("uint8_t[]", data), len(data), found, epoch))
    return None if found[0] < 0 else (int(found[0]), int(epoch[0]))


def next_offset(data: bytes | memoryview) -> int | None:
    """The offset of `end_of` alone.  Raises: as that."""
    found = end_of(data)
    return None if found is None else found[0]


# ---- in a file -------------------------------------------------------------------------------


class Stop(NamedTuple):
    """Why a walk ended before the end of its file."""

    status: int
    """A kl_status."""
    position: int
    """Position of the batch that failed, in bytes from the start of the file."""
    message: str


def error_message() -> str:
    """The C core's last error message of this thread."""
    return str(ffi.string(lib.kl_error_message()).decode(errors="replace"))


def batch_dtype() -> np.dtype[Any]:
    """kl_batch as a NumPy type, field by field from the declaration."""
    import numpy as np

    ctype = ffi.typeof("kl_batch")
    names, formats, offsets = [], [], []
    for name, field in ctype.fields:
        kind = "u" if field.type.cname.startswith("u") else "i"
        names.append(name)
        formats.append(f"{kind}{ffi.sizeof(field.type)}")
        offsets.append(field.offset)
    layout = {"names": names, "formats": formats, "offsets": offsets}
    size = {"itemsize": ffi.sizeof(ctype)}
    return np.dtype({**layout, **size})  # type: ignore[call-overload, no-any-return]


class BatchWalk:
    """The batches of a file from `position` on, block by block; one thread at a time.

    After the last block `stop` says why the walk ended before the file did, or is None.

    Raises: KafkalogError, as kl_walk_open reports it, for a file that cannot be opened.
    """

    def __init__(
        self, path: str | os.PathLike[str], position: int = 0, room: int = WALK_BATCHES
    ) -> None:
        out = ffi.new("kl_walk **")
        check(lib.kl_walk_open(os.fsencode(path), position, out))
        self._name = os.path.basename(os.fspath(path))
        self._c = ffi.gc(out[0], lib.kl_walk_free)
        self._room = ffi.new("kl_batch[]", room)
        self._room_batches = room
        self._count = ffi.new("int32_t *")
        self.stop: Stop | None = None

    @property
    def file_bytes(self) -> int:
        """Size of the file when it was opened."""
        return int(lib.kl_walk_file_bytes(self._c))

    @property
    def position(self) -> int:
        """Position of the next batch, or of the one that failed."""
        return int(lib.kl_walk_pos(self._c))

    def blocks(self, check_crc: bool = True) -> Iterator[tuple[Any, int]]:
        """(array of kl_batch, how many of them are filled): valid until the next block."""
        while True:
            status = lib.kl_walk_next(
                self._c, self._room, self._room_batches, self._count, int(check_crc)
            )
            message = error_message() if status else ""
            if self._count[0]:
                yield self._room, self._count[0]
            if status:
                # The report of the stop names the place: once is enough.
                message = message.removeprefix(f"{self._name}, position {self.position}: ")
                self.stop = Stop(int(status), self.position, message)
                return
            if not self._count[0]:
                return

    def tables(self, check_crc: bool = True) -> Iterator[np.ndarray[Any, Any]]:
        """The blocks as NumPy records of `batch_dtype()`, copied."""
        import numpy as np

        dtype = batch_dtype()
        for room, count in self.blocks(check_crc):
            data = ffi.buffer(room, count * dtype.itemsize)
            yield np.frombuffer(data, dtype=dtype).copy()

    def batches(self, check_crc: bool = True) -> Iterator[Any]:
        """A pointer to each kl_batch in turn; valid until the next."""
        for room, count in self.blocks(check_crc):
            for i in range(count):
                yield room + i

    def read(self, position: int, batch_bytes: int) -> bytes:
        """The whole batch at `position`, which a block gave.  Raises: KafkalogError."""
        buffer = bytearray(batch_bytes)
        used = ffi.new("size_t *")
        view = ffi.from_buffer("uint8_t[]", buffer, require_writable=True)
        check(lib.kl_walk_read(self._c, position, view, batch_bytes, used))
        return bytes(buffer)
