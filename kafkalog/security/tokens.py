"""Delegation tokens: an id that everybody may see, and a password that is derived from it.

A client authenticates by SCRAM with the id, the password in base64 and `tokenauth=true`, and acts
as the token's owner.  Source: KIP-48, Kafka's DelegationTokenManager.
"""

import base64
import hmac
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from kafkalog.config.declare import Password
from kafkalog.security.principal import Principal
from kafkalog.security.scram import (
    ITERATIONS_MIN,
    Credential,
    Mechanism,
    TokenLogin,
    credential_of,
)

__all__ = ["Token", "hmac_of", "login_of_token", "token_with"]

KEPT = 1024
HMACS_KEPT = 32_768
"""More than there are tokens (kafkalog.controller.tokens): a password is looked for among all."""


class Token(NamedTuple):
    """A token; its password is not in it."""

    id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    max_ms: int
    """It cannot be renewed beyond this time."""
    expires_ms: int

    def expired(self, now_ms: int) -> bool:
        """True if it is good for nothing any more."""
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def may_renew(self, principal: Principal) -> bool:
        """True if this principal may renew and expire it."""
        return principal in (self.owner, *self.renewers)

    def belongs_to(self, principal: Principal) -> bool:
        """True if this principal may see it without a permission."""
        return principal in (self.owner, self.requester, *self.renewers)


def hmac_of(secret: Password, token_id: str) -> bytes:
    """The password of a token, of 64 bytes."""
    return _hmac(secret.value, token_id)


@lru_cache(maxsize=HMACS_KEPT)
def _hmac(secret: str, token_id: str) -> bytes:
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def token_with(tokens: Mapping[str, Token], secret: Password, password: bytes) -> Token | None:
    """The token with this password; every token is compared, in constant time."""
    found = None
    for token in tokens.values():
        if hmac.compare_digest(hmac_of(secret, token.id), password):
            found = token
    return found


def login_of_token(
    tokens: Mapping[str, Token], secret: Password, mechanism: Mechanism, token_id: str, now_ms: int
) -> TokenLogin | None:
    """A token as a SCRAM credential; None if it is unknown or has expired, or there are no tokens
    because there is no secret."""
    token = tokens.get(token_id)
    if not secret or token is None or token.expired(now_ms):
        return None
    expires_ms = min(token.max_ms, token.expires_ms)
    return TokenLogin(_credential(mechanism, secret, token_id), token.owner, expires_ms)


@lru_cache(maxsize=KEPT)
def _credential(mechanism: Mechanism, secret: Password, token_id: str) -> Credential:
    password = base64.b64encode(hmac_of(secret, token_id)).decode()
    return credential_of(mechanism, password, ITERATIONS_MIN)
