"""The events of a controller and the effects it wants: data, for its driver.

A driver hands over the events and carries out the effects, in their order: the server's with
sockets, threads and ZooKeeper, a simulation's with none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from kafkalog.cluster.controller.context import Reign
from kafkalog.cluster.controller.requests import Send
from kafkalog.config.broker import BrokerConfig
from kafkalog.metadata.zookeeper.loading import Loaded
from kafkalog.metadata.zookeeper.session import Committed, Found, Operation, Seen
from kafkalog.wire.api import Api

__all__ = [
    "Answered", "Asked", "Behind", "Clock", "Commit", "Deposed", "Done", "Effect", "Elected",
    "Event", "Look", "Options", "Read", "Reply", "Resign", "Seen", "Send", "Tick", "Timer",
    "Unwatched",
]  # fmt: skip


class Options(NamedTuple):
    """Settings of the node that is the controller."""

    listener: str
    """The listener by which brokers reach each other."""
    rebalances: bool = True
    """auto.leader.rebalance.enable"""
    check_ms: int = 300_000
    """leader.imbalance.check.interval.seconds"""
    imbalance_percentage: int = 10
    """leader.imbalance.per.broker.percentage"""
    deletes: bool = True
    """delete.topic.enable"""
    config: BrokerConfig = BrokerConfig()
    """The node's settings: the defaults of new topics."""
    seed: int | None = None
    """Seed of random choices, topic ids and replica placement; None: a different one each time."""
    control_listener: str = ""
    """The listener by which the controller reaches brokers; empty: the same."""


class Clock(Enum):
    """Work that a timer starts."""

    BALANCE = "balance"
    """Check whether leaderships are balanced."""
    RETRY = "retry"
    """Retry what could not be dropped or deleted."""


# ---- events ------------------------------------------------------------------------------------


class Elected(NamedTuple):
    """This node is the controller, and the tree was read after it became so; sent again if the
    outcome of a write is unknown, after the tree was read again."""

    reign: Reign
    loaded: Loaded


class Deposed(NamedTuple):
    """It is no longer the controller, or no longer knows the contents of the tree."""


class Asked(NamedTuple):
    """A node or a client sent a request."""

    token: Any
    """Returned with the answer."""
    api: Api
    request: Any
    """As kafkalog.wire decodes it; for settings, SettingChanges."""
    version: int


class Answered(NamedTuple):
    """A broker answered a `Send`."""

    send: Send
    response: Any


class Behind(NamedTuple):
    """Too many requests waited for a broker and were dropped: send it everything again."""

    broker: int


class Done(NamedTuple):
    """The outcomes of a `Commit`, or the findings of a `Look`, in the order of the request."""

    number: int
    results: Sequence[Committed] | Sequence[Found]


class Tick(NamedTuple):
    """The time of a `Timer` has come."""

    clock: Clock


class Unwatched(NamedTuple):
    """The watches were lost with their connection: everything is read again."""


Event: TypeAlias = Elected | Deposed | Seen | Unwatched | Asked | Answered | Behind | Done | Tick
"""`Seen`: a watch that a `Read` set has fired."""


# ---- effects -----------------------------------------------------------------------------------


class Commit(NamedTuple):
    """Make these writes, one after another: each is all or nothing, and none waits for another's
    outcome.

    If an outcome is unknown, the controller is Deposed, then Elected with a tree read again.
    """

    number: int
    multis: Sequence[Sequence[Operation]]


class Read(NamedTuple):
    """Read a znode: a Znode, or the names of its children; None if it does not exist, an exception
    if it cannot be read: that ends the steps that asked.

    `watch`: report the next change with Seen.  It is set once, however often it was requested,
    and for children only if the znode exists.
    """

    path: str
    children: bool = False
    watch: bool = False


class Look(NamedTuple):
    """Read these."""

    number: int
    reads: Sequence[Read]


class Reply(NamedTuple):
    """Answer a request.  None: another node is the controller, or will be; an exception: the
    request failed with it."""

    token: Any
    body: Mapping[str, Any] | Exception | None


class Timer(NamedTuple):
    """Send a Tick at that time; the last Timer of a clock counts."""

    clock: Clock
    at_ms: int


class Resign(NamedTuple):
    """Another controller was elected: resign; Deposed need not follow."""


Effect: TypeAlias = Commit | Look | Send | Reply | Timer | Resign
"""`Send`: to its broker, after everything that was sent to it before."""
