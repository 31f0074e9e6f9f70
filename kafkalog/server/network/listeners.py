"""Listeners: where connections are accepted, and the addresses that clients get."""

import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.config.listeners import SecurityProtocol
from kafkalog.config.server import ServerConfig
from kafkalog.errors import InvalidSetting, KafkalogError
from kafkalog.logs.limit import limited

if TYPE_CHECKING:
    from kafkalog.server.network.reactor import Reactor
    from kafkalog.server.network.tls import TlsContext

__all__ = [
    "INSIDE",
    "INSIDE_PLACE",
    "Advertised",
    "Listener",
    "bootstrap_servers",
    "exposed",
    "is_loopback",
    "listen",
    "named",
    "of_brokers",
    "of_controllers",
    "own_host",
    "parse_listener",
    "plan",
    "planned",
    "try_to_listen",
]

_logger = limited(__name__)

PLAINTEXT = SecurityProtocol.PLAINTEXT
_UNIX = "unix:"
INSIDE = (1 << 31) - 1
"""The listener number of connections within this process."""


class Listener(NamedTuple):
    """One address at which connections are accepted."""

    name: str
    host: str
    """An address, a host name, empty for all addresses, or `unix:/path`."""
    port: int
    """0: any free port; for a Unix socket always 0."""
    protocol: SecurityProtocol = PLAINTEXT


class Advertised(NamedTuple):
    """The addresses that clients get on one listener."""

    name: str
    host: str
    port: int


INSIDE_PLACE = Advertised("INSIDE", "inside", 0)
"""The broker's address for clients of this process; only their transport can reach it."""


def named(listeners: str | Sequence[str]) -> list[str]:
    """Listeners with their names; one without a name is PLAINTEXT.

    Raises: InvalidSetting.
    """
    texts = listeners.split(",") if isinstance(listeners, str) else listeners
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise InvalidSetting(f"listeners: found {listeners!r}, wanted host:port, or a list of such")
    return [text if "://" in text else f"{PLAINTEXT.name}://{text.strip()}" for text in texts]


def parse_listener(text: str, setting: str = "listeners") -> Listener:
    """`NAME://host:port`, `NAME://[v6]:port` or `NAME://unix:/path`.

    Raises: InvalidSetting.
    """
    wrong = InvalidSetting(
        f"{setting}: found {text!r}, wanted NAME://host:port, NAME://[::1]:port or "
        "NAME://unix:/path"
    )
    name, colon, address = text.partition("://")
    if not colon or not re.fullmatch(r"[A-Za-z0-9_.\-]+", name):
        raise wrong
    if address.startswith(_UNIX):
        if len(address) == len(_UNIX):
            raise wrong
        return Listener(name.upper(), address, 0)
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%a-z]*)\]|([^\[\]:]*)):([0-9]{1,5})", address)
    if match is None or int(match[3]) > 65535:
        raise wrong
    return Listener(name.upper(), match[1] or match[2] or "", int(match[3]))


def planned(config: ServerConfig) -> tuple[Listener, ...]:
    """The listeners that `config` asks for, checked against each other and its protocol map.

    Raises: InvalidSetting.
    """
    listeners = tuple(parse_listener(text) for text in config.listeners)
    if not listeners:
        raise InvalidSetting("listeners: found none, wanted at least one NAME://host:port")
    _refuse_repeats(listeners)
    listeners = tuple(one._replace(protocol=_protocol(config, one)) for one in listeners)
    names = {listener.name for listener in listeners}
    _check_inner(config, names)
    _check_own(config, names | _of_controllers(config))
    _check_advertised(config, names)
    return listeners


def of_brokers(config: ServerConfig) -> tuple[Listener, ...]:
    """Those of `planned` that a broker has; a controller in the same process has the others."""
    return tuple(one for one in planned(config) if one.name not in config.controllers_listeners)


def of_controllers(config: ServerConfig) -> tuple[Listener, ...]:
    """Those of `planned` that are the controllers'; none unless this node is a controller."""
    if not config.controls:
        return ()
    return tuple(one for one in planned(config) if one.name in config.controllers_listeners)


def listen(reactor: "Reactor", one: Listener, number: int, tls: "TlsContext | None" = None) -> int:
    """The port that a listener bound, which is the reactor's by this number.

    Raises: as Reactor.listen, with the listener's name.
    """
    try:
        return reactor.listen(one.host, one.port, number, tls)
    except KafkalogError as problem:
        problem.args = (f"listener {one.name}, port {one.port}: {problem}",)
        raise


def try_to_listen(config: ServerConfig, listeners: Sequence[Listener]) -> None:
    """Fail before anything is written if a node cannot listen.

    Raises: as `listen`.
    """
    from kafkalog.server.network.reactor import Reactor

    with closing(Reactor(config)) as reactor:
        for number, one in enumerate(listeners):
            listen(reactor, one, number)


def _protocol(config: ServerConfig, listener: Listener) -> SecurityProtocol:
    text = config.protocol_of(listener.name)
    found = SecurityProtocol.__members__.get(text)
    if found is None:
        raise InvalidSetting(
            f"listeners: {listener.name} has security protocol {text}, which is no security "
            "protocol; name it in listener.security.protocol.map"
        )
    return found


def _of_controllers(config: ServerConfig) -> set[str]:
    """The names of the controllers' listeners, with which a broker of a KRaft cluster speaks.

    Raises: InvalidSetting.
    """
    if not config.joins_quorum:
        return set()
    for name in config.controller_listener_names:
        if (text := config.protocol_of(name)) not in SecurityProtocol.__members__:
            raise InvalidSetting(
                f"controller.listener.names: {name} has security protocol {text}, which is no "
                "security protocol; name it in listener.security.protocol.map"
            )
    return {*config.controllers_listeners}


def _check_inner(config: ServerConfig, names: set[str]) -> None:
    inner, protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    if config.explicit(protocol):
        if config[inner]:
            raise InvalidSetting(f"{protocol}: found a value, wanted none next to {inner}")
        if config[protocol] not in names:
            raise InvalidSetting(
                f"{protocol}: found {config[protocol]}, wanted the name of a listener, one of "
                f"{', '.join(sorted(names))}"
            )
    control = "control.plane.listener.name"
    for setting in ("inter.broker.listener.name", control):
        name = config[setting].upper()
        if name and name not in names:
            raise InvalidSetting(
                f"{setting}: found {name}, wanted one of {', '.join(sorted(names))}"
            )
    if config[control] and config.control_listener == config.inner_listener:
        raise InvalidSetting(
            f"{control}: found {config.inner_listener}, by which brokers reach each other; wanted "
            "another listener, or none"
        )


def _check_own(config: ServerConfig, names: set[str]) -> None:
    if config.unused_jaas:
        raise InvalidSetting(
            f"{config.unused_jaas}: found a value, wanted none: a login module is for one mechanism"
            " of one listener, as listener.name.LISTENER.MECHANISM.sasl.jaas.config"
        )
    for listener, setting in config.own_listeners.items():
        if listener not in names:
            raise InvalidSetting(
                f"{setting}: {listener} is no listener; there are {', '.join(sorted(names))}"
            )


def _refuse_repeats(listeners: Sequence[Listener]) -> None:
    names = [listener.name for listener in listeners]
    ports = [str(one.port) for one in listeners if one.port and not _both_families(one, listeners)]
    for what, values in (("name", names), ("port", ports)):
        twice = sorted(value for value in values if values.count(value) > 1)
        if twice:
            raise InvalidSetting(f"listeners: {what} {twice[0]} occurs twice, wanted each once")


def _both_families(one: Listener, listeners: Sequence[Listener]) -> bool:
    """KIP-797: one port may serve IPv4 on one listener and IPv6 on another."""
    others = [x for x in listeners if x.port == one.port and x is not one]
    return len(others) == 1 and (":" in one.host) != (":" in others[0].host)


def _check_advertised(config: ServerConfig, names: set[str]) -> None:
    for text in config.advertised_listeners:
        advertised = parse_listener(text, "advertised.listeners")
        if advertised.name not in names:
            raise InvalidSetting(
                f"advertised.listeners: {advertised.name} is no listener; there are "
                f"{', '.join(sorted(names))}"
            )
        if advertised.host in ("0.0.0.0", "::", "") and not advertised.host.startswith(_UNIX):
            raise InvalidSetting(
                f"advertised.listeners: found {text!r}, wanted an address that clients can reach"
            )


def plan(
    config: ServerConfig, bound: Mapping[str, int], this_host: str | None = None,
    listeners: Sequence[Listener] | None = None,
) -> tuple[Advertised, ...]:  # fmt: skip
    """The addresses that clients get for each listener, in the order of `listeners`; None: of a
    broker's.

    `bound`: the ports that the listeners bound, by name.  `this_host`: the host for listeners on
    all addresses without an advertised one; None: own_host().
    """
    advertised = {
        one.name: one
        for one in (parse_listener(t, "advertised.listeners") for t in config.advertised_listeners)
    }
    found = []
    for listener in of_brokers(config) if listeners is None else listeners:
        one = advertised.get(listener.name, listener)
        host = one.host
        if host in ("", "0.0.0.0", "::"):
            host = this_host = this_host or own_host()
        found.append(Advertised(listener.name, host, one.port or bound.get(listener.name, 0)))
    return tuple(found)


def exposed(config: ServerConfig) -> list[Listener]:
    """The listeners that other machines reach, and whose clients do not authenticate."""

    def is_open(one: Listener) -> bool:
        own = config.of_listener(one.name)
        certified = one.protocol.encrypts and own.ssl_client_auth == "required"
        return not (one.protocol.authenticates or certified)

    def is_reached(one: Listener) -> bool:
        return not (one.host.startswith(_UNIX) or is_loopback(one.host))

    return [one for one in planned(config) if is_open(one) and is_reached(one)]


def is_loopback(host: str) -> bool:
    """True if only this machine reaches the address; another name than localhost, or all addresses,
    may be reached by others."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def own_host() -> str:
    """This machine's name if it can be resolved, else the loopback address."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError as problem:
        _logger.warning("%s: %s; clients get 127.0.0.1: set advertised.listeners", name, problem)
        return "127.0.0.1"
    return name


def bootstrap_servers(advertised: Sequence[Advertised]) -> str:
    """The addresses in the form of a client's `bootstrap.servers`.

    Unix sockets only if there is nothing else: only our clients can use them.
    """
    found = [
        f"[{one.host}]:{one.port}" if ":" in one.host else f"{one.host}:{one.port}"
        for one in advertised
        if not one.host.startswith(_UNIX)
    ]
    return ",".join(found or [one.host for one in advertised])
