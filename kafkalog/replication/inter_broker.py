"""Connections from one node of a cluster to another: its certificate, and its login there.

A node logs in as the settings of the listener say by which it reaches others, as in Kafka:
`sasl.mechanism.inter.broker.protocol`, or `sasl.mechanism.controller.protocol` at the controllers
of a KRaft cluster, and the `username` and `password` in the `sasl.jaas.config` of that mechanism;
by OAUTHBEARER with a token, which the settings of that mechanism say where to get.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping

from kafkalog.client.link.connecting import Rests
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.patience import Patience
from kafkalog.client.link.transport import Address, Options, Transport
from kafkalog.client.login.security import Security
from kafkalog.config.client import ClientConfig
from kafkalog.config.listeners import SecurityProtocol
from kafkalog.config.login import BearerSettings
from kafkalog.config.sasl import LOGS_IN, SASL_MECHANISMS
from kafkalog.config.server import ServerConfig
from kafkalog.config.ssl import SslSettings
from kafkalog.errors import AuthenticationFailed, InvalidSetting
from kafkalog.logs.limit import limited
from kafkalog.security.jaas import parse_jaas
from kafkalog.security.keystores import stamp
from kafkalog.security.principal import ANONYMOUS, Principal

__all__ = ["NodeSecurity", "connect", "node_securities", "own_principals"]

_logger = limited(__name__)

MECHANISM = "sasl.mechanism.inter.broker.protocol"
AT_CONTROLLERS = "sasl.mechanism.controller.protocol"
HANDLER = "sasl.login.callback.handler.class"
REST_MS, REST_MAX_MS = 500, 5_000
"""Until a node that did not accept this one, or that this one does not accept, is tried again."""
SAID_MAX = 1_000
"""Failures that are remembered, to log each once; a cluster has fewer nodes."""


class NodeSecurity(Security):
    """The security of a node's connections to others by one listener.  Key files that have changed
    are read again for the next connection.  Safe to use from many threads."""

    def __init__(self, config: ClientConfig, listener: str) -> None:
        """`config`: as `node_securities` makes it.  Raises: InvalidSetting."""
        self.listener = listener
        self.rests = Rests(REST_MS, REST_MAX_MS)
        self._config = config
        self._lock = threading.Lock()  # guards what follows
        self._said: dict[Address, str] = {}
        self._stamp = stamp(config)  # before the files are read: a later change is seen
        super().__init__(config)

    @property
    def number(self) -> int:
        """Kafka's number of its protocol."""
        return int(SecurityProtocol[self.protocol])

    def protect(self, made: socket.socket, host: str, place: str, until_s: float) -> socket.socket:
        """As Security.protect, with the keys as they are now."""
        self._renew()
        return super().protect(made, host, place, until_s)

    def _renew(self) -> None:
        """Use changed files; wrong ones are reported once, and the old keys stay."""
        with self._lock:
            now = stamp(self._config)
            if self._context is None or now == self._stamp:
                return
            self._stamp = now
            try:
                self._context = self.context_of(self._config)
            except InvalidSetting as problem:  # it may be half written: the next one sees more
                _logger.error("listener %s: connections to other nodes keep the old keys: %s",
                              self.listener, problem)  # fmt: skip
            else:
                _logger.info("listener %s: new connections to other nodes use the changed keys",
                             self.listener)  # fmt: skip

    def failed(self, address: Address, problem: AuthenticationFailed) -> None:
        """A node and this one do not accept each other: it is not tried for a moment."""
        self.rests.failed(address, problem)
        said = str(problem)
        with self._lock:
            if self._said.get(address) == said:
                return
            if len(self._said) >= SAID_MAX:
                self._said.clear()
            self._said[address] = said
        _logger.error("listener %s: this node and another do not accept each other: %s",
                      self.listener, said)  # fmt: skip

    def reached(self, address: Address) -> None:
        """A node was reached."""
        self.rests.reached(address)
        with self._lock:
            found = self._said.pop(address, None)
        if found is not None:
            _logger.info("listener %s: %s: they accept each other again", self.listener, address)


def connect(
    address: Address, options: Options, transport: Transport | None = None,
    patience: Patience | None = None,
) -> Connection:  # fmt: skip
    """A connection to another node.

    Raises: as Connection; AuthenticationFailed also without asking, while a node rests that did not
    accept this one.
    """
    security = options.security
    if not isinstance(security, NodeSecurity):
        return Connection(address, options, transport, patience)
    rests = security.rests
    if rests.left_s(address) and (problem := rests.problem(address)) is not None:
        raise problem
    try:
        made = Connection(address, options, transport, patience)
    except AuthenticationFailed as found:
        security.failed(address, found)
        raise
    security.reached(address)
    return made


def node_securities(config: ServerConfig) -> Mapping[str, NodeSecurity]:
    """The security of a node's connections to others, by the name of the listener; without those of
    PLAINTEXT.  Key files are read.

    Raises: InvalidSetting.
    """
    found = {}
    for listener in _listeners(config):
        if config.protocol_of(listener) in ("", SecurityProtocol.PLAINTEXT.name):
            continue
        try:
            found[listener] = NodeSecurity(_client(config, listener), listener)
        except InvalidSetting as problem:
            raise InvalidSetting(
                f"listener {listener}, by which nodes reach each other: {problem}"
            ) from None
    return found


def own_principals(config: ServerConfig) -> Mapping[str, Principal]:
    """The principals under which others know this node, by the listener's name; without those of
    SSL and of OAUTHBEARER, where the other makes one of the certificate or the token.

    Raises: InvalidSetting.
    """
    found = {}
    for listener in _listeners(config):
        protocol = config.protocol_of(listener)
        if protocol == SecurityProtocol.PLAINTEXT.name:
            found[listener] = ANONYMOUS
        elif protocol.startswith("SASL"):
            client = _client(config, listener)
            if client.sasl_mechanism == "OAUTHBEARER":
                continue
            options = parse_jaas(client.sasl_jaas_config.value).options
            found[listener] = Principal("User", options.get("username", ""))
    return found


def _listeners(config: ServerConfig) -> Mapping[str, None]:
    """Those by which nodes reach each other and the controller."""
    return dict.fromkeys((config.inner_listener, config.control_listener))


def _client(config: ServerConfig, listener: str) -> ClientConfig:
    """The settings of a node as the client of a listener."""
    own = config.of_listener(listener)
    given = {name: own[name] for name in SslSettings.table if own.explicit(name)}
    given["security.protocol"] = protocol = config.protocol_of(listener)
    if protocol.startswith("SASL"):
        given["sasl.mechanism"] = mechanism = _mechanism(config, listener)
        by_it = config.of_listener(listener, mechanism)
        given["sasl.jaas.config"] = by_it.sasl_jaas_config
        if mechanism == "OAUTHBEARER":
            given |= {name: by_it[name] for name in BearerSettings.table if by_it.explicit(name)}
            if not given.get(HANDLER):
                raise InvalidSetting(
                    f"listener.name.{listener.lower()}.oauthbearer.{HANDLER}: found none, wanted "
                    f"{LOGS_IN}: without it, nodes of Kafka make tokens themselves, as anybody can"
                )
    return ClientConfig.of(given)


def _mechanism(config: ServerConfig, listener: str) -> str:
    """The mechanism of SASL by which a node logs in.  Raises: InvalidSetting."""
    own = config.of_listener(listener)
    at_controllers = config.joins_quorum and listener == config.control_listener
    setting = AT_CONTROLLERS if at_controllers else MECHANISM
    mechanism: str = own[setting]
    if mechanism not in SASL_MECHANISMS:
        raise InvalidSetting(
            f"{setting}: found {mechanism}, wanted one of {', '.join(SASL_MECHANISMS)}"
        )
    served = {text.partition("://")[0].upper() for text in config.listeners}
    if listener in served and mechanism not in own.sasl_enabled_mechanisms:
        raise InvalidSetting(
            f"{setting}: found {mechanism}, wanted one of sasl.enabled.mechanisms of this "
            f"listener: {', '.join(own.sasl_enabled_mechanisms)}"
        )
    return mechanism
