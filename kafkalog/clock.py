"""Time is a parameter: what waits or looks at the clock is given one of these."""

import threading
import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """The wall clock for records and retention, the monotonic clock for every timer."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump."""

    def monotonic_s(self) -> float:
        """Seconds since some moment; never goes back."""

    def wait_until(self, condition: threading.Condition, until_s: float | None) -> None:
        """Wait, with `condition` held, until it is notified or monotonic_s() >= until_s.

        None: until it is notified.  May return early, so callers look again.
        """


class SystemClock:
    """The machine's clocks."""

    # One wait is never longer: what threading accepts ends at about 292 years.
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


class ManualClock:
    """A clock for tests: it stands still until `advance`, which wakes whoever waits on it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._now_ms = now_ms
        self._monotonic_ms = 0
        self._waiters: list[threading.Condition] = []

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        with self._lock:
            return self._now_ms

    def monotonic_s(self) -> float:
        """Seconds since this clock was made."""
        with self._lock:
            return self._monotonic_ms / 1000

    def advance(self, ms: int) -> None:
        """Let `ms` pass on both clocks and wake every waiter."""
        if ms < 0:
            raise ValueError(f"ms: found {ms}, wanted at least 0 (set_now_ms turns back)")
        with self._lock:
            self._now_ms += ms
            self._monotonic_ms += ms
            waiters = list(self._waiters)
        for condition in waiters:
            with condition:
                condition.notify_all()

    def set_now_ms(self, now_ms: int) -> None:
        """Let the wall clock jump; timers do not see it."""
        with self._lock:
            self._now_ms = now_ms

    def wait_until(self, condition: threading.Condition, until_s: float | None) -> None:
        """Wait, with `condition` held, until it is notified or the time has come."""
        # Registered before the time is looked at: an advance in between finds the waiter,
        # and cannot notify before it waits, because it holds the condition.
        with self._lock:
            self._waiters.append(condition)
        try:
            if until_s is None or self.monotonic_s() < until_s:
                condition.wait()
        finally:
            with self._lock:
                self._waiters.remove(condition)
