"""Limits of connections: of listeners, of addresses, and of how many are new a second."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog.clock import ManualClock
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.network.reactor import Stats
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.unit.server.conftest import MakeBroker
from tests.unit.server.test_quotas import alter

BROKER = 4
WINDOW = {"quota_window_num": 2, "quota_window_size_seconds": 1}
"""Rates are measured over one whole window, and the one that has begun."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(make_broker: MakeBroker, clock: ManualClock) -> Broker:
    return make_broker(clock, **WINDOW)


@pytest.fixture
def admin(broker: Broker) -> Iterator[Raw]:
    with Raw(broker.bootstrap_servers, "admin") as connection:
        connection.call(apis.LIST_GROUPS)
        yield connection


def stats(broker: Broker) -> Stats:
    return node_of(broker).reactor.stats()


def knock(broker: Broker) -> socket.socket:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), 60)


def settle(raw: Raw, name: str, value: str | None) -> Any:
    """Set a setting of the broker at run time."""
    op = {"name": name, "config_operation": 0 if value is not None else 1, "value": value}
    resource = {"resource_type": BROKER, "resource_name": "", "configs": [op]}
    return raw.call(apis.INCREMENTAL_ALTER_CONFIGS, resources=[resource]).responses[0]


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_a_listener_accepts_no_more_than_its_own(
    broker: Broker, admin: Raw, wait_until: Any
) -> None:
    """The next one is accepted when another ends."""
    name = "listener.name.plaintext.max.connections"
    assert settle(admin, name, "2").error_code == 0
    second, third = knock(broker), knock(broker)
    with second, third:
        wait_until(lambda: stats(broker).connections == 2, "the second is accepted")
        assert stats(broker).accepted == 2
        second.close()
        wait_until(lambda: stats(broker).accepted == 3, "the third is accepted")
    assert settle(admin, name, "0").error_code == ErrorCode.INVALID_REQUEST
    assert settle(admin, name, "x").error_code == ErrorCode.INVALID_REQUEST


def test_an_address_has_its_own_number(broker: Broker, admin: Raw, wait_until: Any) -> None:
    assert (
        settle(admin, "max.connections.per.ip.overrides", "localhost:1,10.1.1.1:5").error_code == 0
    )
    with knock(broker) as refused:
        assert is_closed(refused)
    assert stats(broker).refused_per_ip == 1
    assert settle(admin, "max.connections.per.ip.overrides", None).error_code == 0
    with knock(broker):
        wait_until(lambda: stats(broker).connections == 2, "no longer")
    wrong = settle(admin, "max.connections.per.ip.overrides", "localhost")
    assert wrong.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "name", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
def test_new_connections_come_later(
    broker: Broker, admin: Raw, clock: ManualClock, wait_until: Any, name: str
) -> None:
    """One above the rate is accepted, and the next only after the time that this one costs."""
    assert settle(admin, name, "1").error_code == 0
    with knock(broker), knock(broker), knock(broker):
        wait_until(lambda: stats(broker).accepted == 3, "two more are accepted")
        clock.advance(999)
        assert stats(broker).accepted == 3
        clock.advance(1)
        wait_until(lambda: stats(broker).accepted == 4, "the last one is")


def test_an_address_that_comes_too_often_waits_and_is_closed(
    broker: Broker, admin: Raw, clock: ManualClock, wait_until: Any
) -> None:
    """As in Kafka: it is not served, and closed a window later."""
    assert alter(admin, {"ip": None}, connection_creation_rate=1.0).error_code == 0
    with knock(broker) as first, knock(broker) as second:
        wait_until(lambda: stats(broker).held_per_ip == 1, "the second is held")
        assert stats(broker).connections == 2
        first.close()
        clock.advance(999)
        clock.advance(1)
        assert is_closed(second)
    assert alter(admin, {"ip": "127.0.0.1"}, connection_creation_rate=100.0).error_code == 0
    with knock(broker), knock(broker):
        wait_until(lambda: stats(broker).connections == 3, "its own rate counts")
    assert alter(admin, {"ip": "127.0.0.1"}, connection_creation_rate=None).error_code == 0
    assert alter(admin, {"ip": None}, connection_creation_rate=None).error_code == 0
    assert stats(broker).held_per_ip == 1


def test_held_sockets_are_closed_with_the_broker(
    broker: Broker, admin: Raw, wait_until: Any
) -> None:
    assert alter(admin, {"ip": "127.0.0.1"}, connection_creation_rate=1.0).error_code == 0
    with knock(broker), knock(broker) as held:
        wait_until(lambda: stats(broker).held_per_ip == 1, "one is held")
        broker.close()
        node_of(broker).reactor.close()
        assert stats(broker).held_per_ip == 1
        held.settimeout(0.01)
