"""The events of a controller and the effects it wants: data, for its driver.

A driver hands over the events and does the effects, in their order: the server's with sockets,
threads and ZooKeeper, a simulation with none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from kafkalog.cluster.controller.context import Reign
from kafkalog.cluster.controller.requests import Send
from kafkalog.config.broker import BrokerConfig
from kafkalog.metadata.zookeeper.loading import Loaded, Znode
from kafkalog.metadata.zookeeper.session import Committed, Operation, Seen
from kafkalog.wire.api import Api

__all__ = [
    "Answered", "Asked", "Behind", "Clock", "Commit", "Deposed", "Done", "Effect", "Elected",
    "Event", "Look", "Options", "Read", "Reply", "Resign", "Seen", "Send", "Tick", "Timer",
    "Unwatched",
]  # fmt: skip


class Options(NamedTuple):
    """Settings of the node that is the controller."""

    listener: str
    """The one by which brokers reach each other."""
    rebalances: bool = True
    """auto.leader.rebalance.enable"""
    check_ms: int = 300_000
    """leader.imbalance.check.interval.seconds"""
    imbalance_percentage: int = 10
    """leader.imbalance.per.broker.percentage"""
    deletes: bool = True
    """delete.topic.enable"""
    config: BrokerConfig = BrokerConfig()
    """The node's settings: what topics that are made have where nothing is said."""
    seed: int | None = None
    """Seed of random choices, topic ids and replica placement; None: another each time."""
    control_listener: str = ""
    """The one by which the controller reaches brokers; empty: as they reach each other."""


class Clock(Enum):
    """What is done by the time."""

    BALANCE = "balance"
    """It is looked whether leaderships are shared evenly."""
    RETRY = "retry"
    """What could not be dropped, or deleted, is tried again."""


# ---- events ------------------------------------------------------------------------------------


class Elected(NamedTuple):
    """This node is the controller: what the tree says, read after it became so; sent again where
    the outcome of a write is not known, and the tree was read again."""

    reign: Reign
    loaded: Loaded


class Deposed(NamedTuple):
    """It is no longer the controller, or no longer knows what the tree says."""


class Asked(NamedTuple):
    """A node, or a client, asks something."""

    token: Any
    """Given back with the answer."""
    api: Api
    request: Any
    """As kafkalog.wire decodes it; of settings, SettingChanges."""
    version: int


class Answered(NamedTuple):
    """A broker answered a `Send`."""

    send: Send
    response: Any


class Behind(NamedTuple):
    """Too much waited for a broker and was dropped: send it everything again."""

    broker: int


class Done(NamedTuple):
    """What became of a `Commit`, or was found by a `Look`, in the order of what it asked for."""

    number: int
    results: Sequence[Committed] | Sequence[Znode | list[str] | None]


class Tick(NamedTuple):
    """The time of a `Timer` has come."""

    clock: Clock


class Unwatched(NamedTuple):
    """The watches were lost, with the connection that they were on: all is looked at again."""


Event: TypeAlias = Elected | Deposed | Seen | Unwatched | Asked | Answered | Behind | Done | Tick
"""`Seen`: a watch that a `Read` left has fired."""


# ---- effects -----------------------------------------------------------------------------------


class Commit(NamedTuple):
    """Write these: each all or nothing, one after another, none waits for another's outcome.

    Where an outcome is not known, the controller is Deposed, then Elected with a tree read again.
    """

    number: int
    multis: Sequence[Sequence[Operation]]


class Read(NamedTuple):
    """A znode: the names of its children, or a Znode; None where there is none.

    `watch`: report with Seen, once, when that no longer holds; it is left once, however often it
    was asked for, and of children only where the znode is there.
    """

    path: str
    children: bool = False
    watch: bool = False


class Look(NamedTuple):
    """Read these."""

    number: int
    reads: Sequence[Read]


class Reply(NamedTuple):
    """Answer what was asked.  None: another is the controller, or will be."""

    token: Any
    body: Mapping[str, Any] | None


class Timer(NamedTuple):
    """Send a Tick at that time; of several of a clock the last counts."""

    clock: Clock
    at_ms: int


class Resign(NamedTuple):
    """Another controller was elected: resign; Deposed need not follow."""


Effect: TypeAlias = Commit | Look | Send | Reply | Timer | Resign
"""`Send`: to its broker, after all that was sent to it before."""
