"""Decodes batches into single records.

Scans read a log into columns in C; this decoder serves fetches, the journals of the metadata and
the coordinators, and reports of damaged files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain
from typing import Any

from kafkalog._native import check, ffi, lib
from kafkalog.batch import codecs
from kafkalog.batch.encode import HEADER_BYTES
from kafkalog.types import CREATE_TIME, LOG_APPEND_TIME, Header, Record
from kafkalog.wire.runtime import uvarint

__all__ = ["batch_records", "body_of", "decoded_records"]

ROOM = 1024
# kl_record: nine 64-bit fields in the order of the declaration, then header_count.
RECORD = struct.Struct("@9qi4x")
if RECORD.size != ffi.sizeof("kl_record"):
    raise ImportError("kl_record does not have the layout that kafkalog.batch.decode expects")


_make_record = Record._make


def body_of(batch: Any, whole: bytes | memoryview, limit: int = codecs.LIMIT_BYTES) -> bytes:
    """The records of a whole batch, decompressed to at most `limit` bytes.

    Raises: CorruptMessage, MessageTooLarge, UnsupportedCompressionType.
    """
    codec = batch.attributes & lib.KL_CODEC_MASK
    packed = memoryview(whole)[HEADER_BYTES:]
    return bytes(codecs.decompress(codec, packed, limit) if codec else packed)


def decoded_records(
    batch: Any, body: bytes, topic: str = "", partition: int = -1
) -> Iterator[Record]:
    """The records of a body from `body_of`, control records included; decoded a thousand at a time.

    Raises: CorruptMessage, InvalidRecord for records that do not fill their lengths.
    """
    by_log = batch.attributes & lib.KL_ATTR_LOG_APPEND_TIME
    kind, epoch = (LOG_APPEND_TIME if by_log else CREATE_TIME), int(batch.leader_epoch)
    for fields in chain.from_iterable(map(RECORD.iter_unpack, _chunks(batch, body))):
        offset, time_ms, key, key_bytes, value, value_bytes, head, _, _, heads = fields
        yield _make_record(
            (
                offset,
                time_ms,
                body[key : key + key_bytes] if key_bytes >= 0 else None,
                body[value : value + value_bytes] if value_bytes >= 0 else None,
                _headers(body, head, heads) if heads else (),
                topic,
                partition,
                kind,
                epoch,
            )
        )


def batch_records(
    batch: Any, whole: memoryview, topic: str, partition: int, limit: int = codecs.LIMIT_BYTES
) -> list[Record]:
    """The records of one batch from `whole_batches`; its body may decompress to `limit` bytes.

    Raises: CorruptMessage, InvalidRecord, MessageTooLarge, UnsupportedCompressionType.
    """
    return list(decoded_records(batch, body_of(batch, whole, limit), topic, partition))


def _chunks(batch: Any, body: bytes) -> Iterator[Any]:
    """The records of a body as RECORD structs, up to a thousand at a time."""
    found = ffi.new("kl_record[]", min(ROOM, max(batch.record_count, 1)))
    pos, count = ffi.new("int64_t *"), ffi.new("int32_t *")
    pointer, raw = ffi.from_buffer("uint8_t[]", body), ffi.buffer(found)
    while True:
        check(lib.kl_records_decode(batch, pointer, len(body), pos, found, len(found), count))
        if not count[0]:
            return
        yield raw[: count[0] * RECORD.size]


def _headers(body: bytes, pos: int, count: int) -> tuple[Header, ...]:
    """The headers of a record that C decoded; it checked their lengths."""
    headers: list[Header] = []
    for _ in range(count):
        # Zigzag numbers: twice the value, odd if negative.  Nearly always one byte.
        raw, pos = (body[pos], pos + 1) if body[pos] < 0x80 else uvarint(body, pos)
        end = pos + (raw >> 1)
        name = body[pos:end].decode("utf-8", "backslashreplace")
        raw, pos = (body[end], end + 1) if body[end] < 0x80 else uvarint(body, end)
        if raw & 1:  # -1
            headers.append((name, None))
            continue
        end = pos + (raw >> 1)
        headers.append((name, body[pos:end]))
        pos = end
    return tuple(headers)
