"""SCRAM credentials of users (KIP-554).  A password does not leave the client: the broker gets a
salted one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.client.calls.results import Results, each
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code, failure, outcome
from kafkalog.security.scram import (
    ITERATIONS_MIN,
    Mechanism,
    new_salt,
    salted_password,
)
from kafkalog.wire import apis

__all__ = [
    "ScramCredentialInfo",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "alter_user_scram_credentials",
    "describe_user_scram_credentials",
    "row_of",
]


class ScramCredentialInfo(NamedTuple):
    """A user's credential, as far as a broker shows it."""

    mechanism: str
    """`SCRAM-SHA-256`, `SCRAM-SHA-512`."""
    iterations: int


class UserScramCredentialUpsertion(NamedTuple):
    """A credential to add or to replace."""

    user: str
    mechanism: str
    password: str
    iterations: int = ITERATIONS_MIN
    """4096 to 16384."""
    salt: bytes | None = None
    """None: a random one."""

    def __repr__(self) -> str:
        return (
            f"UserScramCredentialUpsertion({self.user!r}, {self.mechanism!r}, hidden, "
            f"{self.iterations!r})"
        )


class UserScramCredentialDeletion(NamedTuple):
    """A credential to delete."""

    user: str
    mechanism: str


class Row(NamedTuple):
    """A change as the request has it."""

    user: str
    list: str
    fields: dict[str, Any]


def row_of(change: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> Row:
    """A change as the request has it: the password is salted, which takes milliseconds.

    Raises: ArgumentError: an unknown mechanism, an empty password.
    """
    mechanism = Mechanism.named(change.mechanism)
    fields = {"name": change.user, "mechanism": int(mechanism)}
    if isinstance(change, UserScramCredentialDeletion):
        return Row(change.user, "deletions", fields)
    salt = new_salt() if change.salt is None else change.salt
    # Within the bounds of the work that a broker accepts: it refuses other numbers.
    rounds = max(1, min(change.iterations, 1 << 20))
    salted = salted_password(mechanism, change.password, salt, rounds)
    more = {"iterations": change.iterations, "salt": salt, "salted_password": salted}
    return Row(change.user, "upsertions", {**fields, **more})


def alter_user_scram_credentials(cluster: Cluster, rows: Sequence[Row]) -> Results[str, None]:
    """Add, replace and delete credentials; the result of each user.

    Failures: ResourceNotFound, UnacceptableCredential, DuplicateResource; what a broker answers.
    Raises: as `each`.
    """

    def ask(
        connection: Connection, users: list[str], wait_ms: int
    ) -> Iterable[tuple[str, errors.KafkalogError | None]]:
        version = connection.version_of(apis.ALTER_USER_SCRAM_CREDENTIALS)
        body = {
            name: [row.fields for row in rows if row.list == name and row.user in users]
            for name in ("deletions", "upsertions")
        }
        answer = connection.call(apis.ALTER_USER_SCRAM_CREDENTIALS, body, version, wait_ms)
        return [
            (one.user, outcome(one.error_code, f"user {one.user!r}", one.error_message))
            for one in answer.results
        ]

    users = [row.user for row in rows]
    return each(cluster, users, lambda user: cluster.controller_node(), ask)


def describe_user_scram_credentials(
    cluster: Cluster, users: Sequence[str] | None
) -> Results[str, tuple[ScramCredentialInfo, ...]]:
    """The credentials of these users, None: of all, sorted by mechanism.

    Failures: ResourceNotFound; what a broker answers.
    Raises: what a broker answers for all.
    """
    if users is not None and not users:
        return Results({}, {})  # in the request, none would mean all

    def step() -> Any:
        connection = cluster.controller()
        version = connection.version_of(apis.DESCRIBE_USER_SCRAM_CREDENTIALS)
        wanted = None if users is None else [{"name": user} for user in dict.fromkeys(users)]
        body = {"users": wanted}
        answer = connection.call(apis.DESCRIBE_USER_SCRAM_CREDENTIALS, body, version)
        check_code(answer.error_code, "DescribeUserScramCredentials", answer.error_message)
        return answer.results

    done: dict[str, tuple[ScramCredentialInfo, ...]] = {}
    failed: dict[str, errors.KafkalogError] = {}
    for one in sorted(cluster.retrying(step), key=lambda one: str(one.user)):
        if one.error_code:
            failed[one.user] = failure(one.error_code, f"user {one.user!r}", one.error_message)
            continue
        infos = sorted((info.mechanism, info.iterations) for info in one.credential_infos)
        done[one.user] = tuple(ScramCredentialInfo(_name(kind), count) for kind, count in infos)
    return Results(done, failed)


def _name(mechanism: int) -> str:
    known = {int(one): one.sasl_name for one in Mechanism}
    return known.get(mechanism, f"mechanism {mechanism}")
