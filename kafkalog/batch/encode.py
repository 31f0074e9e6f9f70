"""Encodes rows into batches, compressed with the codec of their topic or their writer."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from kafkalog._native import check, direct, ffi, lib
from kafkalog.arguments import INT16_MAX, INT32_MAX, bytes_like, whole_number
from kafkalog.batch import codecs
from kafkalog.batch.columns import Columns
from kafkalog.config.topic import TopicConfig
from kafkalog.errors import ArgumentError, MessageTooLarge

__all__ = [
    "HEADER_BYTES",
    "codec_level",
    "compressed_batches",
    "one_batch",
    "placed",
    "rows_batch",
    "sealed",
    "target_codec",
]

HEADER_BYTES: int = lib.KL_BATCH_HEADER_BYTES
_rows = direct("rows_direct")
WINDOW = 8
"""Batches encoded before they are compressed in parallel."""

_LEVELS = {
    1: "compression_gzip_level",
    3: "compression_lz4_level",
    4: "compression_zstd_level",
}


def target_codec(config: TopicConfig, asked: str | None) -> int:
    """The codec to write with: the topic's own, else what was asked for, else none.

    Raises: UnsupportedCompressionType.
    """
    own = config.compression_type
    return codecs.codec_id(asked or "none") if own == "producer" else codecs.codec_id(own)


def codec_level(config: TopicConfig, codec: int) -> int | None:
    """The level that a topic's settings give a codec; None: the codec's own default."""
    return getattr(config, _LEVELS[codec]) if codec in _LEVELS else None


def sealed(records: bytes, encoded: Any, stamp: Any) -> bytes:
    """A whole batch: a header, with its CRC, in front of `records`, compressed or not.

    `encoded` (kl_encoded *) has their count and times, `stamp` (kl_stamp *) the producer's fields.
    """
    out = bytearray(HEADER_BYTES + len(records))
    out[HEADER_BYTES:] = records
    encoded.records_bytes = len(records)
    check(lib.kl_batch_seal(ffi.from_buffer("uint8_t[]", out), len(out), encoded, stamp))
    return bytes(out)


def placed(batch: bytes, offset: int, epoch: int) -> bytes:
    """A batch as it is in a log: with its base offset and leader epoch, which no CRC covers.

    Raises: ArgumentError.
    """
    out = bytearray(bytes_like("batch", batch))
    if len(out) < HEADER_BYTES:
        raise ArgumentError(f"batch: found {len(out)} bytes, wanted a header of {HEADER_BYTES}")
    struct.pack_into(">q", out, 0, whole_number("offset", offset))
    struct.pack_into(">i", out, 12, whole_number("epoch", epoch, -1, INT32_MAX))
    return bytes(out)


def compressed_batches(
    columns: Columns, codec: int, config: TopicConfig, batch_bytes: int
) -> Iterator[bytes]:
    """The rows as batches compressed with `codec`, in order, a few of them at a time.

    `batch_bytes` bounds a batch before compression.  A batch that compression would not make
    smaller stays uncompressed, as in librdkafka.

    Raises: MessageTooLarge.
    """
    level = codec_level(config, codec)
    room = max(min(batch_bytes, columns.bytes_max), HEADER_BYTES + 1)
    while columns.row < columns.count:
        window: list[tuple[bytes, Any]] = []
        while len(window) < WINDOW and columns.row < columns.count:
            body = bytearray(room)
            encoded = columns.encode(body, room)
            end = HEADER_BYTES + encoded.records_bytes
            window.append((bytes(memoryview(body)[HEADER_BYTES:end]), encoded))
        packed = codecs.compress_many(codec, [records for records, _ in window], level)
        for (records, encoded), small in zip(window, packed, strict=True):
            smaller = len(small) < len(records)
            stamp = ffi.new("kl_stamp *", {
                "producer_id": -1, "producer_epoch": -1, "base_sequence": -1,
                "attributes": codec if smaller else 0})  # fmt: skip
            yield sealed(small if smaller else records, encoded, stamp)


def rows_batch(
    rows: Iterable[tuple[bytes | None, bytes | None]], timestamp_ms: int, producer_id: int = -1,
    epoch: int = -1, attributes: int = 0,
) -> bytes:  # fmt: skip
    """Keys and values as one uncompressed batch with this timestamp and no sequence, as
    coordinators write it.

    Raises: ArgumentError.
    """
    if not isinstance(rows, Iterable):
        raise ArgumentError(f"rows: found {type(rows).__name__}, wanted a list of pairs")
    made = _rows(
        list(rows),
        whole_number("timestamp_ms", timestamp_ms),
        whole_number("producer_id", producer_id),
        whole_number("epoch", epoch, -INT16_MAX - 1, INT16_MAX),
        whole_number("attributes", attributes, 0, INT16_MAX),
    )
    if made is None:
        raise ArgumentError("rows: wanted one or more pairs of bytes or None")
    if isinstance(made, int):
        check(made)
    return bytes(made)


def one_batch(columns: Columns, codec: int, config: TopicConfig) -> bytes:
    """All rows as one batch.  Raises: MessageTooLarge when they do not fit."""
    limit = min(config.max_message_bytes, config.segment_bytes)
    batches = compressed_batches(columns, codec, config, limit)
    batch = next(batches)
    if columns.row < columns.count or next(batches, None) is not None:
        raise MessageTooLarge(
            f"{columns.count} rows do not fit one batch: max.message.bytes and segment.bytes "
            f"allow {limit} bytes before compression"
        )
    return batch
