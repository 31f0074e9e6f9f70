"""Appends rows: what `append` and `append_many` do outside the one fast
call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar, cast

from kafkalog._native import check, direct, ffi, lib
from kafkalog.arguments import whole_number
from kafkalog.batch import codecs
from kafkalog.batch.check import prepared
from kafkalog.batch.columns import Columns
from kafkalog.batch.encode import compressed_batches, one_batch, target_codec
from kafkalog.errors import ArgumentError
from kafkalog.log.handle import Handle
from kafkalog.types import AppendedOffsets, Header

__all__ = [
    "BATCH_BYTES",
    "NO_HEADERS",
    "append_batches",
    "append_columns",
    "append_expected",
    "append_row",
    "quick",
    "span_of",
]

NO_HEADERS: Final = ()
BATCH_BYTES: Final = 1 << 20
"""The default size of batches that rows are put into."""
Method = TypeVar("Method", bound=Callable[..., int])
SIGNATURE = "($self, value, *, key=None, headers=(), timestamp_ms=None, expected_offset=None)"
"""The signature of Log.append, as a method in C has it as text."""
SINGLE_COMPRESSED_MAX = 1_000
"""How many single-record appends are compressed before a warning names a faster way."""


class _Quick:
    def __init__(self, general: Callable[..., int]) -> None:
        self._general = general

    def __set_name__(self, log: type, name: str) -> None:
        doc = f"append{SIGNATURE}\n--\n\n{self._general.__doc__}"
        setattr(log, name, direct("append_method")(log, self._general, check, doc))


def quick(general: Method) -> Method:
    """Log.append as a method in C, which leaves all but plain records to `general`.

    Plain is a record with bytes as its value and no headers, in a log that does not compress.
    """
    return cast("Method", _Quick(general))


def append_row(
    log: Handle,
    value: bytes | None,
    key: bytes | None,
    headers: Iterable[Header],
    timestamp_ms: int | None,
    expected_offset: int | None,
) -> int:
    """Unusual single records, and errors, are handled as many rows."""
    stamps = None
    if timestamp_ms is not None:
        stamps = [whole_number("timestamp_ms", timestamp_ms, -1)]
    if log.compresses:
        log.single_compressed += 1
        if log.single_compressed == SINGLE_COMPRESSED_MAX:
            warnings.warn(
                f"log {log.path}: under compression.type={log.config.compression_type} each append "
                "makes a compressed batch, which is slow and large: append_many compresses rows "
                "together",
                stacklevel=3,
            )
    keys = None if key is None else [key]
    rows = None if headers is NO_HEADERS else [headers]
    columns, codec = Columns([value], keys, stamps, rows), target_codec(log.config, None)
    if expected_offset is not None:
        return append_expected(log, columns, codec, expected_offset).base_offset
    return append_columns(log, columns, codec, BATCH_BYTES).base_offset


def append_columns(log: Handle, columns: Columns, codec: int, batch_bytes: int) -> AppendedOffsets:
    """All rows, in as many batches as it takes."""
    first, last = -1, -1
    for done in _append_some(log, columns, codec, batch_bytes):
        first = done.base_offset if first < 0 else first
        last = done.last_offset
    return AppendedOffsets(first, last, columns.count)


def _append_some(log: Handle, columns: Columns, codec: int, batch_bytes: int) -> Iterator[Any]:
    done = ffi.new("kl_appended *")
    columns.native.default_timestamp_ms = log.clock.now_ms()
    if codec == codecs.NONE:
        while columns.row < columns.count:
            check(lib.kl_log_append_columns(
                log.c, columns.native, columns.cursor, batch_bytes, log.clock.now_ms(), done
            ))  # fmt: skip
            if done.sync_due:
                log.flush()
            yield done
        return
    limit = min(batch_bytes, log.config.max_message_bytes, log.config.segment_bytes)
    for batch in compressed_batches(columns, codec, log.config, limit):
        _add(log, batch, done)
        yield done


def append_expected(
    log: Handle, columns: Columns, codec: int, expected_offset: int
) -> AppendedOffsets:
    """All rows as one batch, where the first of them gets `expected_offset`.

    Raises: UnexpectedAppendOffset, MessageTooLarge, ArgumentError.
    """
    expected = whole_number("expected_offset", expected_offset, 0)
    if columns.count == 0:
        raise ArgumentError("values: with expected_offset, append at least one row")
    columns.native.default_timestamp_ms = log.clock.now_ms()
    done = ffi.new("kl_appended *")
    _add(log, one_batch(columns, codec, log.config), done, expected)
    return span_of(done.base_offset, done.last_offset)


def append_batches(log: Handle, batches: bytes) -> AppendedOffsets:
    """See Log.append_batches."""
    data = prepared(batches, log.config, log.clock.now_ms(), log.max_decompressed_bytes)
    done = ffi.new("kl_appended *")
    _add(log, data, done)
    return span_of(done.base_offset, done.last_offset)


def _add(log: Handle, batches: Any, done: Any, expected_offset: int = -1) -> None:
    """Hand checked batches to the data plane; `done` gets their offsets."""
    options = ffi.new("kl_append_options *", {
        "origin": lib.KL_ORIGIN_CLIENT, "leader_epoch": -1,
        "expects": expected_offset >= 0, "expected_offset": expected_offset,
        "now_ms": log.clock.now_ms()})  # fmt: skip
    check(lib.kl_log_append_batches(log.c, ffi.from_buffer(batches), len(batches), options, done))
    if done.sync_due:
        log.flush()


def span_of(base_offset: int, last_offset: int) -> AppendedOffsets:
    """The outcome of an append, by its offsets; -1 if nothing was appended."""
    return AppendedOffsets(
        base_offset, last_offset, last_offset - base_offset + 1 if base_offset >= 0 else 0
    )
