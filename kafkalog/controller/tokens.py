"""Which delegation tokens are created, renewed, expired and removed (KIP-48).

Pure.  Each function returns the records to write and the fields of the response, as a list of one.
Source: Kafka's DelegationTokenControlManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkalog.arguments import INT64_MAX
from kafkalog.config.declare import Password
from kafkalog.metadata.changes import token_fields
from kafkalog.metadata.image import METADATA_VERSION, MetadataImage
from kafkalog.metadata.requests import Result
from kafkalog.security.principal import Principal
from kafkalog.security.tokens import Token, hmac_of, token_with
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Rules", "create_token", "expire_token", "remove_expired", "renew_token"]

TOKENS_SINCE = 14
"""The first metadata.version that has delegation tokens: 3.6-IV2."""
TOKENS_MAX, RENEWERS_MAX = 20_000, 100
"""Kafka has no such limits; every user may create tokens."""
Record = tuple[str, Any]
Plan = tuple[list[Record], list[Result]]


class Rules(NamedTuple):
    """The settings, and the time."""

    secret: Password
    max_lifetime_ms: int
    expiry_time_ms: int
    now_ms: int


def create_token(
    image: MetadataImage, rules: Rules, token_id: str, owner: Principal, requester: Principal,
    renewers: Sequence[Principal], lifetime_ms: int,
) -> Plan:  # fmt: skip
    """A token with this new id.  `lifetime_ms`: 0 or less for the longest."""
    who: Result = {
        "principal_type": owner.type,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.type,
        "token_requester_principal_name": requester.name,
    }
    error = _unusable(image, rules)
    if error is None and any(one.type != "User" for one in renewers):
        error = ErrorCode.INVALID_PRINCIPAL_TYPE
    if error is None and (len(image.tokens) >= TOKENS_MAX or len(renewers) > RENEWERS_MAX):
        error = ErrorCode.POLICY_VIOLATION
    if error is not None:
        return [], [{**who, **_nothing(error)}]
    longest = rules.max_lifetime_ms
    max_ms = _sum(rules.now_ms, min(longest, lifetime_ms) if lifetime_ms > 0 else longest)
    expires_ms = min(max_ms, _sum(rules.now_ms, rules.expiry_time_ms))
    token = Token(token_id, owner, requester, tuple(renewers), rules.now_ms, max_ms, expires_ms)
    result = {
        **who,
        "error_code": ErrorCode.NONE,
        "issue_timestamp_ms": rules.now_ms,
        "expiry_timestamp_ms": expires_ms,
        "max_timestamp_ms": max_ms,
        "token_id": token_id,
        "hmac": hmac_of(rules.secret, token_id),
    }
    return [_record(token)], [result]


def renew_token(
    image: MetadataImage, rules: Rules, caller: Principal, password: bytes, period_ms: int
) -> Plan:
    """Let a token expire later; `period_ms`: 0 or less for the longest."""
    token, error = _found(image, rules, password)
    if token is None:
        return _failed(error)
    if token.expired(rules.now_ms):
        return _failed(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    if not token.may_renew(caller):
        return _failed(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    longest = rules.expiry_time_ms
    return _until(token, rules, min(longest, period_ms) if period_ms > 0 else longest)


def expire_token(
    image: MetadataImage, rules: Rules, caller: Principal, password: bytes, period_ms: int
) -> Plan:
    """Let a token expire after this time, or remove it at once: less than 0."""
    token, error = _found(image, rules, password)
    if token is None:
        return _failed(error)
    if not token.may_renew(caller):
        return _failed(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    if period_ms < 0:
        done = {"error_code": ErrorCode.NONE, "expiry_timestamp_ms": rules.now_ms}
        return [_removal(token)], [done]
    if token.expired(rules.now_ms):
        return _failed(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return _until(token, rules, period_ms)


def remove_expired(image: MetadataImage, now_ms: int) -> Plan:
    """Remove the tokens that have expired."""
    return [_removal(token) for token in image.tokens.values() if token.expired(now_ms)], []


def _unusable(image: MetadataImage, rules: Rules) -> ErrorCode | None:
    if not rules.secret:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if image.features.get(METADATA_VERSION, 0) < TOKENS_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION
    return None


def _found(image: MetadataImage, rules: Rules, password: bytes) -> tuple[Token | None, ErrorCode]:
    error = _unusable(image, rules)
    if error is not None:
        return None, error
    return token_with(image.tokens, rules.secret, password), ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def _until(token: Token, rules: Rules, period_ms: int) -> Plan:
    expires_ms = min(token.max_ms, _sum(rules.now_ms, period_ms))
    done = {"error_code": ErrorCode.NONE, "expiry_timestamp_ms": expires_ms}
    return [_record(token._replace(expires_ms=expires_ms))], [done]


def _failed(error: ErrorCode) -> Plan:
    return [], [{"error_code": error}]


def _nothing(error: ErrorCode) -> Result:
    return {"error_code": error, "token_id": "", "hmac": b""}


def _record(token: Token) -> Record:
    return "DelegationTokenRecord", token_fields(token)


def _removal(token: Token) -> Record:
    return "RemoveDelegationTokenRecord", {"token_id": token.id}


def _sum(now_ms: int, period_ms: int) -> int:
    return min(INT64_MAX, now_ms + period_ms)
