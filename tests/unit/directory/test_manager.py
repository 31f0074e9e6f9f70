"""A data directory: its identity, its lock, its partitions, and how it is closed."""

import json
import os
import subprocess
import sys
import textwrap
import threading

import pytest

from kafkalog.clock import ManualClock
from kafkalog.directory.manager import Manager
from kafkalog.disk import layout
from kafkalog.disk.checkpoint import (
    CLEAN_MARKER,
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    parse_offsets,
)
from kafkalog.errors import (
    ArgumentError,
    Closed,
    CorruptLog,
    ForkedHandle,
    InvalidSetting,
    InvalidTopic,
    Locked,
    NotFound,
    ReadOnly,
    TopicExists,
    UnknownSetting,
    UnknownTopicOrPartition,
)
from kafkalog.log.log import Log
from kafkalog.types import TopicPartition
from tests.support.waiting import LIMIT_S


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data"


def run_child(code: str, *args: object) -> subprocess.CompletedProcess:
    """Run Python code in a separate process; `args` are its sys.argv[1:]."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S)


def crash_after_append(path, topic: str, partition: int, count: int) -> None:
    """Append in a process that dies while the directory is open."""
    code = """
        import os, sys
        from kafkalog.directory.manager import Manager
        manager = Manager(sys.argv[1])
        log = manager.get(sys.argv[2], int(sys.argv[3]))
        for number in range(int(sys.argv[4])):
            log.append(b"child %d" % number)
        os._exit(9)
    """
    assert run_child(code, path, topic, partition, count).returncode == 9


def values(log) -> list[bytes]:
    return [record.value for record in log.read()]


# ---- identity and lock ----------------------------------------


def test_a_new_directory_gets_an_identity_and_keeps_it(path):
    """meta.properties of version 1, mode 0700; the next opening reads the same."""
    with Manager(path, node_id=7) as manager:
        meta = manager.meta
        assert (meta.version, meta.node_id) == (1, 7)
        assert path.stat().st_mode & 0o777 == 0o700
    with Manager(path, node_id=8) as manager:
        assert manager.meta == meta


def test_a_damaged_identity_is_refused_and_the_lock_given_back(path):
    """Its owner is unknown; the lock is released."""
    Manager(path).close()
    (path / "meta.properties").write_bytes(b"version=9\n")
    for _ in range(2):
        with pytest.raises(CorruptLog, match="version: found 9"):
            Manager(path)


@pytest.mark.parametrize("mode", ["r", "w"])
@pytest.mark.parametrize("data", [b"", b"version=1\n", b"version=9\n"])
def test_a_damaged_identity_is_named_with_a_remedy(path, data, mode):
    """And that repairs it."""
    with Manager(path) as manager:
        manager.create_topic("a")
        manager.get("a").append(b"x")
    (path / "meta.properties").write_bytes(data)
    with pytest.raises(CorruptLog) as refused:
        Manager(path, mode=mode)
    assert str(path / "meta.properties") in str(refused.value)
    assert f"kafkalog adopt --dir {path}" in str(refused.value)
    (path / "meta.properties").unlink()
    with Manager(path, adopt=True) as manager:
        assert manager.get("a").end_offset == 1


def test_two_managers_cannot_own_one_directory(path):
    """In one process: refused immediately, with the owner's pid; free again after close."""
    with Manager(path), pytest.raises(Locked, match=str(os.getpid())):
        Manager(path)
    Manager(path).close()


def test_two_processes_cannot_own_one_directory(path):
    """The second one fails immediately and names the owner's pid; a killed owner leaves no lock."""
    code = """
        import os, sys
        from kafkalog.errors import Locked
        from kafkalog.directory.manager import Manager
        try:
            Manager(sys.argv[1])
        except Locked as error:
            print(error)
            sys.exit(3)
        os._exit(9)
    """
    with Manager(path):
        child = run_child(code, path)
        assert child.returncode == 3
        assert str(os.getpid()) in child.stdout
    assert run_child(code, path).returncode == 9
    Manager(path).close()


def test_partition_folders_without_an_identity_are_not_taken_by_accident(path):
    """A copy of some folders opens for reading, or with adopt."""
    with Log(path / "a-0") as log:
        log.append(b"x")
    with pytest.raises(ArgumentError, match="kafkalog adopt --dir"):
        Manager(path)
    assert not (path / "meta.properties").exists()
    with Manager(path, mode="r") as manager:
        assert manager.meta is None
        assert values(manager.get("a")) == [b"x"]
    with Manager(path, adopt=True) as manager:
        assert values(manager.get("a")) == [b"x"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"mode": "x"}, ArgumentError),
        ({"config": {"log.retention.hour": 1}}, UnknownSetting),
        ({"config": {"log.retention.hours": "x"}}, InvalidSetting),
        ({"topic_config": {"retention.msec": 1}}, UnknownSetting),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_made(path, arguments, error):
    """Neither a directory nor a lock is created."""
    with pytest.raises(error):
        Manager(path, **arguments)
    assert not path.exists()


def test_a_reader_of_nothing_is_told_so(path):
    """It creates no directory."""
    with pytest.raises(NotFound):
        Manager(path, mode="r")
    assert not path.exists()


# ---- topics and partitions ----------------------------------------


def test_a_topic_has_its_partitions_and_one_id(path):
    """Folders in Kafka's form, each with the topic's id."""
    with Manager(path) as manager:
        manager.create_topic("orders", 3)
        manager.create_partition("orders", 5)
        manager.create_topic("__internal")
        assert manager.topics() == ("__internal", "orders")
        assert manager.topics(internal=False) == ("orders",)
        found = [tp.partition for tp in manager.partitions("orders")]
        assert found == [0, 1, 2, 5]
        ids = {
            layout.parse_partition_metadata((path / f"orders-{p}/partition.metadata").read_bytes())
            for p in found
        }
        assert ids == {manager.topic_id("orders")}
        assert manager.topic_id("__internal") not in ids
    with Manager(path) as manager:
        assert [tp.partition for tp in manager.partitions("orders")] == found


def test_a_damaged_partition_metadata_is_named_by_its_path(path):
    with Manager(path) as manager:
        manager.create_topic("orders")
        (path / "orders-0/partition.metadata").write_text("version: 7\n")
        with pytest.raises(CorruptLog, match=f"^{path}/orders-0/partition.metadata: found version"):
            manager.folders.partition_id(TopicPartition("orders", 0))


def test_impossible_partitions_are_refused(path):
    """An existing name, a name that no topic can have, a negative number."""
    with Manager(path) as manager:
        manager.create_topic("a", 2)
        with pytest.raises(TopicExists):
            manager.create_topic("a")
        with pytest.raises(TopicExists):
            manager.create_partition("a", 1)
        for name in ("a b", "..", "", "x" * 250):
            with pytest.raises(InvalidTopic):
                manager.create_topic(name)
        with pytest.raises(ArgumentError, match="partitions: found 0"):
            manager.create_topic("b", 0)
        with pytest.raises(ArgumentError, match="partition: found -1"):
            manager.create_partition("b", -1)
        with pytest.raises(UnknownTopicOrPartition, match="found no partition b-0"):
            manager.get("b")
        assert manager.topics() == ("a",)


def test_foreign_entries_are_left_alone(path):
    """Entries that are no partition's folder are not listed, opened or removed."""
    Manager(path).close()
    (path / "lost+found").mkdir()
    (path / "notes.txt").write_text("mine")
    with Manager(path) as manager:
        assert manager.partitions() == ()
    assert (path / "lost+found").is_dir()
    assert (path / "notes.txt").read_text() == "mine"


def test_of_ten_thousand_partitions_none_is_opened_until_it_is_asked_for(path):
    """The directory is listed; no log is opened until it is asked for."""
    Manager(path).close()
    for number in range(10_000):
        os.mkdir(path / f"topic-{number}")
    with Manager(path) as manager:
        assert manager.handles() == ()
        assert len(manager.partitions()) == 10_000
        assert manager.get("topic", 9_999).append(b"x") >= 0
        assert len(manager.handles()) == 1


def test_settings_reach_the_logs_topic_by_topic(path):
    """A function of the topic's name; the broker's settings are the defaults."""

    def topic_config(topic):
        return {"segment.bytes": 5_000} if topic == "small" else None

    broker = {"log.segment.bytes": 9_000, "log.retention.hours": 1}
    with Manager(path, broker, topic_config) as manager:
        small = manager.create_partition("small")
        other = manager.create_partition("other")
        assert (small.config.segment_bytes, other.config.segment_bytes) == (5_000, 9_000)
        assert small.config.retention_ms == other.config.retention_ms == 3_600_000
        for _ in range(200):
            small.append(b"x" * 100)
            other.append(b"x" * 100)
        assert len(small.segments) > len(other.segments) > 1


# ---- logs ----------------------------------------


def test_a_log_is_the_same_object_as_long_as_it_is_open(path):
    """Concurrent threads get the same object; after its close a new one continues."""
    with Manager(path) as manager:
        manager.create_topic("a")
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(manager.get("a"))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        assert len(found) == 8
        assert len(set(map(id, found))) == 1
        found[0].append(b"1")
        found[0].close()
        again = manager.get("a")
        assert again is not found[0]
        # We closed it: nothing needs recovery, although the directory is in use.
        assert again.recovery.segments_recovered == 0
        assert again.append(b"2") == 1
        assert values(again) == [b"1", b"2"]


def test_a_clean_close_writes_the_checkpoints_and_last_the_marker(path):
    """They are Kafka's files; the next open recovers nothing."""
    with Manager(path) as manager:
        manager.create_topic("a", 2)
        for number in range(5):
            manager.get("a", 1).append(b"%d" % number)
        assert not (path / CLEAN_MARKER).exists()
    offsets = {TopicPartition("a", 0): 0, TopicPartition("a", 1): 5}
    assert parse_offsets((path / RECOVERY_POINT).read_bytes()) == offsets
    assert parse_offsets((path / HIGH_WATERMARK).read_bytes()) == offsets
    assert json.loads((path / CLEAN_MARKER).read_bytes())["version"] == 0
    with Manager(path) as manager:
        assert manager.state.clean
        log = manager.get("a", 1)
        assert log.recovery.segments_recovered == 0
        assert (log.end_offset, log.flushed_offset) == (5, 5)


def test_the_marker_goes_with_the_first_append_not_with_the_opening(path):
    """A session that only reads leaves a clean directory, however it ends."""
    with Manager(path) as manager:
        manager.create_topic("a", 2)
        manager.get("a").append(b"x")
    with Manager(path) as manager:
        log = manager.get("a")
        assert values(log) == [b"x"]
        manager.get("a", 1)
        assert (path / CLEAN_MARKER).exists()
        log.append(b"y")
        assert not (path / CLEAN_MARKER).exists()
    assert (path / CLEAN_MARKER).exists()


def test_after_a_crash_everything_appended_is_there(path):
    """The log is recovered when it is first opened."""
    with Manager(path) as manager:
        manager.create_topic("a", 2)
    crash_after_append(path, "a", 0, 20)
    assert not (path / CLEAN_MARKER).exists()
    with Manager(path) as manager:
        assert not manager.state.clean
        log = manager.get("a")
        assert log.recovery.segments_recovered == 1
        assert values(log) == [b"child %d" % number for number in range(20)]


def test_unopened_logs_keep_a_crashed_directory_unclean(path):
    """No marker vouches for a log that was not opened; recover_all opens all logs."""
    with Manager(path) as manager:
        manager.create_topic("a", 3)
    crash_after_append(path, "a", 2, 5)
    with Manager(path) as manager:
        manager.get("a", 0)
    assert not (path / CLEAN_MARKER).exists()
    with Manager(path) as manager:
        logs = manager.recover_all(threads=2)
        assert [(log.partition, log.end_offset) for log in logs] == [(0, 0), (1, 0), (2, 5)]
    assert (path / CLEAN_MARKER).exists()


def test_a_folder_that_was_put_there_later_is_not_vouched_for(path, tmp_path):
    """The marker vouches for the folders in its checkpoints; others are recovered."""
    with Manager(path) as manager:
        manager.create_topic("a")
    with Manager(tmp_path / "other") as other:
        other.create_topic("b")
    crash_after_append(tmp_path / "other", "b", 0, 5)
    os.rename(tmp_path / "other" / "b-0", path / "b-0")
    with Manager(path) as manager:
        assert manager.state.clean
        log = manager.get("b")
        assert log.recovery.segments_recovered == 1
        assert log.end_offset == 5


def test_a_folder_added_while_open_is_found(path, tmp_path):
    """A copy of a partition is moved into an open directory."""
    with Log(tmp_path / "b-0") as log:
        log.append(b"x")
    with Manager(path) as manager:
        with pytest.raises(UnknownTopicOrPartition):
            manager.get("b")
        os.rename(tmp_path / "b-0", path / "b-0")
        assert values(manager.get("b")) == [b"x"]
        with pytest.raises(TopicExists):
            manager.create_partition("b")


def test_deleted_records_stay_deleted(path):
    """The log start is on disk when delete_before returns, and after a clean close."""
    with Manager(path) as manager:
        log = manager.create_partition("a")
        for number in range(10):
            log.append(b"%d" % number)
        log.delete_before(4)
        found = parse_offsets((path / LOG_START).read_bytes())
        assert found == {TopicPartition("a", 0): 4}
    crash_after_append(path, "a", 0, 1)
    with Manager(path) as manager:
        assert manager.get("a").start_offset == 4
        assert values(manager.get("a"))[0] == b"4"


def test_a_truncation_is_never_undone_by_an_old_checkpoint(path):
    """The recovery point is lowered first; rewritten offsets are checked after a crash."""
    with Manager(path) as manager:
        log = manager.create_partition("a")
        for number in range(10):
            log.append(b"%d" % number)
        log.flush()
        manager.upkeep.checkpoints.recovery_points()
        assert manager.state.recovery_point(TopicPartition("a", 0)) == 10
        log.truncate(3)
        found = parse_offsets((path / RECOVERY_POINT).read_bytes())
        assert found[TopicPartition("a", 0)] <= 3
        assert log.end_offset == 3


def test_a_closed_directory_answers_closed(path):
    """And so do its logs; a second close has no effect."""
    manager = Manager(path)
    log = manager.create_partition("a")
    manager.close()
    manager.close()
    for call in (manager.topics, manager.partitions, lambda: manager.get("a")):
        with pytest.raises(Closed):
            call()
    with pytest.raises(Closed):
        log.append(b"x")


# ---- deleting a partition ----------------------------------------


def test_a_deleted_partition_is_renamed_at_once_and_removed_later(path, wait_until):
    """It gets Kafka's -delete name; its log raises Closed; a new log of its name starts at 0."""
    clock = ManualClock()
    with Manager(path, clock=clock) as manager:
        log = manager.create_partition("a")
        for number in range(10):
            log.append(b"%d" % number)
        log.delete_before(5)
        manager.delete_partition("a")
        with pytest.raises(Closed):
            log.append(b"x")
        with pytest.raises(UnknownTopicOrPartition):
            manager.delete_partition("a")
        marked = [layout.parse_marked(name) for name in os.listdir(path)]
        assert [(m.topic, m.kind) for m in marked if m] == [("a", "delete")]
        fresh = manager.create_partition("a")
        assert (fresh.start_offset, fresh.end_offset) == (0, 0)
        clock.advance(59_999)
        assert any(map(layout.parse_marked, os.listdir(path)))
        clock.advance(60_001)
        wait_until(lambda: not any(map(layout.parse_marked, os.listdir(path))), "the removal")
        assert fresh.append(b"x") == 0


def test_a_removal_that_a_crash_interrupted_goes_on(path, wait_until):
    """Folders with Kafka's -delete suffix are removed; -stray and -future ones are left alone."""
    Manager(path).close()
    unique = "3b78c64cfac84fca8867828f39e99cbe"
    for kind in ("delete", "stray", "future"):
        (path / f"gone-0.{unique}-{kind}").mkdir()
        (path / f"gone-0.{unique}-{kind}" / "x.log").write_bytes(b"x")
    clock = ManualClock()
    with Manager(path, clock=clock) as manager:
        assert manager.partitions() == ()
        clock.advance(61_000)
        wait_until(lambda: not (path / f"gone-0.{unique}-delete").exists(), "the removal")
        assert (path / f"gone-0.{unique}-stray" / "x.log").exists()
        assert (path / f"gone-0.{unique}-future" / "x.log").exists()


# ---- readers ----------------------------------------


def test_a_reader_changes_nothing_and_needs_no_lock(path):
    """It opens next to the writer; calls that would change something are refused."""
    with Manager(path) as writer:
        log = writer.create_partition("a")
        log.append(b"x")
        before = {name: (path / name).stat().st_mtime_ns for name in os.listdir(path)}
        with Manager(path, mode="r") as reader:
            assert values(reader.get("a")) == [b"x"]
            for call in (
                lambda: reader.create_topic("b"),
                lambda: reader.delete_partition("a"),
                lambda: reader.get("a").append(b"y"),
            ):
                with pytest.raises(ReadOnly):
                    call()
            writer.create_topic("b")
            assert reader.topics() == ("a",)
            reader.refresh()
            assert reader.topics() == ("a", "b")
        after = {name: (path / name).stat().st_mtime_ns for name in before}
        assert after == before


def test_kafkas_directories_open_for_reading(kafka_cases):
    """Starts and ends are those of Kafka's own tools, in each case."""
    for case in ("codecs", "segments", "deleted", "transactions", "bigoffsets"):
        folder = kafka_cases / case
        expected = [json.loads(line) for line in (folder / "expected" / "ends.jsonl").open()]
        with Manager(folder / "log", mode="r") as manager:
            for ends in expected:
                tp = (ends["topic"], ends["partition"])
                log = manager.get(*tp)
                found = (log.start_offset, log.high_watermark, log.last_stable_offset)
                wanted = (
                    ends["log_start_offset"], ends["high_watermark"], ends["last_stable_offset"]
                )  # fmt: skip
                assert found == wanted, (case, tp)


# ---- fork ----------------------------------------


def test_a_forked_child_cannot_use_it_and_the_parent_is_unharmed(path):
    """Every call raises ForkedHandle; the child's close writes and releases nothing."""
    with Manager(path) as manager:
        log = manager.create_partition("a")
        log.append(b"x")
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                calls = (manager.topics, lambda: manager.get("a"), manager.recover_all)
                refused = 0
                for call in calls:
                    try:
                        call()
                    except ForkedHandle:
                        refused += 1
                manager.close()
                status = 0 if refused == len(calls) else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert not (path / CLEAN_MARKER).exists()
        with pytest.raises(Locked):
            Manager(path)
        assert log.append(b"y") == 1


def test_opening_a_log_that_was_closed_cleanly_asks_the_system_little(tmp_path, native_test):
    """At a start ten thousand are opened: each repeated call to the system costs a second."""
    ffi, hooks = native_test
    with Manager(tmp_path) as manager:
        manager.create_topic("a", 2)
        for partition in range(2):
            manager.get("a", partition).append(b"one")
    with Manager(tmp_path) as manager:
        manager.get("a", 0)  # calls made once per process are over
        before = hooks.kl_io_calls(ffi.NULL), hooks.kl_io_calls(b"openat")
        manager.get("a", 1)
        calls, opened = (
            hooks.kl_io_calls(ffi.NULL) - before[0],
            hooks.kl_io_calls(b"openat") - before[1],
        )
    assert opened <= 7, "the folder, .log, two indexes, epochs, snapshot, state page"
    assert calls <= 30


# ---- settings and topics that change -------------------------------------------------


def test_a_log_that_cannot_obey_does_not_keep_the_others_from_it(path, caplog):
    """The first of three has wrong settings: it is named, and the others apply theirs."""
    settings = {}
    with Manager(path, topic_config=settings.get) as manager:
        logs = {name: manager.create_partition(name) for name in "abc"}
        settings |= {"a": {"retention.ms": "soon"}, "b": {"retention.ms": 7}}
        settings["c"] = {"retention.ms": 8}
        with pytest.raises(InvalidSetting, match=r"retention\.ms"):
            manager.reconfigure()
        assert [log.config.retention_ms for log in logs.values()] == [-1, 7, 8]
    assert [line for line in caplog.messages if "a-0" in line and "retention.ms" in line]


class DeletedWhileMade:
    """A topic that is deleted while its folder is made."""

    def __init__(self) -> None:
        self.ids = [layout.random_topic_id()]

    def config(self, topic: str) -> None:
        return None

    def topic_id(self, topic: str, partition: int) -> object:
        return self.ids.pop() if self.ids else None


def test_a_folder_that_nobody_wants_any_more_is_removed_in_time(path):
    """It does not stay until the next start; a new topic of the name does not get its offsets."""
    clock = ManualClock()
    with Manager(path, clock=clock) as manager:
        manager.use(DeletedWhileMade())
        with pytest.raises(UnknownTopicOrPartition):
            manager.get("t")
        assert [name for name in os.listdir(path) if name.startswith("t-0.")]
        clock.advance(120_000)
        manager.upkeep.removals.run()
        assert not [name for name in os.listdir(path) if name.startswith("t-0.")]
