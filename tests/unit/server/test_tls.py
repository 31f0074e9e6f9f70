"""A broker with TLS listeners, its clients, and keys that change."""

from __future__ import annotations

import logging
import ssl
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import kafka
import pytest
import trustme

from kafkalog.config.server_properties import read_properties, sorted_out
from kafkalog.errors import InvalidSetting
from kafkalog.logs.limit import LINES_MAX
from kafkalog.server.admission import FIRST
from kafkalog.server.broker import Broker, node_of
from tests.support.certificates import Certificates, client_context, pem_of
from tests.support.waiting import LIMIT_S, wait_for


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def served(certificates: Certificates, protocol: str = "SSL", **settings: Any) -> Broker:
    config = {"listeners": f"{protocol}://127.0.0.1:0", **certificates.settings(**settings)}
    return Broker(certificates.path / "data", config=config)


def port_of(broker: Broker) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])


def connected(broker: Broker, trust: Path) -> ssl.SSLSocket:
    import socket

    raw = socket.create_connection(("127.0.0.1", port_of(broker)), LIMIT_S)
    return client_context(trust).wrap_socket(raw, server_hostname="localhost")


def test_clients_of_librdkafka_and_python_produce_and_consume(certificates: Certificates) -> None:
    """Several megabytes, in both directions, with a client's certificate that is required."""
    from confluent_kafka import Consumer, Producer  # absent under ThreadSanitizer: .ci/sanitize

    own = str(certificates.client("alice"))
    with served(certificates, client_auth="required", principal_mapping_rules=
                "RULE:CN=([^,]*).*/$1/U") as broker:  # fmt: skip
        rdkafka = {
            "bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SSL",
            "ssl.ca.location": str(certificates.trust), "ssl.certificate.location": own,
            "ssl.key.location": own,
        }  # fmt: skip
        producer = Producer(rdkafka)
        values = [bytes([number]) * 500_000 for number in range(10)]
        for value in values:
            producer.produce("orders", value)
        assert producer.flush(LIMIT_S) == 0
        consumer = Consumer({**rdkafka, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        found = []
        while len(found) < len(values):
            message = consumer.poll(LIMIT_S)
            assert message is not None and message.error() is None
            found.append(message.value())
        assert found == values
        consumer.close()
        python = kafka.KafkaConsumer(
            "orders", bootstrap_servers=broker.bootstrap_servers, security_protocol="SSL",
            ssl_cafile=str(certificates.trust), ssl_certfile=own, auto_offset_reset="earliest",
        )  # fmt: skip
        assert next(iter(python)).value == values[0]
        python.close()
        assert str(node_of(broker).admission.principal(FIRST)) == "User:ALICE"


def test_a_properties_file_that_kafka_accepts(certificates: Certificates) -> None:
    """From the file to the listener, with settings of the listener itself."""
    file = certificates.path / "server.properties"
    file.write_text(
        f"listeners=OUTSIDE://127.0.0.1:0\nlistener.security.protocol.map=OUTSIDE:SSL\n"
        f"listener.name.outside.ssl.keystore.type=PEM\n"
        f"listener.name.outside.ssl.keystore.location={certificates.keystore}\n"
        f"ssl.enabled.protocols=TLSv1.3\n"
    )
    found = sorted_out(read_properties(str(file)))
    with (
        Broker(certificates.path / "data", config=found.config) as broker,
        connected(broker, certificates.trust) as client,
    ):
        assert client.version() == "TLSv1.3"


def test_changed_files_are_used(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A bad key is reported and the old one stays; a good one is for new connections."""
    with served(certificates) as broker:
        old = connected(broker, certificates.trust)
        certificates.keystore.write_text("no key")
        wait_for(lambda: "the old keys stay in use" in caplog.text, "the bad key is reported")
        connected(broker, certificates.trust).close()
        authority = trustme.CA()
        trust = tmp_path / "new-ca.pem"
        trust.write_bytes(authority.cert_pem.bytes())
        certificates.keystore.write_text(pem_of(authority.issue_cert("localhost")))

        def changed() -> bool:
            try:
                connected(broker, trust).close()
            except ssl.SSLError:
                return False
            return True

        wait_for(changed, "new connections see the new certificate")
        old.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff")  # ApiVersions
        assert old.recv(4)
        old.close()


def test_a_failed_handshake_is_logged(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the host and OpenSSL's reason, a limited number of times."""
    other = tmp_path / "other.pem"
    other.write_bytes(trustme.CA().cert_pem.bytes())
    with served(certificates) as broker:
        for _ in range(LINES_MAX + 5):
            with pytest.raises(ssl.SSLError):
                connected(broker, other)
        wait_for(
            lambda: node_of(broker).reactor.stats().handshakes_failed == LINES_MAX + 5,
            "all have failed",
        )
        wait_for(lambda: caplog.text.count("unknown ca") >= 1, "it is logged")
    assert "listener SSL: the handshake of 127.0.0.1:" in caplog.text
    assert caplog.text.count("unknown ca") <= LINES_MAX


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"keystore_location": ""}, "listener SSL: ssl.keystore.location: found none"),
        ({"client_auth": "required", "truststore_location": ""}, "ssl.client.auth is required"),
        ({"principal_mapping_rules": "x"}, "ssl.principal.mapping.rules: found 'x'"),
        ({"cipher_suites": "TLS_NONE"}, "no cipher suite TLS_NONE"),
    ],
)
def test_a_listener_without_its_settings_does_not_start(
    certificates: Certificates, settings: dict[str, str], said: str
) -> None:
    """Nothing is written, and the message names the setting."""
    with pytest.raises(InvalidSetting) as refused:
        served(certificates, **settings)
    assert said in str(refused.value)
    assert not (certificates.path / "data").exists()


def test_an_expired_certificate_of_the_broker_is_reported(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start, once, and again after a good one was there; so is one that expires soon."""
    good = certificates.keystore.read_text()
    now = datetime.now(timezone.utc)

    def expiring(until: datetime) -> str:
        return pem_of(certificates.authority.issue_cert("localhost", not_after=until))

    def reported(text: str, count: int) -> None:
        wait_for(lambda: caplog.text.count(text) == count, f"{count}: {text}")

    certificates.keystore.write_text(expiring(now - timedelta(days=1)))
    with served(certificates) as broker, caplog.at_level(logging.INFO):
        reported("listener SSL: its certificate has expired", 1)
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            connected(broker, certificates.trust)
        certificates.keystore.write_text(good)
        reported("new connections use the changed keys", 1)
        connected(broker, certificates.trust).close()
        certificates.keystore.write_text(expiring(now + timedelta(days=2)))
        reported("listener SSL: its certificate expires soon", 1)
        connected(broker, certificates.trust).close()
        reported("listener SSL: its certificate has expired", 1)
