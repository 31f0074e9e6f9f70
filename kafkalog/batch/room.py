"""Reusable memory for bodies that are decompressed and read one at a time."""

from __future__ import annotations

from typing import Any

from kafkalog._native import ffi, lib
from kafkalog.batch import codecs

__all__ = ["Room"]

ROOM_BYTES = 1 << 20
ROOM_FACTOR = 4
"""Most bodies decompress to less than this many times their bytes; others grow the room."""
UNKNOWN = 2**64 - 1
"""The size of a frame that does not state it."""
_untouched = ffi.new_allocator(should_clear_after_alloc=False)


class Room:
    """Memory into which bodies are decompressed one at a time.  One thread.

    It grows with the bodies, up to `most` bytes, and is reused: a touched page costs nothing.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._memory = memoryview(b"")

    def decompress(self, codec: int, data: Any, limit: int = codecs.LIMIT_BYTES) -> Any:
        """As `codecs.decompress`; valid until the next call.

        Raises: as that does.
        """
        body = self._zstd(memoryview(data).cast("B"), limit) if codec == codecs.ZSTD else None
        return codecs.decompress(codec, data, limit) if body is None else body

    def _zstd(self, view: memoryview, limit: int) -> memoryview | None:
        """None if the body does not fit or is not one whole frame; `decompress` says what is wrong.

        However large the frame claims to be, no more than `most` bytes are allocated.
        """
        data, says = ffi.from_buffer("uint8_t[]", view), ffi.new("uint64_t *")
        if lib.kl_zstd_frame(data, len(view), says) != len(view):
            return None
        wanted = len(view) * ROOM_FACTOR if says[0] == UNKNOWN else int(says[0]) + 1
        if says[0] != UNKNOWN and wanted > self._most:
            return None
        self._grow(wanted)
        size = min(len(self._memory), limit + 1)
        found = self._fill(view, size, False)
        if found is None or len(found) < size:
            return found
        self._grow(2 * size)  # there may be more: make room for the next body
        return None

    def zstd_frames(self, frames: Any, size: int) -> Any | None:
        """The concatenated bodies of zstd frames that claim `size` bytes in total; None if they
        have fewer or are damaged.
        """
        self._grow(size)
        found = self._fill(memoryview(frames), size, True)
        return found if found is not None and len(found) == size else None

    def _fill(self, view: memoryview, size: int, frames: bool) -> memoryview | None:
        """At most `size` bytes, of one frame or of all (`frames`); None if they are damaged."""
        stream = codecs.zstd_stream()
        room = self._memory[:size]
        reader = stream.stream_reader(view, read_across_frames=frames)
        try:
            found: int = reader.readinto(room)
        except Exception:
            return None
        return room[:found]

    def _grow(self, wanted: int) -> None:
        if len(self._memory) < min(wanted, self._most):
            size = min(max(wanted, ROOM_BYTES), self._most)
            self._memory = memoryview(ffi.buffer(_untouched("uint8_t[]", size)))
