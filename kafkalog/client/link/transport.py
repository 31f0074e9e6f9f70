"""How a client reaches brokers: over TCP, or over any other connected stream socket.

Everything above a transport is the same for all: frames, versions, retries.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from kafkalog import errors
from kafkalog.client.login.security import Security
from kafkalog.config.client import SECURITY_PROTOCOLS, ClientConfig

__all__ = [
    "Address",
    "Client",
    "Options",
    "Tcp",
    "Transport",
    "Where",
    "options_of",
    "parse_servers",
    "reach",
]


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Options(NamedTuple):
    """Timeouts, backoffs and limits of a client; times in milliseconds."""

    client_id: str = "kafkalog"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    """For one answer."""
    api_timeout_ms: int = 60_000
    """For one call with all its retries."""
    storage_timeout_ms: int = 2_000
    """For a disk that is full or failed: waiting seldom helps, and a leader moves sooner."""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    response_bytes_max: int = 256 << 20
    """A larger answer is refused by its size field."""
    reconnect_backoff_ms: int = 50
    """The first pause before a broker that could not be reached is tried again."""
    reconnect_backoff_max_ms: int = 1_000
    idle_ms: int = 540_000
    """A connection that is idle for this long is closed; -1: never."""
    rebootstraps: bool = True
    """The bootstrap servers are asked again (metadata.recovery.strategy)."""
    rebootstrap_ms: int = 300_000
    """After this long without metadata a client forgets what it knows and asks them again."""
    security: Security | None = None
    """TLS and a login; None: neither."""
    pushes_metrics: bool = False
    """Brokers may have the client's metrics (enable.metrics.push)."""
    controllers: bool = False
    """The servers are controllers of a KRaft cluster, not brokers."""


def options_of(
    config: ClientConfig, api_timeout_ms: int, security: Security | None = None
) -> Options:
    """Timeouts and backoffs of a client; connecting takes no longer than an answer.

    A first wait above the longest one is as long as that one, as in Java.
    """
    return Options(
        client_id=config.client_id,
        connect_timeout_ms=min(
            config.socket_connection_setup_timeout_ms, config.request_timeout_ms
        ),
        request_timeout_ms=config.request_timeout_ms,
        api_timeout_ms=api_timeout_ms,
        retry_backoff_ms=min(config.retry_backoff_ms, config.retry_backoff_max_ms),
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        reconnect_backoff_ms=config.reconnect_backoff_ms,
        reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
        idle_ms=config.connections_max_idle_ms,
        rebootstraps=config.metadata_recovery_strategy == "rebootstrap",
        rebootstrap_ms=config.metadata_recovery_rebootstrap_trigger_ms,
        security=security,
        pushes_metrics=config.enable_metrics_push,
    )


class Client(Protocol):
    """Something that must be closed before the transport that it uses."""

    def close(self) -> object:
        """Close it; harmless when repeated."""


class Transport(Protocol):
    """Where brokers are, and how to connect to them; used from many threads.

    One with a true attribute `inside` stays in this process: clients need no TLS and no login.
    """

    @property
    def servers(self) -> Sequence[Address]:
        """The first brokers to ask; at least one."""

    def connect(self, address: Address, options: Options) -> socket.socket:
        """A connected stream socket to one of `servers`, or to an address that a broker named.

        Raises: PeerGone, Timeout, Closed.
        """

    def attach(self, client: Client) -> None:
        """Note a client, which must be closed first if this transport ends earlier."""


@runtime_checkable
class Reachable(Protocol):
    """Something that has a transport: a store."""

    @property
    def transport(self) -> Transport:
        """The transport to its broker."""


Where: TypeAlias = str | Sequence[str | Address] | Transport | Reachable
"""`host:port,...`, a list of such or of addresses, a transport, or a store."""


def parse_servers(text: str, protocol: str = "PLAINTEXT") -> list[Address]:
    """`host:port,...` as addresses; an IPv6 host stands in brackets; the default port is 9092.

    The security protocol before one, as in `SSL://host:port`, must be `protocol`.

    Raises: ArgumentError.
    """
    found = []
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        before, _, bare = piece.rpartition("://")
        if before.upper() in SECURITY_PROTOCOLS and before.upper() != protocol:
            raise errors.ArgumentError(
                f"server {piece!r}: found {before}, but security.protocol is {protocol}"
            )
        bare = bare if before.upper() == protocol else piece
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:/\[\]]+))(?::(\d{1,5}))?", bare)
        if match is None or not 0 < int(match[3] or 9092) < 65536:
            raise errors.ArgumentError(f"server {piece!r}: wanted host:port")
        found.append(Address(match[1] or match[2], int(match[3] or 9092)))
    if not found:
        raise errors.ArgumentError(f"servers {text!r}: wanted host:port, or several with commas")
    return found


class Tcp:
    """The transport to brokers that listen on TCP ports."""

    def __init__(self, servers: Sequence[Address]) -> None:
        """`servers`: the bootstrap servers."""
        self.servers = tuple(servers)

    def connect(self, address: Address, options: Options) -> socket.socket:
        """As Transport.connect."""
        patience_s = options.connect_timeout_ms / 1000
        try:
            made = socket.create_connection(address, patience_s)
        except TimeoutError:
            raise errors.Timeout(f"{address}: no connection in {patience_s:g} s") from None
        except OSError as problem:
            raise errors.PeerGone(f"{address}: {problem.strerror or problem}") from None
        except UnicodeError as problem:  # not a valid host name, though a broker may send it
            raise errors.PeerGone(f"{address}: {problem}") from None
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def attach(self, client: Client) -> None:
        """Nothing to do: a port does not end with this process's clients."""


def reach(where: Where, protocol: str = "PLAINTEXT") -> Transport:
    """The transport to `where`; `protocol`: the client's security.protocol.

    Raises: ArgumentError for anything but a Where; Closed for a store that is closed.
    """
    if isinstance(where, str):
        return Tcp(parse_servers(where, protocol))
    if isinstance(where, Sequence) and not isinstance(where, bytes):
        found: list[Address] = []
        for one in where:
            if not isinstance(one, (str, Address)):
                raise errors.ArgumentError(f"servers: found {one!r}, wanted host:port")
            found += parse_servers(one, protocol) if isinstance(one, str) else [one]
        if not found:
            raise errors.ArgumentError("servers: found none, wanted at least one host:port")
        return Tcp(found)
    if isinstance(where, Reachable):
        return where.transport
    if not hasattr(where, "connect"):
        raise errors.ArgumentError(
            f"servers: found {type(where).__name__}, wanted host:port, a list of such or a store"
        )
    return where
