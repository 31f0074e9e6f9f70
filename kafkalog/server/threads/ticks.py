"""Passes another clock's time than the machine's to the data plane, whose timers read none."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalog.clock import Clock, ManualClock, SkippingClock, SystemClock

if TYPE_CHECKING:
    from kafkalog.server.network.reactor import Reactor

__all__ = ["follow"]


def follow(reactor: "Reactor", clock: Clock, name: str) -> Callable[[], None]:
    """Have the data plane follow a clock: its time is the clock's whenever `advance` returns, or
    soon after a clock of another kind moved.  Returns a function that stops this.

    name: that of the broker, for a thread's name.
    """
    if isinstance(clock, (ManualClock, SkippingClock)):
        return clock.follow(reactor.set_time)
    if isinstance(clock, SystemClock):
        return lambda: None
    return _Ticks(reactor, clock, name).stop


class _Ticks:
    """A thread that wakes with each step of a clock of another kind."""

    def __init__(self, reactor: "Reactor", clock: Clock, name: str) -> None:
        """Starts immediately."""
        self._reactor = reactor
        self._clock = clock
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name=f"{name} ticks", daemon=True)
        self._thread.start()

    def _now_ms(self) -> int:
        return round(self._clock.monotonic_s() * 1000)

    def _loop(self) -> None:
        with self._wake:
            while not self._stopping:
                now_ms = self._now_ms()
                self._reactor.set_time(now_ms)
                # A step since the previous line is not missed: the time has come by then.
                self._clock.wait_until(self._wake, (now_ms + 1) / 1000)

    def stop(self) -> None:
        """End the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._thread.join()
