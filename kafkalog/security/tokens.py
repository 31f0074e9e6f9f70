"""Delegation tokens: an id that everybody may see, and a password that is derived from it.

A client authenticates by SCRAM with the id, the password in base64 and `tokenauth=true`, and acts
as the token's owner.  Source: KIP-48, Kafka's DelegationTokenManager.
"""

import base64
import hmac
import secrets
import threading
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
"""Credentials; and removed tokens whose passwords are still known."""


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
    return hmac.digest(secret.value.encode(), token_id.encode(), "sha512")


class _Index:
    """Finds tokens by their passwords, of which it has digests with a random key: the time of a
    search says nothing about a password.  Safe to use from many threads."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()  # guards what follows
        self._ids: dict[bytes, str] = {}
        self._known: set[str] = set()

    def _digest(self, password: bytes) -> bytes:
        return hmac.digest(self._key, password, "sha256")

    def find(self, tokens: Mapping[str, Token], secret: Password, password: bytes) -> Token | None:
        """The token with this password: the work of one digest, and two for each token that is
        new since the last search."""
        with self._lock:
            if len(self._known) > 2 * len(tokens) + KEPT:  # most of them were removed
                self._ids.clear()
                self._known.clear()
            for token_id in [one for one in tokens if one not in self._known]:
                self._ids[self._digest(hmac_of(secret, token_id))] = token_id
                self._known.add(token_id)
            return tokens.get(self._ids.get(self._digest(password), ""))


@lru_cache(maxsize=4)
def _index(_secret: Password) -> _Index:
    return _Index()


def token_with(tokens: Mapping[str, Token], secret: Password, password: bytes) -> Token | None:
    """The token with this password."""
    return _index(secret).find(tokens, secret, password)


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
