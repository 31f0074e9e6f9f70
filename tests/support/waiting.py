"""Tests wait for conditions; here is how."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

LIMIT_S = 60.0
"""No wait of a test is longer unless it says so.  It ends a test that hangs and measures nothing: a
machine that is busy with other things, or whose disk stands still for a while, must make it."""


def wait_for(
    condition: Callable[[], Any], what: str, limit_s: float = LIMIT_S, pause_s: float = 0.002
) -> Any:
    """The first true value of `condition`, looked at again and again.

    Raises: AssertionError, with `what` was waited for.
    """
    end = time.monotonic() + limit_s
    pause = threading.Event()
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not in {limit_s:g} s: {what}")
        pause.wait(pause_s)
    return value
