"""What a program that ends without closing its producers has sent goes out all the same."""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable
from typing import Protocol, TypeVar

from kafkalog.client.producer.sender import Sender

__all__ = ["Ending", "forget", "note"]

T = TypeVar("T")
_logger = logging.getLogger(__name__)


class Ending(Protocol):
    """A producer, which has an end."""

    _sender: Sender

    def _hurry(self) -> None:
        """Send all that was taken now."""

    def _leave(self, timeout: float, warn: bool = False) -> None:
        """Close it, within so many seconds; what is lost is told in the log."""

    def _forked(self) -> None:
        """This is a child, which has none of the threads."""


_producers: weakref.WeakSet[Ending] = weakref.WeakSet()
_senders: weakref.WeakSet[Sender] = weakref.WeakSet()


def note(producer: Ending, sender: Sender) -> None:
    """It is open."""
    _producers.add(producer)
    _senders.add(sender)
    # Registered again each time: what a program made before, as a broker, ends after its producers.
    atexit.unregister(_deliver_all)
    atexit.register(_deliver_all)


def forget(producer: Ending) -> None:
    """It was closed."""
    _producers.discard(producer)


def _deliver_all() -> None:
    """Wait until all is acknowledged, at most for delivery.timeout.ms, or a Ctrl-C."""
    begun_s = time.monotonic()
    patient = True

    def left_s(sender: Sender) -> float:
        return max(begun_s + sender.options.delivery_s - time.monotonic(), 0) if patient else 0

    held = _now(_producers)
    steps: list[Callable[[], None]] = [one._hurry for one in held]  # side by side
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


def _now(some: weakref.WeakSet[T]) -> list[T]:
    """What is in it, while other threads put more in."""
    while True:
        try:
            return list(some)
        except RuntimeError:  # it has grown since
            continue


def _forget_all() -> None:
    for producer in _now(_producers):
        producer._forked()


os.register_at_fork(after_in_child=_forget_all)
