"""A log that replaced the planned one is not read instead of it, whatever its inode."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark_kafkalog.errors import DataLoss
from pyspark_kafkalog.places.identity import identity, same, which
from pyspark_kafkalog.places.opened import Opened

import kafkalog
from tests.spark.conftest import write_topic
from tests.spark.reading import reader_of


def replace_files(folder: Path, count: int) -> None:
    """Another log in the same folder."""
    for file in folder.iterdir():
        file.unlink()
    with kafkalog.Log(folder) as log:
        log.append_many([b"new"] * count)


def test_folders_with_the_inode_of_the_last_one_are_told_apart(tmp_path):
    """Also within one tick of the clock: ext4 gives the number to the next folder at once."""
    folder = tmp_path / "a-0"
    seen, rounds = set(), 100
    for _ in range(rounds):
        folder.mkdir()
        seen.add(which(str(folder)))
        folder.rmdir()
    assert len(seen) == rounds


def test_locks_with_the_inode_of_the_last_one_are_told_apart(tmp_path):
    seen, rounds = set(), 100
    for _ in range(rounds):
        (tmp_path / ".lock").touch()
        seen.add(which(str(tmp_path)))
        (tmp_path / ".lock").unlink()
    assert len(seen) == rounds


@pytest.mark.parametrize("count", [10, 20], ids=["as long", "longer"])
def test_a_log_in_the_folder_of_the_planned_one(tmp_path, caplog, count):
    write_topic(tmp_path, "a", 1, 10)
    strict = reader_of(tmp_path, subscribe="a")
    lenient = reader_of(tmp_path, subscribe="a", failOnDataLoss="false")
    (task,) = strict.partitions()
    replace_files(tmp_path / "a-0", count)
    with pytest.raises(DataLoss, match=r"another log than the one that was planned \(inode"):
        list(strict.read(task))
    assert list(lenient.read(task)) == []
    assert "another log than the one that was planned" in caplog.text


def test_a_log_that_is_held_open_is_let_go_for_the_one_in_its_place(tmp_path):
    write_topic(tmp_path, "a", 1, 10)
    folder, opened = tmp_path / "a-0", Opened()
    assert opened.get(str(folder), ("a", 0)).high_watermark == 10
    replace_files(folder, 3)
    assert opened.get(str(folder), ("a", 0)).high_watermark == 3
    opened.close()


def test_the_first_writer_of_a_folder_makes_no_other_log(tmp_path):
    """Kafka's folders have no lock file, and another user's may not be ours to open."""
    write_topic(tmp_path, "a", 1, 10)
    folder = tmp_path / "a-0"
    (folder / ".lock").unlink()
    reader = reader_of(tmp_path, subscribe="a")
    (task,) = reader.partitions()
    before = identity(str(folder))
    with kafkalog.Log(folder) as log:
        log.append(b"more")
    assert sum(map(len, reader.read(task))) == 10
    after = identity(str(folder))
    assert before != after and same(before, after) and same(after, before)
    shutil.copytree(folder, tmp_path / "b-0")
    assert not same(after, identity(str(tmp_path / "b-0")))
