"""The leader epochs of a log: when one is recorded, and when it is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import Log
from kafkalog.log.log import handle_of
from tests.support.copies import append_alone, batches_in


def epochs(log: Log) -> list[tuple[int, int]]:
    return [tuple(one) for one in log.epochs]


def test_an_epoch_without_a_record_goes_with_a_truncation_at_the_end(log_dir: Path) -> None:
    """As in Kafka: otherwise a leader without records names an epoch that no other log has."""
    with Log(log_dir) as log:
        log.append(b"0")
        handle_of(log).lead(3)
        assert epochs(log) == [(0, 0), (3, 1)]
        log.truncate(2)
        assert epochs(log) == [(0, 0), (3, 1)], "what lies behind the end is no end"
        log.truncate(1)
        assert epochs(log) == [(0, 0)]
        assert log.epoch_end(0) == (0, 1)
        assert handle_of(log).state().last_epoch == 0
    with Log(log_dir) as log:
        assert epochs(log) == [(0, 0)]
        log.append(b"1")
        assert (log.end_offset, log.verify().clean) == (2, True)


def test_an_epoch_with_a_record_stays(log_dir: Path) -> None:
    with Log(log_dir) as log:
        log.append(b"0")
        handle_of(log).lead(3)
        log.append(b"1")
        log.truncate(2)
        assert epochs(log) == [(0, 0), (3, 1)]


def test_an_empty_log_forgets_all(log_dir: Path) -> None:
    with Log(log_dir) as log:
        handle_of(log).lead(3)
        log.truncate(0)
        assert (epochs(log), handle_of(log).state().last_epoch) == ([], -1)
        log.append(b"0")
        assert epochs(log) == [(3, 0)]


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_cut_at_the_start_leaves_no_record_below_it(log_dir: Path, cut: int) -> None:
    """Deleted records are still in the file, in an epoch that a new leader never had."""
    leader = log_dir.with_name("leader-0")
    append_alone(leader, (2, 4))
    append_alone(log_dir, (3, 4))
    with Log(log_dir) as log:
        log.delete_before(2)
        log.truncate(cut)
        assert (log.start_offset, log.end_offset, epochs(log)) == (cut, cut, [])
        log.append_as_follower(b"".join(batches_in(leader, cut)))
        assert batches_in(log_dir) == batches_in(leader, cut)
        assert log.verify().clean
    (log_dir / "leader-epoch-checkpoint").unlink()
    with Log(log_dir) as log:
        assert (epochs(log), log.end_offset) == ([(2, cut)], 4)


def test_a_cut_inside_the_batch_of_the_start_leaves_none_below_it(log_dir: Path) -> None:
    """The log is truncated at the start of the batch, which is below the log start."""
    append_alone(log_dir, (3, 4))
    with Log(log_dir) as log:
        log.append_many([b"a", b"b", b"c"])
        log.delete_before(5)
        log.truncate(6)
        assert (log.start_offset, log.end_offset, epochs(log)) == (4, 4, [])
        assert batches_in(log_dir) == []
        assert log.verify().clean
