"""Batches on their way into a log that need more than the data plane does: compression.

C appends what is uncompressed, and what is compressed as it came.  Here records are
compressed, and compressed bodies are looked into and, where the topic has a codec of its
own, compressed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kafkalog._native import check, ffi, lib
from kafkalog.batch import codecs
from kafkalog.batch.columns import Columns
from kafkalog.config.declare import FOREVER
from kafkalog.config.topic import TopicConfig, timestamp_window
from kafkalog.errors import MessageTooLarge
from kafkalog.types import Span

__all__ = [
    "Refused",
    "codec_level",
    "compressed_batches",
    "one_batch",
    "prepared",
    "refused_records",
    "sealed",
    "span_of",
    "target_codec",
    "time_is_lost",
]

HEADER_BYTES = lib.KL_BATCH_HEADER_BYTES
WINDOW = 8
"""Batches that are encoded before they are compressed side by side."""

_LEVELS = {
    1: "compression_gzip_level",
    3: "compression_lz4_level",
    4: "compression_zstd_level",
}


class Refused(NamedTuple):
    """A record that breaks a rule of its topic."""

    place: int
    """In its batch, from 0."""
    why: str


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
    """A whole batch: the header, CRC and all, in front of `records`, compressed or not.

    `encoded` (kl_encoded *) counts them, `stamp` (kl_stamp *) is the producer's.
    """
    out = bytearray(HEADER_BYTES + len(records))
    out[HEADER_BYTES:] = records
    encoded.records_bytes = len(records)
    check(lib.kl_batch_seal(ffi.from_buffer("uint8_t[]", out), len(out), encoded, stamp))
    return bytes(out)


def compressed_batches(
    columns: Columns, codec: int, config: TopicConfig, batch_bytes: int
) -> Iterator[bytes]:
    """The rows as batches compressed with `codec`, in order, a few of them at a time.

    `batch_bytes` bounds a batch before compression.  One that would not become smaller stays
    uncompressed, as librdkafka does it.

    Raises: MessageTooLarge.
    """
    level = codec_level(config, codec)
    while columns.row < columns.count:
        window: list[tuple[bytes, Any]] = []
        while len(window) < WINDOW and columns.row < columns.count:
            room = max(batch_bytes, HEADER_BYTES + 1)
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


def one_batch(columns: Columns, codec: int, config: TopicConfig) -> bytes:
    """All rows as one batch.  Raises: MessageTooLarge when they do not fit."""
    limit = min(config.max_message_bytes, config.segment_bytes)
    batches = compressed_batches(columns, codec, config, min(limit, columns.bytes_max))
    batch = next(batches)
    if columns.row < columns.count or next(batches, None) is not None:
        raise MessageTooLarge(
            f"{columns.count} rows do not fit one batch: max.message.bytes and segment.bytes "
            f"allow {limit} bytes before compression"
        )
    return batch


def time_is_lost(batches: bytes) -> bool:
    """Whether the header of a compressed batch, the first, cannot say the largest timestamp of
    its records; only they tell.  (sarama leaves -1 there; Kafka writes the header anew.)
    """
    batch = ffi.new("kl_batch *")
    status = lib.kl_batch_parse(ffi.from_buffer("uint8_t[]", batches), len(batches), batch)
    return status == lib.KL_OK and bool(lib.kl_batch_time_is_lost(batch))


def prepared(batches: bytes, config: TopicConfig, now_ms: int, limit: int) -> bytes:
    """`batches` as producers sent them, ready for the data plane.

    The bodies of compressed batches are decompressed (to at most `limit` bytes) and checked
    record by record, their largest timestamp is corrected, and a topic's own codec is
    applied; all else is left as it is for the data plane to judge, its checksums too.

    Raises: CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge.
    """
    own = config.compression_type
    view = memoryview(batches)
    data, size = ffi.from_buffer("uint8_t[]", batches), len(view)
    out: list[bytes | memoryview] = []
    pos, taken = 0, 0  # what lies between them goes as it is
    batch = ffi.new("kl_batch *")
    while pos < size:
        status = lib.kl_batch_parse(data + pos, size - pos, batch)
        if status == lib.KL_E_BUFFER_TOO_SMALL:
            break
        check(status)
        end = pos + batch.batch_bytes
        codec = batch.attributes & lib.KL_CODEC_MASK
        wanted = codec if own == "producer" else codecs.codec_id(own)
        plain = batch.attributes & lib.KL_ATTR_CONTROL or codec > 4
        if not plain and (codec or wanted):
            if codec and batch.batch_bytes > config.max_message_bytes:
                # Before anything is decompressed, as in Kafka.
                raise MessageTooLarge(
                    f"a batch of {batch.batch_bytes} bytes, max.message.bytes allows "
                    f"{config.max_message_bytes}"
                )
            check(lib.kl_batch_check(data + pos, size - pos, batch))
            out.append(view[taken:pos])
            out.append(_looked_into(view[pos:end], batch, wanted, config, now_ms, limit))
            taken = end
        pos = end
    if taken == 0 and pos == size:
        return batches
    return b"".join((*out, view[taken:pos]))


def _looked_into(
    whole: memoryview, batch: Any, wanted: int, config: TopicConfig, now_ms: int, limit: int
) -> bytes | memoryview:
    codec = batch.attributes & lib.KL_CODEC_MASK
    records = codecs.decompress(codec, whole[HEADER_BYTES:], limit)
    body = ffi.from_buffer(records)
    largest = ffi.new("int64_t *")
    check(lib.kl_records_check(batch, body, len(records), 1, rules_of(config, now_ms), largest))
    if codec == wanted and largest[0] == batch.max_timestamp:
        return whole
    if codec != wanted:
        packed = codecs.compress(wanted, records, codec_level(config, wanted))
    else:
        packed = bytes(whole[HEADER_BYTES:])
    encoded = ffi.new("kl_encoded *", {
        "base_timestamp": batch.base_timestamp, "max_timestamp": largest[0],
        "record_count": batch.record_count})  # fmt: skip
    stamp = ffi.new("kl_stamp *", {
        "producer_id": batch.producer_id, "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "attributes": batch.attributes & ~lib.KL_CODEC_MASK | wanted})  # fmt: skip
    return sealed(packed, encoded, stamp)


def rules_of(config: TopicConfig, now_ms: int) -> Any:
    """What a topic asks of each record: a kl_record_rules."""
    before, after = timestamp_window(config)
    timed = config.message_timestamp_type == "CreateTime"
    return ffi.new("kl_record_rules *", {
        "now_ms": now_ms, "before_max_ms": before if timed else FOREVER,
        "after_max_ms": after if timed else FOREVER,
        "need_keys": "compact" in config.cleanup_policy})  # fmt: skip


def refused_records(
    batch: Any, records: Any, config: TopicConfig, now_ms: int, limit: int
) -> list[Refused]:
    """The first `limit` records of a decompressed body that break a rule of
    their topic: a key that is missing, a timestamp that is too far from now.
    """
    rules = rules_of(config, now_ms)
    room = ffi.new("kl_refused_record[]", limit)
    out = ffi.new("kl_refused_records *", {"records": room, "max": limit})
    lib.kl_records_refused(batch, ffi.from_buffer(records), len(records), rules, out)
    text = ffi.new("char[]", 200)
    found = []
    for one in room[0 : out.count]:
        lib.kl_refused_why(ffi.addressof(one), rules, text, len(text))
        found.append(Refused(one.index, ffi.string(text).decode()))
    return found


def span_of(done: Any) -> Span:
    """The offsets of a kl_appended."""
    count = done.last_offset - done.base_offset + 1 if done.base_offset >= 0 else 0
    return Span(done.base_offset, done.last_offset, count)
