"""The records of batches that lie in memory, as a fetch brings them.

A scan reads a log; this reads bytes from anywhere.  Bodies are decompressed one batch at a
time, and the records are decoded a thousand a call.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from kafkalog._native import check, ffi, lib
from kafkalog.batch import codecs
from kafkalog.types import CREATE_TIME, LOG_APPEND_TIME, Header, Record

__all__ = ["batch_records", "next_offset", "record_headers", "whole_batches"]

HEADER_BYTES: int = lib.KL_BATCH_HEADER_BYTES
ROOM = 1024
# kl_record: nine 64-bit fields in the order of the declaration, then header_count.
RECORD = struct.Struct("@9qi4x")
if RECORD.size != ffi.sizeof("kl_record"):
    raise ImportError("kl_record is not what kafkalog.batch.records takes it for")

_make_record = Record._make


def whole_batches(data: bytes, check_crc: bool = True) -> Iterator[tuple[Any, memoryview]]:
    """(kl_batch, its bytes) of each whole batch from the front of `data` on.

    A batch that is cut off ends it, as the tail of a fetch may be.  The kl_batch is valid
    until the next one.

    Raises: CorruptMessage, UnsupportedForMessageFormat.
    """
    # Not from_buffer of the view: when the collector finds both in one cycle (a traceback's
    # frames), CPython 3.11 crashes in the view's release.
    start, view, pos = ffi.from_buffer("uint8_t[]", data), memoryview(data), 0
    size = len(view)
    batch = ffi.new("kl_batch *")
    # An old format is told by its magic, which lies 17 bytes into the batch.
    while size - pos >= 17:
        status = lib.kl_batch_parse(start + pos, size - pos, batch)
        if status == lib.KL_E_BUFFER_TOO_SMALL:
            return
        check(status)
        if check_crc:
            check(lib.kl_batch_check(start + pos, size - pos, batch))
        yield batch, view[pos : pos + batch.batch_bytes]
        pos += batch.batch_bytes


def next_offset(data: bytes) -> int | None:
    """The offset behind the last whole batch; None when there is none.  No CRC is looked at.

    Raises: as `whole_batches`.
    """
    offset: int | None = None
    for batch, _ in whole_batches(data, check_crc=False):
        offset = int(batch.last_offset) + 1
    return offset


def batch_records(
    batch: Any, whole: memoryview, topic: str, partition: int, limit: int = codecs.LIMIT_BYTES
) -> list[Record]:
    """The records of one batch of `whole_batches`; a body decompresses to `limit` at most.

    Raises: CorruptMessage, InvalidRecord, MessageTooLarge, UnsupportedCompressionType.
    """
    codec = batch.attributes & lib.KL_CODEC_MASK
    body = bytes(codecs.decompress(codec, whole[HEADER_BYTES:], limit))
    by_log = batch.attributes & lib.KL_ATTR_LOG_APPEND_TIME
    kind, epoch = (LOG_APPEND_TIME if by_log else CREATE_TIME), int(batch.leader_epoch)
    found = ffi.new("kl_record[]", min(ROOM, max(batch.record_count, 1)))
    room = len(found)
    pos, count = ffi.new("int64_t *"), ffi.new("int32_t *")
    pointer, raw = ffi.from_buffer("uint8_t[]", body), ffi.buffer(found)
    out: list[Record] = []
    while True:
        check(lib.kl_records_decode(batch, pointer, len(body), pos, found, room, count))
        if not count[0]:
            return out
        for (
            offset,
            time_ms,
            key,
            key_bytes,
            value,
            value_bytes,
            head,
            _,
            _,
            heads,
        ) in RECORD.iter_unpack(raw[: count[0] * RECORD.size]):
            out.append(
                _make_record(
                    (
                        offset,
                        time_ms,
                        body[key : key + key_bytes] if key_bytes >= 0 else None,
                        body[value : value + value_bytes] if value_bytes >= 0 else None,
                        record_headers(body, head, heads) if heads else (),
                        topic,
                        partition,
                        kind,
                        epoch,
                    )
                )
            )


def record_headers(body: bytes, pos: int, count: int) -> tuple[Header, ...]:
    """The headers of a record that C has decoded, whose lengths it has checked."""
    headers: list[Header] = []
    for _ in range(count):
        length, pos = _varint(body, pos)
        name = body[pos : pos + length].decode("utf-8", "backslashreplace")
        length, pos = _varint(body, pos + length)
        value = None
        if length >= 0:
            value = body[pos : pos + length]
            pos += length
        headers.append((name, value))
    return tuple(headers)


def _varint(body: bytes, pos: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = body[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), pos
        shift += 7
