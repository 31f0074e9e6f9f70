"""Rules between a broker's settings, in addition to the bounds of each: Apache Kafka checks them
at its start.

A bare Log or data directory allows more: small segments, little memory for the cleaner.
Source: Apache Kafka itself, asked by tests/kafka/referee/test_settings.py.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kafkalog.config.authorizer import ACL_AUTHORIZER, STANDARD_AUTHORIZER
from kafkalog.config.broker import BrokerConfig
from kafkalog.config.consumer_group import group_problems
from kafkalog.config.listeners import ListenerSettings
from kafkalog.config.metrics import MetricsSettings
from kafkalog.config.quorum import Around, QuorumConfig
from kafkalog.config.share_records import record_problems
from kafkalog.errors import InvalidSetting

__all__ = ["INTERNAL_SEGMENT_BYTES", "SEGMENT_BYTES_MIN", "check_segment_bytes", "check_served"]

SEGMENT_BYTES_MIN = 1 << 20
INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"
"""Kafka's name for a topic's segment.bytes without that lower bound, for tests."""
DEDUPE_BYTES_MIN = (1 << 20) + 1
SHORT_MAX = 32_767
AUTHORIZER = "authorizer.class.name"
REPLICA_SOCKET_MS = 30_000
"""Kafka's replica.socket.timeout.ms."""


def check_segment_bytes(name: str, value: int) -> None:
    """Refuse values that Kafka 4 refuses.

    Raises: InvalidSetting, in Kafka's words.
    """
    if value < SEGMENT_BYTES_MIN:
        raise InvalidSetting(
            f"Invalid value {value} for configuration {name}: Value must be at least "
            f"{SEGMENT_BYTES_MIN}"
        )


def check_served(config: BrokerConfig) -> None:
    """Refuse settings with which Apache Kafka would not start.

    Raises: InvalidSetting.
    """
    for name, found, wanted in _problems(config):
        raise InvalidSetting(f"{name}: found {found}, wanted {wanted}")
    check_segment_bytes("log.segment.bytes", config.topic.segment_bytes)
    if isinstance(config, MetricsSettings):
        place = config.http_place
        if config["kafkalog.console.enable"] and place is None:
            raise InvalidSetting(
                "kafkalog.console.enable: found true, wanted kafkalog.http.listen with it"
            )


def _around(config: BrokerConfig) -> Around:
    given: Mapping[str, Any] = config
    listeners, advertised = (
        {text.partition("://")[0].upper() for text in given[name]}
        for name in ("listeners", "advertised.listeners")
    )
    inner = given["inter.broker.listener.name"].upper()
    node = given["node.id"] if config.explicit("node.id") else None
    return Around(node, listeners, advertised, inner, given["zookeeper.connect"])


def _problems(config: BrokerConfig) -> Iterator[tuple[str, object, str]]:
    given: Mapping[str, Any] = config

    def below(name: str, low: int) -> bool:
        return name in given and 0 <= given[name] < low

    if config.topic.explicit("retention.ms") and config.topic.retention_ms == 0:
        yield "log.retention.ms", 0, "-1 (no limit) or at least 1"
    for name, low in (
        ("log.cleaner.dedupe.buffer.size", DEDUPE_BYTES_MIN),
        ("offsets.topic.segment.bytes", SEGMENT_BYTES_MIN),
        ("connections.max.idle.ms", given.get("connection.failed.authentication.delay.ms", 0) + 1),
        ("max.connections", 1),
        ("max.connections.per.ip", 1),
    ):
        if below(name, low):
            yield name, given[name], f"at least {low}"
    if isinstance(config, ListenerSettings):
        for listener, name in config.own_listeners.items():
            if not (most := config.of_listener(listener).get("max.connections", 1)):
                yield name, most, "at least 1"
    wait = "replica.fetch.wait.max.ms"
    if wait in given:
        most = min(given["replica.lag.time.max.ms"], REPLICA_SOCKET_MS)
        if given[wait] > most:
            lag = f"replica.lag.time.max.ms, {given['replica.lag.time.max.ms']}"
            yield wait, given[wait], f"at most {lag}, and {REPLICA_SOCKET_MS}"
    yield from group_problems(given, config.explicit)
    yield from record_problems(given)
    replicas = "offsets.topic.replication.factor"
    if given.get(replicas, 0) > SHORT_MAX:
        yield replicas, given[replicas], f"at most {SHORT_MAX}"
    queued, request = "queued.max.request.bytes", "socket.request.max.bytes"
    if queued in given and config.explicit(queued) and below(queued, given[request]):
        yield queued, given[queued], f"-1 or at least {request}, {given[request]}"
    if isinstance(config, QuorumConfig):
        yield from config.quorum_problems(_around(config))
    authorizer = given.get(AUTHORIZER, "")
    on_zookeeper = bool(given.get("zookeeper.connect"))
    served = ACL_AUTHORIZER if on_zookeeper else STANDARD_AUTHORIZER
    if authorizer not in ("", served):
        where = "in a cluster on ZooKeeper" if on_zookeeper else "without ZooKeeper"
        yield AUTHORIZER, authorizer, f"{served}, or nothing, {where}"
