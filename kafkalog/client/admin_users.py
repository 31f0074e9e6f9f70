"""The calls of `kafkalog.Admin` about users: their SCRAM credentials."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkalog import arguments
from kafkalog.arguments import INT32_MAX, whole_number
from kafkalog.client.calls import users as users_
from kafkalog.client.calls.results import Results
from kafkalog.client.link.locked_cluster import Locked
from kafkalog.errors import ArgumentError

__all__ = ["AdminUsers"]


class AdminUsers(Locked):
    """A part of Admin."""

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, timeout_ms: int | None = None
    ) -> Results[str, tuple[users_.ScramCredentialInfo, ...]]:
        """The mechanisms and iterations of users' SCRAM credentials; None: of all users.

        Failures: ResourceNotFound (the user has none), ...
        """
        some = None if users is None else arguments.texts("users", users)
        return self._ask(users_.describe_user_scram_credentials, some, timeout_ms=timeout_ms)

    def alter_user_scram_credentials(
        self,
        alterations: Iterable[
            users_.UserScramCredentialUpsertion
            | users_.UserScramCredentialDeletion
            | tuple[object, ...]
        ],
        timeout_ms: int | None = None,
    ) -> Results[str, None]:
        """Add or replace credentials, UserScramCredentialUpsertion(user, mechanism, password,
        iterations, salt), and delete some, UserScramCredentialDeletion(user, mechanism): one of a
        user per call.  The broker never gets the password.

        Failures: ResourceNotFound (to delete), UnacceptableCredential, DuplicateResource, ...
        """
        wanted = [_alteration(one) for one in arguments.things("alterations", alterations)]
        rows = [users_.row_of(one) for one in wanted]
        return self._ask(users_.alter_user_scram_credentials, rows, timeout_ms=timeout_ms)


def _alteration(
    value: Any,
) -> users_.UserScramCredentialUpsertion | users_.UserScramCredentialDeletion:
    """A change, from a tuple.  Raises: ArgumentError, without the value: it has a password."""
    if not isinstance(value, tuple) or not 2 <= len(value) <= 5:
        raise ArgumentError(
            f"alterations: found a {type(value).__name__}, wanted a UserScramCredentialUpsertion "
            "or a UserScramCredentialDeletion"
        )
    user, mechanism = (arguments.text(*one) for one in zip(("user", "mechanism"), value[:2],
                                                          strict=True))  # fmt: skip
    if len(value) == 2:
        return users_.UserScramCredentialDeletion(user, mechanism)
    one = users_.UserScramCredentialUpsertion(*value)
    if not isinstance(one.password, str):
        raise ArgumentError(f"password: found a {type(one.password).__name__}, wanted a str")
    iterations = whole_number("iterations", one.iterations, 1, INT32_MAX)
    salt = None if one.salt is None else bytes(arguments.bytes_like("salt", one.salt))
    return users_.UserScramCredentialUpsertion(user, mechanism, one.password, iterations, salt)
