"""The metrics that clients send to a broker (KIP-714), over a real socket."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest

import kafkalog
from kafkalog.batch import codecs
from kafkalog.clock import ManualClock
from kafkalog.disk.layout import uuid_text
from kafkalog.errors import Closed
from kafkalog.pattern import Pattern
from kafkalog.server.broker import Broker, node_of
from kafkalog.telemetry import subscriptions
from kafkalog.telemetry.otlp import Kind, Point, encode
from kafkalog.testing.standin import StandIn
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.server.conftest import MakeBroker

CLIENT_METRICS = 16
NO_ID = UUID(int=0)
POINTS = [
    Point("org.apache.kafka.producer.record.send.total", (), Kind.DELTA, 3.0),
    Point("org.apache.kafka.producer.node.request.latency.avg", (("node_id", "1"),), Kind.GAUGE,
          0.25),
]  # fmt: skip
PAYLOAD = encode(POINTS, {"transactional_id": "t"}, 0, 1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(make_broker: MakeBroker, clock: ManualClock) -> Broker:
    return make_broker(clock, telemetry_max_bytes=10_000)


def named(raw: Raw, name: str = "test-client") -> None:
    raw.call(apis.API_VERSIONS, 3, client_software_name=name, client_software_version="1.2")


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    with Raw(broker.bootstrap_servers) as connection:
        named(connection)
        yield connection


def ask(raw: Raw, instance_id: UUID = NO_ID) -> Any:
    return raw.call(apis.GET_TELEMETRY_SUBSCRIPTIONS, client_instance_id=instance_id)


def push(raw: Raw, asked: Any, metrics: bytes = PAYLOAD, codec: int = 0, **more: Any) -> ErrorCode:
    body = {"client_instance_id": asked.client_instance_id, "metrics": metrics,
            "subscription_id": asked.subscription_id, "compression_type": codec}  # fmt: skip
    return ErrorCode(raw.call(apis.PUSH_TELEMETRY, **{**body, **more}).error_code)


def subscribe(raw: Raw, name: str = "all", **settings: str) -> None:
    made = raw.alter(CLIENT_METRICS, name, **{"metrics": "*", "interval_ms": "1000", **settings})
    assert made.error_code == ErrorCode.NONE


def test_without_subscriptions_a_client_is_asked_for_nothing(raw: Raw) -> None:
    found = ask(raw)
    assert found.error_code == ErrorCode.NONE and found.client_instance_id.version == 4
    assert (found.requested_metrics, found.push_interval_ms) == ([], 300_000)
    assert found.accepted_compression_types == [4, 3, 1, 2]
    assert (found.telemetry_max_bytes, found.delta_temporality) == (10_000, True)
    assert ask(raw, found.client_instance_id).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert ask(raw).client_instance_id != found.client_instance_id


def test_a_client_is_found_by_its_software_and_address(raw: Raw) -> None:
    port = raw.socket.getsockname()[1]
    subscribe(raw, "one", metrics="one.", match="client_software_name=test-.*,client_id=raw")
    subscribe(raw, "two", metrics="two.", match="client_software_version=1\\.3")
    subscribe(raw, "three", metrics="three.",
              match=f"client_source_address=127.*,client_source_port={port}")  # fmt: skip
    subscribe(raw, "four", metrics="four.", match="client_software_name=unknown")
    assert ask(raw).requested_metrics == ["one.", "three."]
    with Raw(raw.address, client_id=None) as silent:
        assert ask(silent).requested_metrics == ["four."]


def test_software_is_remembered_after_a_refused_name(raw: Raw) -> None:
    """Only names that KIP-511 allows are kept."""
    subscribe(raw, match="client_software_name=test-client")
    named(raw, "not allowed")
    assert ask(raw).requested_metrics == ["*"]


@pytest.mark.parametrize("codec", range(5))
def test_pushed_metrics_are_kept_and_shown(
    broker: Broker, raw: Raw, clock: ManualClock, codec: int
) -> None:  # fmt: skip
    subscribe(raw)
    asked = ask(raw)
    assert push(raw, asked, codecs.compress(codec, PAYLOAD), codec) is ErrorCode.NONE
    clock.advance(1_000)
    assert push(raw, asked) is ErrorCode.NONE
    (found,) = broker.client_metrics()
    assert found.client_instance_id == asked.client_instance_id
    assert (found.client_id, found.software_name, found.software_version, found.address) == (
        "raw", "test-client", "1.2", "127.0.0.1",
    )  # fmt: skip
    assert (found.interval_ms, found.silent_ms) == (1000, 0)
    assert [tuple(one) for one in found.metrics] == [
        (POINTS[1].name, {"node_id": "1", "transactional_id": "t"}, 0.25, False),
        (POINTS[0].name, {"transactional_id": "t"}, 6.0, True),
    ]
    shown = broker.metrics()
    start = f'{{client_instance_id="{uuid_text(asked.client_instance_id)}",client_id="raw",' \
            'software="test-client 1.2",metric="'  # fmt: skip
    labels = f'{start}{POINTS[0].name}",attributes="transactional_id=t"}}'
    assert shown[f"kafkalog_client_count_total{labels}"] == 6.0
    labels = f'{start}{POINTS[1].name}",attributes="node_id=1,transactional_id=t"}}'
    assert shown[f"kafkalog_client_value{labels}"] == 0.25
    assert shown["kafka_server_client_metrics_instance_count"] == 1
    assert shown["kafka_server_client_metrics_plugin_export_total"] == 2


def test_refused_pushes(broker: Broker, raw: Raw, clock: ManualClock) -> None:
    """With Kafka's codes; see tests/kafka/clients/test_client_telemetry.py."""
    subscribe(raw)
    asked = ask(raw)

    def pushed(**how: Any) -> ErrorCode:
        clock.advance(1_000)
        return push(raw, asked, **how)

    assert pushed(client_instance_id=NO_ID) is ErrorCode.INVALID_REQUEST
    assert pushed(client_instance_id=UUID(int=1)) is ErrorCode.INVALID_REQUEST
    other = asked.subscription_id ^ 1
    assert pushed(subscription_id=other) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert pushed(codec=5) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert pushed(codec=-1) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert pushed(metrics=bytes(10_001)) is ErrorCode.TELEMETRY_TOO_LARGE
    bomb = codecs.compress(codecs.ZSTD, bytes(10_001))
    assert pushed(metrics=bomb, codec=codecs.ZSTD) is ErrorCode.TELEMETRY_TOO_LARGE
    assert pushed(metrics=b"nonsense") is ErrorCode.INVALID_RECORD
    assert pushed(metrics=b"nonsense", codec=codecs.GZIP) is ErrorCode.INVALID_RECORD
    assert pushed(metrics=b"") is ErrorCode.NONE
    assert push(raw, asked) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(raw, asked, terminating=True) is ErrorCode.NONE
    assert pushed() is ErrorCode.INVALID_REQUEST
    shown = broker.metrics()
    name = "kafka_server_client_metrics_"
    assert shown[f"{name}plugin_error_total"] == 3
    assert shown[f"{name}throttle_total"] == 1
    assert shown[f"{name}unknown_subscription_request_total"] == 1


def test_a_changed_subscription_is_noticed_at_the_next_push(raw: Raw, clock: ManualClock) -> None:
    subscribe(raw)
    asked = ask(raw)
    subscribe(raw, metrics="a.")
    assert push(raw, asked) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = ask(raw, asked.client_instance_id)
    assert (again.client_instance_id, again.requested_metrics) == (
        asked.client_instance_id, ["a."],
    )  # fmt: skip
    assert push(raw, again) is ErrorCode.THROTTLING_QUOTA_EXCEEDED, (
        "as in Kafka: no time has passed"
    )
    clock.advance(1_000)
    assert push(raw, again) is ErrorCode.NONE
    raw.alter(CLIENT_METRICS, "all", metrics=None, interval_ms=None)
    assert push(raw, again) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert ask(raw, asked.client_instance_id).requested_metrics == []


def test_a_client_that_connects_again_may_ask_at_once(broker: Broker, raw: Raw) -> None:
    subscribe(raw)
    asked = ask(raw)
    assert push(raw, asked) is ErrorCode.NONE
    raw.socket.close()
    with Raw(broker.bootstrap_servers) as again:
        connected = node_of(broker).reactor.connected
        number = node_of(broker).telemetry._instances.all()[0].connection
        while connected([number])[0][0]:
            again.call(apis.API_VERSIONS, 0)
        assert ask(again, asked.client_instance_id).error_code == ErrorCode.NONE
        (found,) = broker.client_metrics()
    assert len(found.metrics) == 2, "what it has sent stays"


def test_the_last_push_counts_even_if_the_client_does_not_wait_for_the_answer(
    broker: Broker, raw: Raw
) -> None:
    """A client that ends closes its connection at once."""
    subscribe(raw)
    for _ in range(5):
        with Raw(raw.address) as one:
            asked = ask(one)
            one.send(apis.PUSH_TELEMETRY, 0, {
                "client_instance_id": asked.client_instance_id, "terminating": True,
                "subscription_id": asked.subscription_id, "compression_type": 0,
                "metrics": PAYLOAD,
            })  # fmt: skip
    name = "kafka_server_client_metrics_plugin_export_total"
    wait_for(lambda: broker.metrics()[name] == 5, "all have come")
    assert [len(one.metrics) for one in broker.client_metrics()] == [2] * 5


class Watched(str):
    """A name that notes, when it is put in order, whether pushes have to wait."""

    lock: ClassVar[Any] = None
    waits: ClassVar[list[bool]] = []

    __hash__ = str.__hash__

    def __lt__(self, other: str) -> bool:
        Watched.waits.append(self.lock.locked())
        return str.__lt__(self, other)


@pytest.mark.parametrize("read", [Broker.client_metrics, Broker.metrics])
def test_pushes_wait_for_no_reader(broker: Broker, raw: Raw, read: Callable[[Broker], Any]) -> None:
    """Only the copy of one client is made at a time when nobody can push."""
    subscribe(raw)
    asked = ask(raw)
    push(raw, asked)
    telemetry = node_of(broker).telemetry
    (one,) = telemetry._instances._all.values()
    one.series = {(Watched(name), labels): it for (name, labels), it in one.series.items()}
    Watched.lock = telemetry._lock
    Watched.waits.clear()
    read(broker)
    assert Watched.waits and not any(Watched.waits)


def test_patterns_are_compiled_when_their_subscription_changes(
    broker: Broker, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for each client, and not while pushes wait."""
    made: list[str] = []
    waits: list[bool] = []

    class Counted(Pattern):
        def __init__(self, text: str, *words: Any, **named: Any) -> None:
            made.append(text)
            super().__init__(text, *words, **named)

        def matches(self, text: str) -> bool:
            waits.append(node_of(broker).telemetry._lock.locked())
            return super().matches(text)

    monkeypatch.setattr(subscriptions, "Pattern", Counted)
    subscribe(raw, "one", match="client_id=r.*")
    subscribe(raw, "two", match="client_id=ra.*")
    made.clear()
    assert [ask(raw).requested_metrics for _ in range(5)] == [["*"]] * 5
    assert (made, len(waits), any(waits)) == ([], 10, False)
    subscribe(raw, "two", match="client_id=raw")
    assert set(made) == {"client_id=raw".partition("=")[2]}


def test_a_pattern_has_all_its_work_for_each_client(
    raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work that others have spent does not count."""
    monkeypatch.setattr(subscriptions, "Pattern", partial(Pattern, work_max=150))
    subscribe(raw, match="client_id=.*[ab]?[bc]?[cd]?x")
    for number in range(20):
        with Raw(raw.address, client_id=f"{number}-{chr(0x100 + number)}x") as one:
            assert ask(one).requested_metrics == ["*"]


def test_different_labels_are_shown_as_different(broker: Broker, raw: Raw) -> None:
    subscribe(raw)
    some = ({"a": "1,b=2"}, {"a": "1", "b": "2"}, {"a": "1\\", "b": "2"}, {"a": "1\\,b=2"})
    points = [Point("n", tuple(one.items()), Kind.GAUGE, number) for number, one in enumerate(some)]
    assert push(raw, ask(raw), encode(points, {}, 0, 1)) is ErrorCode.NONE
    shown = [value for name, value in broker.metrics().items()
             if name.startswith("kafkalog_client_value")]  # fmt: skip
    assert sorted(shown) == [0, 1, 2, 3]


def test_long_names_are_cut(broker: Broker) -> None:
    """A client may send 32,767 characters, and is remembered."""
    with Raw(broker.bootstrap_servers, client_id="x" * 32_767) as raw:
        named(raw, "y" * 32_767)
        ask(raw)
    (found,) = broker.client_metrics()
    assert (len(found.client_id), len(found.software_name)) == (250, 250)


def test_only_some_clients_are_shown(make_broker: MakeBroker) -> None:
    """All are in client_metrics()."""
    broker = make_broker(kafkalog_metrics_max_clients=1)
    with Raw(broker.bootstrap_servers) as raw:
        subscribe(raw)
        for _ in range(3):
            push(raw, ask(raw))
        assert len(broker.client_metrics()) == 3
        shown = [name for name in broker.metrics() if name.startswith("kafkalog_client_value")]
        assert len(shown) == 1


def test_few_series_of_a_client_are_kept(make_broker: MakeBroker) -> None:
    broker = make_broker(kafkalog_client_metrics_max_series=1)
    with Raw(broker.bootstrap_servers) as raw:
        subscribe(raw)
        push(raw, ask(raw))
    (found,) = broker.client_metrics()
    assert [one.name for one in found.metrics] == [POINTS[0].name]
    assert broker.metrics()["kafkalog_client_series_left_out_total"] == 1


def test_subscriptions_are_there_after_a_restart(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        subscribe(raw, metrics="a.")
    broker.close()
    with pytest.raises(Closed):
        broker.client_metrics()
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw:
        assert ask(raw).requested_metrics == ["a."]
        listed = raw.call(apis.LIST_CONFIG_RESOURCES, 0).config_resources
        assert [one.resource_name for one in listed] == ["all"]


def test_a_subscription_that_is_not_understood_is_ignored(
    broker: Broker, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka takes more patterns than we do, and a directory may come from it."""
    subscribe(raw)
    metadata: Any = node_of(broker).metadata
    strange = {(CLIENT_METRICS, "odd"): {"match": "client_id=(?i)x", "metrics": "odd."}}
    image = metadata.image._replace(configs={**metadata.image.configs, **strange})
    with caplog.at_level(logging.WARNING):
        node_of(broker).telemetry._obey(image)
        node_of(broker).telemetry._obey(image)
    assert len(caplog.records) == 1 and "subscription odd" in caplog.text
    assert ask(raw).requested_metrics == ["*"]


KEYS = {apis.GET_TELEMETRY_SUBSCRIPTIONS.key, apis.PUSH_TELEMETRY.key}


def announced(broker: Broker) -> set[int]:
    with Raw(broker.bootstrap_servers) as raw:
        return {one.api_key for one in raw.call(apis.API_VERSIONS, 0).api_keys}


def test_a_broker_without_a_receiver_does_not_announce_it(make_broker: MakeBroker) -> None:
    """As Kafka's without a plug-in: clients do not ask; whoever does is refused."""
    assert announced(make_broker()) >= KEYS


def test_it_can_be_off(make_broker: MakeBroker) -> None:
    broker = make_broker(kafkalog_client_metrics_enable=False)
    assert not announced(broker) & KEYS
    with Raw(broker.bootstrap_servers) as raw:
        subscribe(raw)
        assert ask(raw).error_code == ErrorCode.UNSUPPORTED_VERSION
        body = {"client_instance_id": uuid4(), "metrics": b""}
        assert raw.call(apis.PUSH_TELEMETRY, **body).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert broker.client_metrics() == []


def test_a_node_on_zookeeper_has_none(tmp_path: Path) -> None:
    """As Kafka 3.9 there."""
    with StandIn() as inside:
        config = {"node.id": 1, "zookeeper.connect": inside.hosts,
                  "controlled.shutdown.enable": False}  # fmt: skip
        with Broker(tmp_path / "1", config=config) as broker:
            assert not announced(broker) & KEYS
            with Raw(broker.bootstrap_servers) as raw:
                assert ask(raw).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_store_has_the_metrics_of_its_clients(tmp_path: Path) -> None:
    with kafkalog.Store(tmp_path / "d") as store:
        assert store.client_metrics() == []
