"""What lower layers ask of those above them, which hand it in: kafkalog/__init__ does.

A log knows neither its data directory nor the file checks, since both know logs; a broker does
not know the store that is over it.

`Log` cannot move above the directory instead: a manager gives out `Log`s itself, of its own
partitions, and jobs, checks and replicas below the public names work with them.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kafkalog.clock import Clock
    from kafkalog.disk.layout import Folder
    from kafkalog.log.handle import Handle
    from kafkalog.report import Report

__all__ = ["Hooks", "Lent", "give", "hooks"]


class Lent(NamedTuple):
    """An open log, and what gives it back; to be called once."""

    handle: "Handle"
    give_back: Callable[[], None]
    shared: bool = False
    """Others may use it: when nobody gives it back, it stays open."""


class Hooks(NamedTuple):
    """The functions."""

    lend: "Callable[[str, Folder, Mapping[str, object] | None, Clock | None], Lent]"
    """(data directory, folder in it, settings, clock): the open log of a partition, through
    the directory's manager and its metadata."""
    verify: "Callable[..., Report]"
    """(path, deep=...): see Log.verify."""
    store: "Callable[[Any], Any]"
    """(broker): its store."""


_given: list[Hooks] = []


def give(functions: Hooks) -> None:
    """Let these be used from now on."""
    _given[:] = [functions]


def hooks() -> Hooks:
    """What was given; importing any part of kafkalog gives it."""
    return _given[0]
