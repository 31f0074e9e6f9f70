"""The events of a controller and the effects it wants: data, for its driver.

A driver hands over the events and carries out the effects, in their order: the server's with
sockets and threads, a simulation's with none of them.  A store adds its own events and effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from kafkalog.config.broker import BrokerConfig
from kafkalog.config.server import ServerConfig
from kafkalog.controller.context import Claim, Snapshot
from kafkalog.controller.requests import Send
from kafkalog.metadata.source import Charge, free
from kafkalog.security.principal import ANONYMOUS, Principal
from kafkalog.wire.api import Api

__all__ = [
    "BrokerResponse",
    "Caller",
    "ClientRequest",
    "Clock",
    "Deposed",
    "Elected",
    "Options",
    "QueueOverflow",
    "Reply",
    "Resign",
    "Send",
    "StoreResult",
    "Tick",
    "Timer",
]


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

    @classmethod
    def of(cls, config: ServerConfig) -> Options:
        """Those of a node with these settings."""
        return cls(
            config.inner_listener,
            config.auto_leader_rebalance_enable,
            config.leader_imbalance_check_interval_seconds * 1000,
            config.leader_imbalance_per_broker_percentage,
            config.delete_topic_enable,
            config,
            control_listener=config.control_listener,
        )


class Clock(Enum):
    """Work that a timer starts."""

    BALANCE = "balance"
    """Check whether leaderships are balanced."""
    RETRY = "retry"
    """Retry what could not be dropped or deleted."""
    UNCLEAN = "unclean"
    """Elect leaders out of sync, where a topic allows it."""
    IDLE = "idle"
    """Write something: brokers then know that they are up to date."""
    TOKENS = "tokens"
    """Remove the delegation tokens that have expired."""


# ---- events ------------------------------------------------------------------------------------


class Elected(NamedTuple):
    """This node is the controller, and its store was read after it became so; sent again if the
    outcome of a write is unknown, after the store was read again."""

    claim: Claim
    loaded: Snapshot


class Deposed(NamedTuple):
    """It is no longer the controller, or no longer knows the contents of its store."""


class Caller(NamedTuple):
    """The client that sent a request."""

    principal: Principal = ANONYMOUS
    charge: Charge = free
    """Counts the partitions that are created or deleted against its quota."""


class ClientRequest(NamedTuple):
    """A node or a client sent a request."""

    token: Any
    """Returned with the answer."""
    api: Api
    request: Any
    """As kafkalog.wire decodes it; for settings, SettingChanges."""
    version: int
    context: Caller | None = None
    """None: nothing about the caller matters."""


class BrokerResponse(NamedTuple):
    """A broker answered a `Send`."""

    send: Send
    response: Any


class QueueOverflow(NamedTuple):
    """Too many requests waited for a broker and were dropped: send it everything again."""

    broker: int


class StoreResult(NamedTuple):
    """An effect of the store was carried out."""

    number: int
    results: Sequence[Any]
    """As the store expects them.  An exception among them ends the steps that asked."""


class Tick(NamedTuple):
    """The time of a `Timer` has come."""

    clock: Clock


# ---- effects -----------------------------------------------------------------------------------


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
