"""A follower's log with a full disk, compaction, retention and its own settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Log, NoSpace
from kafkalog.batch.walk import whole_batches
from kafkalog.errors import Closed, CorruptLog
from kafkalog.log.compaction import Limits
from kafkalog.log.log import handle_of
from kafkalog.replication.follower_log import FollowerLog, all_now, not_synced_before_leading
from kafkalog.replication.following import Append, Cut, Restart
from tests.support.copies import batches_in, open_copy
from tests.unit.clean.test_concurrency import Interrupted

Begin = Callable[..., FollowerLog]
SMALL = {"segment.bytes": 1_500, "file.delete.delay.ms": 0}


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Log]:
    """A log of three keys in several segments."""
    with Log(tmp_path / "leader" / "t-0", config=SMALL) as log:
        fill(log, 40)
        yield log


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Opens replicas, each with its own settings."""
    made: list[FollowerLog] = []

    def make(**config: object) -> FollowerLog:
        made.append(
            FollowerLog(open_copy(tmp_path / f"copy{len(made)}" / "t-0", {**SMALL, **config}))
        )
        return made[-1]

    yield make
    for copy in made:
        copy.log.close()


@pytest.fixture
def disk(native_test: tuple[Any, Any]) -> Iterator[Any]:
    _, lib = native_test
    lib.kl_io_reset()
    yield lib
    lib.kl_io_reset()


def fill(log: Log, count: int) -> None:
    for _ in range(count):
        number = log.end_offset
        log.append(b"%0200d" % number, key=b"k%d" % (number % 3), timestamp_ms=1_000 + number)


def take(copy: FollowerLog, leader: Log, shown: int | None = None) -> None:
    """Append all that the leader has, in several answers; `shown`: the high watermark in them."""
    shown = leader.high_watermark if shown is None else shown
    while (asked := copy.now().log_end) < leader.end_offset:
        records = leader.read_batches(asked, 1_000, "log_end")
        copy.do(Append(records, shown, leader.start_offset), asked)


def same(copy: FollowerLog, leader: Log) -> bool:
    """True if the batches from the replica's log start on are equal."""
    start = copy.log.start_offset
    return batches_in(Path(copy.log.path), start) == batches_in(Path(leader.path), start)


def test_a_full_disk_is_met_again_and_nothing_is_left_out(
    leader: Log, begin: Begin, disk: Any
) -> None:
    """Records that did not fit are fetched again, from the end of the replica."""
    copy = begin()
    copy.do(Append(leader.read_batches(0, 1_000, "log_end"), 3, 0), 0)
    end = copy.now().log_end
    for _ in range(3):
        disk.kl_io_fail(b"pwrite", 1, 28, 1, 0)
        with pytest.raises(NoSpace):
            copy.do(Append(leader.read_batches(end, 1_000, "log_end"), 30, 0), end)
        disk.kl_io_reset()
        assert (copy.now().log_end, copy.now().high_watermark) == (end, 3)
    take(copy, leader)
    assert same(copy, leader) and copy.now().high_watermark == leader.end_offset
    assert copy.log.verify().clean


def test_a_copy_is_compacted_by_itself(leader: Log, begin: Begin) -> None:
    """It continues with the leader's records, compacted or not."""
    copy = begin(**{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
    take(copy, leader)
    handle_of(copy.log).show_until(leader.end_offset)
    copy.log.compact()
    assert len(list(copy.log.read())) < leader.end_offset
    fill(leader, 9)
    take(copy, leader)
    theirs = {record.key: record.value for record in leader.read()}
    assert {record.key: record.value for record in copy.log.read()} == theirs
    assert copy.now().log_end == leader.end_offset
    assert copy.log.verify().clean


def test_uncommitted_records_are_not_compacted(leader: Log, begin: Begin) -> None:
    """It may be truncated, and then records that compaction replaced would be lost."""
    copy = begin(**{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
    take(copy, leader, shown=0)
    copy.log.compact()
    assert same(copy, leader)


def lead(copy: FollowerLog) -> None:
    """Lead, and append a record in the newest epoch."""
    handle_of(copy.log).lead(9)
    copy.log.append(b"ours", key=b"k0", timestamp_ms=1)


CHANGES: dict[str, Callable[[FollowerLog], object]] = {
    "leads": lead,
    "is cut to what is shown": lambda copy: copy.do(Cut(copy.now().high_watermark)),
    "starts over": lambda copy: copy.do(Restart(250)),
}


@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_role_while_it_is_compacted(
    leader: Log, begin: Begin, change: str, after: int
) -> None:
    """The finished part of the round stays, and the replica continues as without compaction."""
    fill(leader, 360)
    copy = begin(**{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
    take(copy, leader, shown=300)
    met = Interrupted(lambda: CHANGES[change](copy), after)
    met.step_bytes = 1 << 12
    copy.log.compact(Limits(throttle=met))
    assert met._left <= 0, "it came after the round"
    wanted = {record.key: record.value for record in leader.read()}
    if change == "leads":
        wanted[b"k0"] = b"ours"
        assert copy.now().last_epoch == 9
    take(copy, leader)
    handle_of(copy.log).show_until(copy.now().log_end)
    copy.log.compact()
    assert {record.key: record.value for record in copy.log.read()} == wanted
    assert copy.log.verify(deep=True).clean


def test_retention_of_a_copy_goes_as_far_as_it_is_shown(leader: Log, begin: Begin) -> None:
    copy = begin(**{"retention.bytes": 1})
    take(copy, leader, shown=0)
    assert (copy.log.apply_retention(), copy.log.start_offset) == (None, 0)
    handle_of(copy.log).show_until(leader.end_offset)
    copy.log.apply_retention()
    assert 0 < copy.log.start_offset < leader.end_offset
    fill(leader, 5)
    take(copy, leader)
    assert same(copy, leader) and copy.now().log_end == leader.end_offset


@pytest.mark.parametrize(
    "config",
    [
        {"max.message.bytes": 100},
        {"compression.type": "zstd"},
        {"message.timestamp.type": "LogAppendTime"},
        {"message.timestamp.before.max.ms": 1},
        {"cleanup.policy": "compact"},
    ],
    ids=lambda config: next(iter(config)),
)
def test_settings_that_producers_obey_change_nothing_of_a_copy(
    leader: Log, begin: Begin, config: dict[str, object]
) -> None:
    """Its leader has already applied them."""
    copy = begin(**config)
    leader.append(b"without a key", timestamp_ms=5)
    take(copy, leader)
    assert same(copy, leader) and copy.now().log_end == leader.end_offset


# ---- truncation -------------------------------------------------------------------------------


def test_truncated_committed_records_are_kept(
    leader: Log, begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    """Its leader was elected unclean: shown records are kept in a file and logged before a cut."""
    copy = begin()
    take(copy, leader, shown=30)
    folder = Path(copy.log.path)
    whole = batches_in(folder)
    copy.do(Cut(25))
    (line,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    (kept,) = folder.glob("*.damaged")
    assert line.message == (
        f"t-0: 15 offsets from 25 up to 40 are cut, as its leader lacks them: kept in {kept}"
    )
    assert [bytes(data) for _, data in whole_batches(kept.read_bytes())] == whole[25:]
    assert copy.now().log_end == 25 and copy.log.verify().clean
    caplog.clear()
    copy.do(Restart(3))
    assert "25 offsets from 0 up to 25 are cut" in caplog.text
    assert len(list(folder.glob("*.damaged"))) == 2
    assert (copy.now().log_start, copy.now().log_end) == (3, 3)


def test_truncated_uncommitted_records_are_logged(
    leader: Log, begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    copy = begin()
    take(copy, leader, shown=20)
    with caplog.at_level(logging.INFO):
        copy.do(Cut(40))
        assert not caplog.records, "nothing is cut"
        copy.do(Cut(20))
        assert "20 offsets from 20 up to 40 are cut, as its leader lacks them: " in caplog.text
        copy.do(Restart(55))
        assert "its leader starts at offset 55, beyond the end here at 20" in caplog.text
    assert not list(Path(copy.log.path).glob("*.damaged"))


def test_records_that_cannot_be_kept_are_not_truncated(leader: Log, begin: Begin) -> None:
    copy = begin()
    take(copy, leader)
    folder = Path(copy.log.path)
    for number in range(1000):
        (folder / f"{number:020}.log.damaged").touch()
    with pytest.raises(CorruptLog, match="nothing was truncated"):
        copy.do(Cut(10))
    assert copy.now().log_end == 40


def test_many_are_looked_at_at_once(begin: Begin, leader: Log) -> None:
    """As each reports it itself; a closed one raises only if asked alone."""
    copies = [begin() for _ in range(3)]
    take(copies[0], leader)
    take(copies[1], leader, shown=7)
    copies[2].log.close()
    assert all_now(copies) == [copies[0].now(), copies[1].now(), None]
    assert all_now([]) == []
    with pytest.raises(Closed):
        copies[2].now()


def test_many_are_on_disk_before_they_lead(begin: Begin, leader: Log) -> None:
    """If acks=all promises that records are on disk."""
    kept, other = begin(), begin(**{"kafkalog.durability": "os"})
    for copy in (kept, other):
        take(copy, leader)
    handles = [handle_of(one.log) for one in (kept, other)]
    assert not_synced_before_leading(handles) == set()
    assert handles[0].state().flushed_offset == leader.end_offset
    kept.log.close()
    assert not_synced_before_leading(handles) == {handles[0]}
