"""Decodes fetched record batches in memory, in C: into columns or Records."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from kafkalog import errors
from kafkalog._native import check, ffi, lib
from kafkalog.batch import codecs
from kafkalog.log.scan import rows
from kafkalog.log.scan.scan import ScanBatch, column_bits
from kafkalog.log.scan.steps import Steps
from kafkalog.types import Record

__all__ = ["Decoder", "Rows"]

_RECORD_ROWS, _RECORD_BYTES = 4096, 1 << 20
_BATCH_ROWS, _BATCH_BYTES = 32_768, 8 << 20


class Rows:
    """Records that are created when they are accessed."""

    __slots__ = ("_block", "_partition", "_topic", "offsets")

    def __init__(self, block: Any, topic: str, partition: int) -> None:
        self._block = block
        self._topic = topic
        self._partition = partition
        self.offsets: Sequence[int] = rows.offsets(block)
        """The size of all of them, while this lives."""

    def __len__(self) -> int:
        return len(self.offsets)

    def records(self, first: int = 0, most: int = rows.CHUNK) -> list[Record]:
        """Up to `most` of them, from row `first` on."""
        return rows.records_at(self._block, self._topic, self._partition, first, most)


class Decoder:
    """Decodes the batches of one partition after another.  One thread.

    It keeps memory for the largest piece that it was given, and for a few blocks.
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        check_crcs: bool = True,
        limit_bytes: int = codecs.LIMIT_BYTES,
    ) -> None:
        """`columns`: a scan's, for `batches`; None: for `records`.  `limit_bytes`: the largest
        decompressed batch.
        """
        self._columns, bits = ((), rows.RECORD_COLUMNS) if columns is None else column_bits(columns)
        whole = columns is not None
        options = ffi.new(
            "kl_scan_options *",
            {
                "columns": bits,
                "max_rows": _BATCH_ROWS if whole else _RECORD_ROWS,
                "max_bytes": _BATCH_BYTES if whole else _RECORD_BYTES,
                "check_crc": check_crcs,
            },
        )
        out = ffi.new("kl_scan **")
        check(lib.kl_scan_open_memory(options, out))
        self._c = ffi.gc(out[0], lib.kl_scan_free)
        self._steps = Steps(self._c, limit_bytes)

    def records(
        self,
        topic: str,
        partition: int,
        data: bytes | bytearray | memoryview,
        start: int = 0,
        aborted: tuple[tuple[int, int], ...] = (),
    ) -> Iterator[Rows]:
        """The data records of `data` from offset `start` on, block by block.

        `data`: whole batches, the last may be incomplete.  `aborted`: (producer id, first
        offset) of the transactions to leave out.  Consume all of it before the next call.

        Raises: CorruptMessage and other errors of a scan, after the records that precede them.
        """
        for block in self._blocks(topic, partition, data, start, aborted):
            found = Rows(block, topic, partition)
            del block  # when `found` is dropped, its memory is reused
            yield found
            del found

    def batches(
        self,
        topic: str,
        partition: int,
        data: bytes | bytearray | memoryview,
        start: int = 0,
        aborted: tuple[tuple[int, int], ...] = (),
        stop: int = 0,
    ) -> Iterator[ScanBatch]:
        """The same as columns, and up to offset `stop`, 0: all of them."""
        for block in self._blocks(topic, partition, data, start, aborted, stop):
            yield ScanBatch(block, self._columns)

    def _blocks(
        self,
        topic: str,
        partition: int,
        data: bytes | bytearray | memoryview,
        start: int,
        aborted: tuple[tuple[int, int], ...],
        stop: int = 0,
    ) -> Iterator[Any]:
        given = ffi.new("kl_fetched *")
        name = ffi.new("char[]", topic.encode())
        numbers = array("q", chain.from_iterable(aborted))
        pairs = ffi.from_buffer("int64_t[]", numbers)
        view = ffi.from_buffer("uint8_t[]", data)
        given.topic, given.partition, given.start_offset = name, partition, start
        given.stop_offset = stop
        given.data, given.bytes = view, len(view)
        given.aborted, given.aborted_count = pairs, len(aborted)
        check(lib.kl_scan_give(self._c, given))
        ffi.release(view)
        where = f"{topic}-{partition}"
        try:
            yield from self._steps.blocks(where)
        except errors.KafkalogError as problem:
            if str(problem).startswith(where):
                raise
            at = lib.kl_scan_position(self._c)
            raise type(problem)(f"{where}: at offset {at}: {problem}") from None
