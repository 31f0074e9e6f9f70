"""OAUTHBEARER, the broker's side: a token in one message, and the rules about its claims.

Source: RFC 7628, RFC 7519; KIP-255, KIP-768; Kafka's BrokerJwtValidator.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafkalog.errors import SaslAuthenticationFailed

__all__ = ["OAuthExchange", "Rules", "Token", "TokenRefused", "checked_claims", "unsigned_claims"]

TOKEN_BYTES_MAX = 65_536
_FIRST = re.compile(
    r"n,(?:a=(?P<authorization>(?:[^\0,=]|=2C|=3D)+))?,"
    r"\x01(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\r\n\t]+\x01)*)\x01"
)
_BEARER = re.compile(r"bearer +(?P<token>[-A-Za-z0-9._~+/]+=*)", re.IGNORECASE)
_FAILED = b'{"status":"invalid_token"}'


class TokenRefused(Exception):
    """A token is not valid, and why; without a part of it."""


class Token(NamedTuple):
    """The claims of a valid token that matter here."""

    user: str
    expires_ms: int
    """Since 1970 UTC."""


class Rules(NamedTuple):
    """The settings about claims."""

    sub_claim: str = "sub"
    scope_claim: str = "scope"
    audiences: tuple[str, ...] = ()
    """Empty: any."""
    issuer: str = ""
    """Empty: any."""
    skew_ms: int = 0


def checked_claims(claims: Mapping[str, Any], rules: Rules, now_ms: int) -> Token:
    """The claims of a token whose signature is valid.

    Raises: TokenRefused.
    """
    expires_ms, begun_ms = _time(claims, "exp"), _time(claims, "iat")
    before_ms = _time(claims, "nbf") if "nbf" in claims else begun_ms
    if expires_ms + rules.skew_ms <= now_ms:
        raise TokenRefused("it has expired")
    if before_ms - rules.skew_ms > now_ms:
        raise TokenRefused("it is not valid yet")
    if expires_ms < begun_ms:
        raise TokenRefused("it expired before it was issued")
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise TokenRefused("its issuer is another one")
    found = claims.get("aud")
    audiences = {found} if isinstance(found, str) else set(_texts(found or [], "aud"))
    if rules.audiences and audiences.isdisjoint(rules.audiences):
        raise TokenRefused("it is for another audience")
    scope = claims.get(rules.scope_claim, "")
    if not isinstance(scope, str):
        _texts(scope, "scope")
    user = claims.get(rules.sub_claim)
    if not isinstance(user, str) or not user.strip():
        raise TokenRefused("it names no principal")
    return Token(user, expires_ms)


def _time(claims: Mapping[str, Any], name: str) -> int:
    found = claims.get(name)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found < 1e12:
        raise TokenRefused(f"its claim {name} is no time")
    return int(found * 1000)


def _texts(found: Any, name: str) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise TokenRefused(f"its claim {name} is no text, and no list of texts")
    return found


def unsigned_claims(token: str) -> dict[str, Any]:
    """The claims of a token without a signature (alg none), which anybody can make.

    Raises: TokenRefused.
    """
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        raise TokenRefused("it has a signature, or is no token")
    head, claims = (_object(part) for part in parts[:2])
    if head.get("alg") != "none":
        raise TokenRefused("its algorithm is not none")
    return claims


def _object(part: str) -> dict[str, Any]:
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise TokenRefused("it is no token")
    return found


class OAuthExchange:
    """One exchange: a token in, and an empty answer; or an error out, and its acknowledgement in.
    One thread only."""

    def __init__(self, validate: Callable[[str], Token]) -> None:
        """`validate`: raises TokenRefused."""
        self._validate = validate
        self._failed = False
        self.done = False
        self.user = ""
        self.expires_ms: int | None = None
        """When the token expires, since 1970 UTC; None: no token yet."""
        self.problem = ""
        """Why the token was refused, for the broker's log."""

    def step(self, message: bytes) -> bytes:
        """Take the client's next message.

        Raises: SaslAuthenticationFailed.
        """
        if self._failed or self.done:
            raise _refused(self.problem)
        try:
            found = self._token(message)
        except TokenRefused as problem:
            self.problem, self._failed = str(problem), True
            return _FAILED
        self.user, self.expires_ms, self.done = found.user, found.expires_ms, True
        return b""

    def _token(self, message: bytes) -> Token:
        match = None
        if len(message) <= TOKEN_BYTES_MAX:
            match = _FIRST.fullmatch(message.decode("utf-8", "replace"))
        pairs = (pair.partition("=") for pair in (match["pairs"] if match else "").split("\x01"))
        bearer = _BEARER.fullmatch({name: value for name, _, value in pairs}.get("auth", ""))
        if match is None or bearer is None:
            raise _refused("the message is not that of OAUTHBEARER")
        found = self._validate(bearer["token"])
        wanted = (match["authorization"] or "").replace("=2C", ",").replace("=3D", "=")
        if wanted not in ("", found.user):
            raise SaslAuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        return found

    def __repr__(self) -> str:
        return f"OAuthExchange(done={self.done})"


def _refused(problem: str) -> SaslAuthenticationFailed:
    return SaslAuthenticationFailed(
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism OAUTHBEARER: {problem}"
    )
