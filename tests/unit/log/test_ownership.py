"""The owner of a log: a standalone folder keeps its own lock and checkpoints, a folder in a data
directory uses the directory's.
"""

import os

import pytest

from kafkalog.directory.manager import Manager
from kafkalog.disk.checkpoint import CLEAN_MARKER, LOG_START, RECOVERY_POINT, DirectoryState
from kafkalog.errors import InvalidTopic, Locked, NotFound
from kafkalog.log.log import Log, handle_of
from kafkalog.types import TopicPartition


def values(log) -> list[bytes]:
    return [record.value for record in log.read()]


def fill(log, count: int = 10) -> None:
    for number in range(count):
        log.append(b"%d" % number)


# ---- standalone ------------------------------------------------------------------------------


def test_a_lone_log_writes_nothing_outside_of_its_folder(tmp_path):
    """Lock, checkpoints and marker are inside."""
    with Log(tmp_path / "events-3") as log:
        fill(log)
        assert (log.topic, log.partition) == ("events", 3)
    assert os.listdir(tmp_path) == ["events-3"]
    names = set(os.listdir(tmp_path / "events-3"))
    assert {".lock", CLEAN_MARKER, RECOVERY_POINT} <= names


def test_a_lone_log_has_one_writer(tmp_path):
    """The second is refused; readers are not."""
    with Log(tmp_path / "events") as log:
        fill(log, 1)
        with pytest.raises(Locked, match=str(os.getpid())):
            Log(tmp_path / "events")
        with Log(tmp_path / "events", "r") as reader:
            assert values(reader) == [b"0"]
    Log(tmp_path / "events").close()


def test_a_lone_log_that_was_closed_is_not_recovered(tmp_path):
    """One whose last segment another program changed is recovered."""
    with Log(tmp_path / "events") as log:
        fill(log)
    with Log(tmp_path / "events") as log:
        assert log.recovery.segments_recovered == 0
        assert values(log) == [b"%d" % number for number in range(10)]
    with open(tmp_path / "events" / f"{0:020}.log", "ab") as file:
        file.write(b"torn")
    with Log(tmp_path / "events") as log:
        assert log.recovery.truncated_bytes == 4
        assert log.end_offset == 10


def test_the_start_of_a_lone_log_survives(tmp_path):
    """The folder keeps the start of delete_before; a reader sees it, too."""
    with Log(tmp_path / "events") as log:
        fill(log)
        log.delete_before(4)
    with Log(tmp_path / "events") as log:
        assert log.start_offset == 4
    with Log(tmp_path / "events", "r") as log:
        assert log.start_offset == 4
        assert values(log)[0] == b"4"


def test_a_refused_opening_gives_the_lock_back(tmp_path):
    """After an unknown setting the next open works."""
    with pytest.raises(ValueError, match="nearest"):
        Log(tmp_path / "events", config={"segment.byte": 1})
    Log(tmp_path / "events").close()


def test_a_folder_that_no_topic_could_be_named_after_needs_a_topic(tmp_path):
    """With a topic its name does not matter."""
    with pytest.raises(InvalidTopic, match="topic="):
        Log(tmp_path / "my events")
    assert os.listdir(tmp_path) == []
    with Log(tmp_path / "my events", topic="events", partition=4) as log:
        assert (log.topic, log.partition) == ("events", 4)
        fill(log, 2)
    with Log(tmp_path / "my events", topic="events", partition=4) as log:
        assert log.recovery.segments_recovered == 0
        assert log.end_offset == 2


def test_a_reader_of_a_missing_folder_is_told_so(tmp_path):
    """Both in a data directory and outside of one."""
    with pytest.raises(NotFound):
        Log(tmp_path / "a-0", "r")
    Manager(tmp_path).close()
    with pytest.raises(NotFound):
        Log(tmp_path / "a-0", "r")
    assert not (tmp_path / "a-0").exists()


# ---- in a data directory ----------------------------------------------------------------------


def test_a_log_in_a_data_directory_uses_the_directorys_lock_and_checkpoints(tmp_path):
    """The folder has neither; another process's manager is refused."""
    Manager(tmp_path).close()
    with Log(tmp_path / "a-0") as log:
        fill(log)
        with pytest.raises(Locked):
            Manager(tmp_path)
    names = set(os.listdir(tmp_path / "a-0"))
    assert not names & {".lock", CLEAN_MARKER, RECOVERY_POINT}
    assert (tmp_path / CLEAN_MARKER).exists()
    with Manager(tmp_path) as manager:
        assert manager.state.recovery_point(TopicPartition("a", 0)) == 10
        assert manager.get("a").recovery.segments_recovered == 0


def test_logs_of_one_directory_share_its_manager(tmp_path):
    """The last one to close releases the directory."""
    Manager(tmp_path).close()
    one, two = Log(tmp_path / "a-0"), Log(tmp_path / "a-1")
    assert handle_of(one).owner is handle_of(two).owner
    with Log(tmp_path / "a-0") as beside:
        fill(beside)
    with pytest.raises(ValueError, match="closed"):
        beside.append(b"x")
    assert one.end_offset == 10
    one.close()
    two.append(b"x")
    with pytest.raises(Locked):
        Manager(tmp_path)
    again = Log(tmp_path / "a-0")
    assert again.end_offset == 10
    again.close()
    two.close()
    Manager(tmp_path).close()


def test_a_log_in_an_open_directory_belongs_to_its_manager(tmp_path):
    """get returns the same log; the manager's close closes it, but not the other way round."""
    with Manager(tmp_path) as manager:
        manager.create_topic("a", 2)
        log = Log(tmp_path / "a-0")
        mine = manager.get("a", 0)
        assert handle_of(mine) is handle_of(log)
        fill(log)
        log.close()
        assert not mine.closed
        assert manager.get("a", 0) is mine
        assert values(mine) == [b"%d" % number for number in range(10)]
        other = Log(tmp_path / "a-1")
    with pytest.raises(ValueError, match="closed"):
        other.append(b"x")


def test_a_folder_of_another_name_is_not_made_in_a_data_directory(tmp_path):
    """Otherwise Kafka would refuse to start there."""
    Manager(tmp_path).close()
    with pytest.raises(InvalidTopic, match="events-0"):
        Log(tmp_path / "events")
    assert not (tmp_path / "events").exists()
    Manager(tmp_path).close()


def test_settings_of_a_log_go_over_its_directorys(tmp_path):
    """Both apply; the log's own settings override the directory's."""
    with Manager(tmp_path, {"log.segment.bytes": 9_000, "log.roll.hours": 1}) as manager:
        manager.create_topic("a")
        with Log(tmp_path / "a-0", config={"segment.bytes": 5_000}) as log:
            assert (log.config.segment_bytes, log.config.segment_ms) == (5_000, 3_600_000)


def test_a_copy_without_hidden_files_brings_its_start_with_it_too(tmp_path):
    """As after `cp a-0/* there/a-0`: no lock, no marker; deleted records stay deleted."""
    with Log(tmp_path / "a-0") as log:
        fill(log)
        log.delete_before(4)
    for hidden in (".lock", CLEAN_MARKER):
        (tmp_path / "a-0" / hidden).unlink()
    with Manager(tmp_path, adopt=True) as manager:
        assert manager.get("a").start_offset == 4
        assert not set(os.listdir(tmp_path / "a-0")) & {RECOVERY_POINT, LOG_START}


def test_a_log_that_stood_alone_brings_its_start_with_it(tmp_path):
    """Adopted by a directory, it keeps its start, loses its own files, and is read once."""
    with Log(tmp_path / "a-0") as log:
        fill(log)
        log.delete_before(4)
    with Manager(tmp_path, adopt=True) as manager:
        log = manager.get("a")
        assert log.start_offset == 4
        assert log.recovery.segments_recovered == 1
        names = set(os.listdir(tmp_path / "a-0"))
        assert not names & {".lock", CLEAN_MARKER, RECOVERY_POINT, LOG_START}
    with Manager(tmp_path) as manager:
        assert manager.get("a").start_offset == 4
        assert manager.get("a").recovery.segments_recovered == 0


def test_a_log_that_stands_alone_in_use_is_not_taken_over(tmp_path):
    """The lock in its folder excludes the manager, too."""
    with Log(tmp_path / "a-0") as log:
        fill(log, 1)
        with Manager(tmp_path, adopt=True) as manager:
            with pytest.raises(Locked):
                manager.get("a")
            fill(log, 1)
    with Manager(tmp_path) as manager:
        assert manager.get("a").end_offset == 2


def test_a_failed_opening_leaves_nothing_taken(tmp_path):
    """Nor does the shared manager stay open."""
    Manager(tmp_path).close()
    with pytest.raises(ValueError, match="nearest"):
        Log(tmp_path / "a-0", config={"segment.byte": 1})
    with Manager(tmp_path) as manager:
        assert manager.handles() == ()
    state = DirectoryState(tmp_path)
    state.close()
