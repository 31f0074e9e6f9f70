"""Record batches in memory, as a Fetch answers them: rows as columns or Records, decoded in C."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog._native import check, ffi, lib
from kafkalog.batch import codecs
from kafkalog.log import rows
from kafkalog.log.scan import COLUMNS, ScanBatch
from kafkalog.log.steps import Steps
from kafkalog.types import Record

__all__ = ["Decoder", "Rows"]

_RECORD_ROWS, _RECORD_BYTES = 4096, 1 << 20
_BATCH_ROWS, _BATCH_BYTES = 32_768, 8 << 20


class Rows(NamedTuple):
    """Records that are made one by one as they are asked for."""

    offsets: list[int]
    """Of all of them."""
    made: Iterator[int]
    """Goes over `offsets` as records are made: its length hint is how many are left."""
    records: Iterator[Record]


class Decoder:
    """Decodes the batches of one partition after another.  One thread.

    It keeps the memory of the largest piece that it was given, and of a few blocks.
    """

    def __init__(
        self, columns: bool = False, check_crcs: bool = True, limit_bytes: int = codecs.LIMIT_BYTES
    ) -> None:
        """`columns`: for `batches`, else for `records`.  `limit_bytes`: of a batch, inflated."""
        options = ffi.new(
            "kl_scan_options *",
            {
                "columns": lib.KL_COL_ALL if columns else rows.RECORD_COLUMNS,
                "max_rows": _BATCH_ROWS if columns else _RECORD_ROWS,
                "max_bytes": _BATCH_BYTES if columns else _RECORD_BYTES,
                "check_crc": check_crcs,
            },
        )
        out = ffi.new("kl_scan **")
        check(lib.kl_scan_open_memory(options, out))
        self._c = ffi.gc(out[0], lib.kl_scan_free)
        self._steps = Steps(self._c, limit_bytes)
        self._columns = columns

    def records(
        self,
        topic: str,
        partition: int,
        data: bytes | bytearray | memoryview,
        start: int = 0,
        aborted: tuple[tuple[int, int], ...] = (),
    ) -> Iterator[Rows]:
        """The data records of `data` from offset `start` on, block by block.

        `data`: whole batches, the last may be cut off.  `aborted`: (producer id, first
        offset) of the transactions that are left out.  Use it up before the next call.

        Raises: CorruptMessage and others as a scan does, behind the records before it.
        """
        for block in self._blocks(topic, partition, data, start, aborted):
            offsets = rows.numbers_of(block)
            made = iter(offsets)
            found = Rows(offsets, made, rows.records_at(block, topic, partition, made))
            ffi.release(block)  # its memory serves the next block
            yield found

    def batches(
        self,
        topic: str,
        partition: int,
        data: bytes | bytearray | memoryview,
        start: int = 0,
        aborted: tuple[tuple[int, int], ...] = (),
    ) -> Iterator[ScanBatch]:
        """The same as columns: those of a scan."""
        for block in self._blocks(topic, partition, data, start, aborted):
            yield ScanBatch(block, COLUMNS)

    def _blocks(
        self,
        topic: str,
        partition: int,
        data: bytes | bytearray | memoryview,
        start: int,
        aborted: tuple[tuple[int, int], ...],
    ) -> Iterator[Any]:
        given = ffi.new("kl_fetched *")
        name = ffi.new("char[]", topic.encode())
        numbers = array("q", chain.from_iterable(aborted))
        pairs = ffi.from_buffer("int64_t[]", numbers)
        view = ffi.from_buffer("uint8_t[]", data)
        given.topic, given.partition, given.start_offset = name, partition, start
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
