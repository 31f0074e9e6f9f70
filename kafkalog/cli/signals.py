"""SIGTERM and Ctrl-C while a command runs."""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["default_again", "on_signals"]

NUMBERS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_signals(
    call: Callable[[int], object], interrupt: Callable[[], object] | None = None,
    again: int | None = None,
) -> Iterator[None]:  # fmt: skip
    """Within the block both, and the signal `again`, call `call` with their number; then they do
    again what they did before, since a program may call a command as a function.  Main thread.

    `call` runs in another thread, as the main thread may hold a lock that it needs, even that of an
    Event for which it waits.  `interrupt` runs in the main thread, and takes no lock.

    The system gives a signal to any thread of the process, for example to one that just starts
    another one.  Python's handler runs in the main thread all the same, but nothing wakes that.  So
    `call` is not left to the handler: Python writes the number to a socket in whichever thread.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        if interrupt is not None:
            interrupt()

    numbers = NUMBERS if again is None else (*NUMBERS, again)
    near, far = socket.socketpair()
    with far:
        far.setblocking(False)
        others = signal.set_wakeup_fd(far.fileno(), warn_on_full_buffer=False)
        threading.Thread(
            target=_pass_on, args=(near, numbers, call, others), name="signals", daemon=True
        ).start()
        before = {number: signal.signal(number, handle) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                # None: it was not set from Python.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            signal.set_wakeup_fd(others)


def _pass_on(
    given: socket.socket, numbers: Collection[int], call: Callable[[int], object], others: int
) -> None:
    """Call with each number that comes, until the other end is closed; `others`: the descriptor
    that would have got it, -1: none."""
    with given:
        while data := given.recv(1):
            if data[0] in numbers:
                call(data[0])
            if others >= 0:
                with contextlib.suppress(OSError):
                    os.write(others, data)


def default_again() -> None:
    """The next one ends the process."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
