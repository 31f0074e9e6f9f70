"""Quotas of clients on a broker: set by requests, and obeyed at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog.clock import ManualClock
from kafkalog.security.quotas import Shared
from kafkalog.server import quotas as module
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.network.buckets import Buckets
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.unit.server.conftest import MakeBroker

ANY_CLIENT = {"client-id": None}
TINY = 1e-9
"""A request_percentage that every request exceeds."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(make_broker: MakeBroker, clock: ManualClock) -> Broker:
    return make_broker(clock)


@pytest.fixture
def admin(broker: Broker) -> Iterator[Raw]:
    with Raw(broker.bootstrap_servers, "admin") as connection:
        yield connection


def alter(raw: Raw, entity: dict[str, str | None], **values: float | None) -> Any:
    """Set quotas, or with None remove them; the entity's result."""
    ops = [{"key": key, "value": value or 0.0, "remove": value is None}
           for key, value in values.items()]  # fmt: skip
    named = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    found = raw.call(apis.ALTER_CLIENT_QUOTAS, entries=[{"entity": named, "ops": ops}],
                     validate_only=False)  # fmt: skip
    return found.entries[0]


def described(raw: Raw) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    found = raw.call(apis.DESCRIBE_CLIENT_QUOTAS, components=[], strict=False)
    assert found.error_code == 0
    return {
        tuple((part.entity_type, part.entity_name) for part in one.entity): {
            value.key: value.value for value in one.values
        }
        for one in found.entries
    }


def test_quotas_are_set_shown_and_removed(admin: Raw) -> None:
    assert alter(admin, {"user": "u", "client-id": "c"}, producer_byte_rate=5.0).error_code == 0
    assert alter(admin, {"ip": "127.0.0.1"}, connection_creation_rate=1e6).error_code == 0
    assert described(admin) == {
        (("client-id", "c"), ("user", "u")): {"producer_byte_rate": 5.0},
        (("ip", "127.0.0.1"),): {"connection_creation_rate": 1e6},
    }
    assert alter(admin, {"user": "u", "client-id": "c"}, producer_byte_rate=None).error_code == 0
    assert list(described(admin)) == [(("ip", "127.0.0.1"),)]
    refused = alter(admin, {"user": ""}, producer_byte_rate=5.0)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST, "Empty user not supported",
    )  # fmt: skip
    failed = admin.call(
        apis.DESCRIBE_CLIENT_QUOTAS, strict=False,
        components=[{"entity_type": "x", "match_type": 0, "match": "y"}],
    )  # fmt: skip
    assert (failed.error_code, failed.entries) == (ErrorCode.UNSUPPORTED_VERSION, None)


def test_an_address_must_exist(admin: Raw) -> None:
    assert alter(admin, {"ip": "localhost"}, connection_creation_rate=9.0).error_code == 0
    assert alter(admin, {"ip": "::1"}, connection_creation_rate=9.0).error_code == 0
    refused = alter(admin, {"ip": "no such host"}, connection_creation_rate=9.0)
    assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_quotas_outlive_the_broker(make_broker: MakeBroker, clock: ManualClock) -> None:
    with make_broker(clock) as broker, Raw(broker.bootstrap_servers, "c") as raw:
        assert raw.create("t").error_code == 0
        assert alter(raw, {"client-id": "c"}, producer_byte_rate=1.0).error_code == 0
    with make_broker(clock) as broker, Raw(broker.bootstrap_servers, "c") as raw:
        assert list(described(raw)) == [(("client-id", "c"),)]
        assert produced(raw).throttle_time_ms > 0


def produced(raw: Raw, topic: str = "t", acks: int = 1) -> Any:
    """The whole response to a Produce request."""
    from tests.support import batches

    data = batches.batch([batches.Row(b"x" * 1000, None, 0)])
    entry = {"name": topic, "partition_data": [{"index": 0, "records": data}]}
    return raw.call(apis.PRODUCE, 9, acks=acks, timeout_ms=30_000, topic_data=[entry])


def test_open_connections_obey_at_once(admin: Raw, broker: Broker, clock: ManualClock) -> None:
    assert admin.create("t").error_code == 0
    with Raw(broker.bootstrap_servers, "c") as raw:
        assert produced(raw).throttle_time_ms == 0
        alter(admin, {"client-id": "c"}, producer_byte_rate=10.0)
        first = produced(raw).throttle_time_ms
        assert first > 0
        alter(admin, {"client-id": "c"}, producer_byte_rate=1000.0)
        clock.advance(first)
        assert produced(raw).throttle_time_ms == 0
        alter(admin, {"client-id": "c"}, producer_byte_rate=None)
        assert produced(raw).throttle_time_ms == 0
        assert node_of(broker).quotas.active is False
        alter(admin, {"user": "ANONYMOUS"}, producer_byte_rate=10.0)
        assert produced(raw).throttle_time_ms > 0


def test_clients_of_an_entity_share_its_quota(admin: Raw, broker: Broker) -> None:
    """Each client id has a bucket of its own, or all of a user share one."""
    assert admin.create("t").error_code == 0
    address = broker.bootstrap_servers
    with Raw(address, "a") as a, Raw(address, "b") as b, Raw(address, None) as nameless:
        alter(admin, ANY_CLIENT, producer_byte_rate=150.0)
        assert produced(a).throttle_time_ms == 0
        assert produced(b).throttle_time_ms == 0
        assert produced(nameless).throttle_time_ms == 0
        alter(admin, {"user": None}, producer_byte_rate=150.0)
        assert produced(a).throttle_time_ms == 0
        assert produced(b).throttle_time_ms > 0
        assert produced(nameless).throttle_time_ms > 0


def test_other_requests_pay_for_their_time(admin: Raw, broker: Broker, clock: ManualClock) -> None:
    """The answer says how long, at most a window, and the connection is muted."""
    alter(admin, {"client-id": "c"}, request_percentage=TINY)
    with Raw(broker.bootstrap_servers, "c") as raw:
        for api in (apis.API_VERSIONS, apis.METADATA, apis.LIST_GROUPS):
            body = {"client_software_name": "x", "client_software_version": "1"}
            found = raw.call(api, **(body if api is apis.API_VERSIONS else {}))
            assert found.throttle_time_ms == 1000
            raw.send(apis.LIST_GROUPS, 3, {})
            assert node_of(broker).reactor.stats().queued == 0
            clock.advance(1000)
            assert raw.receive(apis.LIST_GROUPS, 3).throttle_time_ms == 1000
            clock.advance(1000)
    assert admin.call(apis.LIST_GROUPS).throttle_time_ms == 0


def test_a_produce_that_python_answers_counts_the_same(
    admin: Raw, broker: Broker, clock: ManualClock
) -> None:
    """Compressed to the topic's codec here."""
    assert admin.create("t").error_code == 0
    assert admin.create("z", compression_type="gzip").error_code == 0
    alter(admin, {"client-id": "c"}, producer_byte_rate=10.0)
    with Raw(broker.bootstrap_servers, "c") as raw:
        in_c = produced(raw, "t").throttle_time_ms
        clock.advance(in_c + 11_000)
        before = node_of(broker).reactor.stats().fast
        assert produced(raw, "z").throttle_time_ms == in_c > 0
        assert node_of(broker).reactor.stats().fast == before


def test_changes_of_topics_are_refused_or_delayed(
    admin: Raw, broker: Broker, clock: ManualClock
) -> None:
    """KIP-599: new versions are refused until no token is missing; old ones are told to wait."""
    alter(admin, {"client-id": "c"}, controller_mutation_rate=2.0)
    with Raw(broker.bootstrap_servers, "c") as raw:
        assert create(raw, 7, "a", 25)[1] == 0, "a burst of 22 is free, and the rest is owed"
        wait_ms, code = create(raw, 7, "b", 1)
        assert (wait_ms, code) == (1500, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        clock.advance(1499)
        clock.advance(1)
        assert create(raw, 7, "b", 1) == (0, 0)
        wait_ms, code = create(raw, 5, "c", 3)
        assert (wait_ms, code) == (2000, 0), "an old version is not refused"
        clock.advance(wait_ms)
        found = raw.call(apis.CREATE_PARTITIONS, 3, topics=[
            {"name": "c", "count": 8, "assignments": None}], timeout_ms=30_000,
            validate_only=False)  # fmt: skip
        assert (found.throttle_time_ms, found.results[0].error_code) == (0, 0)
        found = raw.call(apis.DELETE_TOPICS, 6, topics=[{"name": "a"}], timeout_ms=30_000)
        assert found.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert found.throttle_time_ms == 2500
        clock.advance(2500)
        found = raw.call(apis.DELETE_TOPICS, 6, topics=[{"name": "a"}], timeout_ms=30_000)
        assert (found.throttle_time_ms, found.responses[0].error_code) == (0, 0)
    assert create(admin, 7, "free", 100) == (0, 0)


def create(raw: Raw, version: int, topic: str, partitions: int) -> tuple[int, int]:
    """The throttle time, and the topic's error."""
    entry = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
    found = raw.call(apis.CREATE_TOPICS, version, topics=[entry], timeout_ms=30_000)
    return found.throttle_time_ms, found.topics[0].error_code


def test_many_client_ids_take_a_bounded_memory(
    admin: Raw, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least recently used lose their buckets; one that is in use keeps its own."""
    alter(admin, ANY_CLIENT, producer_byte_rate=1e6, controller_mutation_rate=1.0)
    quotas = node_of(broker).quotas
    mine = quotas.bucket(Buckets.PRODUCE, 0, "mine")
    for number in range(40_000):
        quotas.bucket(Buckets.PRODUCE, 0, f"client-{number}")
        if number % 1000 == 0:
            quotas.charge(mine, 1)
            quotas._clock.advance(1)  # type: ignore[attr-defined]
    assert len(quotas._owned) == 16_384
    assert quotas.bucket(Buckets.PRODUCE, 0, "mine") == mine
    assert (0, Shared("", "client-39999")) in quotas._owned
    assert (0, Shared("", "client-0")) not in quotas._owned
    monkeypatch.setattr(module, "MUTATIONS_MAX", 10)
    for number in range(100):
        quotas.mutate(0, f"client-{number}", 1, True)
    assert len(quotas._taken) == 10


def test_without_a_quota_client_ids_take_none(admin: Raw, broker: Broker) -> None:
    alter(admin, {"client-id": "other"}, producer_byte_rate=1.0)
    quotas = node_of(broker).quotas
    for number in range(100):
        assert quotas.bucket(Buckets.PRODUCE, 0, f"client-{number}") == 0
    assert not quotas._owned
