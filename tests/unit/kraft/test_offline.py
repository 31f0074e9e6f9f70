"""Topics created on the command line, with or without a broker's metadata."""

from pathlib import Path

import pytest

from kafkalog.cli import main
from kafkalog.directory.manager import Manager
from kafkalog.errors import ArgumentError, InvalidTopic, TopicExists
from kafkalog.kraft.batches import data_batches
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.kraft.offline import create_topic
from kafkalog.log.log import Log
from tests.unit.kraft.story import create


def test_a_directory_with_metadata_learns_of_the_topic(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Manager(data) as manager, MetadataLog.open(manager):
        pass
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    words = ["ingest", str(lines), "--dir", str(data), "--topic", "t", "--partitions", "2"]
    assert main([*words, "--set", "segment.bytes=2000"]) == 2  # the metadata has its settings
    assert main(words) == 0
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        assert not metadata.problems
        assert metadata.image.topics["t"].id == manager.topic_id("t")
        found = [record.value for n in (0, 1) for record in manager.get("t", n).read()]
        assert sorted(value for value in found if value) == [b"one", b"two"]
    with Manager(data) as manager:
        with pytest.raises(TopicExists):
            create_topic(manager, "t")
        with pytest.raises(InvalidTopic):
            create_topic(manager, "sp ace")


def test_a_log_is_not_written_under_metadata_that_are_not_wholly_known(tmp_path: Path) -> None:
    """The unknown records may concern the log; it can only be read."""
    with Manager(tmp_path) as manager, MetadataLog.open(manager) as metadata:
        create(metadata, "t", 1)
        log = manager.get("__cluster_metadata", 0)
        (batch,) = data_batches([b"\x01\x7b\x00"], log.end_offset, metadata.image.epoch, 1)
        log.append_as_follower(batch)
    with pytest.raises(ArgumentError, match=r"found record 123 version 0 \(known: records 0 to"):
        Log(tmp_path / "t-0")
    with Log(tmp_path / "t-0", mode="r") as log:
        assert log.end_offset == 0


def test_without_metadata_there_are_only_folders(tmp_path: Path) -> None:
    with Manager(tmp_path) as manager:
        create_topic(manager, "t", 2)
        assert manager.topics() == ("t",)
        assert not (tmp_path / "__cluster_metadata-0").exists()
