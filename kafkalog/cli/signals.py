"""SIGTERM and Ctrl-C while a command runs."""

import _thread
import signal
from collections.abc import Callable, Iterator
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

    `call` runs in a thread of its own, as the main thread may hold a lock that it needs, even that
    of an Event for which it waits.  `interrupt` runs in the main thread, and takes no lock.
    """

    def handle(number: int, _frame: FrameType | None) -> None:
        _thread.start_new_thread(call, (number,))
        if interrupt is not None:
            interrupt()

    numbers = NUMBERS if again is None else (*NUMBERS, again)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: it was not set from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def default_again() -> None:
    """The next one ends the process."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
