"""Our clients and Apache Kafka with every security protocol and mechanism: what it takes, refuses,
and how long a session lasts."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkalog import Admin, Consumer, Producer, errors
from tests.support import apache, secured
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

REAUTH_MS = 10_000
RECORDS = 300


class Cluster(NamedTuple):
    ports: secured.Listeners
    files: secured.Papers

    def at(self, listener: str) -> str:
        return f"127.0.0.1:{getattr(self.ports, listener)}"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("secured")
    files = secured.papers(folder)
    ports, settings = secured.listeners(files, REAUTH_MS)
    users: list[str] = []
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        login = f'{mechanism}=[name={secured.ALICE},password="{secured.PASSWORD}"]'
        users += ["--add-scram", login]
    with apache.Broker(folder / "data", settings, port=ports.plaintext, formatted=users):
        yield Cluster(ports, files)


def login(kafka: Cluster, protocol: str, mechanism: str, password: str) -> dict[str, str]:
    module = secured.PLAIN if mechanism == "PLAIN" else secured.SCRAM
    config = secured.settings(protocol, kafka.files, sasl_mechanism=mechanism)
    return {
        **config,
        "sasl.jaas.config": secured.jaas(module, username=secured.ALICE, password=password),
    }


def goes_around(servers: str, topic: str, config: dict[str, str], **more: object) -> None:
    """A topic is created, written in a transaction, and read in a group."""
    sent = [b"%d" % n * (n % 3000) for n in range(RECORDS)]
    with Admin(servers, config=config, **more) as admin:  # type: ignore[arg-type]
        admin.create_topics([topic]).check()
    own: Any = {"config": config, **more}
    producer = Producer(servers, transactional_id=topic, **own)
    with producer, producer.transaction():
        for value in sent:
            producer.send(topic, value)
    found: list[bytes | None] = []
    with Consumer(servers, topic, group=topic, auto_offset_reset="earliest", **own) as consumer:

        def all_there() -> bool:
            found.extend(record.value for record in consumer.poll(100))
            return len(found) >= RECORDS

        wait_for(all_there, "all records")
    assert found == sent


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_by_password(kafka: Cluster, protocol: str, mechanism: str) -> None:
    servers = kafka.at(protocol.lower())
    config = login(kafka, protocol, mechanism, secured.PASSWORD)
    goes_around(servers, f"{protocol}-{mechanism}", config)
    wrong = login(kafka, protocol, mechanism, "wrong")
    with Admin(servers, config=wrong) as admin, pytest.raises(errors.SaslAuthenticationFailed):
        admin.list_topics()


def test_tls(kafka: Cluster) -> None:
    config = secured.settings("SSL", kafka.files)
    goes_around(kafka.at("ssl"), "tls", config)
    for listener in ("mtls", "elsewhere"):
        with (
            Admin(kafka.at(listener), config=config) as admin,
            pytest.raises(errors.SslAuthenticationFailed),
        ):
            admin.list_topics()
    own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(kafka.files.client)}
    goes_around(kafka.at("mtls"), "mtls", {**config, **own})


def unsecured(lasts_s: float = 3600) -> tuple[str, float]:
    """A token that Kafka's validator for tests takes."""
    expires_s = time.time() + lasts_s
    parts = [{"alg": "none"}, {"sub": secured.ALICE, "iat": time.time(), "exp": expires_s}]
    bare = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts]
    return ".".join([*(part.rstrip("=") for part in bare), ""]), expires_s


def test_tokens(kafka: Cluster, tmp_path: Path) -> None:
    """From the application, and from a file; another one is refused with Kafka's reason."""
    config = secured.settings("SASL_SSL", kafka.files, sasl_mechanism="OAUTHBEARER")
    servers = kafka.at("sasl_ssl")
    goes_around(servers, "tokens", config, oauth_token=unsecured)
    file = tmp_path / "token"
    file.write_text(unsecured()[0])
    from_file = {**config, "sasl.oauthbearer.token.endpoint.url": f"file://{file}"}
    with Admin(servers, config=from_file) as admin:
        admin.list_topics()
    with (
        Admin(servers, config=config, oauth_token=lambda: ("t", time.time() + 60)) as admin,
        pytest.raises(errors.SaslAuthenticationFailed, match="invalid_token"),
    ):
        admin.list_topics()


def test_sessions_are_renewed_on_their_connections(kafka: Cluster) -> None:
    """Twice as long as one lasts: nothing is lost or repeated, and the reader stays connected."""
    servers = kafka.at("sasl_ssl")
    config = login(kafka, "SASL_SSL", "SCRAM-SHA-512", secured.PASSWORD)
    sent, found = 0, 0
    end_s = time.monotonic() + 2 * REAUTH_MS / 1000
    connections: set[object] = set()
    with (
        Producer(servers, config=config) as producer,
        Consumer(servers, "renewed", auto_offset_reset="earliest", config=config) as consumer,
    ):
        while time.monotonic() < end_s:
            for _ in range(20):
                producer.send("renewed", b"x" * 500)
                sent += 1
            found += len(consumer.poll(50))
            connections |= set(consumer._fetcher._connections.values())
        producer.flush()

        def all_there() -> bool:
            nonlocal found
            found += len(consumer.poll(100))
            return found >= sent

        wait_for(all_there, "all records")
    assert found == sent and len(connections) == 1
