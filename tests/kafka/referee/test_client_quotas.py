"""Quotas go from our directory to Apache Kafka and back, and both answer the same about them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from tests.support import apache
from tests.support.raw import Raw

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

Wait = Callable[..., None]
Entity = dict[str, str | None]
START_S = 90.0
SET: list[tuple[Entity, dict[str, float]]] = [
    ({"user": "alice"}, {"producer_byte_rate": 1000.0, "request_percentage": 0.5}),
    ({"user": None}, {"consumer_byte_rate": 2000.0}),
    ({"user": "alice", "client-id": "app"}, {"controller_mutation_rate": 3.0}),
    ({"user": "b ü/%", "client-id": None}, {"producer_byte_rate": 4.0}),
    ({"client-id": "<default>"}, {"producer_byte_rate": 5.0}),
    ({"ip": "10.0.0.1"}, {"connection_creation_rate": 6.0}),
    ({"ip": None}, {"connection_creation_rate": 1e6}),
]
CHANGES: list[tuple[Entity, list[tuple[str, float | None]]]] = [
    ({}, [("producer_byte_rate", 1.0)]),
    ({"group": "g"}, [("producer_byte_rate", 1.0)]),
    ({"user": ""}, [("producer_byte_rate", 1.0)]),
    ({"user": "u", "ip": "10.0.0.1"}, [("connection_creation_rate", 1.0)]),
    ({"ip": "no such host"}, [("connection_creation_rate", 1.0)]),
    ({"ip": "localhost"}, [("connection_creation_rate", 1.0)]),
    ({"ip": "::1"}, [("producer_byte_rate", 1.0)]),
    ({"ip": "::1"}, [("connection_creation_rate", float(1 << 31))]),
    ({"ip": "::1"}, [("connection_creation_rate", 1.5)]),
    ({"user": "u"}, [("connection_creation_rate", 1.0)]),
    ({"user": "u"}, [("nonsense", 1.0)]),
    ({"user": "u"}, [("producer_byte_rate", 0.0)]),
    ({"user": "u"}, [("producer_byte_rate", -1.0)]),
    ({"user": "u"}, [("producer_byte_rate", 1.5)]),
    ({"user": "u"}, [("producer_byte_rate", 1e19)]),
    ({"user": "u"}, [("request_percentage", 0.0)]),
    ({"user": "u"}, [("request_percentage", 1e300)]),
    ({"user": "u"}, [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)]),
    ({"user": "u"}, [("consumer_byte_rate", None)]),
    ({"user": "u"}, []),
]
"""Changes of one entity each, most of them refused."""
FILTERS: list[tuple[list[tuple[str, int, str | None]], bool]] = [
    ([], False), ([], True), ([("user", 0, "alice")], False), ([("user", 0, "alice")], True),
    ([("user", 1, None)], False), ([("user", 2, None)], True), ([("client-id", 2, None)], False),
    ([("user", 2, None), ("client-id", 2, None)], True), ([("ip", 1, None)], False),
    ([("", 0, "x")], False), ([("group", 0, "x")], False), ([("user", 0, None)], False),
    ([("user", 1, "x")], False), ([("user", 2, "x")], False), ([("user", 7, None)], False),
    ([("user", 0, "a"), ("user", 1, None)], False), ([("user", 2, None), ("ip", 2, None)], False),
]  # fmt: skip


def alter(
    raw: Raw, *changes: tuple[Entity, list[tuple[str, float | None]]], validate_only: bool = False
) -> list[Any]:
    entries = [
        {
            "entity": [{"entity_type": t, "entity_name": n} for t, n in entity.items()],
            "ops": [{"key": key, "value": value or 0.0, "remove": value is None}
                    for key, value in values],
        }
        for entity, values in changes
    ]  # fmt: skip
    found = raw.call(apis.ALTER_CLIENT_QUOTAS, entries=entries, validate_only=validate_only)
    return sorted(
        (sorted((part.entity_type, str(part.entity_name)) for part in one.entity),
         one.error_code, one.error_message)
        for one in found.entries
    )  # fmt: skip


def described(raw: Raw, filters: list[tuple[str, int, str | None]], strict: bool) -> Any:
    components = [dict(zip(("entity_type", "match_type", "match"), one, strict=True))
                  for one in filters]  # fmt: skip
    found = raw.call(apis.DESCRIBE_CLIENT_QUOTAS, components=components, strict=strict)
    if found.entries is None:
        return found.error_code, found.error_message
    return found.error_code, sorted(
        (sorted((part.entity_type, str(part.entity_name)) for part in one.entity),
         sorted((value.key, value.value) for value in one.values))
        for one in found.entries
    )  # fmt: skip


def answered(raw: Raw) -> dict[str, Any]:
    """The answers to everything; the quotas are then as before."""
    twice = ({"user": "v"}, [("producer_byte_rate", 1.0)]), ({"user": "v"}, [("x", 1.0)])
    found: dict[str, Any] = {repr(one): described(raw, *one) for one in FILTERS}
    for change in CHANGES:
        found[repr(change)] = alter(raw, change, validate_only=True)
    found["twice"] = alter(raw, *twice)
    found["after"] = described(raw, [], False)
    alter(raw, ({"user": "v"}, [("producer_byte_rate", None)]))
    return found


def test_quotas_change_hands(tmp_path: Path, wait_until: Wait) -> None:
    directory = tmp_path / "data"
    with Broker(directory) as broker, Raw(broker.bootstrap_servers) as raw:
        done = alter(raw, *((entity, list(values.items())) for entity, values in SET))
        assert {code for _, code, _ in done} == {0}
        ours = answered(raw)
    try:
        kafka = apache.Broker(directory)
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    with kafka, Raw(kafka.bootstrap_servers) as raw:
        wait_until(
            lambda: described(raw, [], False) == ours[repr(FILTERS[0])], "Kafka has them", START_S
        )
        theirs = answered(raw)
        assert ours == theirs
        assert alter(raw, ({"user": "kafka"}, [("producer_byte_rate", 7.0)]))[0][1] == 0
        assert alter(raw, ({"user": None}, [("consumer_byte_rate", None)]))[0][1] == 0
        last: list[Any] = []

        def shows() -> bool:
            last[:] = described(raw, [], False)
            return "kafka" in repr(last) and "consumer_byte_rate" not in repr(last)

        wait_until(shows, "it shows both changes", START_S)
    with Broker(directory) as broker, Raw(broker.bootstrap_servers) as raw:
        assert list(described(raw, [], False)) == last
