"""A secured broker for a test: each library connects with the settings it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import kafka.errors
import pytest
from aiokafka import AIOKafkaProducer

import kafkalog
from kafkalog import errors
from kafkalog.testing.broker import TestBroker
from kafkalog.testing.security import MECHANISMS, PROTOCOLS, Security

USERS = {"alice": 'quo"te\\d', "bob": "secret"}


@contextmanager
def secured(path: Path, protocol: str, **options: Any) -> Iterator[TestBroker]:
    users = USERS if protocol.startswith("sasl") else None
    with TestBroker(path / "data", security=Security(protocol, users, **options)) as broker:
        yield broker


def send_with_confluent(broker: TestBroker, user: str | None = None) -> None:
    producer = confluent_kafka.Producer(broker.client_config("confluent-kafka", user))
    failures: list[Any] = []
    producer.produce("t", b"confluent", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(30) == 0 and failures == [None]


def send_with_kafka_python(broker: TestBroker) -> None:
    producer = kafka.KafkaProducer(**broker.client_config("kafka-python"))
    producer.send("t", b"kafka-python").get(timeout=30)
    producer.close()


def send_with_aiokafka(broker: TestBroker) -> None:
    async def send() -> None:
        async with AIOKafkaProducer(**broker.client_config("aiokafka")) as producer:
            await producer.send_and_wait("t", b"aiokafka")

    asyncio.run(send())


def send_with_ours(broker: TestBroker, user: str | None = None) -> None:
    config = broker.client_config("kafkalog", user)
    where = config.pop("bootstrap.servers")
    with kafkalog.Producer(where, idempotent=False, config=config) as producer:
        producer.send("t", b"kafkalog").result()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_library_connects(tmp_path: Path, protocol: str) -> None:
    with secured(tmp_path, protocol) as broker:
        broker.create_topic("t")
        send_with_confluent(broker)
        send_with_kafka_python(broker)
        send_with_aiokafka(broker)
        send_with_ours(broker)
        found = [record.value for record in broker.wait_for_records("t", 4)]
    assert found == [b"confluent", b"kafka-python", b"aiokafka", b"kafkalog"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism(tmp_path: Path, mechanism: str) -> None:
    with secured(tmp_path, "sasl_plaintext", mechanism=mechanism) as broker:
        broker.create_topic("t")
        send_with_confluent(broker, "bob")
        send_with_ours(broker)
        broker.wait_for_records("t", 2)


def test_acls_decide_about_a_user(tmp_path: Path) -> None:
    acls = [("alice", "WRITE,DESCRIBE", "topic", "t*"), ("bob", "ALL", "topic", "t"),
            ("bob", "WRITE", "topic", "t", "DENY")]  # fmt: skip
    with secured(tmp_path, "sasl_plaintext", acls=acls) as broker:
        broker.create_topic("t")
        send_with_confluent(broker, "alice")
        with pytest.raises(errors.TopicAuthorizationFailed):
            send_with_ours(broker, "bob")
        assert len(broker.records("t")) == 1
        broker.restart()  # credentials and ACLs are kept
        send_with_ours(broker, "alice")
        with pytest.raises(errors.TopicAuthorizationFailed):
            send_with_ours(broker, "bob")


@pytest.mark.parametrize("certificate", ["expired", "wrong-host", "untrusted"])
def test_a_certificate_that_is_refused(tmp_path: Path, certificate: str) -> None:
    with secured(tmp_path, "ssl") as broker:
        broker.create_topic("t")
        assert broker.security is not None
        broker.security.present(certificate)
        broker.restart()
        with pytest.raises(errors.SslAuthenticationFailed):
            send_with_ours(broker)
        broker.security.present("valid")
        broker.restart()
        send_with_ours(broker)


def test_wrong_passwords_are_refused(tmp_path: Path) -> None:
    with secured(tmp_path, "sasl_plaintext") as broker:
        config = broker.client_config()
        config["sasl.jaas.config"] = config["sasl.jaas.config"].replace("quo", "wrong")
        where = config.pop("bootstrap.servers")
        with (
            pytest.raises(errors.SaslAuthenticationFailed),
            kafkalog.Producer(where, config=config) as producer,
        ):
            producer.send("t", b"a").result()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tls",), "security: found 'tls', wanted one of ssl"),
        (("sasl_ssl",), "users: found none"),
        (("ssl", USERS), "users: found some"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(errors.ArgumentError, match=message):
        Security(*arguments)


@pytest.mark.parametrize("acl", ["alice", ("alice", "READ", "topic"), ("a", "EAT", "topic", "t")])
def test_an_acl_that_does_not_fit_is_refused(tmp_path: Path, acl: Any) -> None:
    with (
        pytest.raises(errors.ArgumentError, match="acls: found"),
        secured(tmp_path, "sasl_plaintext", acls=[acl]),
    ):
        pass


def test_no_password_is_shown() -> None:
    assert "secret" not in repr(Security("sasl_ssl", USERS))
