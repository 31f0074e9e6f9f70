"""Brokers with a listener of each security protocol, ours and Apache Kafka, from the same settings;
and a client that logs in by SCRAM at the least cost."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import ssl
import sys
from base64 import b64decode, b64encode
from functools import cache
from pathlib import Path

from benchmarks.broker.brokers import Kafka, Ours, until_it_answers
from benchmarks.broker.wire import Connection
from benchmarks.rivals import kafka_broker
from kafkalog.client.admin import Admin
from kafkalog.client.calls.users import UserScramCredentialUpsertion
from tests.support import secured
from tests.support.secured import ALICE, PASSWORD, Papers

__all__ = ["SCRAM", "SecuredKafka", "SecuredOurs", "client_settings", "log_in"]

SCRAM = "SCRAM-SHA-256"
AUTHORIZER = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
    "super.users=User:ANONYMOUS\n"
)
"""Alice may do only what ACLs allow; the plaintext listener stays the benchmark's own."""
TLS = "ssl.enabled.protocols=TLSv1.3\nssl.protocol=TLSv1.3\n"


def client_settings(files: Papers, protocol: str) -> dict[str, str]:
    """librdkafka's settings for a listener of this protocol, with _ for their dots.

    By PLAIN, since Debian's librdkafka 2.0 fails to log in by SCRAM, also to Apache Kafka.
    """
    made = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        made["ssl_ca_location"] = str(files.authority)
    if protocol.startswith("SASL"):
        made |= {"sasl_mechanism": "PLAIN", "sasl_username": ALICE, "sasl_password": PASSWORD}
    return made


def _give_alice_a_password(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        made = UserScramCredentialUpsertion(ALICE, SCRAM, PASSWORD)
        admin.alter_user_scram_credentials([made])[ALICE]


class SecuredOurs(Ours):
    """`kafkalog serve` with the settings of `secured.listeners`."""

    def __init__(self, directory: Path, files: Papers, authorizer: bool = False) -> None:
        super().__init__(directory)
        self.ports, lines = secured.listeners(files)
        self.port, self.bootstrap = self.ports.plaintext, f"127.0.0.1:{self.ports.plaintext}"
        self._lines = (
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            + lines + TLS + AUTHORIZER * authorizer
        )  # fmt: skip

    def command(self) -> list[str]:
        super().command()
        with self._properties.open("a") as properties:
            properties.write(self._lines)
        serve = [sys.executable, "-m", "kafkalog", "serve", "--dir", str(self.directory)]
        return [*serve, "--config", str(self._properties)]

    def start(self) -> None:
        super().start()
        _give_alice_a_password(self.bootstrap)


class SecuredKafka(Kafka):
    """Apache Kafka with the settings of `secured.listeners`."""

    def __init__(self, directory: Path, files: Papers) -> None:
        directory.parent.mkdir(parents=True, exist_ok=True)
        self.ports, lines = secured.listeners(files)
        self._broker = kafka_broker.Broker(directory, lines + TLS, self.ports.plaintext)
        self.bootstrap = f"127.0.0.1:{self.ports.plaintext}"

    def start(self) -> None:
        self.launch()
        until_it_answers(self.bootstrap)
        _give_alice_a_password(self.bootstrap)


# ---- a login ---------------------------------------------------------------------------------


@cache
def _keys(salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    """The client key and its hash: derived once, as a client may that logs in again."""
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt, iterations)
    key = hmac.digest(salted, b"Client Key", "sha256")
    return key, hashlib.sha256(key).digest()


def log_in(context: ssl.SSLContext, port: int) -> None:
    """One connection: TCP, TLS, SCRAM to its end, then it is closed.

    Raises: AssertionError: the broker refused.
    """
    with Connection(f"127.0.0.1:{port}", context) as connection:
        answer = connection.ask("SASL_HANDSHAKE", 1, {"mechanism": SCRAM})
        assert not answer.error_code, answer
        bare = f"n={ALICE},r={secrets.token_hex(12)}"
        first = _token(connection, f"n,,{bare}")
        fields = dict(part.split("=", 1) for part in first.split(","))
        key, stored = _keys(b64decode(fields["s"]), int(fields["i"]))
        final = f"c=biws,r={fields['r']}"
        signature = hmac.digest(stored, f"{bare},{first},{final}".encode(), "sha256")
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        assert _token(connection, f"{final},p={b64encode(proof).decode()}").startswith("v=")


def _token(connection: Connection, text: str) -> str:
    answer = connection.ask("SASL_AUTHENTICATE", 2, {"auth_bytes": text.encode()})
    assert not answer.error_code, answer.error_message
    return bytes(answer.auth_bytes).decode()
