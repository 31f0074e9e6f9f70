"""SCRAM credentials of users: AlterUserScramCredentials, DescribeUserScramCredentials (KIP-554).

Pure.  As with Kafka's controller on KRaft, a request changes one credential of a user at most.
Source: Kafka's ScramControlManager, ScramImage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkalog.controller.ordered import ordered
from kafkalog.controller.topic_rules import duplicates, error_fields
from kafkalog.metadata.configs import Refused
from kafkalog.metadata.image import METADATA_VERSION, MetadataImage
from kafkalog.metadata.requests import Result
from kafkalog.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    Mechanism,
    credential_of_salted,
)
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "Deletion", "Upsertion", "alter_user_scram_credentials", "describe_user_scram_credentials",
]  # fmt: skip

SCRAM_SINCE = 11
"""The first metadata.version that has credentials: 3.5-IV2."""
SALT_BYTES_MAX = 1024
"""The broker sends it in a message of the exchange."""
_KNOWN = frozenset(Mechanism)
Record = tuple[str, Any]


class Deletion(NamedTuple):
    """A credential to delete."""

    user: str
    mechanism: int


class Upsertion(NamedTuple):
    """A credential to add or to replace; who knows the salted password can authenticate."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"Upsertion({self.user!r}, {self.mechanism}, {self.iterations})"


def alter_user_scram_credentials(
    image: MetadataImage, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
) -> tuple[list[Record], list[Result]]:
    """The records to write, and one result per user, for the response's `results`."""
    records: list[Record] = []
    results: list[Result] = []
    changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
    twice = duplicates(one.user for one in changes)
    refused: dict[str, Refused] = {}
    for one in changes:
        if one.user in refused:
            continue
        try:
            record = _deleted(image, one) if isinstance(one, Deletion) else _changed(image, one)
            if one.user in twice:
                raise Refused(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
        except Refused as error:
            refused[one.user] = error
            continue
        records.append(record)
        results.append({"user": one.user, "error_code": 0, "error_message": None})
    return records, results + [
        {"user": user, **error_fields(error)} for user, error in refused.items()
    ]


def _check(image: MetadataImage, one: Deletion | Upsertion) -> None:
    if image.features.get(METADATA_VERSION, 0) < SCRAM_SINCE:
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM"
        )
    if not one.user:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if one.mechanism not in _KNOWN:
        raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def _deleted(image: MetadataImage, one: Deletion) -> Record:
    _check(image, one)
    if (one.user, one.mechanism) not in image.scram:
        raise Refused(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    return "RemoveUserScramCredentialRecord", {"name": one.user, "mechanism": one.mechanism}


def _changed(image: MetadataImage, one: Upsertion) -> Record:
    _check(image, one)
    if one.iterations < ITERATIONS_MIN:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if one.iterations > ITERATIONS_MAX:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not one.salted_password:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty")
    if len(one.salt) > SALT_BYTES_MAX:
        raise Refused(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"The salt has {len(one.salt)} bytes, wanted at most {SALT_BYTES_MAX}",
        )
    credential = credential_of_salted(
        Mechanism(one.mechanism), one.salted_password, one.iterations, one.salt
    )
    return (
        "UserScramCredentialRecord",
        {"name": one.user, "mechanism": one.mechanism, **credential._asdict()},
    )


def describe_user_scram_credentials(
    image: MetadataImage, users: Sequence[str] | None
) -> list[Result]:
    """The mechanisms and iterations of these users; None or empty: of all users."""
    found: dict[str, list[Result]] = {}
    for (user, mechanism), credential in ordered(image.scram.items()):
        info = {"mechanism": mechanism, "iterations": credential.iterations}
        found.setdefault(user, []).append(info)
    twice = duplicates(users or ())
    results = []
    for user in dict.fromkeys(users or found):
        result: Result = {"user": user, "error_code": 0, "credential_infos": found.get(user, [])}
        if user in twice:
            error = Refused(
                ErrorCode.DUPLICATE_RESOURCE,
                "Cannot describe SCRAM credentials for the same user twice in a single request: "
                + user,
            )
            result = {"user": user, **error_fields(error)}
        elif user not in found:
            error = Refused(
                ErrorCode.RESOURCE_NOT_FOUND,
                f"Attempt to describe a user credential that does not exist: {user}",
            )
            result = {"user": user, **error_fields(error)}
        results.append(result)
    return results
