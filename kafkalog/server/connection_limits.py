"""Limits of connections: how many at the same time, and how many new ones a second; in total, of a
listener and of an address."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkalog.config.quota import UNLIMITED
from kafkalog.controller.client_quotas import CONNECTION_RATE, IP
from kafkalog.logs.limit import limited
from kafkalog.metadata.addresses import address_of
from kafkalog.server.network.buckets import IpLimit

if TYPE_CHECKING:
    from kafkalog.config.server import ServerConfig
    from kafkalog.metadata.image import MetadataImage
    from kafkalog.server.network.reactor import Reactor
    from kafkalog.server.node import Node

__all__ = ["apply_connection_limits", "apply_limits", "ip_limits"]

_logger = limited(__name__)


def ip_limits(config: ServerConfig, image: MetadataImage) -> tuple[int, list[IpLimit]]:
    """The connection_creation_rate of an address, and the addresses with limits of their own: by
    max.connections.per.ip.overrides and quotas.  Names without an address are left out."""
    found: dict[bytes, IpLimit] = {}
    rate = UNLIMITED
    for name, count in config.connections_of_ips.items():
        if (address := _address(name)) is not None:
            found[address] = IpLimit(address, count, 0)
    for entity, values in image.quotas.items():
        names = dict(entity)
        if IP not in names or CONNECTION_RATE not in values:
            continue
        value, named = int(values[CONNECTION_RATE]), names[IP]
        if named is None:
            rate = value
        elif (address := _address(named)) is not None:
            found[address] = found.get(address, IpLimit(address, -1, 0))._replace(rate=value)
    return rate, list(found.values())


def _address(name: str) -> bytes | None:
    found = address_of(name)
    if found is None:
        _logger.warning("the limit of connections from %s is ignored: it has no address", name)
    return found


def apply_connection_limits(node: Node, config: ServerConfig) -> None:
    """Apply the limits of a broker as they are now; open connections stay."""
    names = [place.name for place in node.advertised]
    apply_limits(node.reactor, config, node.image, names)


def apply_limits(
    reactor: Reactor, config: ServerConfig, image: MetadataImage, listeners: Iterable[str]
) -> None:
    """Apply these limits; `listeners`: their names, by number."""
    reactor.set_limits(config)
    rate, of_ips = ip_limits(config, image)
    arrivals = reactor.buckets
    arrivals.set_arrivals(config.max_connection_creation_rate, rate, of_ips)
    for number, name in enumerate(listeners):
        most, new = config.listener_limits(name)
        arrivals.set_listener_limits(number, most, new)
