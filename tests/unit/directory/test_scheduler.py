"""Periodic jobs: when each is due, and a failing job stops no other."""

import logging
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.clock import ManualClock
from kafkalog.config.declare import FOREVER
from kafkalog.directory.manager import Manager
from kafkalog.directory.scheduler import Job, Scheduler, due, next_due_ms
from tests.support.waiting import LIMIT_S


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 100)), st.integers(0, 100))
def test_exactly_the_elapsed_jobs_are_due(times, now_ms):
    """In the order of their times; no other is due before next_due_ms."""
    names = due(times, now_ms)
    assert set(names) == {name for name, at in times.items() if at <= now_ms}
    assert [times[n] for n in names] == sorted(times[n] for n in names)
    left = {name: at for name, at in times.items() if name not in names}
    assert next_due_ms(left) > now_ms


def test_nothing_to_wait_for_is_for_ever():
    """There are no jobs."""
    assert next_due_ms({}) == FOREVER


def jobs(runs, *periods, delay_ms=0):
    return [
        Job(f"job {period}", lambda period=period: runs.append(period), period, delay_ms)
        for period in periods
    ]


def test_jobs_run_at_their_periods():
    """Each job has its own period, and first runs after the delay."""
    clock, runs = ManualClock(), []
    scheduler = Scheduler("test", clock, jobs(runs, 10, 25, FOREVER, delay_ms=5))
    for _ in range(12):
        scheduler.run_due()
        clock.advance(5)
    assert runs.count(10) == 6  # at 5, 15, 25, 35, 45, 55
    assert runs.count(25) == 3  # at 5, 30, 55
    assert FOREVER not in runs


def test_a_missed_run_is_not_made_up_for():
    """After a long pause each job runs once."""
    clock, runs = ManualClock(), []
    scheduler = Scheduler("test", clock, jobs(runs, 10))
    clock.advance(1_000)
    assert scheduler.run_due() == ["job 10"]
    assert scheduler.run_due() == []


def test_a_job_on_a_closed_log_has_not_failed(tmp_path, caplog):
    """Every job of a data directory starts just before the directory is closed."""
    clock = ManualClock()
    with Manager(tmp_path / "data", topic_config={"retention.ms": 0}, clock=clock) as manager:
        manager.create_topic("a", 2)
        manager.recover_all()
    late = Scheduler("late", clock, manager.upkeep.jobs())
    with caplog.at_level(logging.WARNING):
        clock.advance(3_600_000)
        assert "retention" in late.run_due()
    assert (late.failures, caplog.messages) == ({}, [])


def test_a_failing_job_is_reported_and_stops_no_other(caplog):
    """The failure is logged and kept, the job retried, and the failure forgotten on success."""
    clock, runs = ManualClock(), []
    broken = [True]

    def fail() -> None:
        if broken[0]:
            raise OSError("the disk is full")

    scheduler = Scheduler("test", clock, [Job("checkpoint", fail, 10, 0), *jobs(runs, 10)])
    with caplog.at_level(logging.ERROR):
        scheduler.run_due()
    assert runs == [10]
    assert "job checkpoint failed" in caplog.text
    assert "the disk is full" in caplog.text
    assert str(scheduler.failures["checkpoint"]) == "the disk is full"
    broken[0] = False
    clock.advance(10)
    scheduler.run_due()
    assert scheduler.failures == {}


def test_the_thread_wakes_with_the_clock(wait_until):
    """It sleeps until the clock advances, runs due jobs, and ends with stop."""
    clock, runs = ManualClock(), []
    scheduler = Scheduler("test", clock, jobs(runs, 60_000, delay_ms=60_000))
    scheduler.start()
    clock.advance(59_999)
    assert runs == []
    clock.advance(1)
    wait_until(lambda: runs == [60_000], "the job's first run")
    clock.advance(60_000)
    wait_until(lambda: runs == [60_000, 60_000], "its second")
    scheduler.stop()
    clock.advance(60_000)
    assert len(runs) == 2
    assert not any(thread.name == "test" for thread in threading.enumerate())


@pytest.mark.parametrize("ms", [1, 3, 290, 579, 1_001])
def test_a_time_in_seconds_that_is_not_exact_is_still_met(ms, wait_until):
    """A time in ms, as a float of seconds, may be slightly too small."""
    clock, runs = ManualClock(), []
    scheduler = Scheduler("test", clock, jobs(runs, ms, delay_ms=ms))
    scheduler.start()
    clock.advance(ms)
    wait_until(lambda: runs == [ms], "the run")
    scheduler.stop()


def test_stop_waits_for_the_running_job():
    """And no other job starts."""
    clock = ManualClock()
    entered, leave, after = threading.Event(), threading.Event(), []

    def slow() -> None:
        entered.set()
        leave.wait(LIMIT_S)

    later = Job("later", lambda: after.append(1), 10, 0)
    scheduler = Scheduler("test", clock, [Job("slow", slow, 10, 0), later])
    scheduler.start()
    assert entered.wait(LIMIT_S)
    stopper = threading.Thread(target=scheduler.stop)
    stopper.start()
    leave.set()
    stopper.join(LIMIT_S)
    assert not stopper.is_alive()
    clock.advance(100)
    assert len(after) <= 1
    scheduler.stop()


def test_stop_before_start_is_harmless():
    """And so is a second stop."""
    scheduler = Scheduler("test", ManualClock(), [])
    scheduler.stop()
    scheduler.stop()


def test_a_new_period_counts_from_now(wait_until):
    """Even if the job was never due."""
    clock, runs = ManualClock(), []
    scheduler = Scheduler("test", clock, jobs(runs, FOREVER))
    scheduler.start()
    clock.advance(1_000_000)
    scheduler.set_period(f"job {FOREVER}", 50)
    clock.advance(49)
    assert runs == []
    clock.advance(1)
    wait_until(lambda: len(runs) == 1, "the run")
    scheduler.stop()
