"""Every topic setting takes effect while the broker runs, as seen over the wire.

IncrementalAlterConfigs changes a setting of a topic in use, and a test compares what it affects
before and after.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.clock import ManualClock
from kafkalog.config.topic import TopicConfig
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches
from tests.support.forms import linux_form_only
from tests.support.raw import Raw
from tests.support.waiting import LIMIT_S
from tests.unit.server.conftest import MakeBroker

TOPIC = 2
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
DEADLINE_S = LIMIT_S
NOW_MS = 1_700_000_000_000
"""The time at which a ManualClock begins."""


def until(what: str, holds: Callable[[], bool], again: Callable[[], object] = bool) -> None:
    """Poll until it holds; `again` runs between two polls."""
    deadline_s = time.monotonic() + DEADLINE_S
    waiting = threading.Event()
    while not holds():
        assert time.monotonic() < deadline_s, f"not in {DEADLINE_S} s: {what}"
        again()
        waiting.wait(0.01)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def timed(make_broker: MakeBroker, clock: ManualClock) -> Iterator[tuple[Broker, Raw]]:
    """A broker on a manual clock whose background jobs all run once a second."""
    broker = make_broker(
        clock,
        log_retention_check_interval_ms=1000,
        log_cleaner_backoff_ms=1000,
        log_flush_scheduler_interval_ms=1000,
    )
    with Raw(broker.bootstrap_servers) as raw:
        yield broker, raw


def set_(raw: Raw, **config: str | None) -> None:
    """Change settings of topic `t`."""
    found = raw.alter(TOPIC, "t", **config)
    assert found.error_code == 0, found.error_message


def headers(raw: Raw) -> list[batches.Header]:
    """All batch headers of topic `t`."""
    found: list[batches.Header] = []
    offset, end = raw.offsets("t", -2).offset, raw.offsets("t", -1).offset
    while offset < end:
        found += batches.headers(raw.fetch("t", offset).records)
        offset = found[-1].last_offset + 1
    return found


def codec_of(raw: Raw) -> str:
    """The codec of the last batch of topic `t`."""
    number = headers(raw)[-1].attributes & 7
    return next(name for name, value in batches.CODECS.items() if value == number)


def files(broker: Broker, suffix: str) -> list[Path]:
    """The files of partition 0 of topic `t`."""
    return sorted(Path(broker.path, "t-0").glob(f"*{suffix}"))


def log_of(broker: Broker) -> Any:
    """The open log of partition 0, for what the protocol does not show."""
    return broker._node.partitions.log("t", 0)


COVERED: set[str] = set()


def covers(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a test as the one that shows the effect of these settings."""
    COVERED.update(names)
    return lambda test: test


# ---- appends -----------------------------------------------------------------------------------


@covers("max.message.bytes")
def test_larger_batches_are_refused(raw: Raw) -> None:
    raw.create("t")
    assert raw.produce("t", b"x" * 5000).error_code == 0
    set_(raw, max_message_bytes="4000")
    assert raw.produce("t", b"x" * 5000).error_code == ErrorCode.MESSAGE_TOO_LARGE
    # The size of the stored batch counts.
    assert raw.produce("t", b"x" * 5000, codec="zstd").error_code == 0
    set_(raw, max_message_bytes=None)
    assert raw.produce("t", b"x" * 5000).error_code == 0


@covers("compression.type")
@pytest.mark.parametrize("sent", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_stored_in_the_topics_codec(raw: Raw, sent: str) -> None:
    raw.create("t")
    value = b"x" * 1000
    assert raw.produce("t", value, codec=sent).error_code == 0
    assert codec_of(raw) == sent
    for wanted in ("gzip", "snappy", "lz4", "zstd", "uncompressed"):
        set_(raw, compression_type=wanted)
        assert raw.produce("t", value, codec=sent).error_code == 0
        assert codec_of(raw) == wanted.replace("uncompressed", "none")
    set_(raw, compression_type="producer")
    assert raw.produce("t", value, codec=sent).error_code == 0
    assert codec_of(raw) == sent


@covers("compression.gzip.level", "compression.lz4.level", "compression.zstd.level")
@pytest.mark.parametrize(
    ("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 17), ("zstd", 1, 19)]
)
def test_a_higher_level_makes_smaller_batches(raw: Raw, codec: str, low: int, high: int) -> None:
    lines = (f'{{"id":{n},"name":"user{n % 37}","square":{n * n}}}' for n in range(5000))
    value = "\n".join(lines).encode()
    raw.create("t", compression_type=codec)
    sizes = []
    for level in (low, high):
        set_(raw, **{f"compression_{codec}_level": str(level)})
        assert raw.produce("t", value).error_code == 0
        sizes.append(headers(raw)[-1].batch_bytes)
    assert sizes[1] < sizes[0]


@covers("message.timestamp.type")
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_records_get_the_time_of_the_append(raw: Raw, codec: str) -> None:
    raw.create("t")
    first = raw.produce("t", b"v", timestamp_ms=1000, codec=codec)
    set_(raw, message_timestamp_type="LogAppendTime")
    second = raw.produce("t", b"v", timestamp_ms=1000, codec=codec)
    assert first.log_append_time_ms == -1
    assert second.log_append_time_ms > 1_000_000_000_000
    by_producer, by_log = headers(raw)
    assert (by_producer.attributes & 8, by_log.attributes & 8) == (0, 8)
    assert raw.offsets("t", second.log_append_time_ms).offset == 1


@covers("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize(
    ("setting", "refused", "taken"),
    [("before", -DAY_MS, DAY_MS), ("after", DAY_MS, -DAY_MS)],
)
def test_times_too_far_from_now_are_refused(
    raw: Raw, codec: str, setting: str, refused: int, taken: int
) -> None:
    raw.create("t")
    now_ms = int(time.time() * 1000)
    set_(raw, message_timestamp_after_max_ms=str(2 * DAY_MS))
    assert raw.produce("t", b"v", timestamp_ms=now_ms + refused, codec=codec).error_code == 0
    set_(raw, **{f"message_timestamp_{setting}_max_ms": "3600000"})
    found = raw.produce("t", b"v", timestamp_ms=now_ms + refused, codec=codec)
    assert found.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in found.record_errors] == [0]
    assert raw.produce("t", b"v", timestamp_ms=now_ms + taken, codec=codec).error_code == 0


@covers("message.timestamp.after.max.ms")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_time_more_than_an_hour_ahead_is_refused_unless_a_setting_says_otherwise(
    raw: Raw, codec: str
) -> None:
    """Kafka 4's default; the producer learns which records are to blame."""
    raw.create("t")
    now_ms = int(time.time() * 1000)
    ahead = [0, HOUR_MS - MINUTE_MS, HOUR_MS + MINUTE_MS, 0, DAY_MS]
    rows = [batches.Row(b"v", timestamp_ms=now_ms + ms) for ms in ahead]
    found = raw.produce_batch("t", batches.batch(rows, codec=codec))
    assert found.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in found.record_errors] == [2, 4]
    assert raw.produce_batch("t", batches.batch(rows[:2], codec=codec)).error_code == 0
    set_(raw, message_timestamp_after_max_ms=str(2 * DAY_MS))
    assert raw.produce_batch("t", batches.batch(rows, codec=codec)).error_code == 0
    set_(raw, message_timestamp_after_max_ms=None, message_timestamp_type="LogAppendTime")
    assert raw.produce_batch("t", batches.batch(rows, codec=codec)).error_code == 0


def test_a_header_with_a_later_time_is_corrected(raw: Raw) -> None:
    """Only the records' own times count, as in Kafka."""
    raw.create("t")
    now_ms = int(time.time() * 1000)
    after_crc = bytearray(batches.batch([batches.Row(b"v", timestamp_ms=now_ms)], codec="lz4")[21:])
    after_crc[14:22] = (now_ms + DAY_MS).to_bytes(8, "big")  # the largest timestamp
    assert raw.produce_batch("t", batches.seal(bytes(after_crc))).error_code == 0
    assert headers(raw)[0].max_timestamp == now_ms


def test_the_default_of_a_broker_is_shown_as_a_default(raw: Raw) -> None:
    raw.create("t")
    one = raw.describe(2, "t")["message.timestamp.after.max.ms"]
    assert (one.value, one.config_source) == (str(HOUR_MS), 5)
    assert raw.describe(4, "1")["log.message.timestamp.after.max.ms"].value == str(HOUR_MS)


@covers("kafkalog.check.compressed")
def test_compressed_records_are_looked_at_when_asked(raw: Raw) -> None:
    """test_lost_times.py has the checks that are always made."""
    raw.create("t")
    rows = [batches.Row(b"a", timestamp_ms=NOW_MS), batches.Row(b"b", timestamp_ms=NOW_MS)]
    after_crc = bytearray(batches.batch(rows, codec="lz4")[21:])
    after_crc[2:6] = after_crc[36:40] = b"\0\0\0\2"  # last offset delta and record count
    after_crc[39] = 3
    wrong = batches.seal(bytes(after_crc))
    assert raw.produce_batch("t", wrong).error_code == 0
    set_(raw, kafkalog_check_compressed="true")
    assert raw.produce_batch("t", wrong).error_code == ErrorCode.INVALID_RECORD


@covers("kafkalog.max.decompressed.bytes")
def test_a_batch_that_grows_too_large_is_refused(raw: Raw) -> None:
    raw.create("t", compression_type="zstd")
    assert raw.produce("t", b"\0" * 500_000, codec="gzip").error_code == 0
    set_(raw, kafkalog_max_decompressed_bytes="100000")
    found = raw.produce("t", b"\0" * 500_000, codec="gzip")
    assert found.error_code == ErrorCode.MESSAGE_TOO_LARGE


@covers("max.decompressed.message.bytes")
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_record_that_grows_too_large_is_refused(raw: Raw, codec: str) -> None:
    """The size of a record inside its batch counts, without its length field: here 7 bytes and the
    value.  A batch that came uncompressed is not checked, as in Kafka."""
    raw.create("t", max_decompressed_message_bytes="100")

    def send(value_bytes: int, codec: str) -> int:
        rows = [batches.Row(b"v"), batches.Row(b"v" * value_bytes), batches.Row(b"v" * 40)]
        return int(raw.produce_batch("t", batches.batch(rows, codec=codec)).error_code)

    assert send(93, codec) == 0
    assert send(94, codec) == ErrorCode.INVALID_RECORD
    assert send(94, "none") == 0
    set_(raw, compression_type="zstd" if codec == "gzip" else "gzip")
    assert send(93, codec) == 0
    assert send(94, codec) == ErrorCode.INVALID_RECORD
    assert send(94, "none") == 0


@covers("min.insync.replicas")
def test_more_replicas_in_sync_than_there_are_is_no_hindrance(raw: Raw) -> None:
    """The effective number never exceeds the topic's replicas, so that one node can serve."""
    raw.create("t")
    set_(raw, min_insync_replicas="3")
    assert raw.produce("t", b"v").error_code == 0


# ---- cleanup -----------------------------------------------------------------------------------


@covers("cleanup.policy")
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_compacted_topic_wants_keys_and_keeps_its_records(raw: Raw, codec: str) -> None:
    raw.create("t")
    assert raw.produce("t", b"v", key=None, codec=codec).error_code == 0
    set_(raw, cleanup_policy="compact")
    rows = [batches.Row(b"a", b"k"), batches.Row(b"b", None), batches.Row(b"c", None)]
    found = raw.produce_batch("t", batches.batch(rows, codec=codec))
    assert found.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in found.record_errors] == [1, 2]
    assert raw.produce("t", b"v", key=b"k", codec=codec).error_code == 0
    part = {"partition_index": 0, "offset": 1}
    asked = {"topics": [{"name": "t", "partitions": [part]}], "timeout_ms": 1000}
    gone = raw.call(apis.DELETE_RECORDS, **asked).topics[0].partitions[0]
    assert gone.error_code == ErrorCode.POLICY_VIOLATION


def count_of(raw: Raw) -> int:
    """The number of records left in topic `t`."""
    return sum(header.record_count for header in headers(raw))


def filled(raw: Raw, *keys: bytes, values: bytes | None = b"v") -> None:
    for key in keys:
        raw.produce("t", values, key=key, timestamp_ms=NOW_MS)


@covers("min.cleanable.dirty.ratio", "min.compaction.lag.ms")
def test_compaction_waits_for_the_share_and_the_age(
    timed: tuple[Broker, Raw], clock: ManualClock
) -> None:
    _, raw = timed
    raw.create("t", cleanup_policy="compact", min_compaction_lag_ms="3600000")
    filled(raw, *[b"k"] * 20)
    set_(raw, segment_ms="1")
    raw.produce("t", b"last", key=b"z", timestamp_ms=NOW_MS + 1000)  # closes the segment before it
    for _ in range(3):
        clock.advance(1000)
    assert count_of(raw) == 21
    set_(raw, min_compaction_lag_ms="0", min_cleanable_dirty_ratio="0.0")
    until("compacted", lambda: count_of(raw) == 2, lambda: clock.advance(1000))


@covers("max.compaction.lag.ms")
def test_a_compacted_topics_segment_does_not_stay_open_longer_than_the_lag(
    timed: tuple[Broker, Raw], clock: ManualClock
) -> None:
    broker, raw = timed
    raw.create("t", cleanup_policy="compact", min_cleanable_dirty_ratio="1.0")
    filled(raw, b"k", b"k")
    raw.produce("t", b"v", key=b"k", timestamp_ms=NOW_MS + 10_000)
    assert len(files(broker, ".log")) == 1
    set_(raw, max_compaction_lag_ms="5000")
    raw.produce("t", b"v", key=b"z", timestamp_ms=NOW_MS + 20_000)
    assert len(files(broker, ".log")) == 2
    # The ratio forbids it, the age demands it.
    clock.advance(30_000)
    until("compacted", lambda: count_of(raw) == 2, lambda: clock.advance(1000))


@covers("delete.retention.ms")
def test_tombstones_stay_as_long_as_the_setting_says(
    timed: tuple[Broker, Raw], clock: ManualClock
) -> None:
    _, raw = timed
    raw.create("t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.0", segment_ms="1000")

    def left() -> list[int]:
        """The offsets of batches that still hold a record."""
        return [header.base_offset for header in headers(raw) if header.record_count]

    def more() -> None:
        clock.advance(5000)  # a second after the last one, which closes its segment
        raw.produce("t", b"v", key=b"z", timestamp_ms=clock.now_ms())

    filled(raw, b"k")
    tombstone = raw.offsets("t", -1).offset
    filled(raw, b"k", values=None)
    until("the first is compacted", lambda: 0 not in left(), more)
    assert tombstone in left()
    set_(raw, delete_retention_ms="0")
    first = raw.offsets("t", -1).offset
    raw.produce("t", b"v", key=b"m", timestamp_ms=clock.now_ms())
    raw.produce("t", None, key=b"m", timestamp_ms=clock.now_ms())
    until("the second tombstone is gone", lambda: first + 1 not in left(), more)
    assert tombstone in left()  # it must be kept for a day


@covers("retention.ms")
def test_old_records_go(timed: tuple[Broker, Raw], clock: ManualClock) -> None:
    _, raw = timed
    raw.create("t")
    raw.produce("t", b"old", timestamp_ms=NOW_MS - DAY_MS)
    for _ in range(3):
        clock.advance(1000)
    assert raw.offsets("t", -2).offset == 0
    set_(raw, retention_ms="3600000")
    until("gone", lambda: raw.offsets("t", -2).offset == 1, lambda: clock.advance(1000))


@covers("retention.bytes")
def test_large_topics_are_cut(timed: tuple[Broker, Raw], clock: ManualClock) -> None:
    _, raw = timed
    raw.create("t", internal_segment_bytes="2000")
    for _ in range(5):
        raw.produce("t", b"x" * 1500, timestamp_ms=NOW_MS)
    set_(raw, retention_bytes="3000")
    until("cut", lambda: raw.offsets("t", -2).offset == 3, lambda: clock.advance(1000))


@covers("file.delete.delay.ms")
def test_deleted_files_stay_for_a_while(timed: tuple[Broker, Raw], clock: ManualClock) -> None:
    broker, raw = timed
    raw.create("t", internal_segment_bytes="2000", file_delete_delay_ms="0")

    def cut(offset: int) -> None:
        part = {"partition_index": 0, "offset": offset}
        asked = {"topics": [{"name": "t", "partitions": [part]}], "timeout_ms": 1000}
        assert raw.call(apis.DELETE_RECORDS, **asked).topics[0].partitions[0].error_code == 0

    for _ in range(4):
        raw.produce("t", b"x" * 1500)
    cut(1)
    assert files(broker, ".deleted") == []
    set_(raw, file_delete_delay_ms="60000")
    cut(2)
    assert files(broker, ".log.deleted") != []


# ---- segments and their files --------------------------------------------------------------------


@covers("segment.bytes")
def test_segments_end_at_their_size(broker: Broker, raw: Raw) -> None:
    raw.create("t")
    for _ in range(3):
        raw.produce("t", b"x" * 1500)
    assert len(files(broker, ".log")) == 1
    set_(raw, internal_segment_bytes="2000")
    for _ in range(3):
        raw.produce("t", b"x" * 1500)
    assert len(files(broker, ".log")) == 4
    too_large = raw.produce("t", b"x" * 5000)
    assert too_large.error_code == ErrorCode.RECORD_LIST_TOO_LARGE


@covers("segment.ms", "segment.jitter.ms")
def test_segments_end_at_their_age(broker: Broker, raw: Raw) -> None:
    raw.create("t")
    raw.produce("t", b"v", timestamp_ms=NOW_MS)
    raw.produce("t", b"v", timestamp_ms=NOW_MS + 10_000)
    assert len(files(broker, ".log")) == 1
    set_(raw, segment_ms="15000")
    raw.produce("t", b"v", timestamp_ms=NOW_MS + 14_000)
    assert len(files(broker, ".log")) == 1
    raw.produce("t", b"v", timestamp_ms=NOW_MS + 16_000)
    assert len(files(broker, ".log")) == 2
    # With a jitter of almost the whole age, a segment may end at any earlier time.
    set_(raw, segment_ms="1000000", segment_jitter_ms="999999")
    for step in range(300):
        raw.produce("t", b"v", timestamp_ms=NOW_MS + 20_000 + step * 100_000, acks=1)
    assert len(files(broker, ".log")) > 2 + 30 + 3  # about 54; without jitter 30


@covers("index.interval.bytes")
def test_the_index_is_as_dense_as_the_setting_says(broker: Broker, raw: Raw) -> None:
    raw.create("t")

    def entries() -> int:
        return sum(segment.offset_index_entries for segment in log_of(broker).segments)

    for _ in range(10):
        raw.produce("t", b"x" * 500)
    sparse = entries()
    set_(raw, index_interval_bytes="100")
    for _ in range(10):
        raw.produce("t", b"x" * 500)
    assert sparse <= 2 and entries() >= sparse + 9


@covers("segment.index.bytes")
def test_a_full_index_ends_its_segment(broker: Broker, raw: Raw) -> None:
    raw.create("t", index_interval_bytes="0")
    for _ in range(5):
        raw.produce("t", b"v")
    assert len(files(broker, ".log")) == 1
    set_(raw, segment_index_bytes="24")
    for step in range(10):
        raw.produce("t", b"v", timestamp_ms=step)
    assert len(files(broker, ".log")) > 2


@linux_form_only("no space is reserved beyond a file's end")
@covers("preallocate")
def test_a_segment_reserves_its_space(broker: Broker, raw: Raw) -> None:
    raw.create("t", segment_bytes="4000000")
    raw.produce("t", b"v")
    before = files(broker, ".log")[0].stat().st_blocks * 512
    set_(raw, preallocate="true", segment_ms="1")
    raw.produce("t", b"v", timestamp_ms=NOW_MS)
    after = files(broker, ".log")[-1].stat().st_blocks * 512
    assert before < 3_000_000 < after


# ---- durability ----------------------------------------------------------------------------------


@covers("kafkalog.durability")
def test_acks_all_means_on_disk_where_the_setting_says_so(broker: Broker, raw: Raw) -> None:
    raw.create("t", kafkalog_durability="os")
    raw.produce("t", b"v")
    assert log_of(broker).flushed_offset == 0
    set_(raw, kafkalog_durability="fsync")
    raw.produce("t", b"v")
    assert log_of(broker).flushed_offset == 2
    raw.produce("t", b"v", acks=1)
    assert log_of(broker).flushed_offset == 2


@covers("kafkalog.durability.interval.ms", "flush.ms")
@pytest.mark.parametrize("setting", ["flush_ms", "kafkalog_durability_interval_ms"])
def test_appended_records_are_on_disk_in_time(
    timed: tuple[Broker, Raw], clock: ManualClock, setting: str
) -> None:
    broker, raw = timed
    raw.create("t", kafkalog_durability="interval", kafkalog_durability_interval_ms=str(DAY_MS))
    raw.produce("t", b"v", timestamp_ms=NOW_MS)  # which retention keeps
    for _ in range(3):
        clock.advance(1000)
    assert log_of(broker).flushed_offset == 0
    set_(raw, **{setting: "5000"})
    until("flushed", lambda: log_of(broker).flushed_offset == 1, lambda: clock.advance(1000))


@covers("flush.messages")
def test_every_so_many_records_are_on_disk(broker: Broker, raw: Raw) -> None:
    raw.create("t", kafkalog_durability="os")
    raw.produce("t", b"a")
    assert log_of(broker).flushed_offset == 0
    set_(raw, flush_messages="3")
    raw.produce("t", b"b", b"c", b"d")
    until("flushed", lambda: log_of(broker).flushed_offset == 4)


# ---- settings without effect on one node -------------------------------------------------

KEPT = {
    "follower.replication.throttled.replicas": "0:1",
    "leader.replication.throttled.replicas": "*",
    "unclean.leader.election.enable": "true",
    "remote.storage.enable": "false",
    "remote.log.copy.disable": "true",
    "remote.log.delete.on.disable": "true",
    "local.retention.ms": "1000",
    "local.retention.bytes": "1000",
    "remote.copy.lag.ms": "1000",
    "remote.copy.lag.bytes": "1000",
    "errors.deadletterqueue.group.enable": "true",
}


@covers(*KEPT)
def test_settings_that_one_node_has_no_use_for_are_kept_and_shown(raw: Raw) -> None:
    raw.create("t")
    set_(raw, **{name.replace(".", "_"): value for name, value in KEPT.items()})
    resource = {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": list(KEPT)}
    found = raw.call(apis.DESCRIBE_CONFIGS, resources=[resource]).results[0].configs
    assert {config.name: config.value for config in found} == KEPT
    assert raw.produce("t", b"v").error_code == 0


def test_every_setting_of_a_topic_has_such_a_test() -> None:
    assert set(TopicConfig.table) == COVERED


@pytest.mark.parametrize(
    ("name", "value"),
    [("no.such.setting", "1"), ("segment.bytes", "many"), ("retention.ms", "-2"),
     ("cleanup.policy", "erase"), ("compression.type", "brotli")],
)  # fmt: skip
def test_invalid_settings_are_refused_and_change_nothing(raw: Raw, name: str, value: str) -> None:
    raw.create("t")
    found = raw.alter(TOPIC, "t", **{name: value})
    assert found.error_code == ErrorCode.INVALID_CONFIG
    assert name in found.error_message
    assert raw.produce("t", b"v").error_code == 0
