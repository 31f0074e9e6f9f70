"""A broker's copy of the metadata log: real batches, a real directory, no leader."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog import errors
from kafkalog.cluster.quorum.metadata_log import CopiedMetadata
from kafkalog.directory.manager import Manager
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.kraft import snapshotting
from kafkalog.kraft.batches import LEADER_CHANGE, control_batch, data_batches, leader_change_value
from kafkalog.kraft.records import encode
from kafkalog.kraft.snapshots import SnapshotName, list_snapshots, render_snapshot
from kafkalog.metadata.image import METADATA_VERSION, empty_image
from tests.support.copies import batches_in

IMAGE = empty_image("cluster", 2)._replace(features={METADATA_VERSION: 27})
LEVEL = ("FeatureLevelRecord", {"name": METADATA_VERSION, "feature_level": 27})
EPOCH = 9
"""The leader's."""
FOLDER = f"{METADATA_TOPIC}-0"


def topic(number: int) -> tuple[str, dict[str, Any]]:
    return "TopicRecord", {"name": f"t{number}", "topic_id": UUID(int=1000 + number)}


def values(*records: tuple[str, dict[str, Any]]) -> list[bytes]:
    return [encode(name, fields, IMAGE) for name, fields in records]


def batch(offset: int, *records: tuple[str, dict[str, Any]], epoch: int = 1) -> bytes:
    return b"".join(data_batches(values(*records), offset, epoch, 1_000))


def first(epoch: int = 1, offset: int = 0) -> bytes:
    return control_batch([(LEADER_CHANGE, leader_change_value(1))], offset, epoch, 1_000)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with Manager(tmp_path / "data", node_id=2) as found:
        found.state.copied = True
        yield found


def opened(manager: Manager) -> CopiedMetadata:
    return CopiedMetadata(manager, "cluster", 2)


def names(copied: CopiedMetadata) -> set[str]:
    return {*copied.image.topics}


def test_only_committed_records_are_in_the_image(manager: Manager) -> None:
    copied = opened(manager)
    written = [first(), batch(1, LEVEL, topic(1)), batch(3, topic(2))]
    assert copied.append(b"".join(written), 0, EPOCH) is None
    assert (copied.end.offset, copied.end.epoch) == (4, 1)
    assert not copied.caught_up or copied.image.offset < 0
    change = copied.append(None, 3, EPOCH)
    assert change is not None
    assert [one.name for one in change.changed] == ["t1"]
    assert copied.append(None, 3, EPOCH) is None
    change = copied.append(None, 4, EPOCH)
    assert change is not None
    assert names(copied) == {"t1", "t2"}
    assert copied.caught_up
    assert batches_in(Path(manager.path) / FOLDER) == written, "byte for byte"


def test_a_restart_waits_for_the_leaders_high_watermark(tmp_path: Path) -> None:
    with Manager(tmp_path / "data", node_id=2) as before:
        before.state.copied = True
        copied = opened(before)
        copied.append(first() + batch(1, LEVEL, topic(1)), 3, EPOCH)
        copied.close()
    with Manager(tmp_path / "data", node_id=2) as after:
        after.state.copied = True
        copied = opened(after)
        assert names(copied) == set()
        assert not copied.caught_up
        assert copied.end.offset == 3
        assert copied.append(None, 3, EPOCH) is not None
        assert names(copied) == {"t1"}


def test_records_that_a_new_leader_never_had_are_truncated(manager: Manager) -> None:
    copied = opened(manager)
    copied.append(first() + batch(1, LEVEL) + batch(2, topic(1)) + batch(3, topic(2)), 3, EPOCH)
    copied.diverge(1, 3)
    assert copied.end.offset == 3
    copied.append(first(2, 3) + batch(4, topic(3), epoch=2), 5, EPOCH)
    assert names(copied) == {"t1", "t3"}


def test_committed_records_are_never_truncated(manager: Manager) -> None:
    copied = opened(manager)
    copied.append(first() + batch(1, LEVEL) + batch(2, topic(1)), 3, EPOCH)
    with pytest.raises(errors.CorruptLog, match="committed"):
        copied.diverge(1, 2)
    assert copied.end.offset == 3


def test_batches_of_a_later_epoch_than_the_leaders_are_not_taken(manager: Manager) -> None:
    copied = opened(manager)
    copied.append(first() + batch(1, LEVEL, topic(1)) + first(2, 3) + batch(4, topic(2)), 5, 1)
    assert (copied.end.offset, copied.end.epoch) == (3, 1)
    assert names(copied) == {"t1"}
    with pytest.raises(errors.CorruptMessage, match="a later epoch, wanted at most 1"):
        copied.append(first(2, 3), 5, 1)
    copied.append(first(2, 3), 4, 2)
    assert copied.end.offset == 4


def test_damage_of_its_own_log_is_not_the_leaders(manager: Manager) -> None:
    copied = opened(manager)
    copied.append(first() + batch(1, LEVEL) + batch(2, topic(1)), 2, EPOCH)
    copied.close()
    (path,) = (Path(manager.path) / FOLDER).glob("*.log")
    data = bytearray(path.read_bytes())
    data[len(first() + batch(1, LEVEL) + batch(2, topic(1))) - 1] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(errors.CorruptLog, match="after offset 2"):
        copied.append(None, 3, EPOCH)


def test_a_snapshot_of_a_later_epoch_replaces_a_longer_log(tmp_path: Path) -> None:
    """A crash came after its file had its name: the records were never committed."""
    with Manager(tmp_path / "data", node_id=2) as before:
        before.state.copied = True
        copied = opened(before)
        copied.append(first() + batch(1, LEVEL) + batch(2, topic(1)) + batch(3, topic(2)), 1, EPOCH)
        copied.close()
    name = SnapshotName(3, 4)
    data = render_snapshot(values(LEVEL, topic(3)), 4, (1_000, 2_000))
    (tmp_path / "data" / FOLDER / name.file()).write_bytes(data)
    with Manager(tmp_path / "data", node_id=2) as after:
        after.state.copied = True
        copied = opened(after)
        assert (copied.end.offset, copied.end.epoch) == (3, 4)
        assert names(copied) == {"t3"}


def test_ids_of_deleted_topics_are_not_kept(manager: Manager) -> None:
    copied = opened(manager)
    removal = "RemoveTopicRecord", {"topic_id": UUID(int=1001)}
    copied.append(first() + batch(1, LEVEL, topic(1)) + batch(3, removal), 4, EPOCH)
    assert names(copied) == set()
    assert copied._loaded.removed == set()


def test_a_snapshot_replaces_the_log(manager: Manager) -> None:
    copied = opened(manager)
    copied.append(first() + batch(1, LEVEL, topic(1)), 3, EPOCH)
    name = SnapshotName(50, 4)
    data = render_snapshot(values(LEVEL, topic(2)), 4, (1_000, 2_000))
    copied.begin(name)
    half = len(data) // 2
    assert copied.store(data[:half], len(data)) is None
    assert copied.downloading == (name, half)
    change = copied.store(data[half:], len(data))
    assert change is not None
    assert ([one.name for one in change.changed], [one.name for one in change.gone]) == (
        ["t2"], ["t1"],
    )  # fmt: skip
    assert (copied.end.offset, copied.end.epoch) == (50, 4)
    assert copied.downloading is None
    assert (Path(manager.path) / FOLDER / name.file()).read_bytes() == data
    copied.append(batch(50, topic(3), epoch=4), 51, EPOCH)
    assert names(copied) == {"t2", "t3"}


def test_a_snapshot_that_was_cut_off_is_fetched_from_its_beginning(manager: Manager) -> None:
    copied = opened(manager)
    copied.begin(SnapshotName(50, 4))
    copied.store(b"half", 8)
    copied.begin(SnapshotName(60, 4))
    assert copied.downloading == (SnapshotName(60, 4), 0)
    copied.discard()
    assert copied.downloading is None
    assert list_snapshots(str(Path(manager.path) / FOLDER)) == []


def test_damaged_bytes_of_a_snapshot_are_not_used(manager: Manager) -> None:
    copied = opened(manager)
    data = bytearray(render_snapshot(values(LEVEL, topic(2)), 4, (1_000, 2_000)))
    data[len(data) // 2] ^= 0xFF
    copied.begin(SnapshotName(50, 4))
    with pytest.raises(errors.CorruptMessage):
        copied.store(bytes(data), len(data))
    assert copied.downloading is None
    assert copied.end.offset == 0


def test_a_snapshot_older_than_the_image_is_refused(manager: Manager) -> None:
    copied = opened(manager)
    copied.append(first() + batch(1, LEVEL, topic(1)), 3, EPOCH)
    with pytest.raises(errors.CorruptLog, match="snapshot"):
        copied.begin(SnapshotName(2, 1))


@pytest.mark.parametrize(
    ("name", "level"),
    [(METADATA_VERSION, 34), (METADATA_VERSION, 6), ("transaction.version", 3), ("new.thing", 1)],
)
def test_an_unsupported_feature_is_refused_by_name(manager: Manager, name: str, level: int) -> None:
    copied = opened(manager)
    record = "FeatureLevelRecord", {"name": name, "feature_level": level}
    with pytest.raises(errors.ArgumentError, match=rf"{name}: found {level}"):
        copied.append(first() + batch(1, LEVEL) + batch(2, record), 3, EPOCH)


@pytest.mark.parametrize(("name", "level"), [("share.version", 2), ("streams.version", 1)])
def test_newer_groups_are_served(
    manager: Manager, caplog: pytest.LogCaptureFixture, name: str, level: int
) -> None:
    copied = opened(manager)
    record = "FeatureLevelRecord", {"name": name, "feature_level": level}
    copied.append(first() + batch(1, LEVEL, record), 3, EPOCH)
    assert copied.image.features[name] == level
    assert name not in caplog.text


def test_snapshots_are_taken_here_too(tmp_path: Path) -> None:
    config = {"metadata.log.max.record.bytes.between.snapshots": 1}
    with Manager(tmp_path / "data", config, node_id=2) as manager:
        manager.state.copied = True
        copied = opened(manager)
        copied.append(first() + batch(1, LEVEL, topic(1)), 3, EPOCH)
        assert list_snapshots(str(Path(manager.path) / FOLDER)) == [SnapshotName(3, 1)]


def test_a_snapshot_that_the_disk_refuses_loses_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: object) -> list[SnapshotName]:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(snapshotting, "list_snapshots", refused)
    config = {"metadata.log.max.record.bytes.between.snapshots": 1}
    with Manager(tmp_path / "data", config, node_id=2) as manager:
        manager.state.copied = True
        copied = opened(manager)
        change = copied.append(first() + batch(1, LEVEL, topic(1)), 3, EPOCH)
        assert change is not None
        assert [one.name for one in change.changed] == ["t1"]
        assert "no snapshot" in caplog.text
