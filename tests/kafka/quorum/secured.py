"""A KRaft cluster in which everything is SASL_SSL, with an authorizer and delegation tokens."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog.config.authorizer import STANDARD_AUTHORIZER
from tests.kafka.quorum.nodes import Dress
from tests.support import apache
from tests.support.secured import ALICE, PASSWORD, PLAIN, SCRAM, Papers, jaas

__all__ = ["ADMIN", "LOGIN", "SECRET", "by_plain", "by_scram", "dressed"]

LOGIN, SECRET = "node", "what; nodes=say"
"""The name and the password of the nodes."""
ADMIN, ADMINS = "admin", "the admin's"
KEY = "k3y"
MECHANISM = "SCRAM-SHA-256"


def dressed(files: Papers, more: Mapping[str, object] = {}) -> Dress:
    """Nodes log in by PLAIN, clients by SCRAM; `more`: settings of all nodes."""
    return Dress(
        lambda controls, port: _lines(files, controls, port, more),
        by_scram(files, ADMIN, ADMINS),
        by_plain(files, LOGIN, SECRET),
        ("--add-scram", f"{MECHANISM}=[name={ADMIN},password={ADMINS}]",
         "--add-scram", f"{MECHANISM}=[name={ALICE},password={PASSWORD}]"),
    )  # fmt: skip


def by_scram(files: Papers, user: str, password: str, **options: str) -> dict[str, str]:
    """The settings of a client."""
    login = jaas(SCRAM, username=user, password=password, **options)
    return {**_client(files), "sasl.mechanism": MECHANISM, "sasl.jaas.config": login}


def by_plain(files: Papers, user: str, password: str) -> dict[str, str]:
    """The same for a listener of the nodes."""
    login = jaas(PLAIN, username=user, password=password)
    return {**_client(files), "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}


def _client(files: Papers) -> dict[str, str]:
    return {"security.protocol": "SASL_SSL", "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(files.authority)}  # fmt: skip


def _lines(files: Papers, controls: bool, port: int, more: Mapping[str, object]) -> str:
    of_nodes = jaas(PLAIN, username=LOGIN, password=SECRET, **{f"user_{LOGIN}": SECRET})
    inside = f"OUTSIDE://127.0.0.1:{port},INSIDE://127.0.0.1:{apache.free_port()}"
    settings: dict[str, object] = {
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL,INSIDE:SASL_SSL,OUTSIDE:SASL_SSL",
        "ssl.keystore.type": "PEM", "ssl.keystore.location": files.server,
        "ssl.truststore.type": "PEM", "ssl.truststore.location": files.authority,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": of_nodes,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{LOGIN};User:{ADMIN}",
        "delegation.token.secret.key": KEY,
        **({} if controls else {
            "listeners": inside, "inter.broker.listener.name": "INSIDE",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.inside.plain.sasl.jaas.config": of_nodes,
            "listener.name.outside.sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.outside.{MECHANISM.lower()}.sasl.jaas.config": jaas(SCRAM),
        }), **more,
    }  # fmt: skip
    return "".join(
        f"{name}=" + str(value).replace("\\", "\\\\") + "\n" for name, value in settings.items()
    )
