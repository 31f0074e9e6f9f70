"""The loggers of a node: no client decides how much they write.

A kind of line is a logger and a template, the text before its arguments.  Of each, so many lines
are logged in a while, not counting those at DEBUG; more are counted, and the next line of the kind
says first how many.
"""

import logging
import os
import threading
import time

from kafkalog.logs.event import LEFT_OUT
from kafkalog.logs.events import event_of

__all__ = ["LINES_MAX", "WINDOW_S", "left_out", "limited", "reset"]

LINES_MAX, WINDOW_S = 20, 10.0
"""Lines of a kind in so much time."""
KINDS_MAX = 1000
"""Kinds of a logger whose lines are counted.  Templates are constants of the code, so this is only
reached by a program that logs through a node's logger; it loses the oldest count."""


class _Kind:
    __slots__ = ("began_s", "left_out", "lines")

    def __init__(self) -> None:
        self.began_s = -WINDOW_S
        self.lines = 0
        self.left_out = 0


class _Limit(logging.Filter):
    """Counts the lines of one logger.  Safe to use from many threads."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self._logger = logger
        self.reset()

    def reset(self) -> None:
        """Nothing was logged yet."""
        self._lock = threading.Lock()  # guards what follows
        self._kinds: dict[str, _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """False: the line is only counted."""
        if record.msg is LEFT_OUT.template:
            return True
        kind = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        # An operator asked for what is below INFO, for a while.
        left_out = self._take(kind, free=record.levelno < logging.INFO)
        if left_out is None:
            return False
        if left_out:
            name = event_of(record).name or kind
            self._logger.log(record.levelno, LEFT_OUT.template, left_out, name)
        return True

    def add(self, kind: str, count: int) -> None:
        """So many lines were left out by somebody else."""
        with self._lock:
            self._kind(kind).left_out += count

    def _kind(self, name: str) -> _Kind:
        found = self._kinds.get(name)
        if found is None:
            if len(self._kinds) >= KINDS_MAX:
                del self._kinds[next(iter(self._kinds))]
            found = self._kinds[name] = _Kind()
        return found

    def _take(self, name: str, free: bool) -> int | None:
        """How many lines were left out before this one; None: it is left out, too.  `free`: it is
        not, and the others are mentioned once in a while."""
        now_s = time.monotonic()
        with self._lock:
            kind = self._kind(name)
            if now_s - kind.began_s >= WINDOW_S:
                kind.began_s, kind.lines = now_s, 0
            elif free:
                return 0
            if kind.lines >= LINES_MAX:
                kind.left_out += 1
                return None
            kind.lines += 1
            left_out, kind.left_out = kind.left_out, 0
            return left_out


_limits: dict[str, _Limit] = {}


def limited(name: str) -> logging.Logger:
    """The logger of a module, with the limit of its lines."""
    logger = logging.getLogger(name)
    # In one step each: another thread may ask for the same one.
    logger.addFilter(_limits.setdefault(name, _Limit(logger)))
    return logger


def left_out(logger: logging.Logger, template: str, count: int) -> None:
    """So many lines of a limited logger were left out before it knew of them."""
    if count:
        _limits[logger.name].add(template, count)


def reset() -> None:
    """No logger has logged anything yet: also in a forked child, whose threads are gone."""
    for one in list(_limits.values()):
        one.reset()


os.register_at_fork(after_in_child=reset)
