"""A partition that was created but not opened for writing yet is an empty log."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.directory.manager import Manager


@pytest.fixture
def made(tmp_path: Path) -> Path:
    with Manager(tmp_path / "data") as manager:
        manager.create_topic("events", 1)
    assert not list((tmp_path / "data" / "events-0").glob("*.log"))
    return tmp_path / "data"


def test_it_is_read_as_an_empty_log(made):
    with kafkalog.Log(made / "events-0", mode="r") as log:
        assert (log.start_offset, log.end_offset, log.high_watermark) == (0, 0, 0)
        assert log.size_bytes == 0
        assert list(log.read()) == []
        log.refresh()
        assert log.end_offset == 0
    assert not list((made / "events-0").glob("*.log")), "a reader wrote"


def test_its_first_record_is_seen(made):
    """By a reader opened before it, with and without the writer's page."""
    with kafkalog.Log(made / "events-0", mode="r") as reader:
        assert reader.end_offset == 0
        with Manager(made) as manager:
            manager.get("events", 0).append(b"first")
            assert [r.value for r in reader.read()] == [b"first"]
        assert [r.value for r in reader.read()] == [b"first"]


def test_a_folder_that_is_none_is_still_refused(tmp_path):
    (tmp_path / "empty-0").mkdir()
    with pytest.raises(kafkalog.errors.NotFound):
        kafkalog.Log(tmp_path / "empty-0", mode="r")
