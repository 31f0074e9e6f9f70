"""A KRaft cluster in which everything is SASL_SSL, with an authorizer and delegation tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafkalog.config.authorizer import STANDARD_AUTHORIZER
from tests.kafka.quorum.nodes import Dress
from tests.support import apache
from tests.support.bearer import Issuer
from tests.support.secured import ALICE, PASSWORD, PLAIN, SCRAM, Papers, jaas

__all__ = ["ADMIN", "LOGIN", "SECRET", "Logins", "by_scram", "by_tokens", "dressed"]

LOGIN, SECRET = "node", "what; nodes=say"
"""The name and the password of the nodes."""
ADMIN, ADMINS = "admin", "the admin's"
KEY = "k3y"
MECHANISM = "SCRAM-SHA-256"


class Logins(NamedTuple):
    """How nodes log in to each other."""

    mechanism: str
    client: Mapping[str, str]
    """The settings of a node as a client."""
    at: Callable[[str], Mapping[str, object]]
    """Those of a node's listener."""


def by_password() -> Logins:
    """By PLAIN."""
    login = jaas(PLAIN, username=LOGIN, password=SECRET)
    both = jaas(PLAIN, username=LOGIN, password=SECRET, **{f"user_{LOGIN}": SECRET})
    return Logins(
        "PLAIN", {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login},
        lambda name: {f"listener.name.{name}.plain.sasl.jaas.config": both},
    )  # fmt: skip


def by_tokens(issuer: Issuer) -> Logins:
    """By OAUTHBEARER."""
    return Logins("OAUTHBEARER", issuer.client(LOGIN), lambda name: issuer.node(name, LOGIN))


def dressed(
    files: Papers, more: Mapping[str, object] = {}, logins: Logins | None = None
) -> Dress:  # fmt: skip
    """Nodes log in by `logins`, PLAIN if there are none; clients by SCRAM.  `more`: settings of all
    nodes."""
    between = logins or by_password()
    return Dress(
        lambda controls, port: _lines(files, controls, port, more, between),
        by_scram(files, ADMIN, ADMINS),
        {**_client(files), **between.client},
        ("--add-scram", f"{MECHANISM}=[name={ADMIN},password={ADMINS}]",
         "--add-scram", f"{MECHANISM}=[name={ALICE},password={PASSWORD}]"),
    )  # fmt: skip


def by_scram(files: Papers, user: str, password: str, **options: str) -> dict[str, str]:
    """The settings of a client."""
    login = jaas(SCRAM, username=user, password=password, **options)
    return {**_client(files), "sasl.mechanism": MECHANISM, "sasl.jaas.config": login}


def _client(files: Papers) -> dict[str, str]:
    return {"security.protocol": "SASL_SSL", "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(files.authority)}  # fmt: skip


def _lines(
    files: Papers, controls: bool, port: int, more: Mapping[str, object], logins: Logins
) -> str:  # fmt: skip
    inside = f"OUTSIDE://127.0.0.1:{port},INSIDE://127.0.0.1:{apache.free_port()}"
    settings: dict[str, object] = {
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL,INSIDE:SASL_SSL,OUTSIDE:SASL_SSL",
        "ssl.keystore.type": "PEM", "ssl.keystore.location": files.server,
        "ssl.truststore.type": "PEM", "ssl.truststore.location": files.authority,
        "sasl.enabled.mechanisms": logins.mechanism,
        "sasl.mechanism.controller.protocol": logins.mechanism,
        **logins.at("controller"),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{LOGIN};User:{ADMIN}",
        "delegation.token.secret.key": KEY,
        **({} if controls else {
            "listeners": inside, "inter.broker.listener.name": "INSIDE",
            "sasl.mechanism.inter.broker.protocol": logins.mechanism,
            **logins.at("inside"),
            "listener.name.outside.sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.outside.{MECHANISM.lower()}.sasl.jaas.config": jaas(SCRAM),
        }), **more,
    }  # fmt: skip
    return "".join(
        f"{name}=" + str(value).replace("\\", "\\\\") + "\n" for name, value in settings.items()
    )
