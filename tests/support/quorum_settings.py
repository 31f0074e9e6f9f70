"""Settings of nodes of a KRaft cluster: those that Apache Kafka 4.4.0 takes, and others."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["REFUSED", "TAKEN", "settings_of"]

BASE = {
    "node.id": "1", "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,C2:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}  # fmt: skip
C = "listeners=CONTROLLER://h:1"
P = "listeners=PLAINTEXT://h:2"
BOTH = "listeners=CONTROLLER://h:1,PLAINTEXT://h:2"
ONE, TWO = "controller.quorum.voters=1@h:1", "controller.quorum.voters=2@h:1"
SERVERS = "controller.quorum.bootstrap.servers=h:1"
BROKER, CONTROLLER = "process.roles=broker", "process.roles=controller"
COMBINED, AUTO = "process.roles=broker,controller", "controller.quorum.auto.join.enable=true"
TWICE = "controller.listener.names=CONTROLLER,C2"
ADVERTISED = "advertised.listeners=CONTROLLER://h:1"

TAKEN = (
    (BROKER, P, TWO), (BROKER, P, SERVERS),
    (CONTROLLER, C, ONE), (CONTROLLER, C, SERVERS), (CONTROLLER, C, SERVERS, ONE),
    (CONTROLLER, "listeners=CONTROLLER://:1", ONE), (CONTROLLER, C, ONE, AUTO),
    (CONTROLLER, TWICE, "listeners=CONTROLLER://h:1,C2://h:2", ONE),
    (CONTROLLER, C, ONE, ADVERTISED),
    (COMBINED, BOTH, ONE), (COMBINED, BOTH, SERVERS, AUTO),
    (COMBINED, BOTH, ONE, "advertised.listeners=PLAINTEXT://h:2"),
    (COMBINED, BOTH, ONE, "advertised.listeners=PLAINTEXT://h:2,CONTROLLER://h:1"),
)  # fmt: skip
REFUSED = (
    ("voters", (CONTROLLER, C)), ("voters", (CONTROLLER, C, TWO)),
    ("voters", (CONTROLLER, C, SERVERS, TWO)), ("voters", (COMBINED, BOTH, TWO)),
    ("voters", (BROKER, P, ONE)),
    ("controller.listener.names", (CONTROLLER, C, ONE, "controller.listener.names=")),
    ("controller.listener.names", (CONTROLLER, TWICE, "listeners=C2://h:2", ONE)),
    ("controller.listener.names", (COMBINED, P, ONE)),
    ("controller.listener.names", (COMBINED, TWICE, BOTH, ONE)),
    ("listeners", (CONTROLLER, BOTH, ONE)), ("listeners", (CONTROLLER, P, ONE)),
    ("listeners", (COMBINED, C, ONE)), ("listeners", (COMBINED, BOTH, ONE, ADVERTISED)),
    ("listeners", (BROKER, BOTH, TWO)),
    ("inter.broker.listener.name",
     (CONTROLLER, C, ONE, "inter.broker.listener.name=CONTROLLER")),
    ("inter.broker.listener.name", (COMBINED, BOTH, ONE, "inter.broker.listener.name=CONTROLLER")),
    ("controller.quorum.auto.join.enable", (BROKER, P, TWO, AUTO)),
)  # fmt: skip
"""With the setting that our refusal names."""


def settings_of(row: tuple[str, ...]) -> Mapping[str, str]:
    """All settings of a row."""
    given = (word.partition("=") for word in row)
    return BASE | {name: value for name, _, value in given}
