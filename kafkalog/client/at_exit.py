"""What a program that ends without closing its producers has sent goes out all the same."""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Protocol

from kafkalog.client.sender import Sender

__all__ = ["Ending", "forget", "note"]

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
    # Anew each time: what a program made before, as a broker, ends after its producers.
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

    held = list(_producers)
    for producer in held:
        producer._hurry()  # side by side
    ends: list[tuple[Sender, Callable[..., None]]] = [
        (one._sender, partial(one._leave, warn=True)) for one in held
    ]
    ends += [(one, one.close) for one in _senders if one.leaving]
    for sender, end in ends:
        try:
            end(timeout=left_s(sender))
        except KeyboardInterrupt:
            patient = False
        except Exception:
            _logger.exception("the end of a producer failed")


def _forget_all() -> None:
    for producer in list(_producers):
        producer._forked()


os.register_at_fork(after_in_child=_forget_all)
