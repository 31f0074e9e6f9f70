"""Records are delivered even if a program ends without closing its producers.

A process of multiprocessing made by a fork ends without `atexit` before Python 3.14, and a thread
of it may still work when multiprocessing's own finalizers run.  There a thread waits for the end of
all others, as `threading` does when the process ends.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from kafkalog.client.producer.sender import Sender

__all__ = ["Ending", "forget", "note"]

T = TypeVar("T")
_logger = logging.getLogger(__name__)


class Ending(Protocol):
    """A producer that can be closed."""

    _sender: Sender

    def _hurry(self) -> None:
        """Send everything now."""

    def _leave(self, timeout: float, warn: bool = False) -> None:
        """Close it, within `timeout` seconds; lost records are counted in the log."""

    def _forked(self) -> None:
        """This is a forked child, which has none of the threads."""


_producers: weakref.WeakSet[Ending] = weakref.WeakSet()
_senders: weakref.WeakSet[Sender] = weakref.WeakSet()


def note(producer: Ending, sender: Sender) -> None:
    """A producer was opened."""
    _producers.add(producer)
    _senders.add(sender)
    # Registered again each time: what a program made earlier, like a broker, ends after producers.
    atexit.unregister(_deliver_all)
    atexit.register(_deliver_all)
    _note_child()


def forget(producer: Ending) -> None:
    """It was closed."""
    _producers.discard(producer)


def _deliver_all() -> None:
    """Wait until everything is acknowledged, at most for delivery.timeout.ms, or until a Ctrl-C."""
    begun_s = time.monotonic()
    patient = True

    def left_s(sender: Sender) -> float:
        return max(begun_s + sender.options.delivery_s - time.monotonic(), 0) if patient else 0

    held = _now(_producers)
    steps: list[Callable[[], None]] = [one._hurry for one in held]  # all at the same time
    steps += [
        lambda one=one: one._leave(left_s(one._sender), warn=True)  # type: ignore[misc]
        for one in held
    ]
    steps += [
        lambda one=one: one.close(left_s(one))  # type: ignore[misc]
        for one in _now(_senders)
        if one.leaving
    ]
    for step in steps:
        try:
            step()
        except KeyboardInterrupt:
            patient = False
        except Exception:
            _logger.exception("the end of a producer failed")


_child: int | None = None
"""The process whose end `_deliver_in_the_end` waits for."""


def _note_child() -> None:
    """In a process of multiprocessing: deliver at its end, too."""
    global _child
    util: Any = sys.modules.get("multiprocessing.util")
    made_by = util and sys.modules["multiprocessing.process"].parent_process()
    if made_by and _child != os.getpid():
        _child = os.getpid()
        # Its finalizers run when its function has returned, or raised.
        util.Finalize(None, _deliver_later, exitpriority=0)


def _deliver_later() -> None:
    """Other threads than the main one may still send: deliver when they have ended."""
    threading.Thread(target=_deliver_in_the_end, name="kafkalog-end").start()


def _deliver_in_the_end() -> None:
    me = threading.current_thread()
    threading.main_thread().join()  # it counts as ended when it waits for the others
    while some := [one for one in threading.enumerate() if one.is_alive() and not one.daemon]:
        if some == [me]:
            break
        for one in some:
            if one is not me:
                one.join()
    _deliver_all()


def _now(some: weakref.WeakSet[T]) -> list[T]:
    """Its elements, while other threads may add to it."""
    while True:
        try:
            return list(some)
        except RuntimeError:  # it grew during the iteration
            continue


def _forget_all() -> None:
    for producer in _now(_producers):
        producer._forked()


os.register_at_fork(after_in_child=_forget_all)
