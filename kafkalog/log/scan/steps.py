"""The steps of a scan that need Python: C decodes records, but the codecs are packages."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from kafkalog import errors
from kafkalog._native import check, ffi, lib
from kafkalog.batch import codecs
from kafkalog.batch.room import Room

__all__ = ["Steps"]

_INFLATE_BATCHES = 32
TOGETHER_BYTES = 8 << 20
"""A larger batch is decompressed alone: the size of several is not known in advance."""
JOINED_BYTES = 1 << 20
"""Bytes of batches decompressed in one call: as much as the cache holds until they are decoded."""
HELD_BYTES = 64 << 20
"""Bytes of decompressed batches whose rows were not taken yet."""


class Steps:
    """Advances a `kl_scan` from block to block.  One thread."""

    def __init__(self, scan: Any, limit_bytes: int, alone: bool = False) -> None:
        """`scan`: the caller frees it.  `limit_bytes`: of a batch, decompressed.

        `alone`: this thread decodes each batch as soon as it is decompressed, while its bytes are
        in the processor's cache; other threads take other parts of the log.
        """
        self._c = scan
        self._limit = limit_bytes
        self._room = Room(TOGETHER_BYTES) if alone else None
        self._joined = ffi.new("kl_joined *")
        self._large = False
        """The last batch was larger than TOGETHER_BYTES: the next ones are taken one by one."""
        self._compressed = ffi.new("kl_compressed[]", _INFLATE_BATCHES)
        self._count = ffi.new("int32_t *")
        self._block = ffi.new("kl_block **")
        self._state = ffi.new("int32_t *")

    def blocks(self, name: str) -> Generator[Any, None, None]:
        """The `kl_block` handles up to the scan's end; `name` is for error messages.

        Raises: CorruptMessage, MessageTooLarge, UnsupportedCompressionType and what the scan
        reports; the rows before the damage are yielded first.
        """
        while True:
            check(
                lib.kl_scan_step(
                    self._c, self._compressed, _INFLATE_BATCHES, self._count, self._state
                )
            )
            state = self._state[0]
            if state == lib.KL_SCAN_INFLATE:
                try:
                    yield from self._inflate(name)
                except errors.KafkalogError:
                    yield from self._take()  # the rows before the damage
                    raise
            elif state == lib.KL_SCAN_ROWS:
                yield from self._take()
            elif state == lib.KL_SCAN_END:
                return

    def _take(self) -> Iterator[Any]:
        while True:
            check(lib.kl_scan_take(self._c, self._block))
            if self._block[0] == ffi.NULL:
                return
            yield ffi.gc(self._block[0], lib.kl_block_free)

    def _inflate(self, name: str) -> Iterator[Any]:
        """Decode the compressed batches that the scan has reached, several at a time; if they are
        large, yield blocks in between."""
        batches = self._compressed[0 : self._count[0]]
        items = [(batch.codec, ffi.buffer(batch.data, batch.bytes)) for batch in batches]
        bodies = self._together(items)
        one = codecs.decompress
        if self._room is not None and not self._large:
            one = self._room.decompress
        held = index = 0
        while index < len(items):
            if joined := self._inflate_joined(index):
                index += joined.count
                held += joined.records_bytes
            else:
                codec, data = items[index]
                try:
                    body = bodies[index] if bodies else one(codec, data, self._limit)
                except errors.KafkalogError as problem:
                    offset = batches[index].base_offset
                    what = f"{name}: the batch at offset {offset}: {problem}"
                    raise type(problem)(what) from problem
                records = ffi.from_buffer("uint8_t[]", body)
                check(lib.kl_scan_inflated(self._c, index, records, len(body)))
                index += 1
                held += len(body)
                self._large = len(body) > TOGETHER_BYTES
                del body, records
            if held > HELD_BYTES:
                held = 0
                yield from self._take()

    def _inflate_joined(self, index: int) -> Any:
        """The batches from `index` on that were decompressed in one call and decoded; None if the
        first of them must be taken alone, which also reports what is wrong with it.
        """
        left = self._count[0] - index
        if self._room is None or left < 2:
            return None
        joined, most = self._joined, min(JOINED_BYTES, self._limit)
        check(lib.kl_scan_join(self._c, self._compressed + index, left, most, joined))
        if joined.count < 2:
            return None
        frames = ffi.buffer(joined.data, joined.bytes)
        if (body := self._room.zstd_frames(frames, joined.records_bytes)) is None:
            return None
        check(lib.kl_scan_inflated_joined(self._c, joined, ffi.from_buffer("uint8_t[]", body)))
        return joined

    def _together(self, items: Sequence[tuple[int, Any]]) -> list[Any]:
        """All bodies, by several threads; none if one is damaged or large: take them one by one."""
        if self._large or self._room:
            return []
        try:
            return codecs.decompress_many(items, min(self._limit, TOGETHER_BYTES))
        except errors.KafkalogError:
            return []
