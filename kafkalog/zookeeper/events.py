"""The events and effects of a controller that are ZooKeeper's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from kafkalog.controller.events import (
    BrokerResponse,
    ClientRequest,
    Deposed,
    Elected,
    QueueOverflow,
    Reply,
    Resign,
    Send,
    StoreResult,
    Tick,
    Timer,
)
from kafkalog.zookeeper.session import Operation, Seen

__all__ = ["Commit", "Effect", "Event", "Read", "ReadZnodes", "Seen", "WatchesLost"]


class WatchesLost(NamedTuple):
    """The watches were lost with their connection: everything is read again."""


class Commit(NamedTuple):
    """Make these writes, one after another: each is all or nothing, and none waits for another's
    outcome.  The results are Committed.

    If an outcome is unknown, the controller is Deposed, then Elected with a tree read again.
    """

    number: int
    multis: Sequence[Sequence[Operation]]


class Read(NamedTuple):
    """Read a znode: a Znode, or the names of its children; None if it does not exist, an exception
    if it cannot be read.

    `watch`: report the next change with Seen.  It is set once, however often it was requested,
    and for children only if the znode exists.
    """

    path: str
    children: bool = False
    watch: bool = False


class ReadZnodes(NamedTuple):
    """Read these."""

    number: int
    reads: Sequence[Read]


Event: TypeAlias = (
    Elected
    | Deposed
    | Seen
    | WatchesLost
    | ClientRequest
    | BrokerResponse
    | QueueOverflow
    | StoreResult
    | Tick
)
"""`Seen`: a watch that a `Read` set has fired."""
Effect: TypeAlias = Commit | ReadZnodes | Send | Reply | Timer | Resign
"""`Send`: to its broker, after everything that was sent to it before."""
