"""The ends of the parts of a server, which were started in their order."""

from __future__ import annotations

import logging
from collections.abc import Callable

__all__ = ["end_all"]

_logger = logging.getLogger(__name__)


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
