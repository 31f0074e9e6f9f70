"""Checks produced batches against their topic's rules: compressed bodies are decompressed, checked
and, if the topic sets a codec, compressed again.

C checks uncompressed batches, and takes those that need no check as they are.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from kafkalog._native import check, ffi, lib
from kafkalog.batch import codecs
from kafkalog.batch.encode import HEADER_BYTES, codec_level, sealed
from kafkalog.batch.walk import whole_batches
from kafkalog.config.declare import FOREVER
from kafkalog.config.topic import TopicConfig, timestamp_window
from kafkalog.errors import InvalidRecord, MessageTooLarge

__all__ = ["Refused", "prepared", "refused_records", "rules_of", "time_is_doubtful"]


_LENGTH = struct.Struct(">i")
_LENGTH_POS, _MAGIC_POS, _CODEC_POS = 8, 16, 22  # docs/format.md
_MAGIC = 2


class Refused(NamedTuple):
    """A record that breaks a rule of its topic."""

    place: int
    """Its index in the batch, from 0."""
    why: str


def time_is_doubtful(batches: bytes, config: TopicConfig, now_ms: int) -> bool:
    """True if the first batch is compressed and its header lacks the largest timestamp of its
    records, or gives one too far ahead: only the records show which of them are to blame.
    (sarama leaves -1 there; Kafka rewrites the header.)
    """
    if _is_plain(batches):
        return False
    batch = ffi.new("kl_batch *")
    status = lib.kl_batch_parse(ffi.from_buffer("uint8_t[]", batches), len(batches), batch)
    if status != lib.KL_OK or not batch.attributes & lib.KL_CODEC_MASK:
        return False
    if lib.kl_batch_time_is_lost(batch):
        return True
    timed = config.message_timestamp_type == "CreateTime"
    return timed and batch.max_timestamp - now_ms > timestamp_window(config)[1]


def prepared(batches: bytes, config: TopicConfig, now_ms: int, limit: int) -> bytes:
    """`batches` as producers sent them, ready for the data plane.

    The bodies of compressed batches are decompressed (to at most `limit` bytes) and checked
    record by record, their largest timestamp is corrected, and a topic's own codec is
    applied.  Everything else, checksums included, is left for the data plane to check.

    Raises: CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge.
    """
    own = config.compression_type
    if own == "producer" and _is_plain(batches):
        return batches
    data, view = ffi.from_buffer("uint8_t[]", batches), memoryview(batches)
    out: list[bytes | memoryview] = []
    pos = taken = 0  # the bytes between them pass unchanged
    for batch, whole in whole_batches(batches, check_crc=False):
        end = pos + len(whole)
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
            check(lib.kl_batch_check(data + pos, len(whole), batch))
            out.append(view[taken:pos])
            out.append(_looked_into(whole, batch, wanted, config, now_ms, limit))
            taken = end
        pos = end
    if taken == 0 and pos == len(view):
        return batches
    return b"".join((*out, view[taken:pos]))


def _is_plain(batches: bytes) -> bool:
    """True if this is exactly one whole, uncompressed batch: the data plane checks that."""
    if len(batches) < HEADER_BYTES or batches[_MAGIC_POS] != _MAGIC:
        return False
    (batch_bytes,) = _LENGTH.unpack_from(batches, _LENGTH_POS)
    whole = _LENGTH_POS + _LENGTH.size + batch_bytes == len(batches)
    return whole and not batches[_CODEC_POS] & lib.KL_CODEC_MASK


def _looked_into(
    whole: memoryview, batch: Any, wanted: int, config: TopicConfig, now_ms: int, limit: int
) -> bytes | memoryview:
    codec = batch.attributes & lib.KL_CODEC_MASK
    records = codecs.decompress(codec, whole[HEADER_BYTES:], limit)
    body = ffi.from_buffer(records)
    allowed = config.max_decompressed_message_bytes
    if codec and allowed < len(records):
        longest = lib.kl_records_longest(body, len(records))
        if longest > allowed:
            raise InvalidRecord(
                f"a record of {longest} bytes, max.decompressed.message.bytes allows {allowed}"
            )
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
    """A topic's rules for each record: a kl_record_rules."""
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
    their topic: a missing key, or a timestamp too far from now.
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
