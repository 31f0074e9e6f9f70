"""Many partitions are created, closed and deleted at once, with few syncs."""

from __future__ import annotations

import errno
import os

import pytest

from kafkalog.directory.manager import Manager
from kafkalog.disk.checkpoint import CLEAN_MARKER
from kafkalog.disk.layout import PARTITION_METADATA
from kafkalog.errors import IoFailed
from kafkalog.types import TopicPartition
from tests.support.batches import Row, batch

COUNT = 40


@pytest.fixture
def syncs(native_test):
    """Returns the number of syncs since its last call."""
    lib, last = native_test[1], [0]

    def count() -> int:
        now = sum(lib.kl_io_calls(name) for name in (b"fsync", b"fdatasync", b"syncfs"))
        since, last[0] = now - last[0], now
        return since

    count()
    return count


def write_all(manager: Manager, topic: str) -> None:
    for number in range(COUNT):
        manager.get(topic, number).append_batches(batch([Row(b"%d" % number)]))


def test_the_waits_for_the_disk_are_as_many_for_one_partition_as_for_forty(tmp_path, syncs):
    """True when they are created, closed and deleted."""
    manager = Manager(tmp_path / "data", {"log.initial.task.delay.ms": 3_600_000})
    syncs()
    manager.create_topic("one")
    few = syncs()
    manager.create_topic("many", COUNT)
    assert syncs() == few
    manager.create_topic("gone", COUNT)
    write_all(manager, "many")
    write_all(manager, "gone")
    syncs()
    manager.delete_partition("one")
    few = syncs()
    manager.delete_partitions([TopicPartition("gone", number) for number in range(COUNT)])
    assert syncs() == few
    manager.close()
    assert syncs() < COUNT / 2


def test_logs_closed_together_are_clean(tmp_path):
    """The marker vouches for the logs: they open without reading a batch."""
    path = tmp_path / "data"
    with Manager(path) as manager:
        manager.create_topic("many", COUNT)
        write_all(manager, "many")
    assert (path / CLEAN_MARKER).exists()
    with Manager(path) as manager:
        for number in range(COUNT):
            log = manager.get("many", number)
            assert log.recovery.segments_recovered == 0
            assert log.flushed_offset == log.end_offset == 1
            assert [record.value for record in log.scan().records()] == [b"%d" % number]
        assert manager.folders.topic_id("many") is not None


def test_a_failed_wait_vouches_for_nothing(tmp_path, native_test):
    """The next open recovers the logs, which are complete: only the sync was missing."""
    path = tmp_path / "data"
    manager = Manager(path)
    manager.create_topic("many", COUNT)
    write_all(manager, "many")
    native_test[1].kl_io_fail(b"syncfs", 1, errno.EIO, 1, 0)
    try:
        with pytest.raises(IoFailed, match="file system"):
            manager.close()
    finally:
        native_test[1].kl_io_reset()
    assert not (path / CLEAN_MARKER).exists()
    with Manager(path) as manager:
        assert manager.state.recovery_point(TopicPartition("many", 3)) == 0
        log = manager.get("many", 3)
        assert log.recovery.segments_recovered == 1
        assert log.end_offset == 1


@pytest.mark.parametrize("left", [b"", bytes(43)], ids=["empty", "zeros"])
def test_an_owner_that_a_power_cut_took_is_written_again(tmp_path, left):
    """A new folder's files reach the disk only with its log's first flush."""
    path = tmp_path / "data"
    with Manager(path) as manager:
        manager.create_topic("a")
        topic_id = manager.topic_id("a")
        assert topic_id is not None
    (path / "a-0" / PARTITION_METADATA).write_bytes(left)
    with Manager(path) as manager:
        assert manager.topic_id("a") is None
        manager.make("a", topic_id, [0])
        assert manager.topic_id("a") == topic_id


def test_the_first_flush_puts_the_owner_on_disk(tmp_path, syncs):
    """Otherwise a power failure could leave durable records in a folder without an owner."""
    with Manager(tmp_path / "data") as manager:
        manager.create_topic("a")
        log = manager.get("a")
        log.append(b"x")
        syncs()
        log.flush()
        first = syncs()
        log.append(b"y")
        syncs()
        log.flush()
        # Both times the records; first also partition.metadata, the epochs and their names.
        assert (first, syncs()) == (4, 1)


def test_a_log_that_is_deleted_is_not_written_any_more(tmp_path, native_test):
    """Its folder is renamed without a write; the directory still closes cleanly."""
    path = tmp_path / "data"
    with Manager(path) as manager:
        manager.create_topic("a")
        manager.create_topic("b")
        manager.get("b").append(b"x")
        manager.get("a").append(b"x")
        before = set(os.listdir(path / "a-0"))
        manager.delete_partition("a")
        (gone,) = [name for name in os.listdir(path) if name.endswith("-delete")]
        assert set(os.listdir(path / gone)) == before
    assert (path / CLEAN_MARKER).exists()


def test_a_new_log_is_noted_before_another_thread_can_use_it(tmp_path, monkeypatch):
    """The offsets of one that another thread filled and closed in between were lost."""
    tp = TopicPartition("t", 0)
    with Manager(tmp_path / "data") as manager:
        created = manager._logs.created

        def used_at_once(tps):
            monkeypatch.undo()
            manager.get("t").append_batches(batch([Row(b"a")]))
            manager.handle(tp).close()
            created(tps)

        monkeypatch.setattr(manager._logs, "created", used_at_once)
        manager.create_topic("t")
        assert manager.state.high_watermark(tp) == 1
