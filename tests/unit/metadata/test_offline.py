"""Topics made from the command line, where a broker has left its metadata or not."""

from pathlib import Path

import pytest

from kafkalog.cli import main
from kafkalog.directory.manager import Manager
from kafkalog.errors import InvalidTopic, TopicExists
from kafkalog.metadata.kraft.kraftlog import MetadataLog
from kafkalog.metadata.offline import create_topic


def test_a_directory_with_metadata_learns_of_the_topic(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Manager(data) as manager, MetadataLog.open(manager):
        pass
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    words = ["ingest", str(lines), "--dir", str(data), "--topic", "t", "--partitions", "2"]
    assert main([*words, "--set", "segment.bytes=2000"]) == 2  # the metadata say its settings
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


def test_without_metadata_there_are_only_folders(tmp_path: Path) -> None:
    with Manager(tmp_path) as manager:
        create_topic(manager, "t", 2)
        assert manager.topics() == ("t",)
        assert not (tmp_path / "__cluster_metadata-0").exists()
