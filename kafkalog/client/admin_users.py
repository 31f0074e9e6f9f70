"""The calls of `kafkalog.Admin` about users: SCRAM credentials and delegation tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkalog import arguments
from kafkalog.arguments import INT32_MAX, INT64_MAX, whole_number
from kafkalog.client.admin_quotas import AdminQuotas
from kafkalog.client.calls import tokens as tokens_
from kafkalog.client.calls import users as users_
from kafkalog.client.calls.results import Results
from kafkalog.errors import ArgumentError
from kafkalog.security.principal import Principal, parse_principal

__all__ = ["AdminUsers"]


class AdminUsers(AdminQuotas):
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

    # ---- delegation tokens -----------------------------------------------------------------

    def create_delegation_token(
        self,
        renewers: Iterable[str] = (),
        *,
        owner: str | None = None,
        max_lifetime_ms: int = -1,
        timeout_ms: int | None = None,
    ) -> tokens_.DelegationToken:
        """Create a token of `owner`, None: the caller.  It and the renewers, such as `User:bob`,
        may renew it until `max_lifetime_ms` have passed; -1: the broker's maximum.

        Raises: DelegationTokenAuthDisabled (the broker has no delegation.token.secret.key),
        DelegationTokenRequestNotAllowed (the caller is not known, or used a token), ...
        """
        whose = None if owner is None else _principal("owner", owner)
        some = [_principal("renewers", one) for one in arguments.texts("renewers", renewers)]
        lifetime_ms = whole_number("max_lifetime_ms", max_lifetime_ms, -1, INT64_MAX)
        return self._ask(tokens_.create, whose, some, lifetime_ms, timeout_ms=timeout_ms)

    def renew_delegation_token(
        self, hmac: bytes, period_ms: int = -1, timeout_ms: int | None = None
    ) -> int:
        """Let a token expire later, -1: after the broker's delegation.token.expiry.time.ms; returns
        when, in milliseconds since 1970.

        Raises: DelegationTokenExpired, DelegationTokenNotFound, DelegationTokenOwnerMismatch, ...
        """
        return self._ask(tokens_.renew, *_period(hmac, period_ms), timeout_ms=timeout_ms)

    def expire_delegation_token(
        self, hmac: bytes, period_ms: int = -1, timeout_ms: int | None = None
    ) -> int:
        """Let a token expire earlier, -1: at once; returns when.  Raises: as
        renew_delegation_token."""
        return self._ask(tokens_.expire, *_period(hmac, period_ms), timeout_ms=timeout_ms)

    def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, timeout_ms: int | None = None
    ) -> list[tokens_.DelegationToken]:
        """The tokens that the caller may see; `owners`: only of these, such as `User:bob`."""
        some = None
        if owners is not None:
            some = [_principal("owners", one) for one in arguments.texts("owners", owners)]
        return self._ask(tokens_.describe, some, timeout_ms=timeout_ms)


def _principal(name: str, text: str) -> Principal:
    """Raises: ArgumentError."""
    if ":" not in arguments.text(name, text):
        raise ArgumentError(f"{name}: found {text!r}, wanted a principal such as User:alice")
    return parse_principal(text)


def _period(hmac: bytes, period_ms: int) -> tuple[bytes, int]:
    return (
        bytes(arguments.bytes_like("hmac", hmac)),
        whole_number("period_ms", period_ms, -1, INT64_MAX),
    )


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
