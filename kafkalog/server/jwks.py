"""The keys that verify tokens: a JSON Web Key Set in a file or at an http(s) URL."""

import json
import threading
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from kafkalog.clock import Clock
from kafkalog.errors import InvalidSetting, MissingPackage
from kafkalog.logs.limit import limited
from kafkalog.security.oauth import Rules, Token, TokenRefused, checked_claims

__all__ = ["Jwks"]

_logger = limited(__name__)

BYTES_MAX = 1 << 20
KEYS_MAX = 100
FETCH_S = 10
AGAIN_MS_MIN = 10_000
"""Least time between two reads, however many tokens name unknown keys."""
_UNREADABLE = (OSError, ValueError, RecursionError, HTTPException)
_ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""By type of key.  A shared secret (HS256) or no signature is never accepted."""


class _Key(NamedTuple):
    """A public key, and what it may verify."""

    key: Any
    algorithms: tuple[str, ...]


class Jwks:
    """Keys that are read again in the background.  Safe to use from many threads."""

    def __init__(self, url: str, refresh_ms: int, rules: Rules, clock: Clock) -> None:
        """Read them.

        Raises: InvalidSetting: they cannot be read; MissingPackage: PyJWT.
        """
        try:
            import jwt
        except ImportError:
            raise MissingPackage(
                'SASL OAUTHBEARER needs PyJWT: pip install "kafkalog[secure]"'
            ) from None
        self._jwt = jwt
        self._url, self._refresh_ms = url, refresh_ms
        self._rules, self._clock = rules, clock
        self._lock = threading.Lock()  # guards what follows
        self._reading = False
        self._read_ms = self._now_ms()
        try:
            self._keys = self._read()
        except _UNREADABLE as problem:
            raise InvalidSetting(
                f"sasl.oauthbearer.jwks.endpoint.url: cannot read keys: {problem}"
            ) from None

    def validate(self, token: str) -> Token:
        """The claims of a token that one of the keys has signed.

        Raises: TokenRefused.
        """
        try:
            head = self._jwt.get_unverified_header(token)
            if "crit" in head:
                raise TokenRefused("it has an extension that is not known")
            key = self._key(head.get("kid"))
            options: Any = {"verify_signature": True}
            options |= dict.fromkeys(
                ("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss",
                 "verify_sub", "verify_jti"), False,
            )  # fmt: skip
            claims = self._jwt.decode(
                token, key.key, algorithms=list(key.algorithms),
                options=options,
            )  # fmt: skip
        except (self._jwt.PyJWTError, ValueError, RecursionError) as problem:
            raise TokenRefused(f"its signature is not valid ({type(problem).__name__})") from None
        return checked_claims(claims, self._rules, self._clock.now_ms())

    # ---- the keys ------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return round(self._clock.monotonic_s() * 1000)

    def _key(self, name: Any) -> _Key:
        with self._lock:
            keys = self._keys
            found = keys.get(name) if isinstance(name, str) else None
            if name is None and len(keys) == 1:
                found = next(iter(keys.values()))
            age_ms = self._now_ms() - self._read_ms
            due = age_ms >= self._refresh_ms or (found is None and age_ms >= AGAIN_MS_MIN)
            begins = due and not self._reading
            self._reading |= begins
        if begins:
            threading.Thread(target=self._again, name="kafkalog jwks", daemon=True).start()
        if found is None:
            raise TokenRefused("its key is not known")
        return found

    def _again(self) -> None:
        keys = None
        try:
            keys = self._read()
        except _UNREADABLE as problem:
            _logger.warning("keys of tokens cannot be read, the old ones stay: %s", problem)
        finally:
            with self._lock:
                self._keys = self._keys if keys is None else keys
                self._read_ms, self._reading = self._now_ms(), False

    def _read(self) -> Mapping[str, _Key]:
        """The keys, by name.

        Raises: _UNREADABLE.
        """
        parts = urlsplit(self._url)
        if parts.scheme == "file":
            with open(parts.path, "rb") as file:
                data = file.read(BYTES_MAX + 1)
        elif parts.scheme in ("http", "https"):
            with urllib.request.urlopen(self._url, timeout=FETCH_S) as answer:
                data = answer.read(BYTES_MAX + 1)
        else:
            raise ValueError("wanted a URL that begins with https://, http:// or file:///")
        if len(data) > BYTES_MAX:
            raise ValueError(f"more than {BYTES_MAX} bytes")
        found = json.loads(data)
        listed = found.get("keys") if isinstance(found, dict) else None
        if not isinstance(listed, list) or len(listed) > KEYS_MAX:
            raise ValueError(f"no JSON Web Key Set of at most {KEYS_MAX} keys")
        keys = {str(one.get("kid", "")): key for one in listed
                if isinstance(one, dict) and (key := self._parsed(one)) is not None}  # fmt: skip
        if not keys:
            raise ValueError("no public key that can verify a signature")
        return keys

    def _parsed(self, given: dict[str, Any]) -> _Key | None:
        allowed = _ALGORITHMS.get(str(given.get("kty")), ())
        named = given.get("alg")
        algorithms = tuple(one for one in allowed if named in (None, one))
        if not algorithms or given.get("use", "sig") != "sig" or "d" in given:
            return None
        try:
            return _Key(self._jwt.PyJWK(given).key, algorithms)
        except self._jwt.PyJWTError:
            return None
