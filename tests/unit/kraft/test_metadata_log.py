"""The metadata log of a directory: written in full, read again, and followed by the folders."""

import errno
import itertools
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.clock import ManualClock
from kafkalog.directory.manager import Manager
from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import (
    META_PROPERTIES,
    parse_meta_properties,
    parse_partition_metadata,
)
from kafkalog.errors import (
    ArgumentError,
    Closed,
    IoFailed,
    NoSpace,
    NotFound,
    ReadOnly,
    TopicExists,
    UnknownTopicOrPartition,
)
from kafkalog.kraft.batches import data_batches
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.kraft.records import encode
from kafkalog.kraft.snapshots import list_snapshots
from kafkalog.log.log import Log
from kafkalog.metadata.image import Change, empty_image
from kafkalog.types import TopicPartition
from tests.unit.kraft.story import configure, create, delete, grow, summary

METADATA = "__cluster_metadata-0"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def metadata(data: Path) -> Iterator[MetadataLog]:
    with Manager(data) as manager, MetadataLog.open(manager) as opened:
        yield opened


def folders(path: Path) -> set[str]:
    return {name for name in os.listdir(path) if (path / name).is_dir() and name != METADATA}


# ---- a new directory -------------------------------------------------------------------------


def test_a_new_directory_is_kafkas(data: Path, metadata: MetadataLog) -> None:
    meta = parse_meta_properties((data / META_PROPERTIES).read_bytes())
    assert meta.version == 1
    assert meta.cluster_id == metadata.image.cluster_id
    assert metadata.image.features == {
        "metadata.version": 27, "group.version": 1, "transaction.version": 2,
        "eligible.leader.replicas.version": 1, "share.version": 1, "streams.version": 1,
    }  # fmt: skip
    assert metadata.image.config(4, "") == {"min.insync.replicas": "1"}
    topic_id = parse_partition_metadata((data / METADATA / "partition.metadata").read_bytes())
    assert topic_id == uuid.UUID(int=1)
    assert (data / "bootstrap.checkpoint").exists()
    state = (data / METADATA / "quorum-state").read_text()
    assert state == (
        '{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1}],"data_version":0}'
    )


def test_each_start_has_a_new_epoch(data: Path) -> None:
    seen = []
    for _ in range(3):
        with Manager(data) as manager, MetadataLog.open(manager) as metadata:
            epoch = metadata.register([("PLAINTEXT", "127.0.0.1", 9092, 0)])
            seen.append((metadata.image.epoch, epoch))
            broker = metadata.image.brokers[1]
            assert (broker.epoch, broker.fenced) == (epoch, False)
            assert broker.endpoints == (("PLAINTEXT", "127.0.0.1", 9092, 0),)
            assert epoch == metadata.image.offset
    assert [epoch for epoch, _ in seen] == [1, 2, 3]
    marker = (data / ".kafka_cleanshutdown").read_text()
    assert marker.startswith(f'{{"version":0,"brokerEpoch":{seen[-1][1]},"kafkalog":')


# ---- changes -----------------------------------------------------------------------------------


def test_topics_have_folders_and_come_back(data: Path) -> None:
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        create(metadata, "a", 2, retention_ms="5")
        create(metadata, "b", 1)
        grow(metadata, "a", 3)
        delete(metadata, "b")
        said = summary(metadata.image)
        topic_id = metadata.image.topics["a"].id
        log = manager.get("a", 2)
        assert metadata.lead(log) == 0
        log.append(b"x")
        assert log.config.retention_ms == 5
    assert {name for name in folders(data) if not name.endswith("-delete")} == {"a-0", "a-1", "a-2"}
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        assert summary(metadata.image) == said
        assert metadata.image.topics["a"].id == topic_id == manager.topic_id("a")
        assert [record.value for record in manager.get("a", 2).read()] == [b"x"]


def test_a_change_tells_its_listeners_in_order(metadata: MetadataLog) -> None:
    told: list[Change] = []
    manager = metadata.manager

    def listen(change: Change) -> None:
        told.append(change)
        # All folders of both exist, so that readers of the old ones can finish.
        for image in (change.old, change.new):
            for topic in image.topics.values():
                assert all(manager.has(TopicPartition(topic.name, n)) for n in topic.partitions)

    metadata.listen(listen)
    create(metadata, "a", 1)
    configure(metadata, 2, "a", flush_ms="5")
    delete(metadata, "a")
    assert len(told) == 3
    for one, next_one in itertools.pairwise(told):
        assert one.new is next_one.old
    assert told[-1].new is metadata.image
    made, configured, deleted = told
    (topic,) = made.changed
    assert (topic.name, made.gone, made.resources) == ("a", (), ())
    assert (configured.changed, configured.gone) == ((), ())
    assert configured.resources == ((2, "a"),)
    assert (deleted.changed, deleted.gone, deleted.resources) == ((), (topic,), ((2, "a"),))


def test_internal_topics_get_folders_when_they_are_used(metadata: MetadataLog) -> None:
    manager = metadata.manager
    create(metadata, "__consumer_offsets", 50)
    assert not [tp for tp in manager.partitions() if tp.topic == "__consumer_offsets"]
    log = manager.get("__consumer_offsets", 7)
    log.append(b"x", key=b"k")
    assert manager.partitions("__consumer_offsets") == (TopicPartition("__consumer_offsets", 7),)
    assert manager.topic_id("__consumer_offsets") == metadata.image.topics["__consumer_offsets"].id
    with pytest.raises(UnknownTopicOrPartition):
        manager.get("__consumer_offsets", 50)
    with pytest.raises(UnknownTopicOrPartition):
        manager.get("nobody", 0)
    delete(metadata, "__consumer_offsets")
    assert not manager.partitions("__consumer_offsets")


def test_a_log_asked_for_by_its_path_is_the_metadatas(data: Path, metadata: MetadataLog) -> None:
    create(metadata, "__consumer_offsets", 2)
    with Log(data / "__consumer_offsets-1") as log:
        log.append(b"x", key=b"k")
    topic_id = metadata.image.topics["__consumer_offsets"].id
    assert metadata.manager.topic_id("__consumer_offsets") == topic_id
    for name in ("__consumer_offsets-2", "nobody-0"):
        with pytest.raises(UnknownTopicOrPartition):
            Log(data / name)
        assert not (data / name).exists()


def test_settings_change_under_an_open_log(metadata: MetadataLog) -> None:
    manager = metadata.manager
    create(metadata, "a", 1)
    log = manager.get("a", 0)
    for _ in range(3):
        log.append(b"x" * 100)
    assert len(log.segments) == 1
    configure(metadata, 2, "a", internal_segment_bytes="200")
    assert log.config.segment_bytes == 200
    for number in range(3):
        log.append(b"%d" % number * 100)
    assert len(log.segments) > 2
    configure(metadata, 4, "", log_flush_interval_ms="44")
    assert log.config.flush_ms == 44
    configure(metadata, 4, "1", log_flush_interval_ms="33")
    assert log.config.flush_ms == 33
    configure(metadata, 4, "1", log_flush_interval_ms=None)
    assert log.config.flush_ms == 44
    assert manager.topic_config("__cluster_metadata").flush_ms > 44


def test_a_large_change_is_a_transaction(data: Path) -> None:
    """A reader sees all or nothing of it, and an unfinished one is aborted."""
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        metadata.batch_bytes = 1000
        create(metadata, "many", 50)
        said = summary(metadata.image)
        log = manager.get("__cluster_metadata", 0)
        # The rest of another transaction that a crash interrupted.
        begun = [encode("BeginTransactionRecord", {}, metadata.image)]
        fields = {"name": "half", "topic_id": uuid.UUID(int=5000)}
        begun.append(encode("TopicRecord", fields, metadata.image))
        for batch in data_batches(begun, log.end_offset, metadata.image.epoch, 1):
            log.append_as_follower(batch)
    for _ in range(2):
        with Manager(data) as manager, MetadataLog.open(manager) as metadata:
            assert summary(metadata.image) == said
            epoch = metadata.register([])
            assert metadata.image.offset == epoch
            create(metadata, "next", 1)
            delete(metadata, "next")
            assert metadata.take_snapshot() is not None


def test_closed_and_read_only_refuse_changes(data: Path) -> None:
    manager = Manager(data)
    metadata = MetadataLog.open(manager)
    create(metadata, "a", 1)
    metadata.close()
    metadata.close()
    with pytest.raises(Closed):
        metadata.write([("NoOpRecord", {})])
    manager.close()
    with Manager(data, mode="r") as manager, MetadataLog.open(manager) as metadata:
        assert list(metadata.image.topics) == ["a"]
        with pytest.raises(ReadOnly):
            metadata.write([("NoOpRecord", {})])


# ---- snapshots -----------------------------------------------------------------------------------


@pytest.mark.parametrize("step_ms", [-3_600_000, 0, 3_600_000])
def test_snapshots_come_by_bytes_and_by_time(data: Path, step_ms: int) -> None:
    """By the time that has passed, also when the wall clock is set."""
    clock = ManualClock()
    config = {
        "metadata.log.max.record.bytes.between.snapshots": 3000,
        "metadata.log.max.snapshot.interval.ms": 60_000,
    }

    def count() -> int:
        return len(list_snapshots(str(data / METADATA)))

    with Manager(data, config, clock=clock) as manager, MetadataLog.open(manager) as metadata:
        create(metadata, "a", 1)
        assert count() == 0
        create(metadata, "b", 40)
        assert count() == 1
        clock.set_now_ms(clock.now_ms() + step_ms)
        clock.advance(59_000)
        configure(metadata, 2, "a", flush_ms="2")
        assert count() == 1
        clock.advance(1_000)
        assert count() == 1
        configure(metadata, 2, "a", flush_ms="1")
        assert count() == 2
        said = summary(metadata.image)
        metadata.take_snapshot()
        assert count() == 2  # the oldest was deleted
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        assert summary(metadata.image) == said


def test_a_snapshot_that_fails_is_tried_again_after_a_growing_pause(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole metadata are encoded for each attempt."""
    replace, tried, full = Directory.replace, list[int](), True

    def replaced(folder: Directory, name: str, content: bytes) -> None:
        if name.endswith(".checkpoint"):
            tried.append(clock.now_ms() - began_ms)
            if full:
                raise NoSpace(errno.ENOSPC, "no space")
        replace(folder, name, content)

    clock, config = ManualClock(), {"metadata.log.max.record.bytes.between.snapshots": 1}
    began_ms = clock.now_ms()
    with Manager(data, config, clock=clock) as manager, MetadataLog.open(manager) as metadata:
        create(metadata, "a", 1)
        monkeypatch.setattr(Directory, "replace", replaced)
        for number in range(300):
            configure(metadata, 2, "a", flush_ms=str(number + 1))
            clock.advance(500)
        assert tried == [0, 1_000, 3_000, 7_000, 15_000, 31_000, 63_000, 123_000]
        full = False
        clock.advance(60_000)
        for number in range(2):
            configure(metadata, 2, "a", flush_ms=str(number + 1001))
        assert len(tried) == 10, "each change is a snapshot again"


def test_a_long_log_is_cut_behind_its_snapshots(data: Path) -> None:
    config = {"metadata.max.retention.bytes": 500}
    with Manager(data, config) as manager, MetadataLog.open(manager) as metadata:
        for number in range(4):
            create(metadata, f"topic-{number}", 5)
            metadata.take_snapshot()
        log = manager.get("__cluster_metadata", 0)
        assert log.start_offset == list_snapshots(log.path)[0].offset > 0
        said = summary(metadata.image)
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        assert summary(metadata.image) == said
    newest = list_snapshots(str(data / METADATA))[-1].file()
    (data / METADATA / newest).write_bytes(b"damaged")
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        assert summary(metadata.image) == said
        assert newest in metadata.problems[0]


NEWER = {
    "record 123 version 0 (known: records 0 to 29)": b"\x01\x7b\x00mystery",
    "TopicRecord version 99 (known: 0 to 0)": b"\x01\x02\x63newer",
    "RegisterBrokerRecord version 5 (known: 0 to 4)": b"\x01\x00\x05newer",
    "record frame 2 (known: 1)": b"\x02\x02\x00newer",
}


def newer(data: Path, *values: bytes) -> int:
    """Create a directory with topic a, and records that only a newer Kafka knows; returns the first
    one's offset."""
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        create(metadata, "a", 1)
        log = manager.get("__cluster_metadata", 0)
        offset = log.end_offset
        for batch in data_batches(values, offset, metadata.image.epoch, 1):
            log.append_as_follower(batch)
    return offset


@pytest.mark.parametrize("what", NEWER)
def test_metadata_that_are_not_wholly_known_are_only_read(data: Path, what: str) -> None:
    offset = newer(data, NEWER[what], b"\x01\x7c\x00other")
    files = {path: path.read_bytes() for path in (data / METADATA).iterdir()}
    wanted = f"metadata, offset {offset}: found {what}; "
    for _ in range(2):
        with Manager(data) as manager, pytest.raises(ArgumentError) as caught:
            MetadataLog.open(manager)
        assert str(caught.value).startswith(f"{data / METADATA}: {wanted}")
        assert "mode='r'" in str(caught.value)
    with Manager(data, mode="r") as manager, MetadataLog.open(manager) as metadata:
        assert list(metadata.image.topics) == ["a"]
        assert sum(metadata.image.foreign.values()) == 2
        first, second = metadata.problems
        assert first == f"{wanted}not all of the metadata is read"
        assert f"offset {offset + 1}: found record 124" in second
    assert {path: path.read_bytes() for path in (data / METADATA).iterdir()} == files


def test_a_reader_skips_records_that_depend_on_unknown_ones(data: Path) -> None:
    """Changes to a newer registration, and partitions of an unknown topic."""
    image = empty_image("c", 1)
    change = encode("BrokerRegistrationChangeRecord", {"broker_id": 7, "fenced": -1}, image)
    part = encode("PartitionRecord", {"partition_id": 0, "topic_id": uuid.uuid4()}, image)
    known = encode("TopicRecord", {"name": "b", "topic_id": uuid.uuid4()}, image)
    begin, end = (encode(f"{one}TransactionRecord", {}, image) for one in ("Begin", "End"))
    newer(data, begin, b"\x01\x00\x05newer", change, part, known, end)
    with Manager(data, mode="r") as manager, MetadataLog.open(manager) as metadata:
        assert sorted(metadata.image.topics) == ["a", "b"]
        assert len(metadata.problems) == 1


def test_an_unknown_record_of_a_transaction_that_was_aborted_is_none(data: Path) -> None:
    image = empty_image("c", 1)
    begin, abort = (encode(f"{one}TransactionRecord", {}, image) for one in ("Begin", "Abort"))
    newer(data, begin, b"\x01\x00\x05newer", abort)
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        assert metadata.take_snapshot() is not None
        assert not metadata.problems


# ---- after a crash ---------------------------------------------------------------------------


def crashed(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()


def test_leader_epochs_rise_after_a_crash_only(data: Path) -> None:
    epochs = []
    for crash in (False, True, False, True):
        with Manager(data) as manager, MetadataLog.open(manager) as metadata:
            if not metadata.image.topics:
                create(metadata, "a", 1)
            log = manager.get("a", 0)
            epoch = metadata.lead(log)
            log.append(b"x")
            assert log.leader_epoch == epoch
            epochs.append(epoch)
        if crash:
            crashed(data)
    assert epochs[1] == epochs[0]
    assert epochs[2] > epochs[1]
    assert epochs[3] == epochs[2]


def test_a_log_that_went_ahead_of_the_metadata_is_followed(data: Path) -> None:
    """It was written without a broker, and crashed."""
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        create(metadata, "a", 1)
        manager.get("a", 0).append(b"x")
    for _ in range(3):
        crashed(data)
        with Manager(data) as manager:
            manager.get("a", 0).append(b"x")
            ahead = manager.get("a", 0).leader_epoch
    assert ahead == 3
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        log = manager.get("a", 0)
        assert metadata.lead(log) == 3
        assert metadata.image.topics["a"].partitions[0].leader_epoch == 3


def test_missing_folders_are_made_and_deletions_end(data: Path) -> None:
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        create(metadata, "a", 2)
        create(metadata, "b", 1)
    shutil.rmtree(data / "a-1")
    (data / "a-0" / "partition.metadata").unlink()
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        assert (data / "a-1").is_dir()
        manager.get("a", 0)
        assert manager.folders.partition_id(TopicPartition("a", 0)) == metadata.topic_id("a", 0)
        gone = metadata.image.topics["b"].id
        shutil.copytree(data / "b-0", data / "kept")
        delete(metadata, "b")
    # As after a crash between the record and the folder.
    (data / "kept").rename(data / "b-0")
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        assert not manager.has(TopicPartition("b", 0))
        assert not metadata.problems
        create(metadata, "b", 1)
        assert metadata.image.topics["b"].id != gone
        manager.get("b", 0)


def test_a_topic_costs_one_sync_to_make_and_one_to_delete(
    metadata: MetadataLog, native_test: Any
) -> None:
    """Only the metadata is synced, which lists the folders; their names follow before first use."""
    hooks = native_test[1]

    def syncs() -> tuple[int, int]:
        return hooks.kl_io_calls(b"fdatasync"), hooks.kl_io_calls(b"fsync")

    before = syncs()
    create(metadata, "a", 3)
    made = syncs()
    assert made == (before[0] + 1, before[1])
    metadata.manager.get("a", 1)
    used = syncs()
    assert used[1] > made[1], "its folder is on disk before a record in it is"
    metadata.manager.get("a", 2)
    assert syncs() == used, "so are its siblings'"
    delete(metadata, "a")
    assert syncs() == (used[0] + 1, used[1])


def test_snapshots_keep_removed_topics_with_absent_folders(
    metadata: MetadataLog, native_test: Any
) -> None:
    """After a snapshot no record would show that the topic of such a folder was removed."""
    hooks = native_test[1]
    create(metadata, "a", 1)
    delete(metadata, "a")
    before = list_snapshots(metadata.manager.folder("__cluster_metadata"))
    hooks.kl_io_fail(b"fsync", 1, errno.EIO, 0, 0)
    try:
        with pytest.raises(IoFailed):
            metadata.take_snapshot()
    finally:
        hooks.kl_io_reset()
    assert list_snapshots(metadata.manager.folder("__cluster_metadata")) == before
    assert metadata.take_snapshot() is not None


def test_a_cut_that_brings_back_an_unused_topic_without_its_id_blocks_no_name(data: Path) -> None:
    """Neither its folder's new name nor its id was on disk, so there is nothing to keep."""
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        create(metadata, "gone", 2)
        manager.get("gone", 1)
        delete(metadata, "gone")
        cut = data.with_name("cut")
        shutil.copytree(data, cut)
    for name in folders(cut):
        back = cut / name.split(".")[0]
        (cut / name).rename(back)
        (back / "partition.metadata").write_bytes(b"")
    (cut / "mine-0").mkdir()
    (cut / "mine-0" / "notes").write_text("of somebody else")
    assert {"gone-0", "gone-1"} < folders(cut)
    with Manager(cut) as manager, MetadataLog.open(manager) as metadata:
        assert [problem for problem in metadata.problems if "gone" in problem] == []
        assert [problem for problem in metadata.problems if "mine-0" in problem]
        create(metadata, "gone", 1)
        assert manager.get("gone", 0).end_offset == 0


def test_folders_that_nobody_knows_are_named_and_left_alone(data: Path) -> None:
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        create(metadata, "a", 1)
    with Manager(data) as manager:
        manager.create_topic("stray")
        manager.get("stray", 0).append(b"precious")
        manager.get("a", 0).append(b"x")
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        assert "stray-0" in metadata.problems[0]
        assert "kafkalog adopt" in metadata.problems[0]
        assert manager.topics(internal=False) == ("a",)
        with pytest.raises(UnknownTopicOrPartition):
            manager.get("stray", 0)
        with pytest.raises(Exception, match="adopt"):
            create(metadata, "stray", 1)
    with Manager(data) as manager, MetadataLog.open(manager, adopt=True) as metadata:
        assert metadata.adopted == ("stray",)
        assert not metadata.problems
        assert [record.value for record in manager.get("stray", 0).read()] == [b"precious"]


# ---- directories without metadata ------------------------------------------------------------


def test_a_directory_of_our_own_storage_gets_its_metadata(data: Path) -> None:
    with Manager(data) as manager:
        manager.create_topic("a", 2)
        manager.get("a", 1).append(b"x")
        topic_id = manager.topic_id("a")
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        assert metadata.image.topics["a"].id == topic_id
        assert len(metadata.image.topics["a"].partitions) == 2
        assert metadata.image.config(2, "a")["retention.ms"] == "-1"


def test_a_directory_that_is_not_ours_asks_to_be_adopted(data: Path) -> None:
    with Manager(data) as manager:
        manager.create_topic("a", 2)
    (data / META_PROPERTIES).write_text("version=0\nbroker.id=7\ncluster.id=abc\n")
    with Manager(data) as manager, pytest.raises(ArgumentError, match="kafkalog adopt"):
        MetadataLog.open(manager)
    with Manager(data, mode="r") as manager, pytest.raises(NotFound):
        MetadataLog.open(manager)
    with Manager(data) as manager, MetadataLog.open(manager, adopt=True) as metadata:
        assert metadata.image.node_id == 7
        assert metadata.image.cluster_id == "abc"
    meta = parse_meta_properties((data / META_PROPERTIES).read_bytes())
    assert (meta.version, meta.node_id, meta.cluster_id) == (1, 7, "abc")
    assert meta.directory_id is not None


def test_a_folder_of_another_topic_of_the_name_is_not_taken(metadata: MetadataLog) -> None:
    manager = metadata.manager
    create(metadata, "__consumer_offsets", 1)
    with pytest.raises(TopicExists, match="another topic"):
        manager.make("__consumer_offsets", uuid.UUID(int=500), [0])
        manager.make("__consumer_offsets", uuid.UUID(int=501), [0])


def test_nothing_is_written_to_a_directory_that_is_only_read(data: Path) -> None:
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        create(metadata, "a", 1)
        manager.get("a", 0).append(b"x")
    before: dict[str, Any] = {
        str(path): path.stat().st_mtime_ns for path in [data, *data.rglob("*")]
    }
    with Manager(data, mode="r") as manager, MetadataLog.open(manager) as metadata:
        assert metadata.topic_id("a", 0) is not None
        manager.get("a", 0)
    assert before == {str(path): path.stat().st_mtime_ns for path in [data, *data.rglob("*")]}
