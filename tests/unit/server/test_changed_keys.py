"""Keys of listeners that AlterConfigs changes: for new connections, checked first, and kept."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from kafkalog.cli import main
from kafkalog.errors import InvalidSetting
from kafkalog.security.subjects import names_of
from kafkalog.server.broker import Broker, node_of
from kafkalog.wire.error_codes import ErrorCode
from tests.support.certificates import client_context, pem_of
from tests.support.raw import Raw
from tests.support.waiting import LIMIT_S, wait_for

BROKER, SELF, EVERY = 4, "1", ""
LOCATION = "listener.name.ssl.ssl.keystore.location"
BEGIN = "listener.name.ssl.ssl."


class Keys:
    """An authority, and keys that it signs, all for the same server unless told otherwise."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.trust = folder / "ca.pem"
        self.trust.write_bytes(self.authority.cert_pem.bytes())
        self.first = self.make("first")

    def issued(self, *names: str, unit: str = "unit") -> trustme.LeafCert:
        names = names or ("localhost", "127.0.0.1")
        return self.authority.issue_cert(
            *names, organization_name="o, inc", organization_unit_name=unit
        )

    def make(self, file: str, *names: str, unit: str = "unit") -> Path:
        path = self.folder / f"{file}.pem"
        path.write_text(pem_of(self.issued(*names, unit=unit)))
        return path

    def broker(self, **more: object) -> Broker:
        config = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.first),
            **{name.replace("_", "."): value for name, value in more.items()},
        }  # fmt: skip
        return Broker(self.folder / "data", config=config)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@pytest.fixture
def broker(keys: Keys) -> Iterator[Broker]:
    with keys.broker() as running:
        yield running


def raw_of(broker: Broker) -> Raw:
    return Raw(f"127.0.0.1:{node_of(broker).advertised[0].port}")


def connected(broker: Broker, trust: Path) -> ssl.SSLSocket:
    port = node_of(broker).advertised[1].port
    raw = socket.create_connection(("127.0.0.1", port), LIMIT_S)
    return client_context(trust).wrap_socket(raw, server_hostname="localhost")


def shown(broker: Broker, keys: Keys) -> bytes:
    """The certificate that a new connection is shown."""
    with connected(broker, keys.trust) as client:
        found = client.getpeercert(binary_form=True)
    assert found is not None
    return found


def of_file(path: Path) -> bytes:
    text = path.read_text()
    begin = text.index("-----BEGIN CERTIFICATE")
    end = text.index("-----END CERTIFICATE-----") + len("-----END CERTIFICATE-----")
    return ssl.PEM_cert_to_DER_cert(text[begin:end])


def alter(broker: Broker, resource: str = SELF, **settings: str | None) -> Any:
    with raw_of(broker) as raw:
        return raw.alter(BROKER, resource, **settings)


def test_another_file(keys: Keys, broker: Broker) -> None:
    """For new connections, also after a restart, until the setting is removed."""
    second = keys.make("second")
    assert shown(broker, keys) == of_file(keys.first)
    old = connected(broker, keys.trust)
    assert alter(broker, **{LOCATION: str(second)}).error_code == 0
    assert shown(broker, keys) == of_file(second)
    old.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff")  # ApiVersions
    assert old.recv(4)
    old.close()
    broker.close()
    with keys.broker() as again:
        assert shown(again, keys) == of_file(second)
        with raw_of(again) as raw:
            entry = raw.describe(BROKER, SELF)[LOCATION]
            assert (entry.value, entry.is_sensitive, entry.read_only) == (str(second), False, False)
        assert alter(again, **{LOCATION: None}).error_code == 0
        assert shown(again, keys) == of_file(keys.first)


def test_a_key_as_text_is_shown_to_nobody(
    keys: Keys, broker: Broker, caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    caplog.set_level("DEBUG")
    made = keys.issued()
    key = made.private_key_pem.bytes().decode()
    chain = made.cert_chain_pems[0].bytes().decode()
    given = {BEGIN + "keystore.key": key, BEGIN + "keystore.certificate.chain": chain}
    assert alter(broker, **{LOCATION: "", **given}).error_code == 0
    assert shown(broker, keys) == ssl.PEM_cert_to_DER_cert(chain)
    with raw_of(broker) as raw:
        found = raw.describe(BROKER, SELF)
    assert [(found[name].value, found[name].is_sensitive) for name in given] == [(None, True)] * 2
    wrong = alter(broker, **{BEGIN + "keystore.key": key.replace("BEGIN", "BEGUN")})
    assert wrong.error_code == ErrorCode.INVALID_REQUEST
    middle = key.splitlines()[2]
    assert middle not in wrong.error_message
    assert middle not in caplog.text and middle not in repr(found)
    broker.close()
    capsys.readouterr()
    assert main(["dump", "--records", str(keys.folder / "data" / "__cluster_metadata-0")]) == 0
    said = capsys.readouterr().out
    assert "value=hidden" in said and key.splitlines()[1][:10] not in said and middle not in said


def test_a_key_that_cannot_be_used_is_refused(keys: Keys, broker: Broker) -> None:
    """The old one stays, and nothing is stored."""
    no_key = keys.folder / "none.pem"
    no_key.write_text("no key")
    other = keys.folder / "other.pem"
    other.write_text(keys.issued().private_key_pem.bytes().decode()
                     + keys.issued().cert_chain_pems[0].bytes().decode())  # fmt: skip
    for path, said in ((no_key, "no certificate"), (other, "TLS"), (Path("/nowhere"), "No such")):
        refused = alter(broker, **{LOCATION: str(path)})
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert "listener SSL" in refused.error_message and said in refused.error_message
    refused = alter(broker, **{BEGIN + "keystore.type": "X"})
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert shown(broker, keys) == of_file(keys.first)
    with raw_of(broker) as raw:
        assert LOCATION not in raw.describe(BROKER, SELF)


def test_a_stored_key_that_is_gone(keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    """The key of the start stays in use, which is logged once, until the stored one is back."""
    second = keys.make("second")
    text = second.read_text()
    with keys.broker() as broker:
        assert alter(broker, **{LOCATION: str(second)}).error_code == 0
    second.unlink()
    with keys.broker() as broker:
        assert shown(broker, keys) == of_file(keys.first)
        assert alter(broker, **{"num.io.threads": "5"}).error_code == 0
        assert caplog.text.count("the old keys stay in use") == 1
        # Another setting with it is checked: the stored key is not the one in use.
        refused = alter(broker, **{BEGIN + "keystore.type": "PEM"})
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        second.write_text(text)
        wait_for(lambda: shown(broker, keys) == of_file(second), "it is used")


@pytest.mark.parametrize(
    ("names", "unit", "allowed"),
    [((), "another", "ssl_allow_dn_changes"), (("localhost",), "unit", "ssl_allow_san_changes")],
)
def test_a_certificate_for_another_server(
    keys: Keys, names: tuple[str, ...], unit: str, allowed: str
) -> None:
    """Refused unless the broker's settings allow it."""
    path = keys.make("another", *names, unit=unit)
    with keys.broker() as broker:
        refused = alter(broker, **{LOCATION: str(path)})
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert allowed.replace("_", ".") in refused.error_message
    with keys.broker(**{allowed: "true"}) as broker:
        assert alter(broker, **{LOCATION: str(path)}).error_code == 0
        assert shown(broker, keys) == of_file(path)


def test_where_they_may_be_set(keys: Keys, broker: Broker) -> None:
    """For one broker and one listener, in Kafka's words; what else TLS has is set at the start."""
    for resource, name, said in (
        (EVERY, LOCATION, "broker id must be specified"),
        (SELF, "ssl.keystore.location", "only per-listener using the listener prefix"),
        (SELF, BEGIN + "client.auth", "client.auth"),
        (SELF, "ssl.cipher.suites", "Cannot update these configs dynamically"),
    ):
        refused = alter(broker, resource, **{name: "required"})
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert said in refused.error_message, name


def test_names_of_a_certificate(keys: Keys) -> None:
    subject, names = names_of(keys.first.read_bytes())
    assert subject == "OU=unit,O=o\\, inc"
    assert names == {(0x82, b"localhost"), (0x87, bytes([127, 0, 0, 1]))}
    for damaged in (b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"):
        with pytest.raises(InvalidSetting, match="damaged"):
            names_of(damaged)
