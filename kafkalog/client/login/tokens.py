"""OAUTHBEARER's tokens: from the application, a file, or a token endpoint; kept until they age.

Source: RFC 6749 (client credentials), RFC 7523 (assertions), KIP-768, KIP-1139.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kafkalog import errors
from kafkalog.config.client import ClientConfig
from kafkalog.config.ssl import SslSettings

__all__ = ["TokenSource", "Tokens"]

_logger = logging.getLogger(__name__)
TokenSource: TypeAlias = Callable[[], tuple[str, float]]
"""Returns a token, and when it expires (seconds since 1970)."""
ANSWER_BYTES_MAX = 1 << 16
TOKEN_BYTES_MAX = 1 << 16
_WORTHLESS = "the token endpoint's answer has no access_token"


class Tokens:
    """The token that new connections log in with.  Safe to use from many threads."""

    def __init__(
        self, config: ClientConfig, options: Mapping[str, str], source: TokenSource | None
    ) -> None:
        """`options`: those of sasl.jaas.config.  `source`: gives tokens instead of an endpoint.

        Raises: InvalidSetting.
        """
        self._factor = config.sasl_login_refresh_window_factor
        self._fetch: Callable[[float], tuple[str, float]]
        self._fetch = _fetcher(config, options, source)
        self._lock = threading.Lock()  # guards what follows; held while a token is fetched
        self._token = ""
        self._renew_s = self._expires_s = 0.0

    def token(self, left_s: float) -> str:
        """A token that is valid now; one that has aged is replaced.  `left_s`: how long that may
        take.

        Raises: SaslAuthenticationFailed.
        """
        if not self._lock.acquire(timeout=max(left_s, 0.0)):
            raise errors.SaslAuthenticationFailed(
                f"OAUTHBEARER: another thread got no token in {left_s:.1f} s"
            )
        try:
            now_s = time.time()
            if not self._token or now_s >= self._renew_s:
                self._replace(now_s, left_s)
            return self._token
        finally:
            self._lock.release()

    def _replace(self, now_s: float, left_s: float) -> None:
        try:
            token, expires_s = self._fetch(left_s)
            if len(token) > TOKEN_BYTES_MAX or expires_s <= now_s:
                what = "expired" if expires_s <= now_s else "larger than 64 KiB"
                raise errors.SaslAuthenticationFailed(f"OAUTHBEARER: the new token is {what}")
        except errors.SaslAuthenticationFailed as problem:
            if time.time() >= self._expires_s:
                raise
            _logger.warning("%s; the last token is used until it expires", problem)
            return
        self._token, self._expires_s = token, expires_s
        self._renew_s = now_s + (expires_s - now_s) * self._factor


def _fetcher(
    config: ClientConfig, options: Mapping[str, str], source: TokenSource | None
) -> Callable[[float], tuple[str, float]]:
    url = config.sasl_oauthbearer_token_endpoint_url
    if source is not None:
        given = source
        return lambda _: _called(given)
    if url.startswith("file://"):
        path = url.removeprefix("file://")
        return lambda _: _with_expiry(_file(path, "sasl.oauthbearer.token.endpoint.url"))
    if not url.startswith(("https://", "http://")):
        raise errors.InvalidSetting(
            "sasl.oauthbearer.token.endpoint.url: wanted https://…, http://… or file://…, or the "
            "argument oauth_token"
        )
    return _Endpoint(url, config, options).fetch


def _called(source: TokenSource) -> tuple[str, float]:
    try:
        token, expires_s = source()
        if not isinstance(token, str):
            raise TypeError
        return token, float(expires_s)
    except errors.SaslAuthenticationFailed:
        raise
    except Exception as problem:  # of the application; its message may quote a secret
        raise errors.SaslAuthenticationFailed(
            f"OAUTHBEARER: oauth_token failed with {type(problem).__name__}; wanted a token and "
            "when it expires, in seconds since 1970"
        ) from problem


def _file(path: str, name: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read(TOKEN_BYTES_MAX + 1).strip()
    except OSError as problem:
        why = problem.strerror
    except UnicodeDecodeError:
        why = "found other than ASCII, wanted a token"
    raise errors.SaslAuthenticationFailed(f"OAUTHBEARER: {name}: {path}: {why}")


def _with_expiry(token: str, lasts_s: object = None) -> tuple[str, float]:
    """The token, and when it expires: by itself if it is a JWT, else by `lasts_s`."""
    try:
        claims = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
        return token, float(found)
    except (ValueError, LookupError, TypeError):
        pass
    if isinstance(lasts_s, (int, float)) and lasts_s > 0:
        return token, time.time() + lasts_s
    raise errors.SaslAuthenticationFailed(
        "OAUTHBEARER: the token does not say when it expires (claim exp)"
    )


class _Passing(Exception):
    """The endpoint may answer later."""


class _Endpoint:
    """A token endpoint."""

    def __init__(self, url: str, config: ClientConfig, options: Mapping[str, str]) -> None:
        """Raises: InvalidSetting."""
        self._url = url
        self._config = config
        self._assertion = config.sasl_oauthbearer_assertion_file
        self._scope = config.sasl_oauthbearer_scope or options.get("scope", "")
        name = config.sasl_oauthbearer_client_credentials_client_id or options.get("clientId", "")
        secret = config.sasl_oauthbearer_client_credentials_client_secret.value
        secret = secret or options.get("clientSecret", "")
        if not self._assertion and not (name and secret):
            raise errors.InvalidSetting(
                "sasl.oauthbearer.client.credentials.client.id and .client.secret: wanted both, or "
                "clientId and clientSecret in sasl.jaas.config"
            )
        self._header = "" if self._assertion else self._basic(name, secret)
        self._trust = SslSettings({k: v for k, v in options.items() if k.startswith("ssl.")})

    def _basic(self, name: str, secret: str) -> str:
        if self._config.sasl_oauthbearer_header_urlencode:
            from urllib.parse import quote_plus

            name, secret = quote_plus(name), quote_plus(secret)
        return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()

    def fetch(self, left_s: float) -> tuple[str, float]:
        """A new token; an endpoint that does not answer, or fails, is asked again for a while.

        Raises: SaslAuthenticationFailed.
        """
        config = self._config
        patience_s = min(left_s, config.sasl_login_retry_backoff_max_ms / 1000)
        until_s, pause_s = time.monotonic() + left_s, config.sasl_login_retry_backoff_ms / 1000
        last_s = time.monotonic() + patience_s
        pause = threading.Event()
        while True:
            read_s = min(config.sasl_login_read_timeout_ms / 1000, until_s - time.monotonic())
            try:
                return self._ask(max(read_s, 0.001))
            except _Passing as problem:
                if time.monotonic() + pause_s > last_s:
                    raise errors.SaslAuthenticationFailed(
                        f"OAUTHBEARER: no token from {self._url}: {problem}"
                    ) from None
            pause.wait(pause_s)
            pause_s *= 2

    def _ask(self, timeout_s: float) -> tuple[str, float]:
        """Raises: _Passing; SaslAuthenticationFailed."""
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.parse import urlencode
        from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

        class Stay(HTTPRedirectHandler):
            """The credentials go to this endpoint, and nowhere else."""

            def redirect_request(self, *_: Any) -> None:
                return None

        fields = {"grant_type": "client_credentials"}
        if self._assertion:
            fields["grant_type"] = "urn:ietf:params:oauth:grant-type:jwt-bearer"
            fields["assertion"] = _file(self._assertion, "sasl.oauthbearer.assertion.file")
        if self._scope:
            fields["scope"] = self._scope
        headers = {"Accept": "application/json", "Authorization": self._header}
        headers = {name: value for name, value in headers.items() if value}
        request = Request(self._url, urlencode(fields).encode(), headers)
        handlers: list[Any] = [Stay]
        if self._url.startswith("https:"):
            handlers.append(HTTPSHandler(context=self._context()))
        try:
            with build_opener(*handlers).open(request, timeout=timeout_s) as answer:
                return _token_of(answer.read(ANSWER_BYTES_MAX))
        except HTTPError as problem:
            problem.close()
            if problem.code == 429 or problem.code >= 500:
                raise _Passing(f"HTTP status {problem.code}") from None
            raise errors.SaslAuthenticationFailed(
                f"OAUTHBEARER: {self._url} refused: HTTP status {problem.code}"
            ) from None
        except (OSError, HTTPException) as problem:
            raise _Passing(str(getattr(problem, "reason", problem))) from None

    def _context(self) -> Any:
        import ssl

        if not self._trust._explicit():
            return ssl.create_default_context()
        from kafkalog.client.login.tls import context_of

        context = context_of(self._trust)
        context.sslsocket_class = ssl.SSLSocket
        return context


def _token_of(answer: bytes) -> tuple[str, float]:
    try:
        found = json.loads(answer)
    except ValueError:
        found = None
    token = found.get("access_token") if isinstance(found, dict) else None
    if not isinstance(token, str) or not token:
        raise errors.SaslAuthenticationFailed(f"OAUTHBEARER: {_WORTHLESS}")
    return _with_expiry(token, found.get("expires_in"))
