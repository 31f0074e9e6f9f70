"""Functions of upper layers that lower layers call; kafkalog/__init__ provides them.

A log does not know its data directory or the file checks, since both know logs; a broker does
not know the store above it.

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
    """An open log, and the function that releases it; call it once."""

    handle: "Handle"
    give_back: Callable[[], None]
    shared: bool = False
    """Others may use it: if nobody releases it, it stays open."""


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
    """Use these from now on."""
    _given[:] = [functions]


def hooks() -> Hooks:
    """The functions; importing any part of kafkalog provides them."""
    return _given[0]
