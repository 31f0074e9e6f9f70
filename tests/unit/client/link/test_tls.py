"""A client over TLS: whom it trusts, and that no byte is lost, late or repeated."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafkalog import Admin, Consumer, Producer, errors
from kafkalog.aio import Consumer as AsyncConsumer
from kafkalog.aio import Producer as AsyncProducer
from kafkalog.client.link.connection import Connection, answering
from kafkalog.client.link.transport import Address, Options
from kafkalog.client.login.security import security_of
from kafkalog.client.login.tls import TlsSocket
from kafkalog.config.admin import AdminConfig
from kafkalog.config.client import ClientConfig
from kafkalog.testing.broker import TestBroker
from kafkalog.wire import apis
from tests.support import secured
from tests.support.tls_front import TlsFront
from tests.support.waiting import LIMIT_S, wait_for


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> secured.Papers:
    return secured.papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def front(files: secured.Papers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsFront]:
    """TLS in front of a broker, which sends its clients there."""
    with ExitStack() as stack:
        made = stack.enter_context(TlsFront(files.server))
        config = {"advertised.listeners": f"PLAINTEXT://{made.servers}"}
        broker = TestBroker(tmp_path_factory.mktemp("broker"), config=config)
        stack.enter_context(broker)
        made.target = int(broker.bootstrap_servers.rpartition(":")[2])
        yield made


@pytest.fixture
def config(files: secured.Papers) -> dict[str, str]:
    return secured.settings("SSL", files)


def connect(front: TlsFront, config: dict[str, str], **options: int) -> Connection:
    security = security_of(ClientConfig(config))
    return Connection(Address("127.0.0.1", front.port), Options(security=security, **options))


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_records_of_every_size_arrive_once(
    front: TlsFront, config: dict[str, str], version: str, unique: str
) -> None:
    """Smaller and larger than a record of TLS, and than a socket's buffers."""
    config["ssl.enabled.protocols"] = version
    sent = [bytes([n % 256]) * size for n, size in enumerate((0, 1, 16_383, 16_384, 70_000) * 40)]
    sent.append(b"x" * 900_000)
    with Producer(front.servers, config=config, linger_ms=0) as producer:
        for value in sent:
            producer.send(unique, value)
    found: list[bytes | None] = []
    with Consumer(front.servers, unique, auto_offset_reset="earliest", config=config) as consumer:

        def all_there() -> bool:
            found.extend(record.value for record in consumer.poll(0))
            return len(found) >= len(sent)

        wait_for(all_there, "all records")
    assert found == sent


def test_asyncio_over_tls(front: TlsFront, config: dict[str, str], unique: str) -> None:
    async def both() -> bytes | None:
        async with AsyncProducer(front.servers, config=config) as producer:
            await producer.send(unique, b"said")
        async with AsyncConsumer(
            front.servers, unique, auto_offset_reset="earliest", config=config
        ) as consumer:
            async for record in consumer:
                return record.value
        return None

    assert asyncio.run(both()) == b"said"


def test_answers_in_one_record_of_tls_are_all_noticed(
    front: TlsFront, config: dict[str, str]
) -> None:
    """After the first was read, the second is not in the socket any more."""
    connection = connect(front, config)
    try:
        front.hold.set()
        for _ in range(2):
            connection.post(apis.METADATA, {"topics": []}, 9)
        wait_for(lambda: front.held > 100, "both answers")
        front.hold.clear()
        connection.receive()
        assert answering([connection], 60) == [connection]
        connection.receive()
        assert not connection.waiting and not connection.decrypted
    finally:
        front.hold.clear()
        connection.close()


def test_an_idle_connection_stays_usable(front: TlsFront, config: dict[str, str]) -> None:
    """TLS 1.3 sends tickets after the handshake: they are not the end."""
    connection = connect(front, config)
    assert connection.usable()
    connection.call(apis.METADATA, {"topics": []}, 9)
    assert connection.usable()
    connection.close()


def test_an_end_within_a_record_is_the_end(front: TlsFront, config: dict[str, str]) -> None:
    connection = connect(front, config)
    front.tear.set()
    try:
        with pytest.raises(errors.PeerGone):
            connection.call(apis.METADATA, {"topics": []}, 9)
    finally:
        front.tear.clear()
    assert connection.closed


# ---- trust -------------------------------------------------------------------------------------


def refusal(servers: str, config: dict[str, str]) -> str:
    with Admin(servers, config=config) as admin, pytest.raises(errors.SslAuthenticationFailed) as e:
        admin.list_topics()
    assert not e.value.retriable
    return str(e.value)


def test_a_certificate_of_an_unknown_authority_is_refused(front: TlsFront) -> None:
    told = refusal(front.servers, {"security.protocol": "SSL"})
    assert told.startswith(f"{front.servers}: TLS: the broker's certificate is not accepted: ")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_certificate_for_another_host_is_refused(
    files: secured.Papers, config: dict[str, str], host: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With several servers, too: the first refusal counts.  Without the check: a warning."""
    with TlsFront(files.elsewhere) as front:
        told = refusal(f"{host}:{front.port},{host}:{front.port}", config)
        assert "ertificate is not valid for" in told or "mismatch" in told
        assert front.taken == 1
        config["ssl.endpoint.identification.algorithm"] = ""
        with caplog.at_level(logging.WARNING):
            security_of(ClientConfig(config))
    assert "the names of brokers are not checked" in caplog.text


def test_a_broker_may_require_a_certificate(
    front: TlsFront, files: secured.Papers, config: dict[str, str]
) -> None:
    """TLS 1.3 tells it after the handshake; TLS 1.2 within."""
    with TlsFront(files.server, files.authority) as strict:
        strict.target = front.target
        for version in ("TLSv1.2", "TLSv1.3"):
            told = refusal(strict.servers, {**config, "ssl.enabled.protocols": version})
            assert told.startswith(f"{strict.servers}: TLS: ")
        own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.client)}
        connect(strict, {**config, **own}).close()
        text = files.client.read_text()
        inline = {
            "ssl.keystore.type": "PEM", "ssl.keystore.key": text,
            "ssl.keystore.certificate.chain": text,
        }  # fmt: skip
        connect(strict, {**config, **inline}).close()


def test_a_silent_handshake_ends_in_time(front: TlsFront, config: dict[str, str]) -> None:
    front.mute.set()
    try:
        with pytest.raises(errors.Timeout, match="no TLS handshake in time"):
            connect(front, config, connect_timeout_ms=50)
    finally:
        front.mute.clear()


def test_a_port_without_tls_is_named(config: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        port = plain.getsockname()[1]
        with ExitStack() as stack:
            stack.callback(plain.close)
            where = Address("127.0.0.1", port)
            security = security_of(ClientConfig(config))
            with pytest.raises(errors.Timeout, match="is it a TLS port"):
                Connection(where, Options(security=security, connect_timeout_ms=50))


def test_close_ends_a_producer_within_a_handshake(front: TlsFront, config: dict[str, str]) -> None:
    front.mute.set()
    try:
        taken = front.taken
        producer = Producer(front.servers, config=config)

        def send() -> None:
            with pytest.raises(errors.KafkalogError):
                producer.send("t", b"v")

        thread = threading.Thread(target=send)
        thread.start()
        wait_for(lambda: front.taken > taken, "a connection")
        producer.close(timeout_ms=0)
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    finally:
        front.mute.clear()


@pytest.mark.parametrize(
    ("suites", "used"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        (
            "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256",
            "TLS_AES_256_GCM_SHA384",
        ),
    ],
)
def test_only_these_cipher_suites(
    front: TlsFront, config: dict[str, str], suites: str, used: str
) -> None:
    connection = connect(front, {**config, "ssl.cipher.suites": suites})
    assert isinstance(connection._socket, TlsSocket)
    found = connection._socket.cipher()
    assert found is not None and found[0] == used
    connection.close()


@pytest.mark.parametrize(
    ("suites", "versions"),
    [
        ("TLS_AES_128_GCM_SHA256", "TLSv1.2,TLSv1.3"),
        ("TLS_NONE_WITH_NOTHING", "TLSv1.2,TLSv1.3"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLSv1.3"),
    ],
)
def test_suites_that_cannot_be_used(config: dict[str, str], suites: str, versions: str) -> None:
    more = {"ssl.cipher.suites": suites, "ssl.enabled.protocols": versions}
    with pytest.raises(errors.InvalidSetting, match=r"ssl\.cipher\.suites: "):
        Admin("localhost:1", config={**config, **more})


# ---- secrets, forks, settings ------------------------------------------------------------------


def test_secrets_are_in_no_repr_and_not_pickled(files: secured.Papers) -> None:
    config = secured.settings("SASL_PLAINTEXT", sasl_mechanism="PLAIN")
    config["sasl.jaas.config"] = secured.jaas(secured.PLAIN, username="u", password="hunter2")
    made = AdminConfig(config)
    security = security_of(made)
    options = Options(security=security)
    shown = [made, security, options, dict(made), security.exchange(1.0) if security else None]
    assert "hunter2" not in "".join(map(repr, shown)) + str(made["sasl.jaas.config"])
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        pickle.dumps(options)


def test_a_forked_child_does_not_touch_its_parents_tls(
    front: TlsFront, config: dict[str, str]
) -> None:
    with Admin(front.servers, config=config) as admin:
        admin.list_topics()
        child = os.fork()
        if not child:
            code = 1
            try:
                admin.close()
                with Admin(front.servers, config=config) as own:
                    own.list_topics()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        admin.list_topics()


def test_a_store_needs_no_security(tmp_path: Path, config: dict[str, str]) -> None:
    """In this process there is nothing to protect."""
    with TestBroker(tmp_path) as broker, Admin(broker.broker.store, config=config) as admin:
        assert admin.list_topics() == []


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"ssl.truststore.location": "/none"}, "ssl.truststore.location: /none: No such file"),
        ({"security.protocol": "TLS"}, "security.protocol: found 'TLS', wanted one of PLAINTEXT"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism: found GSSAPI, wanted one of PLAIN"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            "sasl.jaas.config: found none, wanted a login for PLAIN",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256",
             "sasl.jaas.config": secured.jaas(secured.PLAIN, username="u", password="hunter2")},
            "wanted org.apache.kafka.common.security.scram.ScramLoginModule for SCRAM-SHA-256",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
             "sasl.jaas.config": secured.jaas(secured.PLAIN, username="u")},
            "sasl.jaas.config: found no password",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
            "sasl.oauthbearer.token.endpoint.url: wanted https://",
        ),
    ],
)  # fmt: skip
def test_settings_that_cannot_be(config: dict[str, str], more: dict[str, str], wanted: str) -> None:
    with pytest.raises(errors.InvalidSetting) as told:
        Admin("localhost:1", config={**config, **more})
    assert wanted in str(told.value) and "hunter2" not in str(told.value)


def test_servers_name_the_protocol_of_the_settings(config: dict[str, str]) -> None:
    Admin("SSL://localhost:1", config=config).close()
    with pytest.raises(
        errors.ArgumentError, match=r"found SASL_SSL, but security\.protocol is SSL"
    ):
        Admin("SASL_SSL://localhost:1", config=config)
