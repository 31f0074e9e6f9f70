"""The disk of a replica: a real directory, batches as Kafka writes them, crashes at each step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from kafkalog import errors
from kafkalog.clock import ManualClock
from kafkalog.config.quorum import QuorumConfig
from kafkalog.directory.manager import Manager
from kafkalog.kraft.records import encode
from kafkalog.kraft.snapshots import SnapshotName, list_snapshots, render_snapshot
from kafkalog.metadata.image import empty_image
from kafkalog.quorum.replica.disk import ReplicaDisk, batches_of
from kafkalog.raft.codec import control_record
from kafkalog.raft.log import Batch, LeaderChange, LogView, OffsetAndEpoch, VersionChange
from kafkalog.raft.messages import QuorumState
from kafkalog.raft.replicas import ReplicaKey, Voter, Voters
from tests.support.copies import batches_in
from tests.support.quorums import formatted

ME = ReplicaKey(1, UUID(int=1001))
VOTERS: Voters = (Voter(ME, (("CONTROLLER", "localhost", 9093),)),)
OTHERS: Voters = (*VOTERS, Voter(ReplicaKey(2, UUID(int=1002)), (("CONTROLLER", "there", 1),)))
RECORD = encode("NoOpRecord", {}, empty_image("cluster", 1))


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with Manager(tmp_path / "data", node_id=1) as found:
        yield found


def disk_of(manager: Manager, voters: Voters = VOTERS, **settings: object) -> ReplicaDisk:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return ReplicaDisk(manager, QuorumConfig(named), voters)


def leads(disk: ReplicaDisk, offset: int, epoch: int, *more: VersionChange | Voters) -> None:
    controls = (LeaderChange(1, (ME,), (ME,)), *more)
    disk.append(Batch(offset, offset + len(controls) - 1, epoch, controls), 1)


def writes(disk: ReplicaDisk, offset: int, epoch: int, count: int = 1) -> None:
    disk.append(Batch(offset, offset + count - 1, epoch, (), (RECORD,) * count), 1)


def snapshot(voters: Voters = OTHERS) -> bytes:
    value = control_record(voters, 1)[1]
    return render_snapshot([RECORD], 3, (0, 0), 1, value)


def test_a_log_is_seen_with_its_epochs_and_voters(manager: Manager) -> None:
    disk = disk_of(manager)
    leads(disk, 0, 1, VersionChange(1), OTHERS)
    writes(disk, 3, 1, count=2)
    leads(disk, 5, 4)
    view = disk.view()
    assert (view.start, view.end, view.epochs) == (0, 6, ((1, 0), (4, 5)))
    assert view.voters == ((-1, VOTERS), (2, OTHERS))
    assert view.versions == ((-1, 0), (1, 1))


def test_the_voters_of_formatting_are_in_a_snapshot_of_nothing(manager: Manager) -> None:
    disk = disk_of(manager, ())
    assert disk.view() == LogView()
    (Path(disk.folder) / SnapshotName(0, 0).file()).write_bytes(formatted(OTHERS))
    view = disk.view()
    assert (view.voters, view.versions) == (((-1, OTHERS),), ((-1, 1),))


def test_a_follower_has_its_leaders_bytes(tmp_path: Path) -> None:
    with Manager(tmp_path / "one") as one, Manager(tmp_path / "two") as two:
        leader, follower = disk_of(one), disk_of(two)
        leads(leader, 0, 1, VersionChange(1), OTHERS)
        writes(leader, 3, 1, count=3)
        data = leader.read(0, 1 << 20)
        for batch in batches_of(data + data[:40]):  # a fetch may end inside a batch
            follower.append(batch, 0)
        assert follower.view() == leader.view()
        assert batches_in(Path(follower.folder)) == batches_in(Path(leader.folder))


def test_a_fetch_has_at_least_one_batch(manager: Manager) -> None:
    disk = disk_of(manager)
    writes(disk, 0, 1, count=100)
    writes(disk, 100, 1)
    assert [one.last_offset for one in batches_of(disk.read(0, 1))] == [99]


def test_a_truncation_is_at_the_start_of_a_batch(manager: Manager) -> None:
    disk = disk_of(manager)
    writes(disk, 0, 1)
    writes(disk, 1, 2, count=4)
    disk.truncate(1)
    assert disk.view().epochs == ((1, 0),)
    writes(disk, 1, 2, count=4)
    with pytest.raises(errors.CorruptLog, match="wanted 3"):
        disk.truncate(3)


def test_the_vote_survives(manager: Manager) -> None:
    disk = disk_of(manager)
    assert disk.stored() is None
    for version in (0, 1):
        disk.save(QuorumState(7, None, ME), version, VOTERS)
        found = disk.stored()
        assert found is not None
        assert (found.epoch, found.leader_id) == (7, None)
        assert found.voted is not None and found.voted.id == 1


def test_a_damaged_vote_is_refused(manager: Manager) -> None:
    disk = disk_of(manager)
    (Path(disk.folder) / "quorum-state").write_bytes(b"{}")
    with pytest.raises(errors.CorruptLog, match="quorum-state"):
        disk.stored()


# ---- snapshots ---------------------------------------------------------------------------------


def fetch(disk: ReplicaDisk, end: OffsetAndEpoch, data: bytes) -> None:
    """Write a snapshot in two pieces."""
    disk.write_snapshot(end, 0, data[:50])
    disk.write_snapshot(end, 50, data[50:])


def test_a_fetched_snapshot_replaces_the_log(manager: Manager) -> None:
    disk = disk_of(manager)
    leads(disk, 0, 1, VersionChange(1), VOTERS)
    end = OffsetAndEpoch(40, 3)
    fetch(disk, end, snapshot())
    assert disk.finish_snapshot(end) == (1, OTHERS)
    view = disk.view()
    assert (view.start, view.end, view.base) == (40, 40, end)
    assert view.voters[-1][1] == OTHERS
    leads(disk, 40, 5)
    assert disk.view().epochs == ((5, 40),)
    assert disk.committed == 40


def test_a_piece_that_comes_again_is_written_in_its_place(manager: Manager) -> None:
    disk, data, end = disk_of(manager), snapshot(), OffsetAndEpoch(40, 3)
    fetch(disk, end, data)
    disk.write_snapshot(end, 0, data[:20])
    disk.write_snapshot(end, 20, data[20:])
    assert disk.finish_snapshot(end) == (1, OTHERS)
    assert disk.read_snapshot(end, 20, 30) == (len(data), data[20:50])
    assert disk.read_snapshot(OffsetAndEpoch(41, 3), 0, 10) is None


def test_a_damaged_snapshot_changes_nothing(manager: Manager) -> None:
    disk, end = disk_of(manager), OffsetAndEpoch(40, 3)
    leads(disk, 0, 1, VersionChange(1), VOTERS)
    before = disk.view()
    fetch(disk, end, snapshot()[:-1])
    with pytest.raises(errors.CorruptMessage, match="checkpoint"):
        disk.finish_snapshot(end)
    assert disk.view() == before
    assert list_snapshots(disk.folder) == []


def test_a_crash_before_the_log_is_emptied_is_finished(manager: Manager) -> None:
    disk = disk_of(manager)
    leads(disk, 0, 1, VersionChange(1), VOTERS)
    (Path(disk.folder) / SnapshotName(40, 3).file()).write_bytes(snapshot())
    again = disk_of(manager)
    assert (again.view().start, again.view().end) == (40, 40)


def test_a_log_that_could_not_be_emptied_is_emptied_before_it_is_read_again(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are none that the snapshot's leader has committed."""
    disk, end = disk_of(manager), OffsetAndEpoch(40, 3)
    leads(disk, 0, 1, VersionChange(1), VOTERS)
    fetch(disk, end, snapshot())

    def refused(*_: object) -> None:
        raise errors.IoFailed("the disk")

    with monkeypatch.context() as patch, pytest.raises(errors.IoFailed):
        patch.setattr("kafkalog.quorum.replica.disk.truncate_fully", refused)
        disk.finish_snapshot(end)
    disk.settle()
    assert (disk.view().start, disk.view().end) == (40, 40)


def test_a_log_without_the_snapshot_before_it_is_refused(manager: Manager) -> None:
    disk, end = disk_of(manager), OffsetAndEpoch(40, 3)
    fetch(disk, end, snapshot())
    disk.finish_snapshot(end)
    (Path(disk.folder) / SnapshotName(*end).file()).unlink()
    with pytest.raises(errors.CorruptLog, match="no snapshot"):
        disk.view()


def test_two_snapshots_are_kept_and_a_small_log_stays(manager: Manager) -> None:
    disk = disk_of(manager)
    writes(disk, 0, 3, count=3)
    for offset in (1, 2, 3):
        (Path(disk.folder) / SnapshotName(offset, 3).file()).write_bytes(snapshot())
        assert disk.superfluous(None) is None
    assert list_snapshots(disk.folder) == [(2, 3), (3, 3)]
    assert disk.view().start == 0


def test_a_large_log_begins_at_the_older_snapshot(tmp_path: Path) -> None:
    config = {"metadata.max.retention.bytes": 1}
    with Manager(tmp_path / "data", config, node_id=1) as manager:
        disk = disk_of(manager)
        for offset in range(4):
            writes(disk, offset, 3)
        for offset in (1, 2, 3):
            (Path(disk.folder) / SnapshotName(offset, 3).file()).write_bytes(snapshot())
        disk.show(4)
        begins = disk.superfluous(None)
        assert begins == (2, 3)
        disk.trim(2)
        view = disk.view()
        assert (view.start, view.end, view.base) == (2, 4, (2, 3))
        assert list_snapshots(disk.folder) == [(2, 3), (3, 3)]
        assert disk.superfluous(view.base) is None


def test_a_log_begins_at_the_older_snapshot_once_its_records_are_old(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    with Manager(tmp_path / "data", clock=clock, node_id=1) as manager:
        disk = disk_of(manager, metadata_max_retention_ms=1_000)
        writes(disk, 0, 3, count=4)
        for offset in (2, 3):
            (Path(disk.folder) / SnapshotName(offset, 3).file()).write_bytes(snapshot())
        assert disk.superfluous(None) is None
        clock.advance(1_001)
        assert disk.superfluous(None) == (2, 3)
        assert disk_of(manager, metadata_max_retention_ms=-1).superfluous(None) is None


def test_the_snapshot_at_which_the_log_begins_is_kept(manager: Manager) -> None:
    disk = disk_of(manager)
    writes(disk, 0, 3, count=5)
    for offset in (1, 2, 3, 4):
        (Path(disk.folder) / SnapshotName(offset, 3).file()).write_bytes(snapshot())
    assert disk.superfluous(OffsetAndEpoch(1, 3)) is None
    assert list_snapshots(disk.folder) == [(1, 3), (3, 3), (4, 3)]


def test_segments_are_as_large_as_the_settings_say(manager: Manager) -> None:
    disk = disk_of(manager, metadata_log_segment_bytes=8 << 20, metadata_log_segment_ms=1_000)
    found = disk.log.config
    assert (found.segment_bytes, found.segment_ms) == (8 << 20, 1_000)
