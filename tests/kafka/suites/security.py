"""The security of a suite's broker, ours or Apache Kafka: listeners, users and an authorizer."""

from __future__ import annotations

from kafkalog import Admin, UserScramCredentialUpsertion
from tests.kafka.suites.suite import Suite
from tests.support import apache, secured

__all__ = ["add_users", "addresses", "settings"]

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def addresses(suite: Suite, port: int) -> dict[str, str]:
    """The address of each listener, by its security protocol."""
    ports = {"PLAINTEXT": port, **suite.listeners}
    return {name: f"127.0.0.1:{given or apache.free_port()}" for name, given in ports.items()}


def settings(suite: Suite, at: dict[str, str], files: secured.Papers) -> dict[str, str]:
    """The broker's settings.  A suite's own `listeners` are those of PLAINTEXT."""
    more = [f"{name}://{where}" for name, where in at.items() if name != "PLAINTEXT"]
    own = suite.settings.get("listeners", f"PLAINTEXT://{at['PLAINTEXT']}")
    advertised = suite.settings.get("advertised.listeners", own)
    found = {
        **AUTHORIZER,
        **suite.settings,
        "listeners": ",".join([own, *more]),
        "advertised.listeners": ",".join([advertised, *more]),
        "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in at),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.authority),
    }
    users = {f"user_{name}": password for name, password in suite.plain.items()}
    for name in at:
        begin = f"listener.name.{name.lower()}"
        if name.startswith("SASL"):
            found[f"{begin}.plain.sasl.jaas.config"] = secured.jaas(secured.PLAIN, **users)
            for mechanism in MECHANISMS[1:]:
                found[f"{begin}.{mechanism.lower()}.sasl.jaas.config"] = secured.jaas(secured.SCRAM)
    return found


def add_users(suite: Suite, bootstrap: str) -> None:
    """Add the credentials of SCRAM, once the broker answers."""
    rows = [UserScramCredentialUpsertion(*one) for one in suite.scram]
    with Admin(bootstrap) as admin:
        for row in rows:  # a request may change a user once
            admin.alter_user_scram_credentials([row]).check()
