"""Create-, Renew-, Expire- and DescribeDelegationToken.

The owner and the renewers of a token need no permission.  A client that itself authenticated by a
token, or not at all, gets no answer about tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from kafkalog.config.server import ServerConfig
from kafkalog.controller import tokens
from kafkalog.directory.manager import Manager
from kafkalog.disk.layout import random_topic_id, uuid_text
from kafkalog.metadata.image import MetadataImage
from kafkalog.metadata.source import Planned
from kafkalog.security.permissions import Kind, Operation
from kafkalog.security.principal import ANONYMOUS, Principal
from kafkalog.security.tokens import Token, hmac_of
from kafkalog.server.node import Node, Serving
from kafkalog.server.request import Request
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["create_token", "describe_tokens", "expire_token", "expire_tokens", "renew_token"]

NO_TIME = -1


class Protecting(Protocol):
    """Metadata whose tokens a node changes itself."""

    @property
    def image(self) -> MetadataImage:
        """As Metadata.image."""

    def alter(self, planned: Callable[[MetadataImage], Planned]) -> Sequence[Any]:
        """As Changeable.alter."""


def _at_once(work: Callable[[], None]) -> None:
    work()


def create_token(node: Node, request: Request) -> Mapping[str, Any] | None:
    """A token of the caller, or (with CREATE_TOKENS on that user) of another principal."""
    body, caller = request.body, _caller(node, request)
    owner = caller
    if body.owner_principal_name:
        owner = Principal(body.owner_principal_type or "", body.owner_principal_name)
    renewers = [Principal(one.principal_type, one.principal_name) for one in body.renewers]
    error = ErrorCode.NONE
    if not _allowed(caller):
        error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    elif owner != caller and not node.admission.allows(
        request.peer, Operation.CREATE_TOKENS, Kind.USER, str(owner)
    ):
        error = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if error:
        return {
            "error_code": error, "principal_type": owner.type, "principal_name": owner.name,
            "token_requester_principal_type": caller.type,
            "token_requester_principal_name": caller.name,
            "issue_timestamp_ms": NO_TIME, "expiry_timestamp_ms": NO_TIME,
            "max_timestamp_ms": NO_TIME, "token_id": "", "hmac": b"",
        }  # fmt: skip
    rules, new = _rules(node), uuid_text(random_topic_id())
    given = rules, new, owner, caller, renewers, body.max_lifetime_ms
    return node.controller_apis.change(request, lambda image: tokens.create_token(image, *given))


def renew_token(node: Node, request: Request) -> Mapping[str, Any] | None:
    """Let a token expire later."""
    return _changed(node, request, tokens.renew_token, request.body.renew_period_ms)


def expire_token(node: Node, request: Request) -> Mapping[str, Any] | None:
    """Let a token expire earlier, or at once."""
    return _changed(node, request, tokens.expire_token, request.body.expiry_time_period_ms)


def _changed(node: Node, request: Request, change: Any, period_ms: int) -> Mapping[str, Any] | None:
    caller = _caller(node, request)
    if not _allowed(caller):
        error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return {"error_code": error, "expiry_timestamp_ms": NO_TIME}
    given = _rules(node), caller, bytes(request.body.hmac), period_ms
    return node.controller_apis.change(request, lambda image: change(image, *given))


def describe_tokens(node: Serving, request: Request) -> dict[str, Any]:
    """The caller's tokens, and those that it may describe, with their passwords."""
    caller, secret = _caller(node, request), node.config.delegation_token_secret_key
    if not _allowed(caller):
        return {"error_code": ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "tokens": []}
    if not secret:
        return {"error_code": ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "tokens": []}
    asked = request.body.owners
    owners = None if asked is None else {Principal(o.principal_type, o.principal_name)
                                         for o in asked}  # fmt: skip
    allows = partial(node.admission.allows, request.peer)

    def shown(token: Token) -> bool:
        if owners is not None and not any(map(token.belongs_to, owners)):
            return False
        return (
            token.belongs_to(caller)
            or allows(Operation.DESCRIBE, Kind.DELEGATION_TOKEN, token.id)
            or allows(Operation.DESCRIBE_TOKENS, Kind.USER, str(token.owner))
        )

    found = [token for token in node.image.tokens.values() if shown(token)]
    return {"tokens": [{**_row(token), "hmac": hmac_of(secret, token.id)} for token in found]}


def _row(token: Token) -> dict[str, Any]:
    return {
        "principal_type": token.owner.type,
        "principal_name": token.owner.name,
        "token_requester_principal_type": token.requester.type,
        "token_requester_principal_name": token.requester.name,
        "issue_timestamp": token.issued_ms,
        "expiry_timestamp": token.expires_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.id,
        "renewers": [
            {"principal_type": one.type, "principal_name": one.name} for one in token.renewers
        ],
    }


def _caller(node: Serving, request: Request) -> Principal:
    return node.admission.principal(request.peer.principal)


def _allowed(caller: Principal) -> bool:
    return caller != ANONYMOUS and not caller.by_token


def _rules(node: Node) -> tokens.Rules:
    config = node.config
    return tokens.Rules(
        config.delegation_token_secret_key,
        config.delegation_token_max_lifetime_ms,
        config.delegation_token_expiry_time_ms,
        node.clock.now_ms(),
    )


def expire_tokens(
    manager: Manager, metadata: Protecting, config: ServerConfig,
    run: Callable[[Callable[[], None]], None] = _at_once,
) -> None:  # fmt: skip
    """Remove expired tokens, as often as delegation.token.expiry.check.interval.ms says.  `run`:
    calls its argument now, later, or not at all."""

    def remove() -> None:
        now_ms = manager.clock.now_ms()
        if any(one.expired(now_ms) for one in metadata.image.tokens.values()):
            metadata.alter(partial(tokens.remove_expired, now_ms=now_ms))

    period_ms = config.delegation_token_expiry_check_interval_ms
    manager.every("delegation tokens", lambda: run(remove), period_ms)
