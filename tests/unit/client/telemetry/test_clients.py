"""Producers and consumers that send their metrics to a broker."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import kafkalog
from kafkalog import Consumer, Producer, TopicPartition, aio, errors
from kafkalog.client.producer import sender
from kafkalog.client.telemetry import reporter
from kafkalog.telemetry.pushed import PushedMetrics
from kafkalog.testing.broker import TestBroker
from kafkalog.testing.security import Security
from tests.support.forked import REFUSED, WORKS, outcomes
from tests.support.waiting import LIMIT_S, wait_for

PREFIX = "org.apache.kafka."
OFF = {"enable.metrics.push": False}
STANDARD = {
    "producer": {
        "connection.creation.rate", "connection.creation.total", "node.request.latency.avg",
        "node.request.latency.max", "produce.throttle.time.avg", "produce.throttle.time.max",
        "record.queue.time.avg", "record.queue.time.max",
    },
    "consumer": {
        "connection.creation.rate", "connection.creation.total", "node.request.latency.avg",
        "node.request.latency.max", "poll.idle.ratio.avg", "coordinator.commit.latency.avg",
        "coordinator.commit.latency.max", "coordinator.assigned.partitions",
        "fetch.manager.fetch.latency.avg", "fetch.manager.fetch.latency.max",
    },
}  # fmt: skip
"""The metrics that KIP-714 wants of each client, without those of rebalances' durations."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "data") as made:
        made.create_topic("t", 1)
        yield made


def subscribe(broker: TestBroker, metrics: str = "*", interval_ms: int = 100) -> None:
    with kafkalog.Admin(broker.bootstrap_servers, config=OFF) as admin:
        wanted = {"metrics": metrics, "interval.ms": interval_ms}
        admin.alter_configs({("client_metrics", "all"): wanted}).check()


def client(broker: TestBroker, client_id: str) -> PushedMetrics | None:
    """The client, once it has sent metrics."""
    found = [one for one in broker.broker.client_metrics()
             if one.client_id == client_id and one.metrics]  # fmt: skip
    return found[0] if found else None


def values(broker: TestBroker, client_id: str) -> dict[str, float]:
    found = client(broker, client_id)
    return {} if found is None else {one.name: one.value for one in found.metrics}


def polling(consumer: Consumer, condition: Callable[[], bool], what: str) -> None:
    """Poll until the condition is true."""

    def true() -> bool:
        consumer.poll(10)
        return condition()

    wait_for(true, what)


def test_the_last_push_has_everything(broker: TestBroker) -> None:
    """The interval is long: what is there comes from the ends."""
    subscribe(broker, interval_ms=60_000)
    with Producer(broker.bootstrap_servers, client_id="p") as producer:
        number = producer.client_instance_id()
        for _ in range(5):
            producer.send("t", b"x")
    with Consumer(broker.bootstrap_servers, "t", group="g", client_id="c",
                  auto_offset_reset="earliest") as consumer:  # fmt: skip
        consumer.client_instance_id()
        taken: list[Any] = []
        wait_for(lambda: taken.extend(consumer.poll(100)) or len(taken) == 5, "all is read")
    sent = values(broker, "p")
    assert sent[f"{PREFIX}producer.record.send.total"] == 5
    assert values(broker, "c")[f"{PREFIX}consumer.fetch.manager.records.consumed.total"] == 5
    for client_id, kind in (("p", "producer"), ("c", "consumer")):
        names = values(broker, client_id).keys()
        assert {f"{PREFIX}{kind}.{name}" for name in STANDARD[kind]} - names == set()
    found = client(broker, "p")
    assert found is not None
    assert (found.client_instance_id, found.software_name) == (number, "kafkalog")
    labels = {one.name: one.labels for one in found.metrics}
    assert labels[f"{PREFIX}producer.node.request.latency.avg"] == {"node_id": "1"}
    other = client(broker, "c")
    assert other is not None and other.metrics[0].labels["group_id"] == "g"


def test_metrics_come_while_a_client_works(broker: TestBroker) -> None:
    """Increases add up to the totals."""
    subscribe(broker)
    name = f"{PREFIX}producer.record.send.total"
    read = f"{PREFIX}consumer.fetch.manager.records.consumed.total"
    with (
        Producer(broker.bootstrap_servers, client_id="p") as producer,
        Consumer(broker.bootstrap_servers, client_id="c", auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        for count in (1, 2, 3):
            producer.send("t", b"x").result(LIMIT_S)

            def seen(count: int = count) -> bool:
                consumer.poll(10)
                found = values(broker, "p").get(name), values(broker, "c").get(read)
                return found == (count, count)

            wait_for(seen, "both have sent it")


def test_only_requested_metrics_are_sent(broker: TestBroker) -> None:
    subscribe(broker, f"{PREFIX}producer.record.", 60_000)
    with Producer(broker.bootstrap_servers, client_id="p") as producer:
        producer.client_instance_id()
        producer.send("t", b"x")
    names = set(values(broker, "p"))
    record = ("send.total", "retry.total", "error.total", "queue.time.avg", "queue.time.max")
    assert names == {f"{PREFIX}producer.record.{name}" for name in record}


def test_without_subscriptions_nothing_is_sent(broker: TestBroker) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        assert producer.client_instance_id() == producer.client_instance_id()
        producer.send("t", b"x")
    (found,) = broker.broker.client_metrics()
    assert (found.metrics, found.interval_ms) == ((), 300_000)


def consumers_at_work(broker: TestBroker, config: dict[str, Any]) -> tuple[float, list[str]]:
    """Connections that a consumer without a group has opened, and its threads, once it reads and
    knows whether its broker wants metrics."""
    name = "kafkalog_connections_accepted_total"

    def opened() -> float:
        return sum(count for key, count in broker.broker.metrics().items() if key.startswith(name))

    before, others = opened(), set(threading.enumerate())
    with Consumer(
        broker.bootstrap_servers,
        config={**config, "client.id": "c", "auto.offset.reset": "earliest"},
    ) as one:
        one.assign([TopicPartition("t", 0)])
        taken: list[Any] = []
        wait_for(lambda: taken.extend(one.poll(10)) or taken, "it reads")
        polling(one, lambda: one._reporter.due_s > 0, "it knows")
        one.poll(0)
        mine = [thread.name for thread in threading.enumerate() if thread not in others]
        return opened() - before, [name for name in mine if name.startswith("kafkalog-commit")]


def test_a_consumer_whose_metrics_nobody_wants_starts_nothing_for_them(broker: TestBroker) -> None:
    """It has asked, over a connection and in a thread that it has anyway."""
    broker.fill("t", ["x"])
    silent = consumers_at_work(broker, OFF)
    assert "c" not in {one.client_id for one in broker.broker.client_metrics()}
    assert consumers_at_work(broker, {}) == silent
    assert silent[1] == []
    assert "c" in {one.client_id for one in broker.broker.client_metrics()}
    subscribe(broker)
    assert consumers_at_work(broker, {})[1] == ["kafkalog-commits"]


def test_without_subscriptions_a_close_asks_nothing(broker: TestBroker) -> None:
    """Even if the broker would not answer."""
    with (
        Producer(broker.bootstrap_servers) as producer,
        Consumer(broker.bootstrap_servers, "t") as consumer,
    ):
        producer.client_instance_id()
        producer.send("t", b"x").result(LIMIT_S)
        consumer.poll(0)
        consumer.client_instance_id()
        silent = [broker.delay(api, 3_600_000, times=None)
                  for api in ("PushTelemetry", "GetTelemetrySubscriptions")]  # fmt: skip
    assert [one.hits for one in silent] == [0, 0]


HOUR_MS = 3_600_000
PATIENT = {"request.timeout.ms": HOUR_MS}


@pytest.mark.parametrize("last", [False, True])
def test_a_close_waits_for_pushes_within_its_own_time(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    """For the last one, and for one that is in flight; the threads end at once."""
    monkeypatch.setattr(sender, "LAST_S", 3600.0)
    monkeypatch.setattr(reporter, "LAST_S", 3600.0)
    monkeypatch.setattr(reporter, "REQUEST_S", 3600.0)
    subscribe(broker, interval_ms=3_000_000 if last else 100)
    silent = broker.delay("PushTelemetry", 3_600_000, times=None)
    more = {**PATIENT, "delivery.timeout.ms": 2 * HOUR_MS}
    producer = Producer(broker.bootstrap_servers, config=more)
    consumer = Consumer(broker.bootstrap_servers, "t", config=PATIENT)
    producer.client_instance_id()
    polling(consumer, lambda: consumer._reporter.ends, "it is asked for metrics")
    if not last:
        polling(consumer, lambda: silent.hits == 2, "both have pushed")
    producer.close(timeout_ms=200)
    consumer.close(timeout_ms=200)
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith(("kafkalog-commit", "kafkalog-producer"))]


def test_clients_that_may_not_send_any(broker: TestBroker) -> None:
    subscribe(broker)
    with (
        Producer(broker.bootstrap_servers, config=OFF) as producer,
        Consumer(broker.bootstrap_servers, "t", config=OFF) as consumer,
    ):
        producer.send("t", b"x").result(LIMIT_S)
        consumer.poll(0)
        for one in (producer, consumer):
            with pytest.raises(errors.ArgumentError, match=r"enable\.metrics\.push"):
                one.client_instance_id()
    assert broker.broker.client_metrics() == []


def test_a_broker_without_a_receiver(tmp_path: Path) -> None:
    config = {"kafkalog.client.metrics.enable": False}
    with TestBroker(tmp_path / "data", config=config) as broker:
        broker.create_topic("t", 1)
        with (
            Producer(broker.bootstrap_servers) as producer,
            Consumer(broker.bootstrap_servers, "t") as consumer,
        ):
            producer.send("t", b"x").result(LIMIT_S)
            for one in (producer, consumer):
                with pytest.raises(errors.UnsupportedVersion, match="GetTelemetrySubscriptions"):
                    one.client_instance_id()


def test_a_broker_that_is_silent_about_metrics_holds_up_nothing(broker: TestBroker) -> None:
    """Records and the end of the client do not wait for it."""
    subscribe(broker)
    with Producer(broker.bootstrap_servers, client_id="p") as producer:
        producer.client_instance_id()
        silent = broker.delay("PushTelemetry", 3_600_000, times=None)
        wait_for(lambda: silent.hits, "it has pushed")
        producer.send("t", b"x").result(LIMIT_S)
        assert producer.client_instance_id().version == 4
    assert values(broker, "p") == {}


@pytest.mark.parametrize("error", ["THROTTLING_QUOTA_EXCEEDED", "UNKNOWN_SUBSCRIPTION_ID"])
def test_refused_metrics_are_sent_again(broker: TestBroker, error: str) -> None:
    """Each increase is counted once."""
    subscribe(broker)
    refused = broker.fail("PushTelemetry", error, times=3)
    with Producer(broker.bootstrap_servers, client_id="p") as producer:
        producer.send("t", b"x").result(LIMIT_S)
        producer.client_instance_id()
        wait_for(lambda: refused.hits == 3 and counts(broker)[0] == 1, "it is counted")
    assert counts(broker)[0] == 1


@pytest.mark.parametrize("error", ["THROTTLING_QUOTA_EXCEEDED", "INVALID_RECORD"])
def test_refused_clients_go_on(broker: TestBroker, error: str) -> None:
    subscribe(broker)
    refused = broker.fail("PushTelemetry", error)
    with Producer(broker.bootstrap_servers) as producer:
        producer.client_instance_id()
        wait_for(lambda: refused.hits, "it has pushed")
        producer.send("t", b"x").result(LIMIT_S)


def counts(broker: TestBroker) -> tuple[float | None, float | None]:
    """The records that a producer p and a consumer c say that they have sent and read."""
    sent = values(broker, "p").get(f"{PREFIX}producer.record.send.total")
    return sent, values(broker, "c").get(f"{PREFIX}consumer.fetch.manager.records.consumed.total")


@contextmanager
def at_work(broker: TestBroker) -> Iterator[tuple[Producer, Consumer]]:
    """A producer and a consumer that have sent and read one record, and said so."""
    subscribe(broker)
    with (
        Producer(broker.bootstrap_servers, client_id="p") as producer,
        Consumer(broker.bootstrap_servers, "t", group="g", client_id="c",
                 auto_offset_reset="earliest") as consumer,
    ):  # fmt: skip
        producer.send("t", b"x").result(LIMIT_S)
        polling(consumer, lambda: counts(broker) == (1, 1), "both have said it")
        yield producer, consumer


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_says_nothing_for_its_parent(broker: TestBroker) -> None:
    """A last push would end that of the parent."""
    with at_work(broker) as (producer, consumer):
        for one in (producer, consumer):
            ends = {"id": one.client_instance_id, "close": one.close}
            assert outcomes(one, ends) == {"id": REFUSED, "close": WORKS}
        producer.send("t", b"x").result(LIMIT_S)
        polling(consumer, lambda: counts(broker) == (2, 2), "both have said more")
    assert counts(broker) == (2, 2)


def test_a_restarted_broker_hears_the_same_clients(broker: TestBroker) -> None:
    """It counts from its start."""
    with at_work(broker) as (producer, consumer):
        broker.restart()
        producer.send("t", b"x").result(LIMIT_S)
        polling(consumer, lambda: None not in counts(broker), "both have said more")
        known = {one.client_id: one.client_instance_id for one in broker.broker.client_metrics()}
        assert known == {
            "p": producer.client_instance_id(), "c": consumer.client_instance_id()
        }  # fmt: skip


def test_asyncio_has_the_id_too(broker: TestBroker) -> None:
    async def both() -> tuple[UUID, UUID]:
        async with (
            aio.Producer(broker.bootstrap_servers) as producer,
            aio.Consumer(broker.bootstrap_servers, "t") as consumer,
        ):
            return await producer.client_instance_id(), await consumer.client_instance_id()

    one, other = asyncio.run(both())
    assert one != other
    known = {found.client_instance_id for found in broker.broker.client_metrics()}
    assert known == {one, other}


def test_clients_of_a_store_send_theirs(tmp_path: Path) -> None:
    with kafkalog.Store(tmp_path / "d") as store:
        store.create_topic("t")
        every = {"metrics": "*", "interval.ms": "60000"}
        store.admin.alter_configs({("client_metrics", "all"): every}).check()
        with store.producer() as producer:
            number = producer.client_instance_id()
            producer.send("t", b"x")
        (found,) = [one for one in store.client_metrics() if one.client_instance_id == number]
        assert found.address == "inside" and len(found.metrics) > 10


def test_a_dropped_consumer_is_not_kept_by_its_metrics(broker: TestBroker) -> None:
    subscribe(broker)
    held = [Consumer(broker.bootstrap_servers, "t", client_id="c")]
    wait_for(lambda: held[0].poll(10) or client(broker, "c"), "it has pushed")
    gone = weakref.ref(held.pop())
    gc.collect()
    wait_for(lambda: gone() is None, "it is gone")


def test_a_client_with_few_rights_sends_its_metrics(tmp_path: Path) -> None:
    """Over TLS, after a login, and without a permission for it; it may not change subscriptions."""
    security = Security(
        "sasl_ssl", {"alice": "secret"}, acls=[("alice", "WRITE,DESCRIBE", "topic", "t")]
    )
    with TestBroker(tmp_path / "data", security=security) as broker:
        broker.create_topic("t", 1)
        store = broker.broker.store
        every = {"metrics": "*", "interval.ms": "60000"}
        store.admin.alter_configs({("client_metrics", "all"): every}).check()
        config = broker.client_config("kafkalog")
        servers = config.pop("bootstrap.servers")
        with Producer(servers, config=config) as producer:
            producer.client_instance_id()
            producer.send("t", b"x").result(LIMIT_S)
        (found,) = [one for one in broker.broker.client_metrics() if one.metrics]
        assert found.address == "127.0.0.1"
        with kafkalog.Admin(servers, config=config) as admin:
            outcome = admin.alter_configs({("client_metrics", "all"): {"metrics": "a."}})
            (problem,) = outcome.errors.values()
            assert isinstance(problem, errors.ClusterAuthorizationFailed)
