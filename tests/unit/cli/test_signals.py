"""Signals of a command."""

from __future__ import annotations

import os
import queue
import signal
import threading

from kafkalog.cli.signals import on_signals
from tests.support.waiting import LIMIT_S


def test_a_signal_may_come_while_the_main_thread_holds_a_lock() -> None:
    """As while it enters Event.wait, whose lock Event.set needs."""
    lock = threading.Lock()
    outcomes: queue.Queue[tuple[int, bool]] = queue.Queue()
    interrupted: list[bool] = []

    def call(number: int) -> None:
        outcomes.put((number, lock.acquire(timeout=LIMIT_S)))

    with on_signals(call, lambda: interrupted.append(True)):
        with lock:
            os.kill(os.getpid(), signal.SIGTERM)
            while not interrupted:
                pass
        assert outcomes.get(timeout=LIMIT_S) == (signal.SIGTERM, True)
