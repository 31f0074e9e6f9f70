"""A data directory's background work, on a clock that only the test advances."""

import errno
import logging
import os
import shutil
from pathlib import Path

import pytest

from kafkalog._native import check, ffi, lib
from kafkalog.clock import ManualClock, SystemClock
from kafkalog.config.declare import FOREVER
from kafkalog.config.topic import TopicConfig, flush_period_ms
from kafkalog.directory.jobs import removals
from kafkalog.directory.jobs.flushes import flush_all, flush_due
from kafkalog.directory.jobs.retention import retain, retains
from kafkalog.directory.jobs.upkeep import expire_producers
from kafkalog.directory.manager import Manager
from kafkalog.disk.checkpoint import (
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    parse_offsets,
)
from kafkalog.disk.directory import Directory
from kafkalog.errors import IoFailed, KafkalogError
from kafkalog.log.log import handle_of
from kafkalog.log.opening import log_config
from kafkalog.log.segments import list_segments
from kafkalog.types import TopicPartition

A0 = TopicPartition("a", 0)
HOUR_MS = 3_600_000


@pytest.fixture
def clock():
    """A clock that starts now: the age of a .deleted file is that of its rename on disk."""
    return ManualClock(SystemClock().now_ms())


@pytest.fixture
def directory(tmp_path, clock):
    """Opens the directory with settings, and closes it at the end of the test."""
    managers = []

    def open_(broker=None, topic=None):
        managers.append(Manager(tmp_path / "data", broker, topic, clock))
        return managers[-1]

    yield open_
    for manager in managers:
        manager.close()


def saved(manager, name):
    try:
        with open(os.path.join(manager.path, name), "rb") as file:
            return parse_offsets(file.read())
    except FileNotFoundError:
        return {}


def fill(log, clock, count: int, value: bytes = b"x" * 100) -> None:
    for _ in range(count):
        log.append(value, timestamp_ms=clock.now_ms())


# ---- decisions --------------------------------------------------------------------------------


def test_only_a_setting_makes_a_topic_lose_records():
    """And only with a policy that deletes."""
    assert not retains(TopicConfig())
    assert retains(TopicConfig.of({"retention.ms": 0}))
    assert retains(TopicConfig.of({"retention.bytes": 0}))
    assert not retains(TopicConfig.of({"retention.ms": 0, "cleanup.policy": "compact"}))


def test_how_long_records_may_stay_in_memory():
    """flush.ms, or the interval of kafkalog.durability=interval if that is shorter."""
    assert flush_period_ms(TopicConfig()) == FOREVER
    assert flush_period_ms(TopicConfig.of({"flush.ms": 7})) == 7
    interval = {"kafkalog.durability": "interval"}
    assert flush_period_ms(TopicConfig.of(interval)) == 1_000
    assert flush_period_ms(TopicConfig.of(interval | {"flush.ms": 7})) == 7
    assert flush_due(100, 50, 150)
    assert not flush_due(100, 50, 149)


def test_the_data_plane_gets_every_setting_that_it_obeys():
    """By its own names; a compacted topic rolls after its longest lag."""
    given = {
        "segment.bytes": 1_001, "segment.ms": 1_002, "segment.jitter.ms": 1_003,
        "message.timestamp.before.max.ms": 1_004,
        "message.timestamp.after.max.ms": 1_005, "flush.messages": 1_006,
        "segment.index.bytes": 1_007, "index.interval.bytes": 1_008, "max.message.bytes": 1_009,
        "message.timestamp.type": "LogAppendTime", "preallocate": True,
    }  # fmt: skip
    native = log_config(TopicConfig.of(given))
    assert [native.segment_bytes, native.segment_ms, native.segment_jitter_ms] == [1001, 1002, 1003]
    assert [native.timestamp_before_max_ms, native.timestamp_after_max_ms] == [1004, 1005]
    assert [native.flush_messages, native.segment_index_bytes] == [1006, 1007]
    assert [native.index_interval_bytes, native.max_message_bytes] == [1008, 1009]
    assert [native.log_append_time, native.preallocate, native.compacted] == [1, 1, 0]
    compacted = {"cleanup.policy": "compact", "max.compaction.lag.ms": 50}
    native = log_config(TopicConfig.of(compacted))
    assert [native.compacted, native.segment_ms] == [1, 50]
    assert native.timestamp_after_max_ms == FOREVER


# ---- checkpoints ------------------------------------------------------------------------------


def test_checkpoints_are_written_at_their_times(directory, clock, wait_until):
    """The high watermark every 5 s, recovery point and log start every 60 s."""
    manager = directory()
    log = manager.create_partition("a")
    fill(log, clock, 3)
    log.flush()
    clock.advance(5_000)
    wait_until(lambda: saved(manager, HIGH_WATERMARK).get(A0) == 3, "the high watermark")
    assert saved(manager, RECOVERY_POINT)[A0] == 0
    fill(log, clock, 1)
    clock.advance(55_000)
    wait_until(lambda: saved(manager, RECOVERY_POINT).get(A0) == 3, "the recovery point")
    wait_until(lambda: saved(manager, HIGH_WATERMARK).get(A0) == 4, "the high watermark")
    assert A0 not in saved(manager, LOG_START)


def test_a_failing_job_is_named_and_tried_again(directory, clock, wait_until, caplog):
    """Here a folder has the name of a checkpoint's temporary file."""
    manager = directory()
    fill(manager.create_partition("a"), clock, 1)
    block = os.path.join(manager.path, f"{HIGH_WATERMARK}.tmp")
    os.mkdir(block)
    with caplog.at_level(logging.ERROR):
        clock.advance(5_000)
        wait_until(lambda: manager.problems, "the failure")
    assert manager.problems[0].startswith("high watermarks: ")
    assert "job high watermarks failed" in caplog.text
    os.rmdir(block)
    clock.advance(5_000)
    wait_until(lambda: not manager.problems, "the success")
    assert saved(manager, HIGH_WATERMARK) == {A0: 1}


# ---- flushes ----------------------------------------------------------------------------------


def test_nothing_is_flushed_unless_a_setting_says_so(directory, clock):
    """As in Kafka: the operating system decides when to write."""
    manager = directory()
    log = manager.create_partition("a")
    fill(log, clock, 3)
    clock.advance(HOUR_MS)
    manager.upkeep.flushes.run()
    assert log.flushed_offset < log.end_offset


@pytest.mark.parametrize("settings", [{"flush.ms": 1_000}, {"kafkalog.durability": "interval"}])
def test_records_are_flushed_when_they_have_been_in_memory_for_too_long(
    directory, clock, wait_until, settings
):
    """With flush.ms and with the interval; repeatedly."""
    manager = directory(topic=settings)
    log = manager.create_partition("a")
    for end in (3, 6, 9):
        fill(log, clock, 3)
        clock.advance(1_000)
        # One check may come too early, counted from the last flush.
        clock.advance(1_000)
        wait_until(lambda end=end: log.flushed_offset == end, "the flush")


def test_many_logs_are_flushed_together(directory, clock):
    """Each is on disk afterwards; a closed one is skipped."""
    manager = directory()
    manager.create_topic("a", 8)
    logs = manager.recover_all()
    for log in logs:
        fill(log, clock, 2)
    logs[3].close()
    assert flush_all([handle_of(log) for log in logs]) == []
    assert [log.flushed_offset for log in manager.handles()] == [2] * 7


def test_a_log_that_closes_while_others_are_looked_at_keeps_no_flush_from_them(tmp_path, clock):
    """It was still open when the list of logs was made."""

    class Closing(Manager):
        def handles(self):
            found = super().handles()
            if closes and found:
                self.get(*closes.pop()).close()
            return found

    closes = []
    with Closing(tmp_path / "data", None, {"flush.ms": 1_000}, clock) as manager:
        manager.create_topic("a", 3)
        logs = manager.recover_all()
        for log in logs:
            manager.upkeep.flushes.opened(handle_of(log))
            fill(log, clock, 2)
        manager._scheduler.stop()
        closes.append(A0)
        clock.advance(5_000)
        manager.upkeep.flushes.run()
        assert [log.flushed_offset for log in manager.handles()] == [2, 2]


# ---- retention --------------------------------------------------------------------------------


def test_old_segments_go_by_themselves(directory, clock, wait_until):
    """In open logs and in logs not opened yet; the files are removed a minute later."""
    settings = {"retention.ms": HOUR_MS, "segment.bytes": 1_000}
    manager = directory(topic=settings)
    manager.create_topic("a", 2)
    for log in manager.recover_all():
        fill(log, clock, 30)
    manager.close()
    manager = directory(topic=settings)
    clock.advance(HOUR_MS // 2)
    assert manager.get("a").start_offset == 0
    clock.advance(HOUR_MS)
    wait_until(lambda: len(manager.handles()) == 2, "the opening of the other log")
    for log in manager.handles():
        wait_until(lambda log=log: log.start_offset == 30, "the deletion")
        assert log.end_offset == 30
        assert len(list_segments(log)) == 1
    folder = os.path.join(manager.path, "a-0")
    clock.advance(60_000)
    clock.advance(60_000)
    wait_until(
        lambda: not any(name.endswith(".deleted") for name in os.listdir(folder)), "the removal"
    )


def test_a_deletion_that_did_not_reach_the_disk_is_not_done(directory, monkeypatch):
    """Whoever deletes the partition again, though it is gone, learns whether the disk knows."""
    manager = directory()
    manager.create_partition("a")
    sync, fail = Directory.sync, [True]

    def fails_once(self, files=()):
        if fail.pop() if fail else False:
            raise IoFailed("the folder: fsync failed")
        sync(self, files)

    monkeypatch.setattr(Directory, "sync", fails_once)
    with pytest.raises(IoFailed):
        manager.delete_partitions([A0])
    fail.append(True)
    with pytest.raises(IoFailed):
        manager.delete_partitions([A0])
    manager.delete_partitions([A0])
    assert not manager.has(A0)


def test_a_purge_lists_nothing_while_no_name_changes(directory, tmp_path):
    """Ten thousand logs are asked every second where files go at once."""
    log = directory().create_partition("a")
    folder = tmp_path / "data" / "a-0"
    gone = folder / "00000000000000000000.log.deleted"

    def purged():
        files, left = ffi.new("size_t *"), ffi.new("size_t *")
        check(lib.kl_log_purge(log._c, FOREVER, files, left))
        return files[0]

    def set_time(seconds):
        os.utime(folder, (seconds, seconds))

    set_time(1_000)
    assert purged() == 0  # now it knows that there is none
    gone.write_bytes(b"")
    set_time(1_000)
    assert purged() == 0  # not listed
    set_time(1_001)
    assert purged() == 1
    assert not gone.exists()
    gone.write_bytes(b"")  # a name of this moment always counts
    assert purged() == 1


def test_logs_are_asked_for_deleted_files_only_while_there_may_be_some(
    directory, clock, monkeypatch
):
    """Each second; a node of ten thousand partitions would ask all of them."""
    manager = directory(topic={"segment.bytes": 1_000, "file.delete.delay.ms": 60_000})
    asked: list[TopicPartition] = []
    purge = removals.purge

    def counted(log, before_ms):
        asked.append(log.tp)
        return purge(log, before_ms)

    monkeypatch.setattr(removals, "purge", counted)

    def checked():
        asked.clear()
        manager.upkeep.removals.run()
        return len(asked)

    logs = [manager.create_partition(name) for name in "abc"]
    fill(logs[1], clock, 30)
    assert checked() == 3  # an earlier process may have left some
    assert checked() == 0
    logs[1].delete_before(20)
    gone = [name for name in os.listdir(logs[1].path) if name.endswith(".deleted")]
    assert gone
    assert [checked(), checked()] == [3, 3]  # they stay for a minute
    clock.set_now_ms(clock.now_ms() + 120_000)
    assert checked() == 3
    assert not {*gone} & {*os.listdir(logs[1].path)}
    assert checked() == 0
    manager.create_partition("d")
    assert [checked(), checked()] == [4, 0]


def test_a_record_of_the_future_keeps_its_segment_and_is_told_of_once(directory, clock, caplog):
    """As in Apache Kafka; a clock that is slightly wrong does not matter."""
    manager = directory(topic={"retention.ms": HOUR_MS, "segment.bytes": 1_000})
    log = manager.create_partition("a")
    fill(log, clock, 10)
    late, year_ms = log.end_offset, clock.now_ms() + 365 * 24 * HOUR_MS
    log.append(b"late", timestamp_ms=year_ms)
    fill(log, clock, 30)
    slow = manager.create_partition("b")
    slow.append(b"x", timestamp_ms=clock.now_ms() + 3 * HOUR_MS)
    clock.set_now_ms(clock.now_ms() + 2 * HOUR_MS)
    with caplog.at_level(logging.WARNING):
        retain(manager)
        retain(manager)
    assert 0 < log.start_offset <= late
    [told] = [record.getMessage() for record in caplog.records]
    [kept] = [one for one in log.segments if one.base_offset <= late < one.next_offset]
    assert f"a-0: segment {kept.base_offset} has a record with the timestamp {year_ms} ms" in told
    assert f"below {kept.next_offset};" in told
    log.delete_before(kept.next_offset)
    retain(manager)
    assert log.start_offset == log.end_offset


def test_nothing_is_deleted_without_a_setting(directory, clock):
    """Not after a hundred years."""
    manager = directory(topic={"segment.bytes": 1_000})
    log = manager.create_partition("a")
    fill(log, clock, 30)
    clock.set_now_ms(clock.now_ms() + 100 * 365 * 24 * HOUR_MS)
    retain(manager)
    assert (log.start_offset, len(log.segments) > 1) == (0, True)


def test_retention_by_size_keeps_the_newest_segments(directory, clock):
    """The oldest are deleted until the rest exceeds the limit by less than one segment."""
    manager = directory(topic={"segment.bytes": 1_000, "retention.bytes": 2_500})
    log = manager.create_partition("a")
    fill(log, clock, 60)
    retain(manager)
    assert log.start_offset > 0
    assert log.size_bytes >= 2_500 > log.size_bytes - log.segments[0].size_bytes


def test_a_damaged_log_does_not_keep_retention_from_the_others(directory, clock, caplog):
    """It is named; the others are handled."""
    settings = {"retention.ms": 0, "segment.bytes": 1_000}
    manager = directory(topic=settings)
    manager.create_topic("a", 2)
    fill(manager.get("a", 1), clock, 30)
    # A folder has the name of the first one's segment.
    os.mkdir(os.path.join(manager.path, "a-0", f"{0:020}.log"))
    clock.advance(1_000)
    with caplog.at_level(logging.ERROR), pytest.raises(Exception, match="0000"):
        retain(manager)
    assert manager.get("a", 1).start_offset == 30
    os.rmdir(os.path.join(manager.path, "a-0", f"{0:020}.log"))


# ---- producers --------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_removed_does_not_keep_the_others(directory, clock, wait_until):
    manager = directory(topic={"file.delete.delay.ms": 1_000})
    for topic in ("a", "b", "c"):
        manager.create_topic(topic)
        manager.get(topic).append(b"v")
    path = Path(manager.path)
    for topic in ("a", "b", "c"):
        manager.delete_partition(topic)
    leaving = {name[:1]: path / name for name in os.listdir(path) if name.endswith("-delete")}
    shutil.rmtree(leaving["a"])
    leaving["a"].write_bytes(b"no folder")  # removing it as a folder fails, even for root
    clock.advance(60_000)
    wait_until(
        lambda: [name for name in leaving if leaving[name].exists()] == ["a"], "the others go"
    )
    wait_until(lambda: any("removal" in one for one in manager.problems), "it is named")
    leaving["a"].unlink()
    clock.advance(60_000)  # retried, and then forgotten
    wait_until(lambda: not manager.problems, "all is well")
    assert not manager.upkeep.removals.leaving


def test_a_partition_that_cannot_be_taken_out_does_not_keep_the_others(directory, native_test):
    manager, hooks = directory(), native_test[1]
    for topic in ("a", "b", "c"):
        manager.create_topic(topic)
    hooks.kl_io_fail(b"renameat", 2, errno.ENOSPC, 0, 0)
    try:
        with pytest.raises(KafkalogError, match="b-0"):
            manager.delete_partitions([TopicPartition(topic, 0) for topic in ("a", "b", "c")])
    finally:
        hooks.kl_io_reset()
    assert {"a-0", "b-0", "c-0"} & set(os.listdir(manager.path)) == {"b-0"}


def test_a_partition_without_its_folder_is_removed(directory):
    manager = directory()
    for topic in ("a", "b", "c"):
        manager.create_topic(topic)
    shutil.rmtree(Path(manager.path) / "b-0")
    manager.delete_partitions([TopicPartition(topic, 0) for topic in ("a", "b", "c")])
    assert not {"a-0", "b-0", "c-0"} & set(os.listdir(manager.path))


def test_silent_producers_are_forgotten(directory, clock, wait_until):
    """After producer.id.expiration.ms, checked every ten minutes."""
    manager = directory({"producer.id.expiration.ms": HOUR_MS})
    log = manager.create_partition("a")
    log.append_marker(7, 0, commit=True, timestamp_ms=clock.now_ms())
    assert [p.producer_id for p in log.producers] == [7]
    clock.advance(HOUR_MS // 2)
    expire_producers(manager)
    assert [p.producer_id for p in log.producers] == [7]
    clock.advance(HOUR_MS)
    wait_until(lambda: log.producers == (), "the expiry")
