"""The loggers of a node: no client decides how much they write.

A kind of line is a logger and a template, the text before its arguments.  Of each, so many lines
are logged in a while, not counting those at DEBUG; more are counted, and the next line of the
logger after that while says first how many, or else the end of the process.

Lines about a partition or a path of this node are counted for each of these: a broker that starts
after a power cut tells of every log what was cut.  An event may say that its lines are counted for
each value of the first argument, or not at all: a broker has admitted what causes these.
"""

import logging
import os
import threading
import time

from kafkalog.logs.event import ALL, LEFT_OUT, OF_FIRST, Event
from kafkalog.logs.events import EVENTS, event_of

__all__ = ["LINES_MAX", "WINDOW_S", "left_out", "limited", "reset", "tell_all"]

LINES_MAX, WINDOW_S = 20, 10.0
"""Lines of a kind in so much time."""
KINDS_MAX = 10_000
"""Kinds of a logger whose lines are counted; with more of them, the oldest count is lost."""


class _Kind:
    __slots__ = ("began_s", "left_out", "level", "lines", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        """As LEFT_OUT tells of it."""
        self.began_s = -WINDOW_S
        self.lines = 0
        self.left_out = 0
        self.level = logging.WARNING
        """That of its last line."""


class _Limit(logging.Filter):
    """Counts the lines of one logger.  Safe to use from many threads."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self._logger = logger
        self.reset()

    def reset(self) -> None:
        """Nothing was logged yet."""
        self._lock = threading.Lock()  # guards what follows
        self._kinds: dict[object, _Kind] = {}
        self._owed: dict[object, _Kind] = {}
        """Those with lines that were left out."""

    def filter(self, record: logging.LogRecord) -> bool:
        """False: the line is only counted."""
        if record.msg is LEFT_OUT.template:
            return True
        now_s = time.monotonic()
        if self._owed:
            self.tell(now_s)
        if record.levelno < logging.INFO:  # an operator asked for it, for a while
            return True
        event = event_of(record)
        if event.limit == ALL:
            return True
        text = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        key = (text, *_place(event, record))
        with self._lock:
            kind = self._kind(key, event.name or text)
            if now_s - kind.began_s >= WINDOW_S:
                kind.began_s, kind.lines = now_s, 0
            kind.level = record.levelno
            if kind.lines < LINES_MAX:
                kind.lines += 1
                return True
            kind.left_out += 1
            self._owed[key] = kind
            return False

    def tell(self, now_s: float) -> None:
        """Say how many lines were left out, of kinds whose time is over by then."""
        found: dict[tuple[int, str], int] = {}
        with self._lock:
            for key, kind in [*self._owed.items()]:
                if now_s - kind.began_s >= WINDOW_S:
                    del self._owed[key]
                    place = kind.level, kind.name
                    found[place] = found.get(place, 0) + kind.left_out
                    kind.left_out = 0
        for (level, name), count in found.items():
            self._logger.log(level, LEFT_OUT.template, count, name)

    def add(self, text: str, name: str, count: int) -> None:
        """So many lines were left out by somebody else."""
        with self._lock:
            kind = self._kind((text,), name)
            kind.left_out += count
            self._owed[text,] = kind

    def _kind(self, key: object, name: str) -> _Kind:
        found = self._kinds.get(key)
        if found is None:
            if len(self._kinds) >= KINDS_MAX:
                oldest = next(iter(self._kinds))
                del self._kinds[oldest]
                self._owed.pop(oldest, None)
            found = self._kinds[key] = _Kind(name)
        return found


def _place(event: Event, record: logging.LogRecord) -> tuple[object, ...]:
    """The partition or the path of this node that a line is about, if it is about one, or what its
    event counts lines for."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    if event.fields[:2] == ("topic", "partition"):
        return arguments[:2]
    return arguments[:1] if event.fields[:1] == ("path",) or event.limit == OF_FIRST else ()


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
        area = EVENTS.get(logger.name.removeprefix("kafkalog."), ())
        name = next((one.name for one in area if one.template == template), template)
        _limits[logger.name].add(template, name, count)


def tell_all() -> None:
    """Say of each logger how many lines were left out, at the end of the process."""
    for one in list(_limits.values()):
        one.tell(time.monotonic() + WINDOW_S)


def reset() -> None:
    """No logger has logged anything yet: also in a forked child, whose threads are gone."""
    for one in list(_limits.values()):
        one.reset()


os.register_at_fork(after_in_child=reset)
