"""Which records of a refused batch are invalid: the record errors of KIP-467."""

from typing import Any

from kafkalog._native import check, ffi, lib
from kafkalog.batch import codecs
from kafkalog.batch.check import refused_records
from kafkalog.config.topic import TopicConfig
from kafkalog.errors import KafkalogError

__all__ = ["record_errors"]

LISTED_MAX = 1000
"""How many records one answer names."""


def record_errors(records: bytes, config: TopicConfig, now_ms: int) -> list[dict[str, Any]]:
    """The records that break a rule of their topic, by their index in the batch.

    Empty if none can be named, as for a batch that cannot be parsed.
    """
    batch = ffi.new("kl_batch *")
    try:
        check(lib.kl_batch_parse(ffi.from_buffer("uint8_t[]", records), len(records), batch))
        view = memoryview(records)[lib.KL_BATCH_HEADER_BYTES : batch.batch_bytes]
        limit = config.kafkalog_max_decompressed_bytes
        body = codecs.decompress(batch.attributes & lib.KL_CODEC_MASK, view, limit)
    except KafkalogError:
        return []
    return [
        {"batch_index": one.place, "batch_index_error_message": one.why}
        for one in refused_records(batch, body, config, now_ms, LISTED_MAX)
    ]
