"""Random histories: a share partition with ranges does what one with single records does.

Mistakes are planted one at a time: histories that find none of them prove nothing.
"""

import pytest

from kafkalog.shares import acquiring, partition
from kafkalog.shares.partition import AckType, Limits, SharePartition, State
from tests.unit.shares.record_by_record import play

UNLIMITED = Limits(100, 10_000, 10_000)


@pytest.mark.parametrize("seed", range(30))
def test_a_random_history(seed):
    play(seed)


def _unlimited(original):
    """The group's limits are not passed on."""
    return lambda *args: original(*args[:-1], UNLIMITED)


def _always_written(original):
    return lambda self, *, done, now_ms, limits: original(
        self, done=True, now_ms=now_ms, limits=limits
    )


def _own_clock(original):
    return lambda self, hold, before, now_ms, limits: original(self, hold, before, 0, limits)


def _impatient(self):
    """The start passes states that are not written."""
    done = [one for one in self.holds if one.value.state in partition.TERMINAL]
    if done and done[0].first <= self.start:
        self.holds.cut(done[0].last + 1)
        self.start = done[0].last + 1


def _keeps_holds(self, log_start):
    self.start, self.end = max(self.start, log_start), max(self.end, log_start)


def _forgets_rows(original):
    def moved(self, log_start):
        self._rows.cut(log_start)
        return original(self, log_start)

    return moved


def _skips_gaps(original):
    def load(self, row):
        self.end = max(self.end, row.first_offset)
        original(self, row)

    return load


def _letters_once(original):
    def letters(self, limits):
        self._letters = False
        return original(self, limits)

    return letters


def _forgets_letters(original):
    def load(self, row):
        original(self, row)
        self._letters = False

    return load


def _archived_at_once(original):
    return lambda self, letter: self.archive(letter.first, letter.last, State.ARCHIVING)


MISTAKES = {
    "dead letters that wait for a write are forgotten": (
        SharePartition, "letters", _letters_once),
    "dead letters of the last leader are forgotten": (SharePartition, "_load", _forgets_letters),
    "the end of a dead letter is not written": (SharePartition, "archived", _archived_at_once),
    "what was delivered too often is no dead letter": (
        SharePartition, "_given_up", lambda _: lambda self, limits: State.ARCHIVED),
    "a released record has no limit": (SharePartition, "_settle", _unlimited),
    "an expired record has no limit": (SharePartition, "_ended", _unlimited),
    "a failed write is not undone": (SharePartition, "end_write", _always_written),
    "a lock that ended during a failed write goes on": (SharePartition, "_undone", _own_clock),
    "any member acknowledges": (SharePartition, "_check_held", lambda _: lambda *_: None),
    "what is being released is acquired": (
        acquiring, "_free", lambda _: lambda hold: hold.state is State.AVAILABLE),
    "the start passes unwritten states": (SharePartition, "advance", lambda _: _impatient),
    "records below the log's start are kept": (SharePartition, "moved", lambda _: _keeps_holds),
    "what waits to be written goes with the log's start": (
        SharePartition, "moved", _forgets_rows),
    "the end of a session is as renewing its locks": (
        SharePartition, "release", lambda _: lambda self, member, limits: 0),
    "bad records are not isolated": (acquiring, "OFTEN_MIN", lambda _: 100),
    "a lock is not renewed": (SharePartition, "_renew", lambda _: lambda *_: None),
    "gaps between written states are not read again": (SharePartition, "_load", _skips_gaps),
    "acknowledged in the middle of a batch means all of it": (
        partition, "_runs",
        lambda _: lambda one, start: [(max(one.first, start), one.last, one.types[0])]),
    "gaps are accepted": (
        partition, "_SAID", lambda said: {**said, AckType.GAP: State.ACKNOWLEDGED}),
    "batches do not end acquired records": (
        acquiring, "_end_of_batch", lambda _: lambda _batches, offset: offset),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake, monkeypatch):
    place, name, change = MISTAKES[mistake]
    monkeypatch.setattr(place, name, change(getattr(place, name)))
    for seed in range(30):
        try:
            play(seed)
        except (AssertionError, ValueError):
            return
    pytest.fail(f"no history finds that {mistake}")
