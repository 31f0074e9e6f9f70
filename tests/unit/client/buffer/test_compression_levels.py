"""compression.gzip.level, compression.lz4.level, compression.zstd.level of a producer."""

from __future__ import annotations

import pytest

from kafkalog import errors
from kafkalog.batch import codecs
from kafkalog.client.buffer.accumulator import HEADER_BYTES
from kafkalog.wire import apis
from tests.support.scripted import Peer
from tests.support.waiting import LIMIT_S
from tests.unit.client.producer.producing import batches, make

VALUES = [b"%d of %d, %d" % (i * i, i, i % 7) for i in range(500)]


def sent_bytes(broker: Peer, codec: str, level: int | None) -> bytes:
    """The body of the only batch, which holds VALUES."""
    config = {} if level is None else {f"compression.{codec}.level": level}
    with make(broker, config, compression=codec, linger_ms=1_000_000) as producer:
        producer.send_many("t", VALUES, timestamps_ms=[1] * len(VALUES), partition=0).hurry()
        producer.flush(LIMIT_S)
    assert batches(broker)[-1].values() == VALUES
    request = broker.sent(apis.PRODUCE)[-1]
    return bytes(request.topic_data[0].partition_data[0].records)[HEADER_BYTES:]


@pytest.mark.parametrize(
    ("codec", "levels"), [("gzip", (-1, 1, 9)), ("lz4", (9, 1, 17)), ("zstd", (3, -50, 19))]
)
def test_a_batch_is_compressed_at_the_given_level(
    broker: Peer, codec: str, levels: tuple[int, ...]
) -> None:
    default = sent_bytes(broker, codec, None)
    plain = bytes(codecs.decompress(codecs.codec_id(codec), default))
    for level in levels:
        found = sent_bytes(broker, codec, level)
        assert found == codecs.compress(codecs.codec_id(codec), plain, level)
        assert (found == default) is (level == levels[0])  # the first is the default


def test_other_codecs_have_no_use_for_it(broker: Peer) -> None:
    with make(broker, {"compression.zstd.level": 19}, compression="snappy") as producer:
        producer.send("t", b"x" * 1_000, partition=0).result(LIMIT_S)
    assert batches(broker)[-1].codec == codecs.codec_id("snappy")


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", 0), ("gzip", 10), ("lz4", 0), ("lz4", 18), ("zstd", 23)]
)
def test_levels_that_a_codec_lacks(broker: Peer, codec: str, level: int) -> None:
    with pytest.raises(errors.InvalidSetting, match=rf"compression\.{codec}\.level: found {level}"):
        make(broker, {f"compression.{codec}.level": level})
