"""The levels of a node's loggers, by Kafka's names, changed while it runs (KIP-412).

`root` is the logger above all of ours, `kafkalog`: Python's own root logger belongs to the program.
The others have the names of their modules, but for the one that Kafka's users know.  Levels hold
for the whole process, and until it ends.
"""

import logging
from collections.abc import Callable
from weakref import WeakMethod

from kafkalog.logs.events import EVENTS

__all__ = ["LEVELS", "REQUEST_LOGGER", "ROOT", "follow", "level_of", "levels", "set_level"]

LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
"""Kafka's names of levels, and Python's number of each."""
ROOT, REQUEST_LOGGER = "root", "kafka.request.logger"
_TOP = "kafkalog"
_IN_PYTHON = {ROOT: _TOP, REQUEST_LOGGER: f"{_TOP}.request.logger"}
_IN_KAFKA = {name: known for known, name in _IN_PYTHON.items()}
_followers: list[WeakMethod[Callable[[], None]]] = []


def logger_of(name: str) -> logging.Logger:
    """The logger with one of the names that `levels` shows."""
    return logging.getLogger(_IN_PYTHON.get(name, name))


def _names() -> set[str]:
    """Our loggers, as Python calls them: those of events, also before their first line, those that
    exist, and those above them."""
    found = {_TOP, *_IN_KAFKA, *(f"{_TOP}.{area}" for area in EVENTS)}
    # A copy, in one step: other threads make loggers.
    found |= {one for one in list(logging.root.manager.loggerDict) if one.startswith(f"{_TOP}.")}
    return found | {
        name[:end] for name in found for end, letter in enumerate(name) if letter == "."
    }


def level_of(name: str) -> str:
    """The level in effect: a logger without one of its own has that of the next one above."""
    number = logger_of(name).getEffectiveLevel()
    return next((word for word, least in LEVELS.items() if number <= least), "FATAL")


def levels() -> dict[str, str]:
    """Each logger and the level in effect, sorted by name."""
    names = sorted(_IN_KAFKA.get(name, name) for name in _names())
    return {name: level_of(name) for name in names}


def set_level(name: str, level: str | None) -> None:
    """Set the level of a logger, to one of LEVELS; None: that of the next one above holds."""
    logger_of(name).setLevel(logging.NOTSET if level is None else LEVELS[level])
    for one in list(_followers):
        if (call := one()) is not None:
            call()


def follow(call: Callable[[], None]) -> None:
    """Call this method after each change, as long as its object lives."""
    _followers[:] = [one for one in _followers if one() is not None]
    _followers.append(WeakMethod(call))
