"""The ends of a server's parts, which were started in their order; and of servers left open."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kafkalog.logs.limit import limited

__all__ = ["AT_EXIT", "end_all"]

_logger = limited(__name__)


def end_all(undo: list[Callable[[], object]], name: str) -> None:
    """Call the last one first; `undo` is empty then.  `name`: as the log names the server.

    Raises: the first failure, after all have been called.
    """
    failure: BaseException | None = None
    while undo:
        try:
            undo.pop()()
        except BaseException as problem:
            _logger.error("%s: %s", name, problem)
            failure = failure or problem
    if failure is not None:
        raise failure


AT_EXIT: weakref.WeakSet[Any] = weakref.WeakSet()
"""Servers that are closed in order if the program ends without closing them."""


@atexit.register
def _close_all() -> None:
    for server in list(AT_EXIT):
        with suppress(Exception):  # logged; the others must close, too
            server.close()
