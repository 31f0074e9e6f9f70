"""Apache Kafka with a listener of each security protocol, and what clients need for them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)  # fmt: skip

from tests.support import apache

__all__ = [
    "ALICE", "PASSWORD", "Listeners", "Papers", "jaas", "listeners", "papers", "pem_for_kafka",
    "settings",
]  # fmt: skip

ALICE, PASSWORD = "alice", "pass; word=of 'alice'"
"""A user with a password that every parser must read with care."""
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def quoted(text: str) -> str:
    """A value of a JAAS string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def jaas(module: str, **options: str) -> str:
    """A JAAS string."""
    said = "".join(f" {name}={quoted(value)}" for name, value in options.items())
    return f"{module} required{said};"


class Papers(NamedTuple):
    """The files of one certificate authority."""

    authority: Path
    """Its certificate."""
    server: Path
    """Key and certificate for localhost and 127.0.0.1."""
    elsewhere: Path
    """The same for elsewhere.example."""
    client: Path
    """Key and certificate of a client."""


def pem_for_kafka(made: trustme.LeafCert) -> bytes:
    """The key, in the one form that Kafka reads, and the chain."""
    key = load_pem_private_key(made.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem + b"".join(blob.bytes() for blob in made.cert_chain_pems)


def papers(folder: Path) -> Papers:
    """A new certificate authority and what it has signed."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))

    def issued(name: str, *identities: str, common: str | None = None) -> Path:
        path = folder / f"{name}.pem"
        path.write_bytes(pem_for_kafka(authority.issue_cert(*identities, common_name=common)))
        return path

    return Papers(
        folder / "authority.pem",
        issued("server", "localhost", "127.0.0.1"),
        issued("elsewhere", "elsewhere.example"),
        issued("client", "alice@example.org", common="alice"),
    )


class Listeners(NamedTuple):
    """Ports on 127.0.0.1, by security protocol; MTLS asks for a client's certificate, ELSEWHERE has
    a certificate for another host."""

    plaintext: int
    ssl: int
    mtls: int
    elsewhere: int
    sasl_plaintext: int
    sasl_ssl: int


def listeners(files: Papers, reauth_ms: int = 0) -> tuple[Listeners, str]:
    """Free ports, and the settings of Apache Kafka that add these listeners."""
    ports = Listeners(*(apache.free_port() for _ in Listeners._fields))
    names = {name.upper().replace("_", ""): port for name, port in ports._asdict().items()}
    kinds = {
        "PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "MTLS": "SSL", "ELSEWHERE": "SSL",
        "SASLPLAINTEXT": "SASL_PLAINTEXT", "SASLSSL": "SASL_SSL", "CONTROLLER": "PLAINTEXT",
    }  # fmt: skip
    where = ",".join(f"{name}://127.0.0.1:{port}" for name, port in names.items())
    controller = f"127.0.0.1:{apache.free_port()}"
    lines = [
        f"listeners={where},CONTROLLER://{controller}",
        f"controller.quorum.voters=1@{controller}",
        f"advertised.listeners={where}",
        "inter.broker.listener.name=PLAINTEXT",
        "listener.security.protocol.map=" + ",".join(f"{n}:{k}" for n, k in kinds.items()),
        "ssl.keystore.type=PEM", f"ssl.keystore.location={files.server}",
        "ssl.truststore.type=PEM", f"ssl.truststore.location={files.authority}",
        "listener.name.mtls.ssl.client.auth=required",
        f"listener.name.elsewhere.ssl.keystore.location={files.elsewhere}",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    ]  # fmt: skip
    user = {f"user_{ALICE}": PASSWORD}
    broker = jaas(BEARER, unsecuredLoginStringClaim_sub="broker")
    unsecured = "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    for name in ("saslplaintext", "saslssl"):
        at = f"listener.name.{name}"
        lines += [
            f"{at}.plain.sasl.jaas.config={jaas(PLAIN, **user)}",
            f"{at}.scram-sha-256.sasl.jaas.config={jaas(SCRAM)}",
            f"{at}.scram-sha-512.sasl.jaas.config={jaas(SCRAM)}",
            f"{at}.oauthbearer.sasl.jaas.config={broker}",
            f"{at}.oauthbearer.sasl.server.callback.handler.class="
            f"{unsecured}OAuthBearerUnsecuredValidatorCallbackHandler",
            f"{at}.connections.max.reauth.ms={reauth_ms}",
        ]
    return ports, "\n".join(line.replace("\\", "\\\\") for line in lines) + "\n"


def settings(protocol: str, files: Papers | None = None, **more: str) -> dict[str, str]:
    """A client's settings; `more`: with underscores instead of dots."""
    made = {"security.protocol": protocol}
    if files is not None:
        made |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(files.authority)}
    return made | {name.replace("_", "."): value for name, value in more.items()}
