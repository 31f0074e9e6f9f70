"""A broker with a SASL listener, and SASL by hand."""

from __future__ import annotations

import struct
from typing import Any

from kafkalog.security.scram import ClientExchange, Mechanism
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.certificates import Certificates
from tests.support.raw import Raw

__all__ = ["USERS", "authenticate", "encrypted", "handshake", "plain", "scram", "settings", "token"]

USERS = {"alice": "alice-S3CRET", "bob": 'bob,="S3CRET'}
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def settings(*mechanisms: str, **more: object) -> dict[str, object]:
    """Settings of a broker with a SASL_PLAINTEXT listener; `more` with underscores for dots."""
    listed = "".join(
        f' user_{name}="{password}"'
        for name, password in ((n, p.replace('"', '\\"')) for n, p in USERS.items())
    )
    begin = "listener.name.sasl_plaintext."
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(mechanisms or ("PLAIN",)),
        begin + "plain.sasl.jaas.config": f"{PLAIN_MODULE} required{listed};",
        begin + "scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def encrypted(certificates: Certificates, *mechanisms: str, **more: object) -> dict[str, object]:
    """The same with a SASL_SSL listener instead."""
    given = {
        name.replace("sasl_plaintext", "sasl_ssl"): value
        for name, value in settings(*mechanisms, **more).items()
    }
    return {**given, **certificates.settings(), "listeners": "SASL_SSL://127.0.0.1:0"}


def handshake(raw: Raw, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return raw.call(apis.SASL_HANDSHAKE, version, mechanism=mechanism)


def token(raw: Raw, data: bytes, version: int = 2) -> Any:
    return raw.call(apis.SASL_AUTHENTICATE, version, auth_bytes=data)


def raw_token(raw: Raw, data: bytes) -> bytes:
    """The answer to a token without a header."""
    raw.socket.sendall(struct.pack(">i", len(data)) + data)
    return raw.receive_frame()


def plain(user: str = "alice", password: str | None = None, authorization: str = "") -> bytes:
    password = USERS[user] if password is None else password
    return f"{authorization}\0{user}\0{password}".encode()


def authenticate(raw: Raw, user: str = "alice", version: int = 2) -> Any:
    """By PLAIN; the last answer."""
    assert handshake(raw).error_code == ErrorCode.NONE
    return token(raw, plain(user), version)


def scram(
    raw: Raw, user: str, password: str, mechanism: str = "SCRAM-SHA-256", *, by_token: bool = False
) -> Any:
    """The last answer, with its error.  `by_token`: the user is the id of a delegation token."""
    assert handshake(raw, mechanism).error_code == ErrorCode.NONE
    extensions = {"tokenauth": "true"} if by_token else {}
    exchange = ClientExchange(Mechanism.named(mechanism), user, password, extensions)
    found = token(raw, exchange.step(b""))
    if found.error_code == ErrorCode.NONE:
        found = token(raw, exchange.step(found.auth_bytes))
    if found.error_code == ErrorCode.NONE:
        exchange.step(found.auth_bytes)
        assert exchange.done
    return found
