"""After a kill only unflushed segments are recovered, however large the log is."""

from pathlib import Path

import pytest
from crc32c import crc32c

import kafkalog
from kafkalog.directory.manager import Manager
from kafkalog.errors import CorruptLog
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully
from tests.support import trees

CONFIG = {"segment.bytes": 2000}


def fill(log: kafkalog.Log, segments: int, flush: bool) -> None:
    wanted = len(log.segments) + segments
    while len(log.segments) < wanted:
        log.append(bytes(200), timestamp_ms=1)
        if flush:
            log.flush()


def test_a_flush_moves_the_recovery_point_of_a_log_that_stands_alone(tmp_path):
    path = tmp_path / "log-0"
    with kafkalog.Log(path, config=CONFIG) as log:
        fill(log, 30, flush=True)
        end = log.end_offset
        killed = trees.copy_tree(path, tmp_path / "killed" / "log-0")
    with kafkalog.Log(killed, config=CONFIG) as log:
        assert log.end_offset == end
        assert log.recovery.segments_recovered <= 2


@pytest.mark.parametrize("settings", [{}, {"flush.messages": 7}], ids=["rolls", "flush.messages"])
def test_successive_kills_do_not_add_up(tmp_path, settings, wait_until):
    """Without calls of flush: syncs come from rolls, or from flush.messages."""
    config = CONFIG | settings
    killed = tmp_path / "killed0" / "log-0"
    kafkalog.Log(killed, config=config).close()
    costs = []
    for number in range(1, 6):
        with kafkalog.Log(killed, config=config) as log:
            costs.append((log.recovery.segments_recovered, log.recovery.truncated_bytes))
            fill(log, 10, flush=False)
            base = log.segments[-1].base_offset
            wait_until(lambda log=log, base=base: log.flushed_offset >= base, "the roll's sync")
            end = log.end_offset
            note = killed / "flushed-offset"
            wait_until(lambda note=note, base=base: noted(note) >= base, "the note of it")
            killed = trees.copy_tree(killed, tmp_path / f"killed{number}" / "log-0")
    assert max(costs) <= (2, 0), costs
    with kafkalog.Log(killed, mode="r") as log:
        assert log.recovery.segments_recovered <= 2
        assert (log.end_offset, log.verify().clean) == (end, True)


def noted(note: Path) -> int:
    return int.from_bytes(note.read_bytes()[4:12], "big") if note.exists() else -1


def test_a_note_that_is_none_costs_time_only(tmp_path):
    """Truncated, changed, empty: the log is read from the checkpoint on."""
    path = tmp_path / "log-0"
    with kafkalog.Log(path, config=CONFIG) as log:
        fill(log, 5, flush=True)
        end = log.end_offset
        killed = trees.copy_tree(path, tmp_path / "killed" / "log-0")
    note = killed / "flushed-offset"
    data = note.read_bytes()
    wrong = [
        data[:-1] + bytes([data[-1] ^ 1]),
        data[:9],
        b"",
        data * 2,
        data[:8] + b"\xff" + data[9:],
    ]
    for number, damaged in enumerate(wrong):
        note.write_bytes(damaged)
        copy = trees.copy_tree(killed, tmp_path / f"copy{number}" / "log-0")
        with kafkalog.Log(copy, config=CONFIG) as log:
            assert log.recovery.segments_recovered > 4
            assert log.end_offset == end


def test_a_truncation_removes_the_flushed_offset(tmp_path):
    """It is removed before the first byte, also when a directory's manager truncates."""
    path = tmp_path / "log-0"
    note = path / "flushed-offset"
    with kafkalog.Log(path, config=CONFIG) as log:
        fill(log, 5, flush=True)
        assert note.exists()
        log.truncate(log.end_offset - 1)
        assert not note.exists()
        fill(log, 5, flush=True)
        assert note.exists()
        truncate_fully(handle_of(log), 7)
        assert not note.exists()


def test_a_note_above_the_end_of_a_closed_log_is_none(tmp_path):
    """Records appended below it do not count as being on disk."""
    path = tmp_path / "log-0"
    with kafkalog.Log(path, config=CONFIG) as log:
        fill(log, 5, flush=True)
        end, base = log.end_offset, log.segments[-1].base_offset
    note = note_far_above(path, end)
    with kafkalog.Log(path, config=CONFIG) as log:
        assert noted(note) <= log.end_offset
        log.append(b"torn", timestamp_ms=1)
        torn = trees.copy_tree(path, tmp_path / "torn" / "log-0")
    [*_, active] = sorted(torn.glob("*.log"))
    assert int(active.stem) == base
    data = active.read_bytes().rstrip(b"\0")
    active.write_bytes(data[:-3])
    with kafkalog.Log(torn, config=CONFIG) as log:
        assert log.end_offset == end


def test_a_note_above_the_end_of_a_killed_log_tells_of_a_loss(tmp_path):
    """Its checksum is right, so everything below it was on disk."""
    path = tmp_path / "log-0"
    with kafkalog.Log(path, config=CONFIG) as log:
        fill(log, 5, flush=True)
        end = log.end_offset
        killed = trees.copy_tree(path, tmp_path / "killed" / "log-0")
    note_far_above(killed, end)
    with pytest.raises(CorruptLog, match=f"ends at offset {end}, wanted {end + 1_000}:"):
        kafkalog.Log(killed, config=CONFIG)


def note_far_above(path, end):
    magic_and_offset = b"KLF1" + (end + 1_000).to_bytes(8, "big")
    note = path / "flushed-offset"
    note.write_bytes(magic_and_offset + crc32c(magic_and_offset).to_bytes(4, "big"))
    return note


def test_a_recovery_is_paid_for_once(tmp_path):
    """Nothing was flushed, and the process is killed again after each recovery."""
    path = tmp_path / "log-0"
    with kafkalog.Log(path, config=CONFIG) as log:
        fill(log, 30, flush=False)
        killed = trees.copy_tree(path, tmp_path / "killed0" / "log-0")
    trees.nothing_was_flushed(killed)
    counts = []
    for number in range(1, 4):
        with kafkalog.Log(killed, config=CONFIG) as log:
            counts.append(log.recovery.segments_recovered)
            log.append(b"more", timestamp_ms=1)
            killed = trees.copy_tree(killed, tmp_path / f"killed{number}" / "log-0")
    assert counts[0] > 30
    assert max(counts[1:]) <= 2, counts


def test_in_a_data_directory(tmp_path):
    """The job that writes checkpoints finds a recovered log flushed."""
    with Manager(tmp_path / "data", topic_config=CONFIG) as manager:
        manager.create_topic("events", 1)
        fill(manager.get("events", 0), 30, flush=False)
        killed = trees.copy_tree(tmp_path / "data", tmp_path / "killed0")
    (killed / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    with Manager(killed, topic_config=CONFIG) as manager:
        log = manager.get("events", 0)
        assert log.recovery.segments_recovered > 30
        log.flush()  # already requested
        manager.upkeep.checkpoints.recovery_points()
        again = trees.copy_tree(killed, tmp_path / "killed1")
    with Manager(again, topic_config=CONFIG) as manager:
        assert manager.get("events", 0).recovery.segments_recovered <= 2


def test_a_truncation_takes_it_back(tmp_path):
    """Otherwise rewritten bytes would count as flushed."""
    path = tmp_path / "log-0"
    with kafkalog.Log(path, config=CONFIG) as log:
        fill(log, 10, flush=True)
        log.truncate(5)
        fill(log, 3, flush=False)
        end = log.end_offset
        killed = trees.copy_tree(path, tmp_path / "killed" / "log-0")
    lines = (killed / "recovery-point-offset-checkpoint").read_text().split()
    assert int(lines[-1]) <= 5
    with kafkalog.Log(Path(killed), config=CONFIG) as log:
        assert log.end_offset == end
        assert log.verify().clean
