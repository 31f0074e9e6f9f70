"""Real clients with a broker that fails on command: they behave as with a Kafka that fails so."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.testing.broker import TestBroker
from kafkalog.testing.cluster import TestCluster
from tests.kafka.clients.agent import Agent, Record
from tests.support.membership import led_elsewhere

pytestmark = pytest.mark.slow

Wait = Callable[..., None]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "data") as made:
        made.create_topic("t")
        yield made


def values(broker: TestBroker) -> list[bytes | None]:
    return [record.value for record in broker.records("t")]


def confluent(broker: TestBroker, **settings: Any) -> Any:
    kafka = pytest.importorskip("confluent_kafka")
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0,
                           "retry.backoff.ms": 10, **named})  # fmt: skip


def send(producer: Any, *sent: bytes) -> list[Any]:
    """The error of each record; None: no error."""
    told: list[Any] = []
    for value in sent:
        producer.produce("t", value, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(30) == 0
    return told


# ---- errors --------------------------------------------------------------------------------------


def test_librdkafka_retries_only_retriable_errors(broker: TestBroker) -> None:
    producer = confluent(broker)
    fault = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert send(producer, b"a") == [None]
    assert fault.hits == 2
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    (error,) = send(confluent(broker, enable_idempotence=False), b"b")
    assert error.name() == "TOPIC_AUTHORIZATION_FAILED"
    assert values(broker) == [b"a"]


def test_kafka_python_retries_only_retriable_errors(broker: TestBroker) -> None:
    kafka = pytest.importorskip("kafka")
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, retries=5, retry_backoff_ms=10
    )
    fault = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert producer.send("t", b"a").get(30).offset == 0
    assert fault.hits == 2
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        producer.send("t", b"b").get(30)
    producer.close()
    assert values(broker) == [b"a"]


def test_aiokafka_begins_again_where_offsets_are_gone(broker: TestBroker) -> None:
    aiokafka = pytest.importorskip("aiokafka")

    async def run() -> list[bytes]:
        found: list[bytes] = []
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as out:
            fault = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
            await out.send_and_wait("t", b"a")
            assert fault.hits == 2
        consumer = aiokafka.AIOKafkaConsumer(
            "t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        )
        async with consumer:
            found.append((await asyncio.wait_for(consumer.getone(), 30)).value)
            fault = broker.fail("Fetch", "OFFSET_OUT_OF_RANGE")
            found.append((await asyncio.wait_for(consumer.getone(), 30)).value)
            assert fault.hits == 1
        return found

    assert asyncio.run(run()) == [b"a", b"a"]


@pytest.mark.skipif(shutil.which("kcat") is None, reason="no kcat on this machine")
def test_kcat_waits_for_a_leader(broker: TestBroker) -> None:
    fault = broker.fail("Metadata", "LEADER_NOT_AVAILABLE", times=2)
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap_servers, "-P", "-t", "t"], input="a\n", text=True,
        capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (fault.hits, values(broker)) == (2, [b"a"])


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("SyncGroup", "REBALANCE_IN_PROGRESS"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("ListOffsets", "NOT_LEADER_OR_FOLLOWER"),
        ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
    ],
)
def test_a_member_gets_there_all_the_same(broker: TestBroker, api: str, error: str) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    broker.fill("t", ["a"])
    fault = broker.fail(api, error, times=2)
    consumer = kafka.Consumer({
        "bootstrap.servers": broker.bootstrap_servers, "group.id": "g",
        "auto.offset.reset": "earliest", "retry.backoff.ms": 10,
    })  # fmt: skip
    consumer.subscribe(["t"])
    message = next(m for m in iter(lambda: consumer.poll(30), None) if m.error() is None)
    consumer.commit(message)
    consumer.close()
    assert (message.value(), fault.hits) == (b"a", 2)
    broker.assert_committed("g", {("t", 0): 1})


# ---- lost answers, lost connections, silence -----------------------------------------------------


def test_a_lost_answer_repeats_a_record_but_of_an_idempotent_producer(broker: TestBroker) -> None:
    once, twice = confluent(broker, enable_idempotence=True), confluent(broker, acks=1)
    broker.drop_response("Produce")
    assert send(once, b"once") == [None]
    broker.drop_response("Produce")
    assert send(twice, b"twice") == [None]
    assert values(broker) == [b"once", b"twice", b"twice"]


def test_disconnected_clients_reconnect(broker: TestBroker) -> None:
    kafka = pytest.importorskip("kafka")
    producer = confluent(broker)
    cut = broker.disconnect("Produce", times=2)
    assert send(producer, b"a", b"b") == [None, None]
    off = broker.disconnect("Fetch", times=2)
    consumer = kafka.KafkaConsumer(
        "t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest",
        consumer_timeout_ms=30_000, reconnect_backoff_ms=10, retry_backoff_ms=10,
    )  # fmt: skip
    read = iter(consumer)
    assert [next(read).value for _ in range(2)] == [b"a", b"b"] == values(broker)
    consumer.close()
    assert (cut.hits, off.hits) == (2, 2)


def test_a_client_retries_after_its_timeout(broker: TestBroker) -> None:
    """The first request takes an hour; its client gives it up and sends another."""
    producer = confluent(broker, socket_timeout_ms=1000, request_timeout_ms=500)
    fault = broker.delay("Produce", 3_600_000)
    assert send(producer, b"a") == [None]
    assert (fault.hits, values(broker)) == (1, [b"a"])


def test_a_paused_broker_is_one_that_does_not_answer(broker: TestBroker) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    admin = pytest.importorskip("confluent_kafka.admin")
    client = admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert "t" in client.list_topics(timeout=30).topics
    broker.pause()
    with pytest.raises(kafka.KafkaException) as told:
        client.list_topics(timeout=0.2)
    assert told.value.args[0].name() in ("_TRANSPORT", "_TIMED_OUT")
    broker.resume()
    assert "t" in client.list_topics(timeout=30).topics


# ---- the power -----------------------------------------------------------------------------------


def test_a_power_cut_takes_nothing_that_acks_all_acknowledged(broker: TestBroker) -> None:
    """And clients continue by themselves when the broker is back."""
    safe, hasty = confluent(broker), confluent(broker, acks=1)
    for number in range(3):
        assert send(safe, b"safe %d" % number) == [None]
        assert send(hasty, b"hasty %d" % number) == [None]
        broker.kill()
        broker.start()
    # Each sync also makes everything before it durable; later records are lost.
    assert values(broker) == [b"safe 0", b"safe 1", b"safe 2"]


# ---- the clock -----------------------------------------------------------------------------------


def test_a_member_rejoins_after_its_session(broker: TestBroker) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    lost: list[Any] = []
    consumer = kafka.Consumer({
        "bootstrap.servers": broker.bootstrap_servers, "group.id": "g",
        "auto.offset.reset": "earliest", "heartbeat.interval.ms": 50,
        "session.timeout.ms": 30_000,
    })  # fmt: skip
    consumer.subscribe(["t"], on_lost=lambda _, partitions: lost.extend(partitions))
    broker.fill("t", ["a"])
    assert consumer.poll(30).value() == b"a"
    broker.fill("t", ["b"])
    while not lost:
        # A heartbeat that comes after the clock's change and before the coordinator checks its
        # timers is in time: then the next silence is too long.
        broker.clock.advance(31_000)
        consumer.poll(0.05)
    consumer.close()
    assert [(tp.topic, tp.partition) for tp in lost] == [("t", 0)]


def test_an_expired_transaction_is_aborted(broker: TestBroker) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    producer = confluent(broker, transactional_id="x", transaction_timeout_ms=60_000)
    producer.init_transactions(30)
    producer.begin_transaction()
    assert send(producer, b"open") == [None]
    broker.clock.advance(80_000)
    broker.fill("t", ["after"])
    broker.wait_for_records("t", 1)
    with pytest.raises(kafka.KafkaException) as told:
        producer.commit_transaction(30)
    assert told.value.args[0].txn_requires_abort() or told.value.args[0].fatal()
    assert values(broker) == [b"after"]
    producer.purge()
    del producer, told  # while there is a broker: otherwise it searches for one for half a minute


# ---- another leader ------------------------------------------------------------------------------


@pytest.mark.java
def test_java_goes_where_a_refusal_sends_it(
    kafkalog_cluster: TestCluster, new_agent: Callable[..., Agent]
) -> None:
    """Only the answer names the leader (KIP-951): with the metadata it would query the old leader
    forever."""
    cluster = kafkalog_cluster
    cluster.create_topic("t")
    cluster.wait_until(lambda: len(cluster.in_sync("t")) == 3, "all are in sync")
    java = new_agent("java", cluster.bootstrap_servers)
    assert java.produce("t", [Record(b"k", b"0")], acks="1") == [0]
    old, new = led_elsewhere(cluster, "t")
    assert java.produce("t", [Record(b"k", b"1")], acks="1") == [1]
    logs = [cluster.nodes[node].broker._node.partitions.log("t", 0) for node in (old, new)]
    assert [log.end_offset for log in logs] == [1, 2]
