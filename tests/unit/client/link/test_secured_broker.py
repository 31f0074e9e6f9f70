"""Our clients and our broker, over TLS and with a login."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import Admin, Broker, Consumer, Producer, errors
from kafkalog.testing.broker import TestBroker
from kafkalog.testing.security import Security
from tests.support import sasl, secured
from tests.support.waiting import wait_for

SENT = [b"%d" % n * n for n in range(300)]


def goes_around(servers: str, config: dict[str, str]) -> None:
    """A transaction, and a group."""
    found: list[bytes | None] = []
    producer = Producer(servers, transactional_id="t", config=config)
    with producer, producer.transaction():
        for value in SENT:
            producer.send("orders", value)
    with Consumer(
        servers, "orders", group="g", auto_offset_reset="earliest", config=config
    ) as consumer:

        def all_there() -> bool:
            found.extend(record.value for record in consumer.poll(100))
            return len(found) >= len(SENT)

        wait_for(all_there, "all records")
    assert found == SENT


def test_tls(tmp_path: Path) -> None:
    with TestBroker(tmp_path, security=Security("ssl")) as broker:
        config = broker.client_config()
        servers = config.pop("bootstrap.servers", broker.bootstrap_servers)
        goes_around(servers, config)


def test_a_login(tmp_path: Path) -> None:
    """With a password that has every character a parser stumbles on; a wrong one gets nothing."""
    config = secured.settings("SASL_PLAINTEXT", sasl_mechanism="PLAIN")

    def login(password: str) -> dict[str, str]:
        text = secured.jaas(secured.PLAIN, username="bob", password=password)
        return {**config, "sasl.jaas.config": text}

    more = sasl.settings("PLAIN", connection_failed_authentication_delay_ms=1)
    more |= {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with Broker(tmp_path, config=more) as broker:
        servers = broker.bootstrap_servers
        goes_around(servers, login(sasl.USERS["bob"]))
        with (
            Admin(servers, config=login("wrong")) as admin,
            pytest.raises(errors.SaslAuthenticationFailed),
        ):
            admin.list_topics()
