"""The records of batches: one decoder.

A scan reads a log into columns in C; this is for who wants single records, of a fetch, of the
metadata or a coordinator's journal, or of a damaged file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from kafkalog._native import check, ffi, lib
from kafkalog.batch import codecs
from kafkalog.batch.encode import HEADER_BYTES
from kafkalog.types import CREATE_TIME, LOG_APPEND_TIME, Header, Record

__all__ = ["Decoded", "batch_records", "body_of", "decoded_records", "record_headers"]

ROOM = 1024
# kl_record: nine 64-bit fields in the order of the declaration, then header_count.
RECORD = struct.Struct("@9qi4x")
if RECORD.size != ffi.sizeof("kl_record"):
    raise ImportError("kl_record is not what kafkalog.batch.decode takes it for")

_make_record = Record._make


class Decoded(NamedTuple):
    """A record as it lies in a body."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers_pos: int
    """In the body, for `record_headers`."""
    header_count: int


def body_of(batch: Any, whole: bytes | memoryview, limit: int = codecs.LIMIT_BYTES) -> bytes:
    """The records of a whole batch, decompressed to at most `limit` bytes.

    Raises: CorruptMessage, MessageTooLarge, UnsupportedCompressionType.
    """
    codec = batch.attributes & lib.KL_CODEC_MASK
    packed = memoryview(whole)[HEADER_BYTES:]
    return bytes(codecs.decompress(codec, packed, limit) if codec else packed)


def _chunks(batch: Any, body: bytes) -> Iterator[Any]:
    """The records of a body as RECORD structs, up to a thousand at once.

    Raises: CorruptMessage, InvalidRecord for records that do not fill their lengths.
    """
    found = ffi.new("kl_record[]", min(ROOM, max(batch.record_count, 1)))
    pos, count = ffi.new("int64_t *"), ffi.new("int32_t *")
    pointer, raw = ffi.from_buffer("uint8_t[]", body), ffi.buffer(found)
    while True:
        check(lib.kl_records_decode(batch, pointer, len(body), pos, found, len(found), count))
        if not count[0]:
            return
        yield raw[: count[0] * RECORD.size]


def decoded_records(batch: Any, body: bytes) -> Iterator[Decoded]:
    """The records of a body of `body_of`, control records too.

    Raises: CorruptMessage, InvalidRecord.
    """
    for chunk in _chunks(batch, body):
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
        ) in RECORD.iter_unpack(chunk):
            yield Decoded(
                offset,
                time_ms,
                body[key : key + key_bytes] if key_bytes >= 0 else None,
                body[value : value + value_bytes] if value_bytes >= 0 else None,
                head,
                heads,
            )


def batch_records(
    batch: Any, whole: memoryview, topic: str, partition: int, limit: int = codecs.LIMIT_BYTES
) -> list[Record]:
    """The records of one batch of `whole_batches`; a body decompresses to `limit` at most.

    Raises: CorruptMessage, InvalidRecord, MessageTooLarge, UnsupportedCompressionType.
    """
    body = body_of(batch, whole, limit)
    by_log = batch.attributes & lib.KL_ATTR_LOG_APPEND_TIME
    kind, epoch = (LOG_APPEND_TIME if by_log else CREATE_TIME), int(batch.leader_epoch)
    out: list[Record] = []
    for chunk in _chunks(batch, body):
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
        ) in RECORD.iter_unpack(chunk):
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
    return out


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
