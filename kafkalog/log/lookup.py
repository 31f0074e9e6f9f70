"""Offsets by time: the data plane finds the batch, and the record if it is not compressed."""

import operator
from typing import TYPE_CHECKING, Any

from kafkalog._native import check, ffi, lib
from kafkalog.batch import codecs
from kafkalog.errors import ArgumentError, BufferTooSmall, CorruptMessage, StaleLog
from kafkalog.log.handle import Handle
from kafkalog.types import FoundOffset

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["find_time", "milliseconds"]

HEADER_BYTES = lib.KL_BATCH_HEADER_BYTES
TRIES = 100


def milliseconds(time: "int | datetime") -> int:
    """A time as milliseconds since 1970 UTC.

    Raises: ArgumentError for another type, or a datetime without a zone.
    """
    from datetime import datetime, timedelta, timezone  # most programs never look up a time

    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ArgumentError(f"time: {time!r} has no time zone")
        epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
        return -((epoch - time) // timedelta(milliseconds=1))  # up: what is not before it
    try:
        number = operator.index(time)
    except TypeError:
        raise ArgumentError(
            f"time: found {time!r} of type {type(time).__name__}, wanted milliseconds as an int, "
            "or a datetime"
        ) from None
    if not -(2**63) <= number < 2**63:
        raise ArgumentError(f"time: found {number}, wanted a number of 64 bits")
    return number


def find_time(log: Handle, timestamp_ms: int | None) -> FoundOffset | None:
    """The first record at or after `timestamp_ms`; None: the first with the largest timestamp.

    Source: Kafka's ListOffsets.
    Raises: CorruptMessage, Closed; StaleLog if segments keep changing.
    """
    found = _begin(log, timestamp_ms)
    if not found.inflate:
        return _answer(found)
    # The answer takes several calls: it counts if no segment changed between them.
    for _ in range(TRIES):
        generation = log.state().generation
        try:
            answer = _search(log, timestamp_ms)
        except (BufferTooSmall, CorruptMessage, StaleLog):  # another batch is there now
            if log.state().generation == generation:
                raise
        else:
            if log.state().generation == generation:
                return answer
    raise StaleLog(f"log {log.path}: its segments changed during {TRIES} searches for a time")


def _search(log: Handle, timestamp_ms: int | None) -> FoundOffset | None:
    found = _begin(log, timestamp_ms)
    while found.inflate:
        hit = _look_into(log, found, timestamp_ms)
        if hit is not None:
            return hit
        _step(log, timestamp_ms, found)
    return _answer(found)


def _begin(log: Handle, timestamp_ms: int | None) -> Any:
    found = ffi.new("kl_found *")
    _step(log, timestamp_ms, found)
    return found


def _step(log: Handle, timestamp_ms: int | None, found: Any) -> None:
    if timestamp_ms is None:
        check(lib.kl_log_find_largest_time(log.c, found))
    else:
        check(lib.kl_log_find_time(log.c, timestamp_ms, found))


def _answer(found: Any) -> FoundOffset | None:
    if found.offset < 0:
        return None
    return FoundOffset(found.offset, found.timestamp_ms, found.leader_epoch)


def _look_into(log: Handle, found: Any, timestamp_ms: int | None) -> FoundOffset | None:
    """Search a compressed batch for the record."""
    size = found.batch_bytes
    if size > log.state().size_bytes:
        raise StaleLog(f"log {log.path}: a batch of {size} bytes is not there any more")
    buffer, used = bytearray(size), ffi.new("size_t *")
    data = ffi.from_buffer("uint8_t[]", buffer)
    base = found.segment_base_offset
    check(lib.kl_log_read_at(log.c, base, found.pos, data, size, used))
    batch, record = ffi.new("kl_batch *"), ffi.new("kl_record *")
    check(lib.kl_batch_parse(data, size, batch))
    codec = batch.attributes & lib.KL_CODEC_MASK
    body = codecs.decompress(codec, memoryview(buffer)[HEADER_BYTES:], log.max_decompressed_bytes)
    wanted = batch.max_timestamp if timestamp_ms is None else timestamp_ms
    records, start = ffi.from_buffer(body), found.start_offset
    check(lib.kl_records_find(batch, records, len(body), wanted, start, record))
    if record.offset < 0:
        return None
    return FoundOffset(record.offset, record.timestamp_ms, batch.leader_epoch)
