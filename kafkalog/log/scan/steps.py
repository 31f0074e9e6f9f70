"""The steps of a scan that Python takes part in: C decodes records, the codecs are packages."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from kafkalog import errors
from kafkalog._native import check, ffi, lib
from kafkalog.batch import codecs

__all__ = ["Steps"]

_INFLATE_BATCHES = 32
TOGETHER_BYTES = 8 << 20
"""A batch above this, decompressed, is alone: nobody knows before how large several are."""
HELD_BYTES = 64 << 20
"""Of decompressed batches whose rows nobody has taken."""


class Steps:
    """Takes a `kl_scan` from block to block.  One thread."""

    def __init__(self, scan: Any, limit_bytes: int) -> None:
        """`scan`: the caller frees it.  `limit_bytes`: of a batch, decompressed."""
        self._c = scan
        self._limit = limit_bytes
        self._large = False
        """The last batch was: the next ones are taken one by one at once."""
        self._compressed = ffi.new("kl_compressed[]", _INFLATE_BATCHES)
        self._count = ffi.new("int32_t *")
        self._block = ffi.new("kl_block **")
        self._state = ffi.new("int32_t *")

    def blocks(self, name: str) -> Generator[Any, None, None]:
        """The `kl_block` handles up to the scan's end; `name` is for what fails.

        Raises: CorruptMessage, MessageTooLarge, UnsupportedCompressionType and what the scan
        reports; the rows before the damage come first.
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
        """Decode the compressed batches that the scan has come to, several at a time; blocks
        in between, where they are large."""
        batches = self._compressed[0 : self._count[0]]
        items = [(batch.codec, ffi.buffer(batch.data, batch.bytes)) for batch in batches]
        bodies = self._together(items)
        held = 0
        for index, (codec, data) in enumerate(items):
            try:
                body = bodies[index] if bodies else codecs.decompress(codec, data, self._limit)
            except errors.KafkalogError as problem:
                offset = batches[index].base_offset
                raise type(problem)(f"{name}: the batch at offset {offset}: {problem}") from problem
            check(
                lib.kl_scan_inflated(self._c, index, ffi.from_buffer("uint8_t[]", body), len(body))
            )
            held += len(body)
            self._large = len(body) > TOGETHER_BYTES
            if held > HELD_BYTES:
                del body
                held = 0
                yield from self._take()

    def _together(self, items: Sequence[tuple[int, Any]]) -> list[Any]:
        """All bodies, by several threads; none where one is damaged or large: then one by one."""
        if self._large:
            return []
        try:
            return codecs.decompress_many(items, min(self._limit, TOGETHER_BYTES))
        except errors.KafkalogError:
            return []
