"""The settings of one life of a broker, checked before anything is opened."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkalog.config.protection import is_clustered
from kafkalog.config.server import ServerConfig
from kafkalog.errors import InvalidSetting
from kafkalog.server.authentication import Mechanisms
from kafkalog.server.network import listeners as places

__all__ = ["Plan", "complete", "planned_of"]

REBALANCE_DELAY = "group.initial.rebalance.delay.ms"
ANY_PORT = "PLAINTEXT://127.0.0.1:0"


class Plan(NamedTuple):
    """The checked settings of one life of a broker."""

    config: ServerConfig
    given: Mapping[str, object]
    listeners: tuple[places.Listener, ...]
    """Those for clients and brokers."""
    mechanisms: dict[int, Mechanisms]


def complete(
    config: Mapping[str, object] | None, listeners: str | Sequence[str] | None
) -> dict[str, object]:
    """The settings with those that a broker in a program has by default.

    Raises: InvalidSetting.
    """
    if config is not None and not isinstance(config, Mapping):
        raise InvalidSetting(
            f"config: found {type(config).__name__}, wanted a mapping from settings to values"
        )
    given = dict(config or {})
    if given.get(REBALANCE_DELAY) is None and not is_clustered(given):
        given[REBALANCE_DELAY] = 0  # its program knows when all members are there
    if listeners is not None or "listeners" not in given:
        given["listeners"] = places.named(ANY_PORT if listeners is None else listeners)
    return given


def planned_of(
    config: ServerConfig, listeners: str | Sequence[str] | None
) -> tuple[places.Listener, ...]:
    """The listeners for clients and brokers; none if `listeners` is an empty list."""
    if not config.serves_clients:
        raise InvalidSetting(
            "process.roles: found controller, wanted a role with broker: kafkalog serve runs "
            "a controller alone"
        )
    alone = not isinstance(listeners, str) and listeners is not None and not listeners
    return () if alone else places.of_brokers(config)
