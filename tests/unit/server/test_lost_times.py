"""Compressed batches whose header lacks the largest timestamp of their records.

Benthos and other clients built on sarama leave -1 there; Apache Kafka rewrites the header.
"""

from pathlib import Path

import pytest

import kafkalog
from kafkalog._native import ffi, lib
from tests.support import batches
from tests.support.batches import Row
from tests.support.raw import Raw

T = 1_700_000_000_000
ROWS = [Row(b"a", timestamp_ms=T), Row(b"b", timestamp_ms=T + 50), Row(b"c", timestamp_ms=T + 20)]
LATEST, MAX_TIMESTAMP = -1, -3


def with_max_timestamp(data: bytes, timestamp_ms: int) -> bytes:
    after_crc = bytearray(data[21:])
    after_crc[14:22] = timestamp_ms.to_bytes(8, "big", signed=True)
    return batches.seal(bytes(after_crc))


def stored(broker, topic: str):
    path = Path(broker.path) / f"{topic}-0" / f"{0:020}.log"
    [header] = list(batches.headers(path.read_bytes()))
    return header


def times(broker, topic: str) -> list[int]:
    """The records' timestamps; the log must verify."""
    with kafkalog.Log(Path(broker.path) / f"{topic}-0", mode="r") as log:
        assert log.verify().clean
        assert log.verify(deep=True).clean
        return [record.timestamp_ms for record in log.read()]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("lost", [-1, T - 1])
def test_the_records_tell(make_broker, codec, lost):
    """Stored unchanged, it would be missed by lookups by time, and verify would report damage."""
    broker = make_broker()
    data = with_max_timestamp(batches.batch(ROWS, codec=codec), lost)
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        assert raw.produce_batch("t", data).error_code == 0
        assert raw.offsets("t", T + 30).offset == 1
        found = raw.offsets("t", MAX_TIMESTAMP)
        assert (found.offset, found.timestamp) == (1, T + 50)
    assert stored(broker, "t").max_timestamp == T + 50
    assert times(broker, "t") == [T, T + 50, T + 20]


def test_a_batch_may_begin_late(make_broker):
    """A base timestamp above all records is odd but valid: verify accepts what the broker did."""
    rows = [Row(b"a", timestamp_ms=T), Row(b"b", timestamp_ms=T - 50)]
    data = bytearray(batches.batch(rows, codec="lz4"))
    body = batches.compress(
        b"".join(batches.record(row, i, T + 500) for i, row in enumerate(rows)), "lz4"
    )
    after_crc = bytearray(data[21:61] + body)
    after_crc[6:14] = (T + 500).to_bytes(8, "big")
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        assert raw.produce_batch("t", batches.seal(bytes(after_crc))).error_code == 0
    assert times(broker, "t") == [T, T - 50]
    assert stored(broker, "t").max_timestamp == T


def test_a_setting_looks_at_every_batch(make_broker):
    """A plausible header is believed unless kafkalog.check.compressed is set."""
    data = with_max_timestamp(batches.batch(ROWS, codec="lz4"), T + 10)
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("believed")
        raw.create("checked", kafkalog_check_compressed="true")
        for topic, found in (("believed", T + 10), ("checked", T + 50)):
            assert raw.produce_batch(topic, data).error_code == 0
            assert stored(broker, topic).max_timestamp == found


def test_headers_with_lost_times():
    def lost(data: bytes) -> int:
        batch = ffi.new("kl_batch *")
        assert lib.kl_batch_parse(data, len(data), batch) == lib.KL_OK
        return lib.kl_batch_time_is_lost(batch)

    assert lost(with_max_timestamp(batches.batch(ROWS, codec="zstd"), -1))
    assert not lost(with_max_timestamp(batches.batch(ROWS, codec="zstd"), T))
    assert not lost(with_max_timestamp(batches.batch(ROWS), -1))  # its records are checked
    assert not lost(batches.batch([Row(b"a", timestamp_ms=-1)], codec="gzip"))
