"""A partition's folder that is a link: to a place that nobody else uses, or to another's."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kafkalog
from kafkalog.clock import ManualClock, SystemClock
from kafkalog.directory.manager import Manager
from kafkalog.errors import ArgumentError, Locked, NotFound
from kafkalog.inspect.verify.files import verify
from tests.support.waiting import LIMIT_S


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A data directory with topic a: three partitions with one record each."""
    path = tmp_path / "data"
    with Manager(path) as manager:
        manager.create_topic("a", 3)
        for partition in range(3):
            manager.get("a", partition).append(b"%d" % partition)
    return path


def put_link(folder: Path, target: Path) -> None:
    """Replace a folder by a link to `target`, which gets the files if it does not exist yet."""
    if target.exists():
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    else:
        folder.rename(target)
    folder.symlink_to(target)


def test_a_link_to_another_partitions_folder_is_refused(path):
    """In either order of opening; the other partition works."""
    put_link(path / "a-1", path / "a-0")
    for first in (0, 1):
        with Manager(path) as manager:
            for partition in (first, 1 - first):
                if partition == 0:
                    assert manager.get("a", 0).append(b"more") == 1 + first
                    continue
                with pytest.raises(ArgumentError) as refused:
                    manager.get("a", 1)
                assert str(path / "a-1") in str(refused.value)
                assert str(path / "a-0") in str(refused.value)


def test_two_links_to_one_folder_are_refused(path, tmp_path):
    put_link(path / "a-1", tmp_path / "elsewhere")
    put_link(path / "a-2", tmp_path / "elsewhere")
    with Manager(path) as manager:
        for partition, other in ((1, 2), (2, 1)):
            with pytest.raises(ArgumentError) as refused:
                manager.get("a", partition)
            assert str(path / f"a-{partition}") in str(refused.value)
            assert str(path / f"a-{other}") in str(refused.value)
        assert manager.get("a", 0).end_offset == 1


def test_a_link_into_another_data_directory_is_refused(path, tmp_path):
    other = tmp_path / "other"
    with Manager(other) as manager:
        manager.create_topic("a", 2)
    put_link(path / "a-1", other / "a-1")
    with Manager(path) as manager, pytest.raises(ArgumentError, match=str(other / "a-1")):
        manager.get("a", 1)
    (tmp_path / "alone-1").symlink_to(path / "a-0")
    with pytest.raises(ArgumentError, match=str(path / "a-0")):
        kafkalog.Log(tmp_path / "alone-1")


def test_a_link_to_a_place_of_its_own_is_followed(path, tmp_path):
    """As in Kafka: a partition may be on another disk."""
    put_link(path / "a-1", tmp_path / "elsewhere")
    with Manager(path) as manager:
        log = manager.get("a", 1)
        assert log.append(b"more") == 1
        assert [record.value for record in log.read()] == [b"1", b"more"]


def test_a_link_that_leads_nowhere_is_refused(path, tmp_path):
    """While its disk is away, the partition does not count as empty, nor its name as free."""
    put_link(path / "a-1", tmp_path / "elsewhere")
    (tmp_path / "elsewhere").rename(tmp_path / "away")
    with Manager(path) as manager:
        assert len(manager.partitions("a")) == 3
        with pytest.raises(NotFound, match="elsewhere"):
            manager.get("a", 1)
        assert manager.folders.written(manager.partitions("a")[1])
        assert ("folder-away", str(path / "a-1")) in [
            (one.what, one.file) for one in verify(path).findings
        ]
        (tmp_path / "away").rename(tmp_path / "elsewhere")
        assert manager.get("a", 1).end_offset == 1


def test_a_link_to_a_missing_disk_stops_no_other(path, tmp_path):
    for partition in (1, 2):
        put_link(path / f"a-{partition}", tmp_path / f"disk-{partition}")
    (tmp_path / "disk-2").rename(tmp_path / "away")
    with Manager(path) as manager:
        assert manager.get("a", 1).append(b"more") == 1
        assert not manager.folders.bare(manager.partitions("a")[2])
    with pytest.raises(NotFound, match="a-2"):
        kafkalog.pandas.read(path, "a")
    assert len(kafkalog.pandas.read(path, "a", partitions=[0, 1])) == 3


@pytest.mark.parametrize("away", [False, True])
def test_deleting_a_partition_removes_its_link_and_keeps_the_target(
    path, tmp_path, wait_until, caplog, away
):
    """Also if an earlier process left the folder to be removed."""
    target = tmp_path / "elsewhere"
    put_link(path / "a-1", target)
    kept = sorted(os.listdir(target))
    if away:
        target.rename(tmp_path / "away")
    with Manager(path) as manager:
        manager.delete_partition("a", 1)
    assert [name for name in os.listdir(path) if name.endswith("-delete")]
    clock = ManualClock(SystemClock().now_ms())
    with caplog.at_level(logging.INFO), Manager(path, clock=clock) as manager:
        clock.advance(120_000)
        wait_until(
            lambda: not [name for name in os.listdir(path) if name.endswith("-delete")],
            "the link is gone",
        )
        wait_until(lambda: str(target) in caplog.text, "the place of the records is logged")
        assert sorted(os.listdir(tmp_path / "away" if away else target)) == kept
        assert not manager.problems
        assert manager.create_partition("a", 1).end_offset == 0
        assert not (path / "a-1").is_symlink()


WRITER = """
import sys, kafkalog
log = kafkalog.Log(sys.argv[1])
log.append(b"theirs")
print("open", flush=True)
sys.stdin.read()
"""


def test_a_log_that_another_process_writes_to_by_another_way_is_refused(path, tmp_path):
    """If a file system is mounted twice there is no link to show it; the open fails immediately."""
    target = tmp_path / "elsewhere"
    put_link(path / "a-1", target)
    with Manager(path) as manager:
        manager.get("a", 1).append(b"ours")  # takes the lock that a standalone Log takes
        program = [sys.executable, "-c", WRITER, str(target)]
        found = subprocess.run(
            program, capture_output=True, timeout=LIMIT_S, check=False, input=b""
        )
        assert b"Locked" in found.stderr and str(target).encode() in found.stderr
        assert manager.get("a", 1).append(b"more") == 2
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"open\n"
        (target / ".lock").unlink()
        with Manager(path) as manager, pytest.raises(Locked, match=str(other.pid)):
            manager.get("a", 1)
        other.stdin.close()
        assert other.wait(LIMIT_S) == 0
    with Manager(path) as manager:
        assert manager.get("a", 1).end_offset == 4
