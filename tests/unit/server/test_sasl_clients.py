"""Other clients authenticate by each mechanism that they have."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioError
from confluent_kafka.admin import AdminClient

from kafkalog.security.scram import Mechanism, salted_password
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from tests.support import sasl
from tests.support.raw import Raw
from tests.support.sasl import USERS, authenticate
from tests.support.waiting import LIMIT_S

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER = "bob"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = sasl.settings(*MECHANISMS, connection_failed_authentication_delay_ms=1)
    with Broker(tmp_path_factory.mktemp("clients"), config=config) as running:
        raw = Raw(running.bootstrap_servers)
        authenticate(raw)
        for one in Mechanism:
            salted = salted_password(one, USERS[USER], b"salt", 4096)
            row = {"name": USER, "mechanism": int(one), "iterations": 4096, "salt": b"salt",
                   "salted_password": salted}  # fmt: skip
            raw.call(apis.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[row])
        for mechanism in MECHANISMS:
            raw.create(mechanism)
        raw.socket.close()
        yield running


def of_librdkafka(broker: Broker, mechanism: str, password: str) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": password,
    }  # fmt: skip


def of_python(broker: Broker, mechanism: str, password: str) -> dict[str, object]:
    return {
        "bootstrap_servers": broker.bootstrap_servers, "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": password,
    }  # fmt: skip


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(broker: Broker, mechanism: str) -> None:
    config = of_librdkafka(broker, mechanism, USERS[USER])
    producer = confluent_kafka.Producer(config)
    producer.produce(mechanism, b"librdkafka")
    assert producer.flush(LIMIT_S) == 0
    consumer = confluent_kafka.Consumer(
        {**config, "group.id": mechanism, "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(mechanism, 0, 0)])
    message = consumer.poll(LIMIT_S)
    consumer.close()
    assert message is not None and message.error() is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_with_a_wrong_password(broker: Broker, mechanism: str) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    config = of_librdkafka(broker, mechanism, "wrong")
    admin = AdminClient({**config, "error_cb": errors.append})
    while not any(one.code() == confluent_kafka.KafkaError._AUTHENTICATION for one in errors):
        admin.poll(LIMIT_S)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(broker: Broker, mechanism: str) -> None:
    config = of_python(broker, mechanism, USERS[USER])
    producer = kafka.KafkaProducer(**config)
    assert producer.send(mechanism, b"kafka-python").get(LIMIT_S).topic == mechanism
    producer.close()
    consumer = kafka.KafkaConsumer(**config, auto_offset_reset="earliest")
    consumer.assign([kafka.TopicPartition(mechanism, 0)])
    assert next(consumer).value
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(broker: Broker, mechanism: str) -> None:
    async def both() -> None:
        config = of_python(broker, mechanism, USERS[USER])
        async with AIOKafkaProducer(**config) as producer:
            await producer.send_and_wait(mechanism, b"aiokafka")
        async with AIOKafkaConsumer(mechanism, **config, auto_offset_reset="earliest") as consumer:
            assert (await consumer.getone()).value
        with pytest.raises(AioError):
            async with AIOKafkaProducer(**of_python(broker, mechanism, "wrong")):
                pass

    asyncio.run(both())
