"""Which records of a refused batch are to blame: what KIP-467 lets a producer see."""

from collections.abc import Iterator
from typing import Any

from kafkalog._native import check, ffi, lib
from kafkalog.config import FOREVER, TopicConfig
from kafkalog.errors import KafkalogError
from kafkalog.storage import codecs
from kafkalog.storage.settings import timestamp_window

__all__ = ["record_errors"]

WINDOW = 1024
"""Records that are decoded at a time."""
LISTED_MAX = 1000
"""Records that one answer names."""


def record_errors(records: bytes, config: TopicConfig, now_ms: int) -> list[dict[str, Any]]:
    """The records that break a rule of their topic, by their place in the batch.

    Empty when none can be told, as for a batch that does not parse.
    """
    found: list[dict[str, Any]] = []
    try:
        for index, record in enumerate(_records(records, config.kafkalog_max_decompressed_bytes)):
            message = _wrong(record, index, config, now_ms)
            if message is not None:
                found.append({"batch_index": index, "batch_index_error_message": message})
            if len(found) == LISTED_MAX:
                break
    except KafkalogError:
        return found
    return found


def _records(records: bytes, limit: int) -> Iterator[Any]:
    batch = ffi.new("kl_batch *")
    data = ffi.from_buffer("uint8_t[]", records)
    check(lib.kl_batch_parse(data, len(records), batch))
    view = memoryview(records)[lib.KL_BATCH_HEADER_BYTES : batch.batch_bytes]
    body = codecs.decompress(batch.attributes & lib.KL_CODEC_MASK, view, limit)
    out = ffi.new("kl_record[]", WINDOW)
    pos, count = ffi.new("int64_t *"), ffi.new("int32_t *", 1)
    buffer = ffi.from_buffer(body)
    while count[0]:
        check(lib.kl_records_decode(batch, buffer, len(body), pos, out, WINDOW, count))
        yield from out[0 : count[0]]


def _wrong(record: Any, index: int, config: TopicConfig, now_ms: int) -> str | None:
    if "compact" in config.cleanup_policy and record.key_bytes < 0:
        return "Compacted topic cannot accept message without key"
    if config.message_timestamp_type != "CreateTime" or record.timestamp_ms == -1:
        return None
    before, after = timestamp_window(config)
    late_ms = now_ms - record.timestamp_ms
    if (before < FOREVER and late_ms > before) or (after < FOREVER and -late_ms > after):
        return (
            f"Timestamp {record.timestamp_ms} of message {index} is out of range: wanted at most "
            f"{before} ms before and {after} ms after {now_ms}"
        )
    return None
