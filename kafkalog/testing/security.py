"""Security of a test's broker: certificates, users, ACLs, and what its clients need to connect.

Certificates come from trustme, which makes an authority for one test in a millisecond: nothing on
the machine trusts it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from kafkalog.client.calls.users import (
    UserScramCredentialUpsertion,
    alter_user_scram_credentials,
    row_of,
)
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import check_code
from kafkalog.client.link.transport import Transport
from kafkalog.errors import ArgumentError, MissingPackage
from kafkalog.security.acls import ALL, WILDCARD, Pattern, Permission
from kafkalog.security.permissions import Kind, Operation
from kafkalog.testing.port import HOST
from kafkalog.wire import apis

if TYPE_CHECKING:
    import trustme

__all__ = ["CERTIFICATES", "LIBRARIES", "MECHANISMS", "PROTOCOLS", "Security"]

PROTOCOLS = ("ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The mechanisms that a secured test broker accepts, all for the same users."""
LIBRARIES = ("kafkalog", "confluent-kafka", "kafka-python", "aiokafka", "java")
"""The clients that `Security.client_config` has settings for."""
CERTIFICATES = ("valid", "expired", "wrong-host", "untrusted")
"""The certificates that a broker can be made to present."""
ADMIN = "admin"
"""The super user of a secured test broker."""
_MODULES = {"PLAIN": "plain.PlainLoginModule"}
_SCRAM_MODULE = "scram.ScramLoginModule"


class Security:
    """How a test's broker is secured."""

    def __init__(
        self,
        protocol: str,
        users: Mapping[str, str] | None = None,
        *,
        acls: Iterable[Any] | None = None,
        mechanism: str = "PLAIN",
    ) -> None:
        """`protocol`: one of PROTOCOLS; `users`: passwords by name; `acls`: what they may do, each
        (user, operations, resource type, name) such as ("alice", "READ,DESCRIBE", "topic",
        "orders-*"), with "DENY" after it to forbid; None: everything; `mechanism`: the one that
        clients are given.

        Raises: ArgumentError.
        """
        self.protocol = protocol.lower()
        self.users = dict(users or {})
        self.acls = None if acls is None else tuple(acls)
        self.mechanism = mechanism
        for name, found, wanted in (
            ("security", self.protocol, PROTOCOLS), ("mechanism", mechanism, MECHANISMS),
        ):  # fmt: skip
            if found not in wanted:
                raise ArgumentError(f"{name}: found {found!r}, wanted one of {', '.join(wanted)}")
        if self.sasl and not self.users:
            raise ArgumentError(f"users: found none, wanted at least one with security={protocol}")
        if self.users and not self.sasl:
            raise ArgumentError("users: found some, wanted security sasl_plaintext or sasl_ssl")
        self._folder = ""
        self._authority: trustme.CA | None = None

    @property
    def sasl(self) -> bool:
        """Users authenticate."""
        return self.protocol.startswith("sasl")

    @property
    def tls(self) -> bool:
        """Connections are encrypted."""
        return self.protocol.endswith("ssl")

    # ---- the broker ----------------------------------------------------------------------------

    def settings(self, folder: str) -> dict[str, object]:
        """The broker's settings; certificates are written to `folder`, created if missing.

        Raises: MissingPackage (trustme).
        """
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._folder = folder
        found: dict[str, object] = {}
        if self.tls:
            self.present("valid")
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self._key_file}
        if self.sasl:
            found["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            found[self._login_setting] = f"{_module('PLAIN')} required{self._listed};"
        if self.acls is not None:
            found["authorizer.class.name"] = (
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            )
            found["super.users"] = f"User:{ADMIN}"
        return found

    def between_nodes(self, controllers: str = "") -> dict[str, object]:
        """The settings, next to `settings`, by which the nodes of a cluster reach each other: they
        log in as the first user.  `controllers`: the name of the controllers' listener, which
        accepts the same users by PLAIN; empty: there is none."""
        found: dict[str, object] = {"security.inter.broker.protocol": self.protocol.upper()}
        if self.tls:
            found |= {
                "ssl.truststore.type": "PEM", "ssl.truststore.location": self.authority_file,
            }  # fmt: skip
        if self.sasl:
            name, password = map(_quoted, next(iter(self.users.items())))
            login = (
                f"{_module('PLAIN')} required username={name} password={password}{self._listed};"
            )
            found |= {"sasl.mechanism.inter.broker.protocol": "PLAIN", self._login_setting: login}
            if controllers:
                at = f"listener.name.{controllers.lower()}"
                found |= {
                    "sasl.mechanism.controller.protocol": "PLAIN",
                    f"{at}.sasl.enabled.mechanisms": "PLAIN",
                    f"{at}.plain.sasl.jaas.config": login,
                }
        return found

    @property
    def _login_setting(self) -> str:
        return f"listener.name.{self.protocol}.plain.sasl.jaas.config"

    @property
    def _listed(self) -> str:
        """The users, as options of PLAIN."""
        return "".join(f" user_{n}={_quoted(p)}" for n, p in self.users.items())

    def grant(self, transport: Transport) -> None:
        """Store the users' SCRAM credentials and the ACLs, over a connection inside the process.

        Raises: ArgumentError (an ACL); what the broker answers.
        """
        creations = [acl for given in self.acls or () for acl in _acls(given)]
        with Cluster(transport) as cluster:
            for mechanism in MECHANISMS if self.users else ():
                if mechanism != "PLAIN":  # a request may change each user once
                    rows = [
                        row_of(UserScramCredentialUpsertion(name, mechanism, password))
                        for name, password in self.users.items()
                    ]
                    alter_user_scram_credentials(cluster, rows).check()
            if creations:
                connection = cluster.controller()
                version = connection.version_of(apis.CREATE_ACLS)
                answer = connection.call(apis.CREATE_ACLS, {"creations": creations}, version)
                for one in answer.results:
                    check_code(one.error_code, "CreateAcls", one.error_message)

    def present(self, certificate: str) -> None:
        """Write the key and the certificate that the broker presents: one of CERTIFICATES.  A
        running broker reads them within seconds.

        Raises: ArgumentError.
        """
        if certificate not in CERTIFICATES:
            wanted = ", ".join(CERTIFICATES)
            raise ArgumentError(f"certificate: found {certificate!r}, wanted one of {wanted}")
        if not self.tls:
            raise ArgumentError(
                f"certificate: the broker's listener is {self.protocol}, wanted TLS"
            )
        trustme = _trustme()
        if self._authority is None:
            self._authority = trustme.CA()
            self._authority.cert_pem.write_to_path(self.authority_file)
        authority = trustme.CA() if certificate == "untrusted" else self._authority
        host = "elsewhere.invalid" if certificate == "wrong-host" else HOST
        yesterday = datetime.now(timezone.utc) - timedelta(days=1)
        until = yesterday if certificate == "expired" else None
        issued = authority.issue_cert(host, "localhost" if host == HOST else host, not_after=until)
        temporary = f"{self._key_file}.tmp"
        with open(temporary, "wb", opener=_private) as file:
            file.write(issued.private_key_pem.bytes())
            for pem in issued.cert_chain_pems:
                file.write(pem.bytes())
        os.replace(temporary, self._key_file)

    @property
    def authority_file(self) -> str:
        """The PEM file with the certificate that clients trust."""
        return os.path.join(self._folder, "authority.pem")

    @property
    def _key_file(self) -> str:
        return os.path.join(self._folder, "broker.pem")

    # ---- its clients ---------------------------------------------------------------------------

    def client_config(self, library: str, user: str | None = None) -> dict[str, Any]:
        """The security settings of a client: a mapping for its constructor, for Java properties.

        `library`: one of LIBRARIES; `user`: one of `users`, by default the first.

        Raises: ArgumentError.
        """
        if library not in LIBRARIES:
            wanted = ", ".join(LIBRARIES)
            raise ArgumentError(f"library: found {library!r}, wanted one of {wanted}")
        name = user if user is not None or not self.users else next(iter(self.users))
        if name is not None and name not in self.users:
            wanted = ", ".join(self.users) or "none"
            raise ArgumentError(f"user: found {name!r}, wanted one of {wanted}")
        login = (name, self.users[name]) if name is not None else None
        if library == "confluent-kafka":
            return self._confluent(login)
        if library in ("kafka-python", "aiokafka"):
            return self._python(login, library)
        return self._java(login)

    def _java(self, login: tuple[str, str] | None) -> dict[str, Any]:
        found = {"security.protocol": self.protocol.upper()}
        if self.tls:
            found |= {
                "ssl.truststore.type": "PEM", "ssl.truststore.location": self.authority_file,
            }  # fmt: skip
        if login:
            name, password = map(_quoted, login)
            found["sasl.mechanism"] = self.mechanism
            found["sasl.jaas.config"] = (
                f"{_module(self.mechanism)} required username={name} password={password};"
            )
        return found

    def _confluent(self, login: tuple[str, str] | None) -> dict[str, Any]:
        found = {"security.protocol": self.protocol}
        if self.tls:
            found["ssl.ca.location"] = self.authority_file
        if login:
            found |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": login[0],
                "sasl.password": login[1],
            }
        return found

    def _python(self, login: tuple[str, str] | None, library: str) -> dict[str, Any]:
        found: dict[str, Any] = {"security_protocol": self.protocol.upper()}
        if self.tls and library == "aiokafka":
            import ssl

            found["ssl_context"] = ssl.create_default_context(cafile=self.authority_file)
        elif self.tls:
            found["ssl_cafile"] = self.authority_file
        if login:
            found |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": login[0],
                "sasl_plain_password": login[1],
            }
        return found

    def __repr__(self) -> str:
        return f"Security({self.protocol!r}, users: {', '.join(self.users) or 'none'})"


def _acls(given: Any) -> Iterator[dict[str, Any]]:
    """The ACLs of (user, operations, resource type, name), or with DENY as a fifth part."""
    try:
        user, operations, kind, name, *rest = given
        permission = Permission[rest[0].upper()] if rest else Permission.ALLOW
        numbers = [
            ALL if one == "ALL" else Operation[one]
            for one in operations.upper().replace(" ", "").split(",")
        ]
        resource = Kind[kind.upper()]
        prefixed = name != WILDCARD and name.endswith("*")
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ArgumentError(
            f"acls: found {given!r}, wanted (user, operations, resource type, name) such as "
            "('alice', 'READ,DESCRIBE', 'topic', 'orders-*'), and ALLOW or DENY after it"
        ) from None
    for operation in numbers:
        yield {
            "resource_type": resource,
            "resource_name": name[:-1] if prefixed else name,
            "resource_pattern_type": Pattern.PREFIXED if prefixed else Pattern.LITERAL,
            "principal": user if user.startswith("User:") else f"User:{user}",
            "host": WILDCARD,
            "operation": operation,
            "permission_type": permission,
        }


def _module(mechanism: str) -> str:
    module = _MODULES.get(mechanism, _SCRAM_MODULE)
    return f"org.apache.kafka.common.security.{module}"


def _quoted(text: str) -> str:
    """A value of a JAAS string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _trustme() -> Any:
    try:
        import trustme
    except ImportError:
        raise MissingPackage(
            "certificates for tests need trustme: pip install 'kafkalog[testing]'"
        ) from None
    return trustme
