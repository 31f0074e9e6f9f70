"""The event that wakes a producer's thread."""

from __future__ import annotations

import os
import select

import pytest

from kafkalog.client.link.wake_event import Bell


def readable(bell: Bell) -> bool:
    poll = select.poll()
    poll.register(bell.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def test_it_is_heard_in_a_sleep_and_told_before_one() -> None:
    bell = Bell()
    bell.ring()
    assert not readable(bell)  # a thread that is awake checks by itself
    assert bell.sleep()
    bell.ring()
    assert readable(bell)
    bell.awake()
    bell.heard()
    bell.heard()  # once is enough
    assert not bell.sleep()
    assert not readable(bell)
    bell.close()


def test_after_its_end_it_rings_nobodys_else() -> None:
    """The next file that is opened may get its descriptor number."""
    bell = Bell()
    number = bell.fileno()
    assert not bell.sleep()
    bell.close()
    other = os.eventfd(0, os.EFD_NONBLOCK)
    os.dup2(other, number)
    try:
        bell.ring()
        bell.close()
        with pytest.raises(BlockingIOError):
            os.eventfd_read(number)
    finally:
        os.close(other)
        if number != other:
            os.close(number)
