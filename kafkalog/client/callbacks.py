"""User code that a client calls, and whose failure is not the client's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["logged"]

_logger = logging.getLogger(__name__)


@contextmanager
def logged(what: str, own_thread: bool = False) -> Iterator[None]:
    """Log exceptions of a callback or an interceptor: they do not affect the records, nor other
    callbacks.

    `own_thread`: it runs in a thread of the client, where SystemExit and KeyboardInterrupt would
    end the client and not the program: they are logged, too.
    """
    try:
        yield
    except BaseException as problem:
        if not (own_thread or isinstance(problem, Exception)):
            raise
        _logger.exception("%s failed", what)
