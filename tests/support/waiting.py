"""Tests wait for conditions; here is how."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

LIMIT_S = 60.0
"""The longest wait of a test, unless it says otherwise.  It ends a test that hangs and measures
nothing: a machine that is busy, or whose disk stalls for a while, must stay below it."""


def wait_for(
    condition: Callable[[], Any], what: str, limit_s: float = LIMIT_S, pause_s: float = 0.002
) -> Any:
    """The first true value of `condition`, which is checked again and again.

    Raises: AssertionError, which names `what` was waited for.
    """
    end = time.monotonic() + limit_s
    pause = threading.Event()
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not in {limit_s:g} s: {what}")
        pause.wait(pause_s)
    return value
