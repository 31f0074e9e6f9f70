"""Signals of a command."""

from __future__ import annotations

import os
import queue
import signal
import socket
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


def test_another_thread_may_take_a_signal() -> None:
    """The system chooses: one that starts a thread just then, for example.  Here the main thread
    takes none."""
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    with on_signals(signals.put, again=signal.SIGUSR1):
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
        try:
            for number in (signal.SIGUSR1, signal.SIGTERM):
                os.kill(os.getpid(), number)
                assert signals.get(timeout=LIMIT_S) == number
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_a_program_that_waits_for_signals_still_gets_them() -> None:
    """As asyncio does: by a descriptor of its own."""
    near, far = socket.socketpair()
    far.setblocking(False)
    with near, far:
        near.settimeout(LIMIT_S)
        before = signal.set_wakeup_fd(far.fileno())
        signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        try:
            with on_signals(signals.put):
                os.kill(os.getpid(), signal.SIGTERM)
                assert signals.get(timeout=LIMIT_S) == signal.SIGTERM
                assert near.recv(1) == bytes([signal.SIGTERM])
            assert signal.set_wakeup_fd(-1) == far.fileno()
        finally:
            signal.set_wakeup_fd(before)
