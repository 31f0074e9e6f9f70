"""Clocks: the manual one is stopped, and wakes waiting threads when it is moved."""

import threading
import time

import pytest

from kafkalog.clock import ManualClock, SkippingClock, SystemClock
from tests.support.waiting import LIMIT_S


def test_the_manual_clock_moves_only_when_told():
    """Both of its clocks advance by the same time."""
    clock = ManualClock(1_000)
    assert (clock.now_ms(), clock.monotonic_s()) == (1_000, 0.0)
    clock.advance(1_500)
    assert (clock.now_ms(), clock.monotonic_s()) == (2_500, 1.5)
    with pytest.raises(ValueError, match="ms: found -1"):
        clock.advance(-1)


def test_a_jump_of_the_wall_clock_leaves_timers_alone():
    """A jump back of the wall clock delays no timer."""
    clock = ManualClock(10_000)
    clock.set_now_ms(5)
    assert (clock.now_ms(), clock.monotonic_s()) == (5, 0.0)


def test_advance_wakes_a_waiter_at_its_time(wait_until):
    """A waiter whose time has not come only checks, and waits on."""
    clock = ManualClock()
    condition = threading.Condition()
    woken: list[float] = []

    def wait() -> None:
        with condition:
            while clock.monotonic_s() < 2.0:
                clock.wait_until(condition, 2.0)
            woken.append(clock.monotonic_s())

    thread = threading.Thread(target=wait)
    thread.start()
    clock.advance(1_999)
    assert not woken
    clock.advance(1)
    thread.join(LIMIT_S)
    assert woken == [2.0]


@pytest.mark.parametrize("kind", [ManualClock, SkippingClock])
def test_followers_are_called_before_anything_sees_the_new_time(kind):
    """At once, and in each move, until they stop; a thread that waited for the time comes later."""
    clock = kind()
    clock.advance(250)
    told: list[int] = []
    end = clock.follow(told.append)
    assert told == [250]
    condition = threading.Condition()
    seen: list[list[int]] = []
    until_s = clock.monotonic_s() + 1_000

    def wait() -> None:
        with condition:
            while clock.monotonic_s() < until_s:
                clock.wait_until(condition, until_s)
            seen.append(list(told))

    thread = threading.Thread(target=wait)
    thread.start()
    clock.advance(1_000_000)
    thread.join(LIMIT_S)
    assert seen == [[250, 1_000_250]]
    end()
    clock.advance(1)
    assert told == [250, 1_000_250]
    end()  # harmless


def test_a_wait_until_a_past_moment_returns_at_once():
    """No notify is needed."""
    for clock in (ManualClock(), SystemClock()):
        condition = threading.Condition()
        with condition:
            clock.wait_until(condition, clock.monotonic_s() - 1)


def test_the_system_clock_is_the_machines():
    """Wall clock in milliseconds, monotonic clock in seconds, and waits that end."""
    clock = SystemClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 60_000
    before = time.monotonic()
    condition = threading.Condition()
    with condition:
        until_s = clock.monotonic_s() + 0.01
        while clock.monotonic_s() < until_s:
            clock.wait_until(condition, until_s)
    assert time.monotonic() - before >= 0.01


def test_a_waiter_without_a_time_waits_for_its_notify():
    """None means: until notified."""
    for clock in (ManualClock(), SystemClock()):
        condition = threading.Condition()
        told = threading.Event()
        done = threading.Event()

        def wait(clock=clock, condition=condition, told=told, done=done) -> None:
            with condition:
                while not told.is_set():
                    clock.wait_until(condition, None)
            done.set()

        thread = threading.Thread(target=wait)
        thread.start()
        with condition:
            told.set()
            condition.notify_all()
        assert done.wait(LIMIT_S)
        thread.join(LIMIT_S)
