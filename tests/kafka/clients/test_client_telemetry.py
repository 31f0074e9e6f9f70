"""Metrics that clients send (KIP-714): real clients at our broker, and our broker's answers next to
those of Apache Kafka with a receiver."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import confluent_kafka
import pytest

import kafkalog
from kafkalog.batch import codecs
from kafkalog.disk.layout import uuid_text
from kafkalog.telemetry.otlp import Kind, Point, encode
from kafkalog.telemetry.pushed import PushedMetrics
from kafkalog.testing.cluster import TestCluster
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.kafka.clients.receiving import ReceivingKafka
from tests.support import apache
from tests.support.raw import Raw
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

WAIT_S = 60
QUIET = {"log_level": 0}
CLIENT_METRICS = 16
SEND_TOTAL = "org.apache.kafka.producer.record.send.total"
CONSUMED = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"
LATENCIES = ("org.apache.kafka.producer.node.request.latency.max",
             "org.apache.kafka.consumer.fetch.manager.fetch.latency.max")  # fmt: skip


@pytest.fixture(autouse=True)
def jars() -> None:
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(f"there is no Apache Kafka: {reason}")


def subscribe(servers: str) -> None:
    with kafkalog.Admin(servers, config={"enable.metrics.push": False}) as admin:
        admin.create_topic("t", 2)
        every = {"metrics": "*", "interval.ms": "500"}
        admin.alter_configs({("client_metrics", "all"): every}).check()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[kafkalog.Broker]:
    with kafkalog.Broker(tmp_path / "data", "127.0.0.1:0") as found:
        subscribe(found.bootstrap_servers)
        yield found


def of(client: PushedMetrics) -> dict[str, float]:
    return {one.name: one.value for one in client.metrics}


def sent(brokers: list[kafkalog.Broker], software: str, name: str) -> float:
    """The highest value of a metric that any client with this software has sent."""
    return max(
        (of(client).get(name, 0.0)
         for broker in brokers for client in broker.client_metrics()
         if client.software_name == software),
        default=0.0,
    )  # fmt: skip


def test_javas_clients_send_theirs(broker: kafkalog.Broker) -> None:
    """A producer and a consumer."""
    servers = ("--bootstrap-server", broker.bootstrap_servers, "--topic", "t")
    producer = apache.java("org.apache.kafka.tools.ConsoleProducer", *servers)
    java = "apache-kafka-java"
    with subprocess.Popen(producer, stdin=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        running.stdin.write("x\n" * 300)
        running.stdin.flush()
        # Before it ends: a producer that has nothing in flight sends no last push (KAFKA-17731).
        wait_for(lambda: sent([broker], java, SEND_TOTAL) == 300, "all is counted", WAIT_S)
        running.stdin.close()
        assert running.wait(WAIT_S) == 0
    assert sent([broker], java, SEND_TOTAL) == 300
    consumer = apache.java("org.apache.kafka.tools.VerifiableConsumer", *servers,
                           "--group-id", "g", "--reset-policy", "earliest")  # fmt: skip
    with subprocess.Popen(consumer, stdout=subprocess.DEVNULL) as running:
        wait_for(lambda: sent([broker], java, CONSUMED) == 300, "all is counted", WAIT_S)
        running.terminate()
        running.wait(WAIT_S)
    clients = {one.client_id: one for one in broker.client_metrics()}
    assert {one.software_version for one in clients.values()} == {apache.VERSION}
    labels = [one.labels for one in clients["consumer-g-1"].metrics if one.name == CONSUMED]
    assert {one["group_id"] for one in labels} == {"g"}
    assert broker.metrics()["kafka_server_client_metrics_plugin_error_total"] == 0


def test_librdkafka_sends_its_own(broker: kafkalog.Broker) -> None:
    servers = {"bootstrap.servers": broker.bootstrap_servers, **QUIET}
    producer = confluent_kafka.Producer({**servers, "client.id": "writes"})
    consumer = confluent_kafka.Consumer(
        {**servers, "client.id": "reads", "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    software = "confluent-kafka-python"

    def both() -> bool:
        producer.produce("t", b"x")
        producer.poll(0.05)
        consumer.poll(0.05)
        return all(sent([broker], software, name) > 0 for name in LATENCIES)

    wait_for(both, "both have pushed", WAIT_S)
    consumer.close()
    assert {one.client_id for one in broker.client_metrics()} == {"writes", "reads"}
    assert broker.metrics()["kafka_server_client_metrics_plugin_error_total"] == 0


def test_a_client_goes_on_at_another_broker(tmp_path: Path) -> None:
    """It keeps its id, and the new broker takes its push."""
    with TestCluster(tmp_path) as cluster:
        subscribe(cluster.bootstrap_servers)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, **QUIET}
        )

        def clients(nodes: list[int]) -> dict[UUID, int]:
            """Clients that have pushed to these nodes, and to which one."""
            producer.produce("t", b"x")
            producer.poll(0.05)
            return {one.client_instance_id: node for node in nodes
                    for one in cluster.nodes[node].broker.client_metrics()
                    if one.metrics}  # fmt: skip

        wait_for(lambda: clients(cluster.running), "it has pushed", WAIT_S)
        ((number, node),) = clients(cluster.running).items()
        cluster.kill(node)
        wait_for(lambda: number in clients(cluster.running), "it has pushed to another", WAIT_S)


def test_kafkas_tool_changes_our_subscriptions(broker: kafkalog.Broker) -> None:
    def tool(*words: str) -> str:
        main = "org.apache.kafka.tools.ClientMetricsCommand"
        return apache.ask(main, "--bootstrap-server", broker.bootstrap_servers, *words)

    tool("--alter", "--name", "slow", "--metrics", "a.,b.", "--interval", "1000",
         "--match", "client_id=x")  # fmt: skip
    assert sorted(tool("--list").split()) == ["all", "slow"]
    shown = tool("--describe", "--name", "slow")
    assert {line.strip() for line in shown.splitlines()} >= {
        "interval.ms=1000", "match=client_id=x", "metrics=a.,b."
    }  # fmt: skip
    tool("--delete", "--name", "slow")
    assert tool("--list").split() == ["all"]


def test_our_clients_send_theirs_to_kafka(tmp_path: Path) -> None:
    """It passes each push to its receiver; the last one says so."""
    with ReceivingKafka(tmp_path / "data") as kafka:
        servers = kafka.bootstrap_servers
        subscribe(servers)
        taken = 0
        with (
            kafkalog.Producer(servers, client_id="writes") as producer,
            kafkalog.Consumer(servers, "t", group="g", client_id="reads",
                              auto_offset_reset="earliest") as consumer,
        ):  # fmt: skip
            for _ in range(300):
                producer.send("t", b"x")

            def pushed() -> bool:
                nonlocal taken
                taken += len(consumer.poll(100))
                return taken == 300 and {one.client_id for one in kafka.pushed()} == {
                    "writes", "reads"}  # fmt: skip

            wait_for(pushed, "both have pushed", WAIT_S)
            numbers = {"writes": uuid_text(producer.client_instance_id()),
                       "reads": uuid_text(consumer.client_instance_id())}  # fmt: skip
        found = kafka.pushed()
    for name, metric in (("writes", SEND_TOTAL), ("reads", CONSUMED)):
        mine = [one for one in found if one.client_id == name]
        assert {one.instance_id for one in mine} == {numbers[name]}
        assert {one.content_type for one in mine} == {"OTLP"}
        assert [one.terminating for one in mine] == [False] * (len(mine) - 1) + [True]
        counts = [point.value for one in mine for point in one.points if point.name == metric]
        assert sum(counts) == 300, "increases"


# ---- answers, next to Kafka's ----------------------------------------------------------------

PAYLOAD = encode([Point("a.b", (("k", "v"),), Kind.DELTA, 2.0)], {}, 0, 1)
MAX_BYTES = 10_000
NO_ID = UUID(int=0)
Step = Callable[["Both"], Any]


class Both:
    """A connection, and requests whose outcomes are compared."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        raw.call(apis.API_VERSIONS, 3, client_software_name="soft", client_software_version="1.2")

    def subscribe(self, name: str, **settings: str | None) -> int:
        return int(self.raw.alter(CLIENT_METRICS, name, **settings).error_code)

    def ask(self, number: UUID = NO_ID) -> Any:
        return self.raw.call(apis.GET_TELEMETRY_SUBSCRIPTIONS, client_instance_id=number)

    def until(self, *metrics: str) -> Any:
        """The answer once new clients are asked for these: Kafka's brokers learn of them later."""
        found: list[Any] = []

        def asked() -> bool:
            found[:] = [self.ask()]
            return sorted(found[0].requested_metrics) == sorted(metrics)

        wait_for(asked, "the subscription has arrived")
        return found[0]

    def push(self, number: UUID, subscription: int, codec: int = 0, metrics: bytes = PAYLOAD,
             terminating: bool = False) -> str:  # fmt: skip
        found = self.raw.call(
            apis.PUSH_TELEMETRY, client_instance_id=number, subscription_id=subscription,
            compression_type=codec, metrics=metrics, terminating=terminating,
        )  # fmt: skip
        return ErrorCode(found.error_code).name

    def fresh(self) -> tuple[UUID, int]:
        found = self.ask()
        return found.client_instance_id, found.subscription_id


def shown(found: Any) -> Any:
    return (ErrorCode(found.error_code).name, sorted(found.requested_metrics),
            found.push_interval_ms, found.telemetry_max_bytes, found.delta_temporality,
            found.accepted_compression_types)  # fmt: skip


TOO_LARGE = "too large once decompressed"


def outcomes(one: Both) -> Iterator[Any]:
    """Every interval is five minutes, so that no time passes between the requests."""
    yield shown(one.until())
    first = one.fresh()
    yield ErrorCode(one.ask(first[0]).error_code).name
    yield one.subscribe("s", metrics="a.,b.", match="client_software_name=so.*,client_id=raw")
    yield shown(one.until("a.", "b."))
    yield one.subscribe("t", metrics="c.", match="client_software_version=1\\.3")
    yield one.subscribe("u", metrics="*", match="client_source_address=127\\..*")
    yield shown(one.until("*"))
    yield one.push(*first), ErrorCode(one.ask(first[0]).error_code).name, one.push(*first)
    number, subscription = one.fresh()
    yield [one.push(number, subscription) for _ in range(2)]
    yield [one.push(number, subscription, terminating=True) for _ in range(3)]
    yield one.push(number, subscription)
    for codec in range(5):
        yield one.push(*one.fresh(), codec, codecs.compress(codec, PAYLOAD))
    for codec in (-1, 5):
        number, subscription = one.fresh()
        yield one.push(number, subscription, codec), shown(one.ask(number))[0]
    number, subscription = one.fresh()
    yield one.push(number, subscription ^ 1), shown(one.ask(number))[0], shown(one.ask(number))[0]
    yield one.push(*one.fresh(), metrics=b"")
    yield one.push(*one.fresh(), metrics=bytes(MAX_BYTES + 1))
    bomb = codecs.compress(codecs.ZSTD, bytes(MAX_BYTES + 1))
    yield TOO_LARGE, one.push(*one.fresh(), codecs.ZSTD, bomb)
    yield one.push(*one.fresh(), codecs.GZIP, b"nonsense")
    yield [one.push(UUID(int=number), 1) for number in (0, 1)]
    yield one.push(uuid4(), 1)
    yield [one.subscribe(name, metrics=None, match=None) for name in "stu"]
    yield shown(one.until())


def answered(servers: str) -> list[Any]:
    with Raw(servers) as raw:
        return list(outcomes(Both(raw)))


def test_each_answer_is_kafkas(tmp_path: Path) -> None:
    limit = {"telemetry.max.bytes": MAX_BYTES}
    with kafkalog.Broker(tmp_path / "ours", "127.0.0.1:0", config=limit) as broker:
        ours = answered(broker.bootstrap_servers)
    (tmp_path / "kafka").mkdir()
    with ReceivingKafka(tmp_path / "kafka" / "data", f"telemetry.max.bytes={MAX_BYTES}\n") as kafka:
        theirs = answered(kafka.bootstrap_servers)
        pushed = kafka.pushed()
    # Later versions of Kafka say TELEMETRY_TOO_LARGE, too: the client may send less.
    assert (TOO_LARGE, "INVALID_RECORD") in theirs
    theirs[theirs.index((TOO_LARGE, "INVALID_RECORD"))] = TOO_LARGE, "TELEMETRY_TOO_LARGE"
    assert ours == theirs
    assert {tuple(one.points) for one in pushed if one.points} == {
        (Point("a.b", (("k", "v"),), Kind.DELTA, 2.0),)
    }
