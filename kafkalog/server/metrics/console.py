"""The console of a broker, at the port of its metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from kafkalog.config.client_file import read_client_file
from kafkalog.console.person import Place, SegmentFacts, checked
from kafkalog.console.server import ConsoleServer, tls_of
from kafkalog.console.web import Settings, Web
from kafkalog.errors import Closed, InvalidSetting, UnknownTopicOrPartition
from kafkalog.logs.limit import limited
from kafkalog.metrics.endpoint import Page
from kafkalog.server.network.listeners import bootstrap_servers, is_loopback, planned
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.config.server import ServerConfig
    from kafkalog.server.network.listeners import Listener
    from kafkalog.server.node import Node

__all__ = ["serve_console"]

_logger = limited(__name__)

PREFERRED = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""The mechanisms by which people can log in, the best one first."""


def serve_console(
    config: ServerConfig, name: str, pages: Mapping[str, Callable[[str], Page]],
    at_once: Collection[str], node: Callable[[], Node | None],
) -> ConsoleServer:  # fmt: skip
    """The console at kafkalog.http.listen, with these pages for anyone; see `Endpoint`.  `node`:
    the broker's, None while it does not serve.

    Raises: InvalidSetting, IoFailed, MissingPackage.
    """
    place = config.http_place
    assert place is not None
    given = _given(config)
    listener = _listener(config, given)
    client = _client(config, listener, given)
    tls = None
    if path := config.kafkalog_http_ssl_keystore_location:
        tls = tls_of(path, "kafkalog.http.ssl.keystore.location")
    here = Place(lambda: _address(node(), listener), client, lambda tp: _segments(node(), tp))
    if here.logs_in and tls is None and not is_loopback(place[0]):
        _logger.warning("kafkalog.console.enable: %s: passwords come without encryption; set "
                        "kafkalog.http.ssl.keystore.location", place[0])  # fmt: skip
    if not here.logs_in and is_loopback(listener.host) and not is_loopback(place[0]):
        _logger.warning(
            "kafkalog.console.enable: %s: everyone who can connect has the rights of those who "
            "reach listener %s on this machine", place[0], listener.name,
        )  # fmt: skip
    hosts = frozenset(one.lower() for one in config.kafkalog_console_hosts)
    web = Web(Settings(here, config.kafkalog_console_write, hosts, pages, frozenset(at_once)))
    return ConsoleServer(*place, name, web, tls)


def _given(config: ServerConfig) -> dict[str, str]:
    path = config.kafkalog_console_client_config
    name = "kafkalog.console.client.config"
    return read_client_file(path, name, _logger.warning) if path else {}


def _listener(config: ServerConfig, given: Mapping[str, str]) -> Listener:
    """The listener that the console's clients use.  Raises: InvalidSetting."""
    control = config.control_plane_listener_name.upper()
    wanted = given.get("security.protocol", "").upper()
    some = [one for one in planned(config) if one.name != control]
    found = [one for one in some if not wanted or one.protocol.name == wanted]
    if not found:
        names = ", ".join(one.protocol.name for one in some)
        raise InvalidSetting(
            f"kafkalog.console.client.config: security.protocol: found {wanted}, wanted that of a "
            f"listener, one of {names}"
        )
    # On a listener without logins everyone is the same user, who may have rights that are meant
    # for those that reach it, and more people may reach the console.
    return min(found, key=lambda one: not one.protocol.name.startswith("SASL"))


def _client(
    config: ServerConfig, listener: Listener, given: Mapping[str, str]
) -> dict[str, object]:
    """The settings of the console's clients.  Raises: InvalidSetting."""
    client: dict[str, object] = {"security.protocol": listener.protocol.name, **given}
    if listener.protocol.name.startswith("SASL") and "sasl.mechanism" not in given:
        known = config.of_listener(listener.name).sasl_enabled_mechanisms
        found = [one for one in PREFERRED if one in known]
        if not found:
            raise InvalidSetting(
                f"kafkalog.console.enable: listener {listener.name} has the mechanisms "
                f"{', '.join(known)}, wanted one with a password: {', '.join(PREFERRED)}"
            )
        client["sasl.mechanism"] = found[0]
    return checked(client, "kafkalog.console.client.config")


def _address(node: Node | None, listener: Listener) -> str:
    """Raises: Closed: the broker does not serve yet."""
    if node is None:
        raise Closed("the broker starts")
    return bootstrap_servers([one for one in node.advertised if one.name == listener.name])


def _segments(node: Node | None, tp: TopicPartition) -> list[SegmentFacts]:
    """Raises: Closed, UnknownTopicOrPartition, ...: no replica is here."""
    if node is None:
        raise Closed("the broker starts")
    if not node.manager.has(tp):
        raise UnknownTopicOrPartition(f"{tp.topic}-{tp.partition} has no replica here")
    return [
        SegmentFacts(
            one.base_offset, one.next_offset, one.size_bytes, one.created_ms, one.active
        )
        for one in node.manager.get(*tp).segments
    ]  # fmt: skip
