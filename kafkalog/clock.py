"""Time is a parameter: code that waits or reads the time gets one of these."""

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SkippingClock", "SystemClock"]


class Clock(Protocol):
    """The wall clock for records and retention, the monotonic clock for every timer."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump."""

    def monotonic_s(self) -> float:
        """Seconds since some moment; never goes back."""

    def wait_until(self, condition: threading.Condition, until_s: float | None) -> None:
        """Wait, with `condition` held, until it is notified or monotonic_s() >= until_s.

        None: until it is notified.  May return early, so callers check again.
        """


class SystemClock:
    """The machine's clocks."""

    # The longest single wait: threading accepts about 292 years at most.
    _LONGEST_S = 86_400.0

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.monotonic()

    def wait_until(self, condition: threading.Condition, until_s: float | None) -> None:
        """Wait, with `condition` held, until it is notified or the time has come."""
        if until_s is None:
            condition.wait()
        elif (left_s := until_s - time.monotonic()) > 0:
            condition.wait(min(left_s, self._LONGEST_S))


class _Waiters:
    """Conditions that threads wait on, for a clock that can be moved."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._all: list[threading.Condition] = []

    @contextmanager
    def waiting(self, condition: threading.Condition) -> Iterator[None]:
        """Within the block, `wake` wakes the condition."""
        # Entered before the time is read: a move in between finds the waiter, and cannot
        # notify before it waits, because it holds the condition.
        with self._lock:
            self._all.append(condition)
        try:
            yield
        finally:
            with self._lock:
                self._all.remove(condition)

    def __iter__(self) -> Iterator[threading.Condition]:
        """Those that threads wait on now."""
        with self._lock:
            return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def wake(self) -> None:
        """Wake all waiting threads."""
        for condition in self:
            with condition:
                condition.notify_all()


class _Moved:
    """A clock that `advance` moves: its waiters and its followers."""

    def __init__(self) -> None:
        self._moved_ms = 0
        self._begin()
        _moved.add(self)

    def _begin(self) -> None:
        self._waiters = _Waiters()
        self._lock = threading.RLock()  # guards all times; held while followers are called
        self._followers: list[Callable[[int], None]] = []

    def _move(self, ms: int) -> None:
        """With the lock held."""
        self._moved_ms += ms
        for follower in self._followers:
            follower(self._moved_ms)

    def follow(self, follower: Callable[[int], None]) -> Callable[[], None]:
        """Call `follower(ms)` now and in each `advance`, before anything sees the new time, with
        the sum of all moves.  Returns a function that stops this."""
        with self._lock:
            self._followers.append(follower)
            follower(self._moved_ms)

        def end() -> None:
            with self._lock:
                if follower in self._followers:  # a fork forgets them
                    self._followers.remove(follower)

        return end


class SkippingClock(_Moved, SystemClock):
    """The machine's clocks, with `advance` to move them ahead, for tests that should not wait.

    Time keeps passing between the moves, so that clients with their own clocks notice nothing.
    """

    @property
    def ahead_ms(self) -> int:
        """How far both clocks are ahead of the machine's."""
        return self._moved_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return super().now_ms() + self._moved_ms

    def monotonic_s(self) -> float:
        """Seconds since some moment; never goes back."""
        return super().monotonic_s() + self._moved_ms / 1000

    def advance(self, ms: int) -> None:
        """Let `ms` pass at once on both clocks, and wake threads whose time has come."""
        if ms < 0:
            raise ValueError(f"ms: found {ms}, wanted at least 0: time does not turn back")
        with self._lock:
            self._move(ms)
        self._waiters.wake()

    def wait_until(self, condition: threading.Condition, until_s: float | None) -> None:
        """Wait, with `condition` held, until it is notified or the time has come."""
        with self._waiters.waiting(condition):
            if until_s is None:
                condition.wait()
            elif (left_s := until_s - self.monotonic_s()) > 0:
                condition.wait(min(left_s, self._LONGEST_S))


class ManualClock(_Moved):
    """A clock for tests: it stands still until `advance`, which wakes all waiters."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        super().__init__()

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        with self._lock:
            return self._now_ms

    def monotonic_s(self) -> float:
        """Seconds since this clock was made."""
        with self._lock:
            return self._moved_ms / 1000

    def advance(self, ms: int) -> None:
        """Let `ms` pass on both clocks and wake every waiter."""
        if ms < 0:
            raise ValueError(f"ms: found {ms}, wanted at least 0 (set_now_ms turns back)")
        with self._lock:
            self._now_ms += ms
            self._move(ms)
        self._waiters.wake()

    def set_now_ms(self, now_ms: int) -> None:
        """Make the wall clock jump; timers are not affected."""
        with self._lock:
            self._now_ms = now_ms

    def wait_until(self, condition: threading.Condition, until_s: float | None) -> None:
        """Wait, with `condition` held, until it is notified or the time has come."""
        with self._waiters.waiting(condition):
            if until_s is None or self.monotonic_s() < until_s:
                condition.wait()


_moved: "weakref.WeakSet[_Moved]" = weakref.WeakSet()


def _forked() -> None:
    """A child has its own copy of each clock, on which none of the parent's threads wait."""
    for clock in list(_moved):
        clock._begin()


os.register_at_fork(after_in_child=_forked)
